"""What verl saves: a DataProto, and the payload of its V1 trainer."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from rounddiag.loaders.format import Format
from rounddiag.loaders.inert import Node, TextBytes
from rounddiag.loaders.numpy_nodes import StoredArray, stored_array
from rounddiag.loaders.source import Span
from rounddiag.loaders.stored_fields import as_list, batch_from_stored, plain_values
from rounddiag.loaders.tensor_nodes import as_span, integers
from rounddiag.loaders.tensordict import Value, read_tensordict
from rounddiag.loaders.tensors import DTYPES, contiguous
from rounddiag.loaders.torch_file import read_torch

_OWN_PASS = {"old_log_probs_source": "a pass of its own"}
_PADDING = re.compile(r"pad[0-9a-f]+")

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rounddiag.batch import Batch
    from rounddiag.loaders.source import Source


def read_data_proto(node: Node, source: Source) -> Batch:
    """Build a batch from a pickled DataProto, of either serialisation.

    verl chooses between the two by an environment variable, which a reader cannot know;
    here the content says which it is: bytes, or a tuple.
    """
    match node.state:
        case (stored_batch, dict(others), dict(info)):
            fields = _batch(stored_batch, source)
            columns = {str(k): plain_values(v, source) for k, v in others.items()}
            return batch_from_stored(fields, columns, {**info, **_OWN_PASS}, source)
    raise source.damaged(found="a DataProto without its three parts")


def _batch(value: object, source: Source) -> dict[str, Value]:
    match value:
        case Span() | bytes() | TextBytes():
            value = read_torch(as_span(value, source))
        case (_, _, dict(encoded)):
            return {str(k): _decoded(v, source) for k, v in encoded.items()}
    fields = {} if value is None else read_tensordict(value, source)
    if fields is None:
        raise source.damaged(found="a DataProto with something else than a TensorDict")
    return fields


def _decoded(value: object, source: Source) -> Value:
    """Return one field of the numpy serialisation: (dtype, shape, bytes) or rows."""
    match value:
        case (str(), list(rows)):
            return [_decoded(row, source) for row in rows]
        case (str(dtype), tuple(shape), data):
            array = stored_array(data, source)
            if isinstance(array, StoredArray) and dtype in DTYPES:
                return contiguous(array.data, DTYPES[dtype], integers(shape, source))
    raise source.damaged(found="a field in neither of verl's serialisations")


def read_payload(payload: Mapping[object, object], source: Source) -> Batch:
    """Build a batch from the payload of verl's V1 trainer, without its padding rows."""
    fields = read_tensordict(payload["tensordict"], source)
    if fields is None:
        raise source.damaged(found="a V1 payload without a TensorDict")
    tags = [
        tag if isinstance(tag, dict) else {} for tag in as_list(payload.get("tags"))
    ]
    keys = [str(key) for key in as_list(payload.get("keys"))]
    columns = {**_tag_columns(tags), **_key_columns(keys)}
    info = {"global_steps": payload.get("global_steps"), **_OWN_PASS}
    batch = batch_from_stored(fields, columns, info, source, keys or None)
    return _without_padding(batch)


def _tag_columns(tags: list[dict[object, object]]) -> dict[str, list[object]]:
    names = [name for name in (tags[0] if tags else {}) if isinstance(name, str)]
    return {name: [tag.get(name) for tag in tags] for name in names}


def _key_columns(keys: list[str]) -> dict[str, list[object]]:
    """Take the keys apart: `uid_session_index`, where a uid may have underscores."""
    parts = [key.rsplit("_", 2) for key in keys]
    if not parts or any(len(part) != 3 for part in parts):  # noqa: PLR2004 see above
        return {}
    uid, session, index = zip(*parts, strict=True)
    return {"uid": list(uid), "session": list(session), "index": list(index)}


def _without_padding(batch: Batch) -> Batch:
    """Drop the rows that verl adds to fill a batch, and count them."""
    keep = [not flag for flag in _is_padding(batch)]
    kept = batch if all(keep) else batch.where(keep)
    return replace(kept, meta={**kept.meta, "num_dropped_rows": keep.count(False)})


def _is_padding(batch: Batch) -> list[bool]:
    """Tell padding rows by their tag; without tags, by group id and an empty mask."""
    flags = batch.sample_columns.get("is_padding")
    if flags is not None:
        return [bool(flag) for flag in flags]
    groups = batch.group_ids or [""] * batch.num_samples
    written = set(batch.rounds.sample.tolist())
    named = [_PADDING.fullmatch(group) is not None for group in groups]
    return [flag and index not in written for index, flag in enumerate(named)]


DATA_PROTO = Format(
    name="DataProto",
    framework="verl, skyrl-agent, verl-agent, rLLM, Agent-Lightning",
    files=("*.dp", "*.pkl", "*.pt"),
    keys=("DataProto",),
    read=read_data_proto,
    verified="written by verl 0.9.1 with tensordict 0.8.3, 0.10.0 and 0.15.3",
)
PAYLOAD = Format(
    name="V1 payload",
    framework="verl",
    files=("tq_batch.pt", "*.pt"),
    keys=("tensordict",),
    read=read_payload,
    verified="written by verl 0.9.1 with tensordict 0.10.0 and 0.15.3",
)
