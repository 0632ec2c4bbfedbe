"""The `columns` argument of `load`: columns under the user's own names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from rounddiag.batch import Batch
from rounddiag.batch.left_out import left_out_of
from rounddiag.errors import LoadError
from rounddiag.loaders.detection import content_names, describe_content
from rounddiag.loaders.fields import (
    REQUIRED,
    Field,
    aliases_of,
    columns_example,
    field_of,
    names_where,
    our_name,
)
from rounddiag.loaders.json_lines import JsonLines
from rounddiag.loaders.source import Source
from rounddiag.loaders.tables import LazyFields, Table, as_table
from rounddiag.wording import format_names


def rename_columns(root: object, columns: Mapping[str, str], source: Source) -> object:
    """Return the content of a file with its columns under verl's or our names."""
    if not columns:
        return root
    root = as_table(root) if isinstance(root, JsonLines) else root
    is_own = "rounddiag" in content_names(root)
    if is_own or not isinstance(root, Table | Mapping):
        own = "a file of rounddiag's own, whose columns are known"
        raise source.error(
            key="columns",
            expected="a table with names of your own",
            found=own if is_own else describe_content(root),
            advice="Leave `columns` out. To compare other scores of a batch, name them"
            " in the view: `a=...`, `b=...`."
            if is_own
            else "Leave `columns` out: only tables have columns.",
        )
    existing = root.names if isinstance(root, Table) else [str(key) for key in root]
    _check_fields(columns, source)
    for ours, theirs in columns.items():
        if theirs not in existing:
            raise source.error(
                key=ours,
                expected="the name of a column",
                found=f"{theirs!r}, where the columns are {format_names(existing)}",
                advice="Name a column that the file has.",
            )
    names = {_name_in_table(ours): theirs for ours, theirs in columns.items()}
    return (
        root.rename(names)
        if isinstance(root, Table)
        else LazyFields.rename(root, names)
    )


def _name_in_table(name: str) -> str:
    """Return the name that is looked up first: a mapped column goes before others."""
    field = field_of(name)
    return name if field is None else field.aliases[0]


def response_column(names: Collection[str]) -> dict[str, str]:
    """Return a mapping for the responses: they must be ids, but are often text.

    Examples
    --------
    >>> response_column(["prompts", "responses"]), response_column(["prompts"])
    ({'responses': 'responses'}, {})
    """
    present = [name for name in aliases_of("response_ids") if name in names]
    return {name: name for name in present[:1]}


def _check_fields(columns: Mapping[str, str], source: Source) -> None:
    for ours in columns:
        field = field_of(ours)
        if field is None or not field.is_mapped:
            names = ", ".join(names_where(is_mapped=True))
            raise source.error(
                key="columns",
                expected=f"names of fields: {names}, a score's as `ref_log_probs`, or"
                " verl's for one of them",
                found=repr(ours),
                advice="Write `columns={our_name: name_in_the_file}`.",
            )
    name, count = Counter(map(our_name, columns)).most_common(1)[0]
    if count > 1:
        raise source.error(
            key="columns",
            expected="one name of each field",
            found=f"`{name}` under {count} names",
            advice="Use our name or verl's.",
        )
    theirs, count = Counter(columns.values()).most_common(1)[0]
    if count > 1:
        raise source.error(
            key="columns",
            expected="a column of its own for each field",
            found=f"{theirs!r} {count} times",
            advice="A copy of one column would compare it with itself.",
        )


_MAX_VALUES = 100  # inspected per column, for a message


def check_kinds(table: Table, columns: Mapping[str, str], source: Source) -> None:
    """Check that mapped columns have values per token or per sample, as required."""
    for ours, theirs in columns.items():
        name = _name_in_table(ours)
        key = name if name in table.names else ours  # responses keep their name
        present = table.columns if _field(ours).scope == "sample" else table.fields
        if key not in present:
            raise _value_error(source, ours, theirs, found=_describe_column(table, key))


def check_used(batch: Batch, columns: Mapping[str, str], source: Source) -> None:
    """Check that the batch uses the mapped columns."""
    unused = {*left_out_of(batch), *batch.sample_columns}
    for ours, theirs in columns.items():
        if _name_in_table(ours) in unused:
            content = _describe_unused(batch, ours)
            raise _value_error(source, ours, theirs, found=content)


def _describe_unused(batch: Batch, ours: str) -> str:
    if ours in batch.sample_columns:
        return _describe_values(batch.sample_columns[ours])
    if ours == "attention_mask":
        return "a mask of rows that have no padding"
    return f"other values, or not {len(batch)} of them"


def _field(name: str) -> Field:
    return field_of(name) or Field(name)


def _value_error(source: Source, ours: str, theirs: str, *, found: str) -> LoadError:
    field = _field(ours)
    return source.error(
        key=ours,
        expected=field.expected,
        found=f"`{theirs}`, which holds {found}",
        advice=field.advice,
    )


def _describe_column(table: Table, key: str) -> str:
    if key in table.fields:
        return "several values per sample"
    if key in table.columns:
        return _describe_values(table.columns[key])
    return "one value for all" if key in table.info else "other values"


def _describe_values(values: Any) -> str:  # noqa: ANN401 an array, or a list of anything
    first = [*values[:_MAX_VALUES]]
    if any(isinstance(value, str) for value in first):
        return "text"
    if any(isinstance(value, list | dict | np.ndarray | np.void) for value in first):
        return "nested values"
    return "one value per sample"


def missing_columns_error(
    source: Source, root: object, columns: Mapping[str, str]
) -> LoadError:
    """Return the error for a table that lacks required columns."""
    names = content_names(root)
    known = {*map(our_name, columns), *map(our_name, names)}
    missing = [f"`{name}`" for name in REQUIRED if name not in known]
    verb = "is" if len(missing) == 1 else "are"
    return source.error(
        expected=f"a table with {' and '.join(REQUIRED)}",
        found=f"that {' and '.join(missing)} {verb} missing,"
        f" where the columns are {format_names(names)}",
        advice=columns_example(known),
    )
