"""One file, or one table in memory, as a Batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rounddiag.errors import LoadError
from rounddiag.loaders.files.asked import check_kinds, check_used
from rounddiag.loaders.files.content import looks_like, names_of, read_root
from rounddiag.loaders.files.example import REQUIRED, example
from rounddiag.loaders.files.known import find_useless
from rounddiag.loaders.files.renaming import our_name, renamed
from rounddiag.loaders.files.unknown import Unknown, is_weights, one_object
from rounddiag.loaders.records.json_lines import JsonLines
from rounddiag.loaders.registry import closest, find_format
from rounddiag.loaders.source import Source
from rounddiag.loaders.tables.arrays import read_tensors, table_of
from rounddiag.loaders.tables.in_memory import in_memory
from rounddiag.loaders.tables.table import Table
from rounddiag.loaders.words import shown

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from rounddiag.batch import Batch
    from rounddiag.loaders.format import Format

    Columns = Mapping[str, str]

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
        f" where the columns are {shown(names)}",
        advice=example(names, known),
    )
