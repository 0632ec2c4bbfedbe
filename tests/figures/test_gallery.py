"""Every figure has an entry in the gallery: a word and a picture."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest

import rounddiag

GALLERY = Path(__file__).parents[2] / "notebooks" / "07_gallery.ipynb"
CELLS = json.loads(GALLERY.read_bytes())["cells"]
FIGURES = ["token_text"] + [
    name
    for name in dir(rounddiag)
    if name.startswith("plot_")
    # Notebooks 04, 05 and 06 have them.
    and name
    not in ("plot_corrections", "plot_legs", "plot_proof", "plot_run", "plot_sight")
]


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_has_a_word_and_a_picture_in_the_gallery(name: str) -> None:
    call = f"rd.{name}("
    entries = [
        pair
        for pair in pairwise(CELLS)
        if pair[1]["cell_type"] == "code" and call in "".join(pair[1]["source"])
    ]
    assert entries
    for word, entry in entries:
        assert word["cell_type"] == "markdown"
        assert "ealthy" in "".join(word["source"])
        # One of the batch with a fault, after that of a healthy one where it has one.
        assert len(entry["outputs"]) == "".join(entry["source"]).count(call)
        for output in entry["outputs"]:
            assert "image/png" in output["data"]
            assert "text/html" not in output["data"]  # pages prefer it to a picture


def test_no_notebook_is_larger_than_a_megabyte() -> None:
    sizes = {one.name: one.stat().st_size for one in GALLERY.parent.glob("*.ipynb")}
    assert len(sizes) == 7
    assert [name for name, size in sizes.items() if size > 1_000_000] == []
