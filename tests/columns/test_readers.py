"""Every reader of columns, with a batch that lacks each column in turn.

What is unknown is never given as a value, and an absent column is refused or left out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
import pytest
import torch

import rounddiag as rd
from rounddiag.core import round_frame, sample_frame
from rounddiag.core.measured import Measured
from rounddiag.errors import FrameError
from rounddiag.findings import View
from rounddiag.findings.conditions import columns_of_tokens
from rounddiag.loaders.assembly.concatenation import concatenate
from rounddiag.stats.grouping import split_by
from rounddiag.vision import EncodedScreenshot
from rounddiag.widgets.columns import BatchColumns
from rounddiag.widgets.session import Session
from rounddiag.widgets.value_means import value_means
from tests.batches import padded

Values: TypeAlias = list[Any] | None  # one per generated token, None where unknown
NUM = 6  # samples, of two rounds with two tokens and one
MASK = torch.tensor([[1, 1, 0, 1]] * NUM)
UNKNOWN = 2  # the sample, and the row of rounds, that lacks a value
ODD = np.arange(NUM) % 2
SAMPLE_COLUMNS = {
    "score": ODD + 0.5,
    "dp_rank": ODD + 4,
    "status": np.array(["ok", "lost"], object)[ODD],
    "is_late": ODD == 1,
    "when": np.array(["2026-01-01", "2026-01-02"], "M8[s]")[ODD],
}
ROUND_COLUMNS = {
    "version": np.arange(2 * NUM) // 4 % 2 + 7,  # divides unlike the others
    "engine": np.array(["a", "b"], object)[np.arange(2 * NUM) // 2 % 2],
    "is_cut": np.arange(2 * NUM) // 2 % 2 == 1,
    "num_images": np.arange(2 * NUM) // 2 % 2 + 1,
}
FIELDS: dict[str, Any] = {
    "reward": ("rewards", torch.tensor(ODD + 0.25)),
    "group_id": ("group_ids", tuple(f"g{i // 2}" for i in range(NUM))),
    "sample_id": ("sample_ids", tuple("uvwxyz")),
    "entropy": ("entropy", torch.tensor(ODD[:, None] * MASK.numpy() + 0.5)),
    "advantage": ("advantages", torch.tensor(ODD[:, None] * MASK.numpy() - 0.5)),
    "loss_mask": ("loss_mask", MASK * torch.tensor(ODD[:, None])),
}
COLUMNS = [*SAMPLE_COLUMNS, *ROUND_COLUMNS, *FIELDS]
SHOT = EncodedScreenshot(data=b"", round=0)


def batch_with(samples: Any, rounds: Any, fields: Any) -> rd.Batch:
    log_probs = -torch.arange(1.0, 4 * NUM + 1).reshape(NUM, 4) / 8
    rows = {"sample": np.arange(2 * NUM) // 2, "round": np.arange(2 * NUM) % 2}
    return padded(
        MASK,
        log_probs * 1.25,
        log_probs,
        images=((SHOT,),) * NUM,
        sample_columns=samples,
        round_columns={**rows, **rounds} if rounds else {},
        **dict(fields),
    )


def whole() -> rd.Batch:
    return batch_with(SAMPLE_COLUMNS, ROUND_COLUMNS, FIELDS.values())


def without(name: str) -> rd.Batch:
    """The batch without a column."""
    return batch_with(
        {k: v for k, v in SAMPLE_COLUMNS.items() if k != name},
        {k: v for k, v in ROUND_COLUMNS.items() if k != name},
        [field for key, field in FIELDS.items() if key != name],
    )


def partly(name: str) -> rd.Batch:
    """The batch, with no value of the column for one sample or one round."""
    batch = whole()
    if name in SAMPLE_COLUMNS:
        values = SAMPLE_COLUMNS[name]
        if values.dtype.kind == "M":
            lacking = values.copy()
            lacking[UNKNOWN] = "NaT"
        else:
            is_number = values.dtype.kind in "if"
            lacking = values.astype(float if is_number else object)
            lacking[UNKNOWN] = np.nan if is_number else None
        return replace(batch, sample_columns={**batch.sample_columns, name: lacking})
    if name in ROUND_COLUMNS:
        keep = np.arange(2 * NUM) != UNKNOWN
        rows = {k: v[keep] for k, v in batch.round_columns.items()}
        return replace(batch, round_columns=rows)
    field = FIELDS[name][0]
    values = getattr(batch, field).clone().double()
    first, size = (UNKNOWN, 1) if name == "reward" else (4 * UNKNOWN, 4)
    values[first : first + size] = np.nan
    return replace(batch, **{field: values})


def is_unknown(name: str) -> list[bool]:
    """Which generated tokens have no value in `partly`."""
    of_round = np.repeat(np.arange(2 * NUM), [2, 1] * NUM)
    row = of_round if name in ROUND_COLUMNS else of_round // 2
    return [*(row == UNKNOWN)]


def plain(values: Any) -> list[Any]:
    return [None if pd.isna(value) or value == "" else value for value in values]


def keys(batch: rd.Batch) -> pd.DataFrame:
    return rd.token_frame(batch)[["sample", "round", "token"]]


def by_token_frame(batch: rd.Batch, name: str) -> Values:
    return plain(rd.token_frame(batch, [name])[name])


def by_round_frame(batch: rd.Batch, name: str) -> Values:
    frame = round_frame(batch)
    if name not in frame:
        return None
    return plain(keys(batch).merge(frame, on=["sample", "round"])[name])


def by_sample_frame(batch: rd.Batch, name: str) -> Values:
    frame = sample_frame(batch)
    return plain(keys(batch).merge(frame)[name]) if name in frame else None


def by_split(batch: rd.Batch, name: str) -> Values:
    split = split_by(Measured.of(batch), name)
    return plain(split.values[split.codes])  # noqa: PD011 no frame


def by_explorer(batch: rd.Batch, name: str) -> Values:
    return plain(BatchColumns(batch).values_at(name, keys(batch)))


def by_facts(batch: rd.Batch, name: str) -> Values:
    columns = BatchColumns(batch)
    facts = [
        {fact["name"]: fact["text"] for fact in columns.facts(i)} for i in range(NUM)
    ]
    values = [facts[i].get(name) for i in keys(batch)["sample"]]
    return values if any(values) else None


def by_filter(batch: rd.Batch, name: str) -> Values:
    """Each token by the known value that keeps it."""
    columns = BatchColumns(batch)
    values = columns.codes(name)[1].tolist()
    read_values: list[Any] = [None] * batch.num_tokens
    for value in plain(values):
        if value is not None:
            for token in np.flatnonzero(columns.keep(name, [value])):
                read_values[token] = value
    return read_values


def by_range(batch: rd.Batch, name: str) -> Values:
    flags = BatchColumns(batch).keep(name, {"from": -100})
    return [True if flag else None for flag in flags]


def by_group(batch: rd.Batch, name: str) -> Values:
    groups = BatchColumns(batch).groups(name, np.zeros(batch.num_tokens))
    return [None if label in ("", "nan", "None") else 1 for label in groups]


def by_place(batch: rd.Batch, name: str) -> Values:
    name = {"num_images": "images_seen"}.get(name, name)
    for column in columns_of_tokens(View.from_batch(batch)):
        if column.name == name:
            values = [*column.values]  # noqa: PD011 no frame
            return [None if code < 0 else values[code] for code in column.codes]
    return None


def by_join(batch: rd.Batch, name: str) -> Values:
    return by_token_frame(concatenate([batch[:1], batch[1:]]), name)


READERS: list[Callable[[rd.Batch, str], Values]] = [
    *(by_token_frame, by_round_frame, by_sample_frame, by_split, by_explorer),
    *(by_facts, by_filter, by_range, by_group, by_place, by_join),
]


def read(reader: Callable[[rd.Batch, str], Values], batch: rd.Batch, name: str) -> Any:
    try:
        return reader(batch, name)
    except FrameError:
        return None


# What each reader has: that a pair is read at all is a fact of its own.
ALL = {reader.__name__: {*COLUMNS} for reader in READERS}
OF_TOKENS = {"entropy", "advantage", "loss_mask"}
READ = {
    "by_token_frame": ALL["by_token_frame"] - {"reward", "group_id", "sample_id"},
    "by_round_frame": {*ROUND_COLUMNS},
    "by_sample_frame": {*SAMPLE_COLUMNS, "reward", "group_id", "sample_id"},
    "by_split": ALL["by_split"] - OF_TOKENS,
    "by_explorer": ALL["by_explorer"],
    "by_facts": {*SAMPLE_COLUMNS, "reward", "group_id"},
    "by_filter": ALL["by_filter"],
    "by_range": {"score", "dp_rank", "is_late", "version", "is_cut", "num_images"}
    | {"reward"}
    | OF_TOKENS,
    "by_group": ALL["by_group"],
    "by_place": ALL["by_place"] - {"when", "sample_id", "entropy", "loss_mask"},
    "by_join": ALL["by_join"] - {"reward", "group_id", "sample_id"},
}


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.__name__)
def test_a_reader_has_these_columns(reader: Callable[..., Values]) -> None:
    readable = {name for name in COLUMNS if read(reader, whole(), name) is not None}
    assert readable == READ[reader.__name__]


PAIRS = [
    (reader, name)
    for reader, name in product(READERS, COLUMNS)
    if name in READ[reader.__name__]
]
WHOLE_OR_ABSENT = {"group_id", "sample_id", "loss_mask"}
REFUSED = {("by_range", "is_late")}  # flags and None are no numbers


@pytest.mark.parametrize(
    ("reader", "name"),
    PAIRS,
    ids=[f"{reader.__name__}-{name}" for reader, name in PAIRS],
)
def test_what_is_unknown_is_not_given_as_a_value(
    reader: Callable[[rd.Batch, str], Values], name: str
) -> None:
    everything = read(reader, whole(), name)
    assert None not in everything
    without_it = read(reader, without(name), name)
    assert without_it is None or name == "num_images"  # counted from the screenshots
    if name in WHOLE_OR_ABSENT:
        return
    read_values = read(reader, partly(name), name)
    if (reader.__name__, name) in REFUSED:
        assert read_values is None
        return
    for value, full, lacks in zip(
        read_values, everything, is_unknown(name), strict=True
    ):
        # A number that a float holds is the same, and so is the text of a flag.
        assert value is None if lacks else value == full or str(value) == str(full)


@pytest.mark.parametrize("name", ["score", "reward", "entropy"])
def test_an_unknown_number_is_in_no_range_of_means(name: str) -> None:
    batch = partly(name)
    rows = value_means(Session(batch, {}), name)["rows"]
    known = [row for row in rows if row["condition"] != [None]]
    assert sum(row["num_tokens"] for row in known) == 3 * (NUM - 1)
    flags = BatchColumns(batch).keep(name, [None])  # the condition of the other row
    assert flags.tolist() == is_unknown(name)


@pytest.mark.parametrize("name", COLUMNS)
def test_a_verdict_does_not_depend_on_a_column_that_is_not_there(name: str) -> None:
    expected = rd.diagnose(whole()).verdict
    assert rd.diagnose(without(name)).verdict == expected
    if name not in WHOLE_OR_ABSENT:
        assert rd.diagnose(partly(name)).verdict == expected
