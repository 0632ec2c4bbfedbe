"""The call that brings an explorer back."""

from __future__ import annotations

from pathlib import Path

from rounddiag import explore
from tests.batches import hand_batch

FILE = Path("sample_data/image_window.parquet")


def test_code_that_is_run_shows_the_same() -> None:
    first = explore(FILE, metric="k3", threshold=0.25)
    first.state = {
        "filter": {"text": 'it\'s "<b>"\n\u202e', "rounds": [0, 2]},
        "cells": {"samples": [1, 2], "rounds": [0, 1]},
        "layers": {"quantiles": True},
    }
    *lines, call = first.to_code().split("\n")
    names: dict[str, object] = {}
    exec("\n".join([*lines, f"found = {call}"]), names)  # noqa: S102 it is to be run
    found = names["found"]
    assert isinstance(found, type(first))
    assert found.state == first.state
    assert found.batch.meta["source"] == first.batch.meta["source"]


def test_a_batch_that_was_no_file_is_called_so() -> None:
    explorer = explore(hand_batch())
    assert explorer.to_code() == (
        "import rounddiag as rd\n\n"
        "rd.explore(batch, current={'sample': 0, 'round': 0, 'token': 0})"
    )
