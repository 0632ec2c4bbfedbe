"""One file, or one table in memory, as a Batch."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rounddiag.errors import LoadError
from rounddiag.loaders.column_mapping import check_kinds, check_used, our_name, renamed
from rounddiag.loaders.messages import format_names
from rounddiag.loaders.registry import closest, find_format
from rounddiag.loaders.sniff import (
    Unknown,
    find_useless,
    is_weights,
    looks_like,
    names_of,
    one_object,
    read_root,
)
from rounddiag.loaders.source import Source
from rounddiag.loaders.tabular.arrays import read_tensors, table_of
from rounddiag.loaders.tabular.in_memory import in_memory
from rounddiag.loaders.tabular.json_lines import JsonLines
from rounddiag.loaders.tabular.table import Table

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable
    from pathlib import Path

    from rounddiag.batch import Batch
    from rounddiag.loaders.format import Format

    Columns = Mapping[str, str]


REQUIRED = ("response_ids", "response_mask", "rollout_log_probs", "old_log_probs")
# What such names often say; `...` where none does: nothing is guessed into its place.
_LOG_PROBS = r"(?=.*(?:lo?g?_?p|lp))"
_LIKELY = {
    "response_ids": r"(?!.*prompt).*(?:ids|tokens|response)$",
    "response_mask": r"(?!.*attention).*mask$",
    "rollout_log_probs": _LOG_PROBS
    + r".*(?:rollout|sampl|infer|vllm|sglang|behav|gen)",
    "old_log_probs": _LOG_PROBS + r".*(?:old|train|actor|fsdp|megatron|prox)",
}


def example(names: Collection[str], named: Iterable[str] = ()) -> str:
    """Return how to say what is what, for a message.

    Parameters
    ----------
    names : collection of str
        Of the columns.
    named : iterable of str
        Fields that are named already, and need no example.

    Examples
    --------
    >>> example(["ids", "mask", "vllm_lp", "lp"])[:60]
    'Say what is what: `columns={"response_ids": "ids", "response'
    """
    known = {*named}
    left = [ours for ours in REQUIRED if ours not in known]
    pairs = ", ".join(f'"{ours}": "{_likely(ours, names)}"' for ours in left)
    return f"Say what is what: `columns={{{pairs}}}`."


def _likely(ours: str, names: Collection[str]) -> str:
    found = [name for name in names if re.match(_LIKELY[ours], name.lower())]
    return f"{found[0]:.40}" if len(found) == 1 else "..."


# A file that is wrong in a new way is still a LoadError, with its cause.
_UNFORESEEN = (
    ArithmeticError,
    LookupError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
)


def read_file(file: Path, columns: Columns | None) -> tuple[Format, Batch]:
    """Return the format of a file, found from its content, and what it holds.

    Raises
    ------
    LoadError
        If the file is of another kind, is damaged, or lacks what a batch needs.
    """
    source = Source.of_file(file)
    return _guarded(lambda: read_root(source), source, columns)


def read_table(data: object, columns: Columns | None) -> Batch:
    """Return the batch of a mapping, frame or data set.

    Raises
    ------
    LoadError
        If it is none of them, or lacks what a batch needs.
    """
    table, source = in_memory(data)
    return _guarded(lambda: table, source, columns)[1]


def _guarded(
    read: Callable[[], object], source: Source, columns: Columns | None
) -> tuple[Format, Batch]:
    """Let nothing but a LoadError out."""
    try:
        return _batch(read(), source, columns)
    except LoadError:
        raise
    except _UNFORESEEN as error:
        found = f"what rounddiag did not foresee: {type(error).__name__}: {error!s:.80}"
        raise source.damaged(found=found) from error


def _batch(
    root: Any,  # noqa: ANN401 whatever a file holds
    source: Source,
    columns: Columns | None,
) -> tuple[Format, Batch]:
    held = root
    if isinstance(root, JsonLines):
        _check_lines(root, source)
    if columns:
        root = renamed(root, columns, source)
    form = find_format(names_of(root))
    if form is None and not columns:
        raise _unknown(source, root)
    if form is None or (form.read is read_tensors and not _ids(root, form)):
        raise _missing(source, held, columns or {})
    asked = columns or _ids(root, form)
    if asked:
        check_kinds(table_of(root, source), asked, source)
    batch = form.read(root, source)
    check_used(batch, asked, source)
    return form, batch


def _check_lines(lines: JsonLines, source: Source) -> None:
    """Refuse columns in the place of rows; some frameworks have a batch a line."""
    form = find_format(names_of(lines))
    whole = one_object(lines)
    if whole is not None and (form is None or form.read is read_tensors):
        raise _unknown(source, whole)


def _ids(root: object, form: Format) -> dict[str, str]:
    """Return the name of the responses, which are often saved as text."""
    names = names_of(root) if form.read is read_tensors else []
    found = [name for name in ("responses", "response_ids") if name in names]
    return {name: name for name in found[:1]}


def _unknown(source: Source, root: object) -> LoadError:
    useless = find_useless(names_of(root))
    if useless is not None:
        return source.error("a saved batch", useless.what, useless.advice)
    near = [
        f"{form.name} ({form.framework}), which also has {', '.join(missing)}"
        for form, missing in closest(names_of(root))
    ]
    close = f"It comes close to: {'; '.join(near)}. " if near else ""
    names = names_of(root)
    more = f" {example(names, map(our_name, names))}" if _has_columns(root) else ""
    advice = root.advice if isinstance(root, Unknown) else ""
    return source.error(
        expected="a saved batch",
        found=looks_like(root),
        advice=f"{close}{advice}`rounddiag.formats()` lists what can be opened.{more}",
    )


def _has_columns(root: object) -> bool:
    if isinstance(root, Mapping) and is_weights(root):
        return False
    return isinstance(root, Table | JsonLines | Mapping) and len(names_of(root)) > 0


def _missing(source: Source, held: object, columns: Columns) -> LoadError:
    """Say, in the user's names, what is not there after renaming."""
    names = names_of(held)
    known = {*map(our_name, columns), *map(our_name, names)}
    gone = [f"`{name}`" for name in REQUIRED if name not in known]
    return source.error(
        expected=f"a table with {', '.join(REQUIRED)}",
        found=f"that {' and '.join(gone)} {'is' if len(gone) == 1 else 'are'} missing,"
        f" where the columns are {format_names(names)}",
        advice=example(names, known),
    )
