"""`rounddiag ask FILE --model MODEL`: what a model would write, and where it looked.

With `--json` it prints one JSON object on one line: `file`, `model`, `text`, `notes`,
`seconds`, and the rows of the frames of `rounddiag.ask`: `alternatives`, `sight`,
`tiles`, `rounds`, `divergences`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rounddiag.batch import Batch
from rounddiag.cli.terminal import json_line
from rounddiag.loaders.output import check_target
from rounddiag.proof import SAVED_ANSWER, ask

_FRAMES = ("alternatives", "sight", "tiles", "rounds", "divergences")


def run_ask(
    batch: Batch,
    file: str,
    model: str,
    *,
    at: Sequence[str] | None,
    output: str | None,
    as_json: bool,
) -> str:
    """Ask a model about places of a batch; return what is printed."""
    if output is not None:
        check_target(Path(output), SAVED_ANSWER)  # before it is computed
    answer = ask(batch, model, at=at)
    if output is not None:
        answer.save(output)
    if not as_json:
        return repr(answer)
    facts = {"file": file, "model": answer.model, "text": repr(answer)}
    rows = {name: getattr(answer, name).to_dict("records") for name in _FRAMES}
    more = {"notes": answer.notes, "seconds": answer.seconds}
    return json_line({**facts, **more, **rows})
