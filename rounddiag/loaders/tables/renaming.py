"""`columns=`: fields that a file has under names of its own."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from rounddiag.errors import LoadError
from rounddiag.loaders.files.content import looks_like
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
_VERL = {"response_ids": "responses", "prompt_ids": "prompts", "group_ids": "uid"}
_SCORE = re.compile(r"\w+_log_probs")


def renamed(root: object, columns: Mapping[str, str], source: Source) -> object:
    """Return what a file holds, with its columns under the names that we know.

    Parameters
    ----------
    root : object
        What the file holds, in any form that is a table.
    columns : mapping of str to str
        Our name of a field, and the name that the file has for it.
    source : Source

    Raises
    ------
    LoadError
        If there is no such field or no such column, if a column is to be two fields,
        or if the file is no table.
    """
    root = table_of_lines(root) if isinstance(root, JsonLines) else root
    if not isinstance(root, Table | Mapping):
        raise source.error(
            expected="a table, whose columns have names",
            found=f"{looks_like(root)}, which `columns` cannot rename",
            advice="Leave `columns` out: the format says what each field is.",
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
    names = {_VERL.get(ours, ours): theirs for ours, theirs in columns.items()}
    return root.renamed(names) if isinstance(root, Table) else Renamed(root, names)


def _check_fields(columns: Mapping[str, str], source: Source) -> None:
    for ours in columns:
        if ours not in FIELDS and not _SCORE.fullmatch(ours):
            raise _misnamed(
                source,
                "columns",
                expected=f"names of fields: {', '.join(FIELDS)}, or a score's as"
                " `ref_log_probs`",
                found=repr(ours),
                advice="Write `columns={our_name: name_in_the_file}`.",
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
