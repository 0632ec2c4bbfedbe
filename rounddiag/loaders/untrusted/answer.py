"""The answer of the child: a batch as our own file, and the texts of its tokens.

The child weighs the batch before it writes it, and both sides weigh the files: a few
bytes of a hostile file can be a batch of gigabytes, or a footer of as much.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rounddiag.checks import check_tokenizer
from rounddiag.errors import LoadError
from rounddiag.loaders.untrusted.folder import open_plain
from rounddiag.wording import pluralize

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import BinaryIO

    import pyarrow.parquet as pq

    from rounddiag.batch import Batch
    from rounddiag.loaders.parquet.reader import TableReader
    from rounddiag.text.token_table import TokenTable


_BATCH, _TOKENS = "batch.parquet", "tokens.json"
_MB = 10**6
# What reading may take beyond the batch: this and four times the file. `load` promises
# 300 MB; the rest is for what no sum of sizes has, such as pages of the allocator.
_ROOM, _TIMES_FILE = 250 * _MB, 4
# Bytes of objects that a byte becomes: of JSON, at most, and of the footer.
_PER_JSON_BYTE, _PER_FOOTER_BYTE = 40, 24
_MAX_COLUMNS, _MAX_NAME = 10_000, 10_000
_TAIL = 8  # bytes at the end of a Parquet file: the length of its footer, and a mark


class TooLargeError(Exception):
    """A batch takes more memory than the parent may need for it."""


def room_beside(num_file_bytes: int) -> int:
    """Return what the parent may take to read the batch of a file, beyond the batch."""
    return _ROOM + _TIMES_FILE * num_file_bytes


def write_answer(folder: Path, batch: Batch, *, most: int, room: int) -> None:
    """Write a batch without what must not leave this process: the tokenizer."""
    from rounddiag.loaders.parquet import save
    from rounddiag.loaders.untrusted.weight import batch_bytes, extra_bytes

    _check_names(batch)
    size = batch_bytes(batch)
    if size > most or extra_bytes(batch) > room:
        raise TooLargeError
    table: TokenTable | None = batch.tokenizer  # type: ignore[assignment]
    if table is not None:
        (folder / _TOKENS).write_text(table.to_json(), encoding="ascii")
    # Nested, because saving and loading change `meta["source"]`.
    plain = replace(batch, tokenizer=None, meta={"meta": dict(batch.meta)})
    save(plain, folder / _BATCH)
    _check_files(folder, most=most - size, room=room)


def _check_names(batch: Batch) -> None:
    """Refuse columns that the parent could not even list."""
    names = [*batch.scores, *batch.sample_columns, *batch.round_columns]
    longest = max((len(name.encode(errors="replace")) for name in names), default=0)
    if len(names) > _MAX_COLUMNS or longest > _MAX_NAME:
        found = (
            f"{pluralize(len(names), 'column')}, the longest name of"
            f" {pluralize(longest, 'byte')}"
        )
        raise LoadError.build(
            expected=f"at most {_MAX_COLUMNS:,} columns, and names of at most"
            f" {_MAX_NAME:,} bytes",
            found=found,
            advice="If you trust it, load it without `untrusted`.",
        )


def _check_files(folder: Path, *, most: int, room: int) -> None:
    """Check what the JSON of an answer becomes, and its footer."""
    from rounddiag.loaders.parquet.metadata import KEY
    from rounddiag.loaders.parquet.reader import TableReader

    num_json = _file_bytes(folder / _TOKENS)
    if _file_bytes(folder / _BATCH) > most:
        raise TooLargeError
    with open_plain(folder / _BATCH) as file:
        if _PER_FOOTER_BYTE * _footer_bytes(file) > room:
            raise TooLargeError
        with _open_parquet(file) as source:
            num_json += len((source.schema_arrow.metadata or {}).get(KEY, b""))
            num_json += sum(_json_sizes(TableReader(source)))
    if _PER_JSON_BYTE * num_json > most:
        raise TooLargeError


def _open_parquet(file: BinaryIO) -> pq.ParquetFile:
    import pyarrow as pa
    import pyarrow.parquet as pq

    return pq.ParquetFile(pa.PythonFile(file, mode="r"))


def _footer_bytes(file: BinaryIO) -> int:
    """Return the length of the footer, which the last bytes of the file give."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(size - _TAIL, 0))
    length = int.from_bytes(file.read(4), "little")
    file.seek(0)
    return min(length, size)


def _json_sizes(table: TableReader) -> Iterator[int]:
    """Yield the bytes of cells with JSON, some rows after the other."""
    from rounddiag.loaders.parquet.columns import is_json

    names = [name for name in table.names if is_json(table.field(name))]
    return (part.nbytes for part in table.parts(names))


def _file_bytes(file: Path) -> int:
    """Return the size of a plain file; 0 if there is none of this name."""
    try:
        with open_plain(file) as stream:
            return os.fstat(stream.fileno()).st_size
    except FileNotFoundError:
        return 0


def read_answer(
    folder: Path, *, most: int, room: int, tokenizer: object | None = None
) -> Batch:
    """Read what `write_answer` wrote."""
    from rounddiag.loaders.parquet.columns import BROKEN

    try:
        with _system_memory():
            _check_files(folder, most=most, room=room)
            return _read(folder, tokenizer)
    except TooLargeError:
        raise
    except (*BROKEN, RecursionError) as error:
        raise LoadError.build(
            expected="the answer of the process that read it",
            found=f"{type(error).__name__}: {_describe(error)}",
            advice="It is damaged, or made to make a library write something else.",
        ) from error


@contextmanager
def _system_memory() -> Iterator[None]:
    """Let Arrow take memory from the system: its own allocators keep what was freed."""
    import pyarrow as pa

    known = pa.default_memory_pool()
    pa.set_memory_pool(pa.system_memory_pool())
    try:
        yield
    finally:
        pa.set_memory_pool(known)


def _describe(error: BaseException) -> str:
    """Return the text of an error, without the name of the temporary file."""
    text = error.strerror if isinstance(error, OSError) else None
    return (text or str(error))[:200].rstrip(".")


def _read(folder: Path, tokenizer: object | None) -> Batch:
    from rounddiag.batch import Batch
    from rounddiag.loaders.parquet.metadata import Footer
    from rounddiag.loaders.parquet.reader import TableReader, read_fields
    from rounddiag.loaders.parquet.screenshots import COLUMN, read_screenshots

    with open_plain(folder / _BATCH) as file, _open_parquet(file) as source:
        table = TableReader(source)
        footer = Footer.from_metadata(source.schema_arrow.metadata)
        # Once, because finding the rounds again would take as much memory again.
        batch = Batch(
            **read_fields(table),
            images=read_screenshots(table) if COLUMN in table else None,
            step=footer.step,
            meta=_checked_meta(footer.meta["meta"]),
            tokenizer=_token_table(folder) if tokenizer is None else tokenizer,
        )
    if tokenizer is not None and not isinstance(tokenizer, str):
        _check_tokenizer(batch)
    return batch


def _checked_meta(meta: Any) -> dict[str, Any]:  # noqa: ANN401 any JSON
    """Return `meta` if it has what every view takes from the results of checks."""
    checks, names = meta["checks"], ("name", "status", "detail")
    if not (
        isinstance(checks, list)
        and all(isinstance(one[name], str) for one in checks for name in names)
    ):
        msg = f"results of checks without {names}"
        raise ValueError(msg)
    return dict(meta)


def _token_table(folder: Path) -> TokenTable | None:
    from rounddiag.text.token_table import TokenTable

    try:
        with open_plain(folder / _TOKENS) as file:
            return TokenTable.from_json(file.read().decode("ascii"))
    except FileNotFoundError:
        return None


def _check_tokenizer(batch: Batch) -> None:
    """Check a tokenizer that only this process has; `meta` is not shared yet."""
    results: list[dict[str, str]] = batch.meta["checks"]
    (result,) = check_tokenizer(batch).as_plain()
    results[:] = [result if one["name"] == result["name"] else one for one in results]
