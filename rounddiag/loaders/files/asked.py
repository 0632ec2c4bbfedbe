"""What `columns=` names has to be used: what cannot be is told, not dropped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rounddiag.errors import LoadError
from rounddiag.loaders.files.renaming import key_of, our_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rounddiag.batch import Batch
    from rounddiag.loaders.source import Source
    from rounddiag.loaders.tables.table import Table

_SUMMED = ("token_level_scores", "rm_scores")  # verl's rewards, one a token
_EXPECTED = {
    "rewards": "one number a sample",
    "group_ids": "one name or number a sample",
    "sample_ids": "one name or number a sample",
    "images": "a list of encoded pictures a sample",
}
_ADVICE = {
    "rewards": "Rewards per token go by verl's name `token_level_scores`: their sum"
    " over a row is the reward.",
    "response_ids": "Save the ids that the engines had: text cannot be turned back"
    " into the same ones.",
}
_SHOWN = 100  # values of a column that tell what it holds


def check_kinds(table: Table, columns: Mapping[str, str], source: Source) -> None:
    """Check that what is to be per token is so, and what is to be per sample.

    Parameters
    ----------
    table : Table
        Under the names that we know.
    columns : mapping of str to str
        Names of fields, and the names that the file had for them.
    source : Source

    Raises
    ------
    LoadError
        If a column is of another kind.
    """
    for ours, theirs in columns.items():
        key = key_of(ours) if key_of(ours) in table.names else ours
        held = table.columns if our_name(ours) in _EXPECTED else table.fields
        if key not in [*held]:  # `in` on what reads when looked up would read it
            raise _misused(source, ours, theirs, found=_kind(table, key))


def check_used(batch: Batch, columns: Mapping[str, str], source: Source) -> None:
    """Check that a batch has what was asked for.

    Raises
    ------
    LoadError
        If a column has values that the field cannot have, or another number of them.
    """
    for ours, theirs in columns.items():
        if not _is_used(batch, our_name(ours)):
            found = _values(batch, ours)
            raise _misused(source, ours, theirs, found=found)


def _is_used(batch: Batch, name: str) -> bool:
    if name == "attention_mask":
        return name not in batch.meta.get("left_out", ())
    if name in {"rewards", *_SUMMED}:
        return batch.rewards is not None and "rewards" not in batch.sample_columns
    score = name.removesuffix("_log_probs")
    return score in batch.scores or getattr(batch, name, None) is not None


def _values(batch: Batch, ours: str) -> str:
    """Say what a column holds that is of the right kind, and was not taken."""
    if ours in batch.sample_columns:
        return _kind_of(batch.sample_columns[ours])
    if ours == "attention_mask":
        return "a mask of rows that have no padding"
    return f"other values, or not {len(batch)} of them"


def _misused(source: Source, ours: str, theirs: str, *, found: str) -> LoadError:
    name = our_name(ours)
    return LoadError.build(
        file=source.path,
        key=ours,
        expected=_EXPECTED.get(name, "a list of numbers a sample, one a token"),
        found=f"`{theirs}`, which holds {found}",
        advice=_ADVICE.get(name, "Name another column, or leave this one out."),
    )


def _kind(table: Table, key: str) -> str:
    if key in [*table.fields]:
        return "several values a sample"
    if key in [*table.columns]:
        return _kind_of(table.columns[key])
    return "one value for all" if key in table.info else "other values"


def _kind_of(values: Any) -> str:  # noqa: ANN401 an array, or a list of anything
    first = [*values[:_SHOWN]]
    if any(isinstance(value, str) for value in first):
        return "text"
    return "one value a sample"
