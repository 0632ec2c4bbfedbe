"""Formats are found: those of our modules, and those of other packages."""

from __future__ import annotations

from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
import torch

from rounddiag.batch import Batch
from rounddiag.errors import LoadError
from rounddiag.loaders import detection, load
from rounddiag.loaders.format import Format
from rounddiag.loaders.source import Source
from rounddiag.loaders.tables import as_table, batch_from_table
from tests.loaders.table_cases import COLUMNS, check


def read_other(root: Any, source: Source) -> Batch:
    table = as_table(root).rename({"response_ids": "their_ids"})
    batch = batch_from_table(table, source)
    # Theirs need not say where a batch is from.
    meta = {name: value for name, value in batch.meta.items() if name != "source"}
    return replace(batch, meta=meta)


OTHER = Format(
    name="theirs",
    framework="another trainer",
    files=("*.theirs",),
    keys=("their_ids", "old_log_probs", "rollout_log_probs"),
    read=read_other,
)


def install(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("theirs", value, "rounddiag.formats")
    monkeypatch.setattr(
        detection, "entry_points", lambda group: [point] * (group == point.group)
    )


def test_a_format_of_another_package_is_opened(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    install("tests.loaders.test_formats:OTHER", monkeypatch)
    monkeypatch.setattr(detection, "ALL", detection.find_all())
    theirs = {"their_ids" if k == "response_ids" else k: v for k, v in COLUMNS.items()}
    check(load(theirs))
    assert "theirs" in detection.formats()["format"].tolist()
    path = tmp_path / "step.theirs"
    torch.save(theirs, path)
    assert load(path).meta["source"] == str(path)


def test_an_entry_point_of_something_else_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    install("tests.loaders.test_formats:COLUMNS", monkeypatch)
    message = (
        "`rounddiag.formats`: expected an entry point that is a"
        " `rounddiag.loaders.format.Format`; found tests.loaders.test_formats:COLUMNS,"
        " a value of type dict. Correct the package that has it, or uninstall it."
    )
    with pytest.raises(LoadError) as caught:
        detection.find_all()
    assert str(caught.value) == message


def test_formats_that_need_more_keys_come_first_and_plain_tables_last() -> None:
    found = [form.name for form in detection.FORMATS]

    assert found[:3] == [
        "rounddiag's Parquet",
        "rounddiag's Parquet, one file per rank",
        "columns of the dashboard",
    ]
    assert found[-1] == detection.DATASET.name
    tables = found.index(detection.TENSORS.name)
    for forms in (detection.FORMATS[2:tables], detection.FORMATS[tables + 1 : -1]):
        numbers = [len(form.keys) for form in forms]
        assert numbers == sorted(numbers, reverse=True)
    turns = [form.trajectories is not None for form in detection.FORMATS]
    assert turns == [False] * (tables + 1) + [True] * (len(found) - tables - 2) + [
        False
    ]
