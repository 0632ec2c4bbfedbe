"""What statistics are given that is neither a batch nor a frame."""

from __future__ import annotations

import re

import pytest

from rounddiag import stats
from rounddiag.errors import FrameError

FUNCTIONS = (
    *("conditional_means", "perplexities", "round_summary", "standardise"),
    *("survivors", "tail_shares"),
)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize(("data", "kind"), [("step_40.parquet", "str"), (3, "int")])
def test_a_path_or_a_number_is_an_error(name: str, data: object, kind: str) -> None:
    message = (
        f"expected a Batch or a token frame; found a {kind}. Open a file with"
        " `rounddiag.load(path)` first."
    )
    with pytest.raises(FrameError, match=f"^{re.escape(message)}$"):
        getattr(stats, name)(data)
