"""`rounddiag prove FILE --model MODEL`: which engine was wrong, as text or JSON.

With `--json` it prints one JSON object: `file`, `verdict`, `side`, `cause`, `causes`,
`text`, `next_step`, `not_tested`, `seconds`, and `hypotheses`, the rows of
`Proof.frame`. Numbers that are not finite are null.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from rounddiag.batch import Batch
from rounddiag.cli.terminal import to_json
from rounddiag.proof import prove


def run_prove(  # noqa: PLR0913 options of a command
    batch: Batch,
    file: str,
    model: str,
    *,
    hypotheses: Sequence[str] | None,
    checkpoints: Mapping[str, str],
    adapters: Mapping[str, str],
    budget_s: float,
    as_json: bool,
    output: Path | None = None,
) -> str:
    """Prove, and return what to print."""
    proof = prove(
        batch,
        model,
        hypotheses=hypotheses,
        checkpoints=checkpoints,
        adapters=adapters,
        budget_s=budget_s,
    )
    if output is not None:
        proof.save(output)
    if not as_json:
        return repr(proof)
    facts = {
        "file": file,
        "verdict": proof.verdict,
        "side": proof.side,
        "cause": proof.cause,
        "causes": list(proof.causes),
        "text": repr(proof),
        "next_step": proof.next_step,
        "not_tested": dict(proof.not_tested),
        "seconds": proof.seconds,
        "hypotheses": proof.frame.to_dict("records"),
    }
    return to_json(facts)
