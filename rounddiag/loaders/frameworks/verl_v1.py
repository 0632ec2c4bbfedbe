"""What verl's V1 trainer keeps in its queue, saved as its `RolloutTqSkip` does."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from rounddiag.loaders.format import Format
from rounddiag.loaders.frameworks.verl import OWN_PASS
from rounddiag.loaders.joining.rows import join_rows
from rounddiag.loaders.tables.stored_fields import as_list, stored_table
from rounddiag.loaders.tables.table import batch_from_table
from rounddiag.loaders.tensors.tensordict import read_tensordict

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rounddiag.batch import Batch
    from rounddiag.loaders.source import Source

_PADDING = re.compile(r"pad[0-9a-f]+")


def read_payload(payload: Mapping[object, object], source: Source) -> Batch:
    """Build a batch from the payload of verl's V1 trainer, without its padding rows.

    One session can have several outputs, as where its context was reset: their rows
    are joined in the order of their index, as `load(..., sample_by=...)` does.
    """
    fields = read_tensordict(payload["tensordict"], source)
    if fields is None:
        raise source.damaged(found="a V1 payload without a TensorDict")
    tags = [
        tag if isinstance(tag, dict) else {} for tag in as_list(payload.get("tags"))
    ]
    keys = [str(key) for key in as_list(payload.get("keys"))]
    ids = {"sample_ids": keys} if keys else {}
    columns = {**_tag_columns(tags), **_key_columns(keys), **ids}
    info = {"global_steps": payload.get("global_steps"), **OWN_PASS}
    batch = batch_from_table(stored_table(fields, columns, info, source), source)
    return _by_session(_without_padding(batch))


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


def _by_session(batch: Batch) -> Batch:
    """Join the outputs of a session, if any has more than one."""
    if batch.group_ids is None or "session" not in batch.sample_columns:
        return batch
    sessions = zip(batch.group_ids, batch.sample_columns["session"], strict=True)
    if len({*sessions}) == len(batch):
        return batch
    return join_rows(batch, ("uid", "session"), "index")


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


PAYLOAD = Format(
    name="V1 payload",
    framework="verl",
    files=("tq_batch.pt", "*.pt"),
    keys=("tensordict",),
    read=read_payload,
    verified="written by verl 0.9.1 with tensordict 0.10.0 and 0.15.3",
)
