"""What statistics are given that is neither a batch nor a frame."""

from __future__ import annotations

import re

import pytest

from rounddiag import stats
from rounddiag.errors import FrameError, LoadError

FUNCTIONS = (
    *("conditional_means", "perplexities", "round_summary", "standardise"),
    *("survivors", "tail_shares"),
)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_number_or_a_path_of_no_file_is_an_error(name: str) -> None:
    message = (
        "expected a Batch or a DataFrame; found a int. Open a file with"
        " `rounddiag.load(path)` first; of a run, pass a step: `run.batch(step)`."
    )
    with pytest.raises(FrameError, match=f"^{re.escape(message)}$"):
        getattr(stats, name)(3)
    with pytest.raises(LoadError, match="expected a file, a folder or a glob"):
        getattr(stats, name)("step_40.parquet")
