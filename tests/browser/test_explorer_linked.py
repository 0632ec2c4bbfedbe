"""Explorers as widgets among others, in JupyterLab."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from tests.browser.lab import LabNotebook
from tests.browser.linked import CELLS, check_link


def test_linked_explorers_go_to_the_same_places(
    next_cells: Callable[..., AbstractContextManager[LabNotebook]],
) -> None:
    with next_cells("linked.ipynb", *CELLS) as lab:
        lab.run_all()
        assert lab.errors == []
        check_link(lab)
        lab.screenshot("explorer_linked")
        assert lab.console_errors == []
