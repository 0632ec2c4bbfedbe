"""`rounddiag prove FILE --model MODEL`: which engine was wrong, as text or JSON.

With `--json` it prints one JSON object: `file`, `verdict`, `side`, `cause`, `causes`,
`text`, `next_step`, `not_tested`, `seconds`, and `hypotheses`, the rows of
`Proof.frame`. Numbers that are not finite are null.
"""

from __future__ import annotations

from rounddiag.cli.terminal import json_line
from rounddiag.proof.proof import Proof

_KEYS = ("verdict", "side", "cause", "causes", "next_step", "not_tested", "seconds")


def proof_json(proof: Proof, file: str) -> str:
    """Return a proof as one line of JSON."""
    facts = {name: getattr(proof, name) for name in _KEYS}
    rows = proof.frame.to_dict("records")
    return json_line({"file": file, **facts, "text": repr(proof), "hypotheses": rows})
