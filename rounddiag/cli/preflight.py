"""`rounddiag preflight MODEL --server URL`: a model and a server compared, for CI.

With `--json` it prints one JSON object on one line. Its keys:

- `model`, `server`, `passed`, `fail_on`, `failed`: `failed` are the checks that fail.
- `checks`: `check`, `result`, `value`, `limit`, `where`, `why`; see
  `rounddiag.Preflight`.
- `verdict`, `text`: the diagnosis of the episodes.
- `proof`: with `--prove`, where something fails: `verdict`, `side`, `cause`; else null.
- `num_sent`, `seconds`, `episodes`: the pictures that were sent, the time, and the file
  that was written.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rounddiag import preflight
from rounddiag.cli.terminal import json_line
from rounddiag.findings.verdict import Verdict, is_at_least
from rounddiag.loaders import save
from rounddiag.loaders.output import check_target
from rounddiag.loaders.parquet.writer import BATCH_FILE

_PROOF = ("verdict", "side", "cause")


def run_preflight(
    model: str,
    server: str,
    *,
    output: str | None,
    fail_on: Verdict,
    as_json: bool,
    **options: Any,  # noqa: ANN401 of `preflight`
) -> tuple[str, bool]:
    """Compare a model and a server; return what is printed, and whether it fails."""
    if output is not None:
        check_target(Path(output), BATCH_FILE)  # before anything is sampled
    result = preflight(model, server, **options)
    if output is not None:
        save(result.batch, output)
    verdict = result.diagnosis.verdict
    failed = bool(result.failed) or is_at_least(verdict, fail_on)
    if as_json:
        facts = {
            "model": model,
            "server": result.server,
            "passed": not (failed or result.untested),
            "fail_on": fail_on,
            "failed": result.failed,
            "checks": result.frame.to_dict("records"),
            "verdict": verdict,
            "text": result.diagnosis.text,
            "proof": result.proof
            and {name: getattr(result.proof, name) for name in _PROOF},
            "num_sent": result.num_sent,
            "seconds": result.seconds,
            "episodes": output,
        }
        return json_line(facts), failed
    text = result.describe(fail_on)
    if output is not None:
        text += f"\nepisodes: {output} (see `rounddiag lab {output}`)"
    return text, failed
