"""The order of rows that are steps: from a column, or proved by their prompts.

Trainers balance their batches, so the order of the file is not the order of the steps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rounddiag._typing import Array
from rounddiag.batch.batch import Batch
from rounddiag.batch.sample_sequence import known_sequence
from rounddiag.columns.column import is_unknown
from rounddiag.errors import LoadError
from rounddiag.wording import by_numbers, format_names

_Rows = Sequence[int]


# Columns that count the steps: of Agent-Lightning, rLLM, DART-GUI and ROLL.
STEP_COLUMNS = ("turn_index_list", "step_ids", "step_idx", "step")
# These names have other uses too, so only distinct whole numbers count as steps.
_COMMON_NAMES = (
    *("turn", "turn_idx", "turn_id", "turn_index", "step_index", "step_id"),
    *("env_step", "round", "round_idx"),
)


@dataclass(frozen=True, kw_only=True)
class StepOrder:
    """How the rows of a trajectory are ordered.

    Attributes
    ----------
    description: For `meta["rows"]`.
    column: The column with the step number; empty if the prompts gave the order.
    keys: A sort key for each row; empty if the rows keep their order.
    is_known: False if the order cannot be determined, so that rounds cannot be
        numbered.
    """

    description: str
    column: str = ""
    keys: Sequence[Any] = ()
    is_known: bool = True

    def sort(self, rows: _Rows) -> _Rows:
        """Return the rows of one trajectory in order."""
        return sorted(rows, key=self.keys.__getitem__) if self.keys else rows


_FILE_ORDER = "row"  # for `order_by`: the order of the file


def step_order(
    batch: Batch, order_by: str | None, trajectories: Collection[_Rows]
) -> StepOrder:
    """Find the order of the steps: by the requested column, a known one, or prompts.

    A step follows another if its prompt continues the other's prompt, or contains the
    other's response. This must order all trajectories.
    """
    if order_by == _FILE_ORDER and order_by not in batch.sample_columns:
        return StepOrder(description="in the order of the file")
    if order_by is not None:
        return _order_by(order_by, _requested_keys(batch, order_by))
    for name in STEP_COLUMNS:
        keys = sort_keys(batch.sample_columns.get(name))
        if keys is not None and _changes(keys, trajectories):
            return _order_by(name, keys)
    present = [name for name in _COMMON_NAMES if name in batch.sample_columns]
    for name in present:
        keys = batch.sample_columns[name].tolist()
        if all(map(_is_whole, keys)) and _is_distinct(keys, trajectories):
            return _order_by(name, keys)
    several = [rows for rows in trajectories if len(rows) > 1]
    why = "no known column counts the steps"
    if present:
        why = f"{', '.join(f'`{name}`' for name in present)} cannot be their numbers"
    return _order_by_prompts(batch, several) or StepOrder(
        description=f"{why}, and their prompts do not prove an order; save it in the"
        f" trainer, in verl-agent by `{_RECORD}`",
        is_known=False,
    )


# In verl-agent's loop over steps, which records no number of its own.
_RECORD = 'batch.non_tensor_batch["step_idx"] = np.full(batch_size, _step)'


def _order_by_prompts(batch: Batch, several: Sequence[_Rows]) -> StepOrder | None:
    if not several:
        return StepOrder(description="one row each")
    numbers = _numbers_by_prompts(batch, several)
    if numbers is None:
        return None
    description = "ordered by their prompts, which contain the step before"
    return StepOrder(description=description, keys=numbers)


_MIN_QUOTE = 4  # tokens; a shorter response occurs in other prompts by chance
_MAX_STEPS = 128  # per trajectory, because all pairs of steps are compared


def _numbers_by_prompts(batch: Batch, several: Sequence[_Rows]) -> list[int] | None:
    if batch.prompt_ids is None or max(map(len, several)) > _MAX_STEPS:
        return None
    numbers = [0] * len(batch)
    for rows in several:
        ordered = _only_order(_earlier_steps(batch, rows))
        if ordered is None:
            return None
        for number, row in enumerate(ordered):
            numbers[row] = number
    return numbers


def _earlier_steps(batch: Batch, rows: _Rows) -> dict[int, set[int]]:
    prompts = {row: _prompt(batch, row) for row in rows}
    quotable = {row: _response(batch, row) for row in rows}
    times = Counter(quotable.values())
    return {
        row: {
            other
            for other in rows
            if other != row
            and (
                (
                    len(prompt) > len(prompts[other]) > 0
                    and prompt.startswith(prompts[other])
                )
                or (times[quotable[other]] == 1 and _quotes(prompt, quotable[other]))
            )
        }
        for row, prompt in prompts.items()
    }


def _quotes(prompt: bytes, response: bytes) -> bool:
    """Return whether a prompt contains a response, aligned to token boundaries."""
    at = prompt.find(response) if len(response) >= _MIN_QUOTE * _ID.itemsize else -1
    while at % _ID.itemsize and at >= 0:
        at = prompt.find(response, at + 1)
    return at >= 0


def _only_order(earlier: dict[int, set[int]]) -> list[int] | None:
    """Return the order in which each row follows its earlier rows; None if not unique.

    Examples
    --------
    >>> _only_order({7: {8}, 8: set(), 9: {8, 7}}), _only_order({7: set(), 8: set()})
    ([8, 7, 9], None)
    """
    ordered: list[int] = []
    while len(ordered) < len(earlier):
        known = {*ordered}
        free = [row for row in earlier if row not in known and earlier[row] <= known]
        if len(free) != 1:
            return None
        ordered += free
    return ordered


_ID = np.dtype(np.int64)


def _prompt(batch: Batch, row: int) -> bytes:
    size, ids = known_sequence(batch, row)
    return ids[:size].astype(_ID).tobytes()


def _response(batch: Batch, row: int) -> bytes:
    """Return the first round of a row without its last token, which may end a turn."""
    first = (batch.rounds.sample == row).nonzero()[:1, 0].tolist()
    if not first:
        return b""
    start = int(batch.rounds.start[first[0]])
    stop = start + int(batch.rounds.num_tokens[first[0]]) - 1
    return batch.require_ids()[start:stop].numpy().astype(_ID).tobytes()


def named_column(batch: Batch, name: str, option: str) -> Array:
    """Return a column by name; errors mention `option`, the parameter that named it."""
    columns = dict(batch.sample_columns)
    if batch.group_ids is not None:
        columns["uid"] = np.array(batch.group_ids, dtype=object)
    if name not in columns:
        raise LoadError.build(
            key=option,
            expected="the name of a column with one value per row",
            found=f"{name!r}, where there are {format_names(columns)}",
            advice="Pass one of them.",
        )
    return columns[name]


def _order_by(name: str, keys: Sequence[Any]) -> StepOrder:
    return StepOrder(description=f"ordered by `{name}`", column=name, keys=keys)


def _requested_keys(batch: Batch, name: str) -> list[Any]:
    values = named_column(batch, name, "order_by")
    keys = sort_keys(values)
    if keys is None:
        raise LoadError.build(
            key="order_by",
            expected=f"numbers, or texts, in all rows of the column {name!r}",
            found=format_names(map(repr, values.tolist())),
            advice='Pass another column, or "row" for the order of the file.',
        )
    return keys


def _changes(keys: Sequence[Any], trajectories: Collection[_Rows]) -> bool:
    """Return whether keys differ within a trajectory, unlike the trainer's step."""
    several = [rows for rows in trajectories if len(rows) > 1]
    return not several or any(
        keys[i] != keys[rows[0]] for rows in several for i in rows
    )


def _is_whole(value: object) -> bool:
    if isinstance(value, float):
        return value.is_integer()
    return isinstance(value, int) and not isinstance(value, bool)


def _is_distinct(keys: Sequence[Any], trajectories: Collection[_Rows]) -> bool:
    return all(len({keys[i] for i in rows}) == len(rows) for rows in trajectories)


def sort_keys(values: np.ndarray[Any, Any] | None) -> list[Any] | None:
    """Return sort keys of values, texts by the numbers in them.

    None if there are no values, or they are neither all numbers nor all texts.

    Examples
    --------
    >>> import numpy as np
    >>> sort_keys(np.array([3, 1])), sort_keys(np.array([None]))
    ([3, 1], None)
    """
    items: list[Any] = [None] if values is None else values.tolist()
    if all(isinstance(v, int | float) and not is_unknown(v) for v in items):
        return items
    if all(isinstance(value, str) for value in items):
        return [by_numbers(value) for value in items]
    return None
