"""`columns=`: fields that a file has under names of its own."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from rounddiag.errors import LoadError
from rounddiag.loaders.files.content import looks_like, names_of
from rounddiag.loaders.records.json_lines import JsonLines
from rounddiag.loaders.tables.table import Renamed, Table
from rounddiag.loaders.tables.table_values import table_of_lines
from rounddiag.loaders.words import shown

if TYPE_CHECKING:
    from rounddiag.loaders.source import Source

FIELDS = (
    *("response_ids", "response_mask", "rollout_log_probs", "old_log_probs"),
    *("prompt_ids", "attention_mask", "loss_mask", "round_ids", "position_ids"),
    *("entropy", "advantages", "rewards", "group_ids", "sample_ids", "images"),
)
# What verl calls some of them: a column of that name must not hide what is meant.
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
    """Return our name of a field, of which `columns` may use verl's.

    Examples
    --------
    >>> our_name("uid"), our_name("ref_log_prob"), our_name("rewards")
    ('group_ids', 'ref_log_probs', 'rewards')
    """
    plural = f"{name}s" if name.endswith("_log_prob") else name
    return _OURS.get(name, plural)


def key_of(name: str) -> str:
    """Return the key that a field is looked up by, before any other."""
    ours = our_name(name)
    return _VERL.get(ours, ours)


def renamed(root: object, columns: Mapping[str, str], source: Source) -> object:
    """Return what a file holds, with its columns under the names that we know.

    Parameters
    ----------
    root : object
        What the file holds, in any form that is a table.
    columns : mapping of str to str
        Our name of a field or verl's, and the name that the file has for it.
    source : Source

    Raises
    ------
    LoadError
        If there is no such field or no such column, if a column is to be two fields,
        or if the file is no table.
    """
    root = table_of_lines(root) if isinstance(root, JsonLines) else root
    is_own = "rounddiag" in names_of(root)
    if is_own or not isinstance(root, Table | Mapping):
        own = "a file of rounddiag's own, whose columns are known"
        raise _misnamed(
            source,
            "columns",
            expected="a table with names of your own",
            found=own if is_own else looks_like(root),
            advice="Leave `columns` out. To compare other scores of a batch, name them"
            " where it is shown: `a=...`, `b=...`."
            if is_own
            else "Leave `columns` out: only a table has columns to name.",
        )
    held = root.names if isinstance(root, Table) else [str(key) for key in root]
    _check_fields(columns, source)
    for ours, theirs in columns.items():
        if theirs not in held:
            raise _misnamed(
                source,
                ours,
                expected="the name of a column",
                found=f"{theirs!r}, where the columns are {shown(held)}",
                advice="Name a column that the file has.",
            )
    names = {key_of(ours): theirs for ours, theirs in columns.items()}
    return root.renamed(names) if isinstance(root, Table) else Renamed(root, names)


def _check_fields(columns: Mapping[str, str], source: Source) -> None:
    for ours in columns:
        if ours not in _KNOWN and not _SCORE.fullmatch(ours):
            raise _misnamed(
                source,
                "columns",
                expected=f"names of fields: {', '.join(FIELDS)}, a score's as"
                " `ref_log_probs`, or verl's for one of them",
                found=repr(ours),
                advice="Write `columns={our_name: name_in_the_file}`.",
            )
    field, count = Counter(map(our_name, columns)).most_common(1)[0]
    if count > 1:
        raise _misnamed(
            source,
            "columns",
            expected="one name of each field",
            found=f"`{field}` under {count} names",
            advice="Use our name or verl's.",
        )
    theirs, count = Counter(columns.values()).most_common(1)[0]
    if count > 1:
        raise _misnamed(
            source,
            "columns",
            expected="a column of its own for each field",
            found=f"{theirs!r} {count} times",
            advice="A copy of one column would compare it with itself.",
        )


def _misnamed(
    source: Source, key: str, *, expected: str, found: str, advice: str
) -> LoadError:
    return LoadError.build(
        file=source.path, key=key, expected=expected, found=found, advice=advice
    )
