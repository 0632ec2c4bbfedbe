"""The `columns` argument of `load`: columns under the user's own names."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from rounddiag.batch import Batch
from rounddiag.errors import LoadError
from rounddiag.loaders.detection import content_names, describe_content
from rounddiag.loaders.json_lines import JsonLines
from rounddiag.loaders.source import Source, format_names
from rounddiag.loaders.tables import LazyFields, Table, as_table

_REQUIRED = ("response_ids", "response_mask", "rollout_log_probs", "old_log_probs")
FIELDS = (
    *("response_ids", "response_mask", "rollout_log_probs", "old_log_probs"),
    *("prompt_ids", "attention_mask", "loss_mask", "round_ids", "position_ids"),
    *("entropy", "advantages", "rewards", "group_ids", "sample_ids", "images"),
)
# verl's names for some fields; a column of that name must not hide the mapped one.
_VERL = {
    "response_ids": "responses",
    "prompt_ids": "prompts",
    "group_ids": "uid",
    "entropy": "entropys",
}
_OURS = {theirs: ours for ours, theirs in _VERL.items()}
_KNOWN = {*FIELDS, *_OURS, "token_level_scores", "rm_scores"}
_SCORE = re.compile(r"\w+_log_probs?")


def our_name(name: str) -> str:
    """Return our name of a field; `columns` may use verl's name instead.

    Examples
    --------
    >>> our_name("uid"), our_name("ref_log_prob"), our_name("rewards")
    ('group_ids', 'ref_log_probs', 'rewards')
    """
    plural = f"{name}s" if name.endswith("_log_prob") else name
    return _OURS.get(name, plural)


def _verl_name(name: str) -> str:
    """Return verl's name of a field, which is looked up before ours."""
    ours = our_name(name)
    return _VERL.get(ours, ours)


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
    names = {_verl_name(ours): theirs for ours, theirs in columns.items()}
    return (
        root.rename(names)
        if isinstance(root, Table)
        else LazyFields.rename(root, names)
    )


def response_column(names: Collection[str]) -> dict[str, str]:
    """Return a mapping for the responses: they must be ids, but are often text.

    Examples
    --------
    >>> response_column(["prompts", "responses"]), response_column(["prompts"])
    ({'responses': 'responses'}, {})
    """
    present = [name for name in ("responses", "response_ids") if name in names]
    return {name: name for name in present[:1]}


def _check_fields(columns: Mapping[str, str], source: Source) -> None:
    for ours in columns:
        if ours not in _KNOWN and not _SCORE.fullmatch(ours):
            raise source.error(
                key="columns",
                expected=f"names of fields: {', '.join(FIELDS)}, a score's as"
                " `ref_log_probs`, or verl's for one of them",
                found=repr(ours),
                advice="Write `columns={our_name: name_in_the_file}`.",
            )
    field, count = Counter(map(our_name, columns)).most_common(1)[0]
    if count > 1:
        raise source.error(
            key="columns",
            expected="one name of each field",
            found=f"`{field}` under {count} names",
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


_SUMMED = ("token_level_scores", "rm_scores")  # verl's rewards, one per token
_EXPECTED = {
    "rewards": "one number per sample",
    "group_ids": "one name or number per sample",
    "sample_ids": "one name or number per sample",
    "images": "a list of encoded pictures per sample",
}
_ADVICE = {
    "rewards": "Rewards per token go by verl's name `token_level_scores`: their sum"
    " over a row is the reward.",
    "response_ids": "Save the ids that the engines had: text cannot be turned back"
    " into the same ones.",
}
_MAX_VALUES = 100  # inspected per column, for a message


def check_kinds(table: Table, columns: Mapping[str, str], source: Source) -> None:
    """Check that mapped columns have values per token or per sample, as required."""
    for ours, theirs in columns.items():
        verls = _verl_name(ours)
        key = verls if verls in table.names else ours  # responses keep their name
        present = table.columns if our_name(ours) in _EXPECTED else table.fields
        if key not in present:
            raise _value_error(source, ours, theirs, found=_describe_column(table, key))


def check_used(batch: Batch, columns: Mapping[str, str], source: Source) -> None:
    """Check that the batch uses the mapped columns."""
    for ours, theirs in columns.items():
        if not _is_used(batch, our_name(ours)):
            found = _describe_unused(batch, ours)
            raise _value_error(source, ours, theirs, found=found)


def _is_used(batch: Batch, name: str) -> bool:
    if name == "attention_mask":
        return name not in batch.meta.get("left_out", ())
    if name in {"rewards", *_SUMMED}:
        return batch.rewards is not None and "rewards" not in batch.sample_columns
    score = name.removesuffix("_log_probs")
    return score in batch.scores or getattr(batch, name, None) is not None


def _describe_unused(batch: Batch, ours: str) -> str:
    """Describe a column of the right kind that a batch did not use."""
    if ours in batch.sample_columns:
        return _describe_values(batch.sample_columns[ours])
    if ours == "attention_mask":
        return "a mask of rows that have no padding"
    return f"other values, or not {len(batch)} of them"


def _value_error(source: Source, ours: str, theirs: str, *, found: str) -> LoadError:
    name = our_name(ours)
    return source.error(
        key=ours,
        expected=_EXPECTED.get(name, "a list of numbers per sample, one per token"),
        found=f"`{theirs}`, which holds {found}",
        advice=_ADVICE.get(name, "Name another column, or leave this one out."),
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
    missing = [f"`{name}`" for name in _REQUIRED if name not in known]
    verb = "is" if len(missing) == 1 else "are"
    return source.error(
        expected=f"a table with {', '.join(_REQUIRED)}",
        found=f"that {' and '.join(missing)} {verb} missing,"
        f" where the columns are {format_names(names)}",
        advice=columns_example(known),
    )


def columns_example(known: Collection[str]) -> str:
    """Return an example of `columns=` for a message.

    Examples
    --------
    >>> columns_example(["response_ids", "response_mask", "rollout_log_probs", "lp"])
    'Name the columns: `columns={"old_log_probs": "..."}`.'
    """
    ours = {*map(our_name, known)}
    pairs = ", ".join(f'"{name}": "..."' for name in _REQUIRED if name not in ours)
    return f"Name the columns: `columns={{{pairs}}}`."
