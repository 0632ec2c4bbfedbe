"""What each round of a batch did: its action, errors, repeats, and its picture."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pandas as pd

from rounddiag._typing import Array
from rounddiag.batch import Batch
from rounddiag.columns import Column
from rounddiag.core.columns import span_texts, to_numpy
from rounddiag.core.picture_changes import pictures_of_rounds
from rounddiag.errors import RounddiagError
from rounddiag.figures.actions import ACTION_COLORS
from rounddiag.schema import COST
from rounddiag.vision import Screenshot, parse_actions
from rounddiag.widgets.episode import recorded_actions, said_between, texts_at
from rounddiag.widgets.images import describe_actions
from rounddiag.widgets.outcomes import says_error

_KINDS = {kind: kind for kind in ACTION_COLORS}
_KINDS |= {"double_click": "click", "finished": "finish"}


def has_actions(batch: Batch) -> bool:
    """Return whether actions can be read: of texts, or as the file recorded them."""
    return not batch.lacks("text", "tokenizer") or "action" in batch.columns.rounds


def action_rows(batch: Batch) -> pd.DataFrame:
    """Return one row per sample and round: what it did.

    `kind` (of `ACTION_COLORS`), `label`, `error`: its text, of the round's columns or
    of the observation after it; `is_repeated`: the same actions as in the round before;
    `is_unchanged`: the picture after it is stored with the same bytes, and it does not
    finish; `seconds` and `cost`, NaN where the file does not say.

    Examples
    --------
    >>> turns = [("assistant", "click(1, 2)"), ("user", "Error: no")]
    >>> rows = action_rows(Batch.from_turns([[*turns, ("assistant", "?")]]))
    >>> rows[["kind", "error"]].values.tolist()
    [['click', 'Error: no'], ['other', '']]
    """
    starts, sizes = map(to_numpy, (batch.rounds.start, batch.rounds.num_tokens))
    texts = [""] * len(sizes)
    if not batch.lacks("text", "tokenizer"):
        texts = ["".join(pieces) for pieces in span_texts(batch, starts, sizes)]
    recorded = recorded_actions(batch, len(sizes))
    described = describe_actions(texts, [None] * len(sizes), recorded)
    keys = [
        own or [replace(action, source_text="") for action in parse_actions(text)]
        for own, text in zip(recorded, texts, strict=True)
    ]
    rows = pd.DataFrame(
        {
            "sample": to_numpy(batch.rounds.sample),
            "round": to_numpy(batch.rounds.round),
            "kind": [_KINDS.get(action["kind"], "other") for action in described],
            "label": [action["label"] for action in described],
            "error": [*_errors(batch, len(sizes))],
        }
    )
    follows = rows["sample"].eq(rows["sample"].shift()).to_numpy()
    same = [bool(key) and key == before for before, key in pairwise([None, *keys])]
    return rows.assign(
        is_repeated=follows & np.array(same, bool),
        is_unchanged=[
            kind != "finish" and _same_picture(*pair)
            for kind, pair in zip(rows["kind"], pictures_of_rounds(batch), strict=True)
        ],
        seconds=_numbers(batch.columns.made("round_seconds"), len(rows)),
        cost=_numbers(batch.columns.rounds.get(COST.name), len(rows)),
    )


def _numbers(column: Column | None, num: int) -> Array:
    if column is None or column.kind != "number":
        return np.full(num, np.nan)
    return column.filled.astype(float)


def _errors(batch: Batch, num_rounds: int) -> Iterator[str]:
    """Yield the error of each round: of its columns, else of the observation after."""
    recorded = [""] * num_rounds
    for name in reversed(batch.columns.rounds):
        for at, text in enumerate(texts_at(batch.columns.rounds[name], num_rounds)):
            if says_error(name, text):
                recorded[at] = text
    at = 0
    for sample, num in enumerate(batch.columns.rounds_per_sample.tolist()):
        said = said_between(batch, sample, num) or [[]] * (num + 1)
        for turns in said[1:]:
            said_here = filter(None, (turn["error"] for turn in turns))
            yield recorded[at] or next(said_here, "")
            at += 1


def _same_picture(before: Screenshot | None, after: Screenshot | None) -> bool:
    """Return whether two known pictures are stored with the same bytes."""
    if before is None or after is None:
        return False
    try:
        return before.digest() == after.digest()
    except (RounddiagError, OSError):
        return False
