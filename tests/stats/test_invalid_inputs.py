"""What statistics are given that is neither a batch nor a frame."""

from __future__ import annotations

import re

import pytest

from rounddiag import stats
from rounddiag.errors import FrameError

OF_SAMPLES = ("correlations", "groups")
OF_TOKENS = (
    *(
        "cohorts",
        "conditional",
        "perplexities",
        "round_summary",
        "standardised",
        "survivors",
    ),
    *("tails", "truncation"),
)


@pytest.mark.parametrize("name", [*OF_TOKENS, *OF_SAMPLES])
@pytest.mark.parametrize(("data", "kind"), [("step_40.parquet", "str"), (3, "int")])
def test_a_path_or_a_number_is_an_error(name: str, data: object, kind: str) -> None:
    frame = "sample" if name in OF_SAMPLES else "token"
    message = (
        f"expected a Batch or a {frame} frame; found a {kind}. Open a file with"
        " `rounddiag.load(path)` first."
    )
    with pytest.raises(FrameError, match=f"^{re.escape(message)}$"):
        getattr(stats, name)(data)
