"""A batch as a table: what is per token, what is per sample, what is for all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from rounddiag.loaders.fields.mapping import batch_from_fields
from rounddiag.loaders.left_out import told_left_out
from rounddiag.loaders.screens.placing import with_screenshots
from rounddiag.loaders.tables.pictures import with_encoded

if TYPE_CHECKING:
    from rounddiag.batch import Batch
    from rounddiag.loaders.source import Source


@dataclass(frozen=True, kw_only=True)
class Table:
    """The columns of a table, divided as `batch_from_fields` wants them.

    Attributes
    ----------
    fields : mapping of str to rows
        What has several values a sample; it may read from a file when looked up.
    columns : mapping of str to sequence
        What has one value a sample.
    info : mapping of str to object
        What has one value for all.
    left_out : sequence of str
        Columns that there is no place for.
    marks : sequence of str
        What the file says of its writer, which is no column.
    """

    fields: Mapping[str, Any]
    columns: Mapping[str, Any]
    info: Mapping[str, Any] = field(default_factory=dict)
    left_out: Sequence[str] = ()
    marks: Sequence[str] = ()

    @property
    def names(self) -> list[str]:
        """The names of all columns."""
        return [*self.fields, *self.columns, *self.info]

    def renamed(self, names: Mapping[str, str]) -> Table:
        """Return the same columns, some of them under other names."""
        parts = (self.fields, self.columns, self.info)
        fields, columns, info = (Renamed(part, names) for part in parts)
        return replace(self, fields=fields, columns=columns, info=info)


class Renamed(Mapping[str, Any]):
    """A mapping, some of whose keys go by other names; values are left alone.

    Parameters
    ----------
    held : mapping
    names : mapping of str to str
        New names, and the keys that they stand for. What had a new name is hidden.

    Examples
    --------
    >>> dict(Renamed({"a": 1, "b": 2, "c": 3}, {"b": "a"}))
    {'c': 3, 'b': 1}
    """

    def __init__(self, held: Mapping[str, Any], names: Mapping[str, str]) -> None:
        self._held, keys = held, [*held]
        taken = {*names, *names.values()}
        self._keys = {key: key for key in keys if key not in taken}
        self._keys |= {new: old for new, old in names.items() if old in keys}

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 as it was
        return self._held[self._keys[name]]

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)


def batch_from_table(table: Table, source: Source) -> Batch:
    """Build a batch from columns under verl's names or ours.

    What a batch has no place for is named in `meta["left_out"]`.

    Raises
    ------
    LoadError
        If a required column is missing or the columns do not fit together.
    """
    fields, columns = Watched(table.fields), dict(table.columns)
    if "group_ids" in columns:
        columns["uid"] = columns.pop("group_ids")
    ids, pictures = columns.pop("sample_ids", None), columns.pop("images", None)
    batch = batch_from_fields(
        fields,
        source=source.path,
        columns=columns,
        info=table.info,
        sample_ids=None if ids is None else [str(name) for name in ids],
    )
    inputs = columns.pop("multi_modal_inputs", None)
    carried = {*batch.sample_columns, *batch.meta["sampling"], *_told(batch)}
    others = [name for name in (*columns, *table.info) if name not in carried]
    told = told_left_out([*table.left_out, *fields.left_out, *others])
    batch = replace(batch, meta={**batch.meta, **told})
    if pictures is not None:
        return with_encoded(batch, pictures, source)
    return batch if inputs is None else with_screenshots(batch, inputs, source)


def _told(batch: Batch) -> list[str]:
    """Return the columns that became something else than columns."""
    facts = ["global_steps", "global_step", "step", "old_log_probs_source"]
    groups, rewards = batch.group_ids is not None, batch.rewards is not None
    return [*facts, *["uid"] * groups, *["rewards"] * rewards]


class Watched(Mapping[str, Any]):
    """A mapping that remembers what was looked up."""

    def __init__(self, held: Mapping[str, Any]) -> None:
        self._held, self._looked_up = held, set[str]()

    @property
    def left_out(self) -> list[str]:
        """The names that were not looked up."""
        return [name for name in self._held if name not in self._looked_up]

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 as it is
        value = self._held[name]
        self._looked_up.add(name)
        return value

    def __iter__(self) -> Iterator[str]:
        return iter(self._held)

    def __len__(self) -> int:
        return len(self._held)
