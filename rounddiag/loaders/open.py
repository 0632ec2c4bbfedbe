"""Find the format of a file from its first bytes, and read it as a Batch."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from rounddiag.errors import LoadError
from rounddiag.loaders.arrays import read_npz, read_safetensors, read_tensors
from rounddiag.loaders.field_reader import shown
from rounddiag.loaders.inert import Node
from rounddiag.loaders.pickle_machine import PickleMachine
from rounddiag.loaders.source import Source
from rounddiag.loaders.tensordict import read_tensordict
from rounddiag.loaders.torch_file import LEGACY_MAGIC, read_torch, zip_entries
from rounddiag.loaders.verl import read_data_proto, read_payload

if TYPE_CHECKING:
    import os

    from rounddiag.batch import Batch

_ADVICE = (
    "rounddiag opens what `rounddiag.save` and `rounddiag.capture.save_batch` write,"
    " verl's DataProto and V1 payload, and tensors under verl's names in .pt,"
    " .safetensors or .npz."
)
_OTHERS = (
    (b"", "an empty file"),
    (b"{", "JSON text"),
    (b"[", "JSON text"),
    (b"<", "HTML or XML text"),
    (b"\x1f\x8b", "a gzip file"),
    (b"\x28\xb5\x2f\xfd", "a zstd file"),
    (b"\x89HDF", "an HDF5 file"),
    (b"\x89PNG", "a PNG picture"),
    (b"\x93NUMPY", "a single numpy array"),
    (b"ARROW1", "an Arrow file"),
    (b"%PDF", "a PDF"),
)
# A file that is wrong in a new way is still a LoadError, with its cause.
_UNFORESEEN = (
    ArithmeticError,
    LookupError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
)


def load(path: str | os.PathLike[str]) -> Batch:
    """Open a saved batch; the format is found from the content, not from the name.

    Nothing in the file is executed, and no framework needs to be installed. Pixel
    values stay in the file until a screenshot is asked for.

    Parameters
    ----------
    path : path-like
        Our own Parquet, verl's `DataProto.save_to_disk` (either serialisation), the
        payload of verl's V1 trainer, or tensors under verl's names in a `.pt`,
        `.safetensors` or `.npz`.

    Returns
    -------
    Batch

    Raises
    ------
    LoadError
        If the file is of another kind, is damaged, or lacks what a batch needs.

    Examples
    --------
    >>> import rounddiag as rd
    >>> rd.load("sample_data/image_window_verl.pkl").meta["mask_source"]
    'response_mask'
    """
    place = Path(path).absolute()
    if not place.is_file():
        raise LoadError.build(
            file=place,
            expected="a file",
            found="a folder" if place.is_dir() else "nothing",
            advice="Pass the path of one saved batch.",
        )
    source = Source.of_file(place)
    head = source.whole().part(0, min(16, source.size)).read()
    if head.startswith(b"PAR1"):
        from rounddiag.loaders.parquet import load_parquet

        return load_parquet(place)
    try:
        return _open(source, head)
    except LoadError:
        raise
    except _UNFORESEEN as error:
        found = f"what rounddiag did not foresee: {type(error).__name__}: {error!s:.80}"
        raise source.damaged(found=found) from error


def _open(source: Source, head: bytes) -> Batch:
    if head.startswith(b"PK\x03\x04"):
        return _open_zip(source)
    if head.startswith(b"\x80"):
        return _from_root(_read_pickle(source), source)
    if head[8:9] == b"{" and int.from_bytes(head[:8], "little") < source.size:
        return read_safetensors(source)
    raise _unknown(source, _looks_like(head))


def _open_zip(source: Source) -> Batch:
    entries = zip_entries(source.whole())
    if any(name.endswith("/data.pkl") for name in entries):
        return _from_root(read_torch(source.whole()), source)
    if entries and all(name.endswith(".npy") for name in entries):
        return read_npz(entries, source)
    raise _unknown(source, f"a zip of {shown(entries)}")


def _read_pickle(source: Source) -> object:
    """Read a pickle, or the older format of torch, which starts with a magic number."""
    span = source.whole()
    with span.open() as stream:
        root = PickleMachine(span, stream).run()
    return read_torch(span) if root == LEGACY_MAGIC else root


def _from_root(root: Any, source: Source) -> Batch:  # noqa: ANN401 a file's content
    match root:
        case Node(name) if name.endswith(".DataProto"):
            return read_data_proto(root, source)
        case {"tensordict": _}:
            return read_payload(root, source)
        case dict():
            return read_tensors(root, source)
    fields = read_tensordict(root, source)
    if fields is not None:
        return read_tensors(fields, source)
    kind = root.name if isinstance(root, Node) else type(root).__name__
    raise _unknown(source, f"a pickle of {kind:.80}")


def _looks_like(head: bytes) -> str:
    known = [what for start, what in _OTHERS[1:] if head.startswith(start)]
    return (
        known[0]
        if known
        else f"bytes that start with {head[:8]!r}"
        if head
        else "an empty file"
    )


def _unknown(source: Source, found: str) -> LoadError:
    return source.error(expected="a saved batch", found=found, advice=_ADVICE)
