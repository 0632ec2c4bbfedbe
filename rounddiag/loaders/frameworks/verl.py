"""verl's files: the DataProto, which other frameworks save too, and V1's payload.

=====================  =============================================================
`DATA_PROTO`           a pickled DataProto, in either of verl's serialisations
the same, of ROLL      fields and groups under ROLL's names: `roll_fields`
the same, of ARPO      whole sequences as `responses`
`PAYLOAD`              the payload of verl's V1 trainer, with padding rows
=====================  =============================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from rounddiag.batch import Batch
from rounddiag.batch.trajectories import join_rows
from rounddiag.loaders.assembly.concatenation import without_padding_rows
from rounddiag.loaders.field_reader import divide_sequences
from rounddiag.loaders.fields import field_of, is_per_token
from rounddiag.loaders.format import Format
from rounddiag.loaders.pickle.placeholders import Node, TextBytes
from rounddiag.loaders.plain_columns import collect_columns, replaced_names
from rounddiag.loaders.source import Source, Span, damage_error
from rounddiag.loaders.stored import (
    DTYPES,
    UNREAD,
    StoredArray,
    Value,
    as_span,
    contiguous,
    find_tensor,
    integers,
    read_tensordict,
)
from rounddiag.loaders.tables import (
    Table,
    as_list,
    batch_from_table,
    column_values,
    table_of,
)
from rounddiag.loaders.torch_file import read_torch
from rounddiag.text.json_text import object_in

OWN_PASS = {"old_log_probs_source": "a pass of its own"}
# ROLL's fields per token, without the first; `final_response_mask` is the mask after
# rejection.
_ROLL = {
    "infer_logprobs": "rollout_log_probs",
    "old_log_probs": "old_log_probs",
    "ref_log_probs": "ref_log_probs",
    "advantages": "advantages",
    "final_response_mask": "loss_mask",
    "scores": "rm_scores",
}


def read_data_proto(node: Node, source: Source) -> Batch:
    """Build a batch from a pickled DataProto, of either serialisation.

    An environment variable chooses verl's serialisation; the content shows which one it
    is: bytes, or a tuple. ROLL's state has a fourth part, and fields of its own.
    """
    match node.state:
        case (tensors, dict(others), *remote, dict(info)) if len(remote) <= 1:
            fields = _batch_fields(tensors)
            columns = {str(k): column_values(v) for k, v in others.items()}
            table = table_of(fields, columns=columns, info={**OWN_PASS, **info})
            if remote:
                _check_local(fields, source)
                return batch_from_table(_roll_table(table, source), source)
            if _are_equal(fields.get("responses"), fields.get("input_ids")):
                return _from_sequences(table, source)
            return batch_from_table(table, source)
    raise damage_error(found="a DataProto without its three parts")


def _check_local(fields: Mapping[str, Value], source: Source) -> None:
    if not fields:
        raise source.error(
            expected="ROLL's tensors",
            found="a DataProto without any: `transfer_backend` keeps them elsewhere",
            advice="Run ROLL without `transfer_backend`, and save the batch again.",
        )


def _roll_table(table: Table, source: Source) -> Table:
    columns = dict(table.columns)
    groups = columns.pop("traj_group_id", None)
    if groups is not None:
        columns = {"uid": groups, **columns}
    table = table.convert(lambda fields: roll_fields(fields, source.path))
    return replace(table, columns=columns)


def roll_fields(fields: Mapping[str, Any], source: object) -> dict[str, list[Tensor]]:
    """Return the fields of ROLL's DataProto under verl's names.

    ROLL has masks of the whole sequence, and log-probabilities that lack its first
    token.
    """
    return divide_sequences(
        fields, source, tokens="input_ids", written="response_mask", names=_ROLL
    )


def _are_equal(responses: Value | None, sequences: Value | None) -> bool:
    """Return whether `responses` are `input_ids`, prompts included, as in ARPO."""
    pair = responses, sequences
    match pair:
        case (StoredArray(shape=shape), StoredArray(shape=other)) if shape == other:
            return torch.equal(pair[0].read(), pair[1].read())
    return False


def _from_sequences(table: Table, source: Source) -> Batch:
    divide = partial(
        divide_sequences,
        source=source.path,
        tokens="responses",
        written="response_mask",
        names={name: name for name in table.fields if is_per_token(name)},
    )
    note = (
        "`responses` are whole sequences, as `input_ids`: the prompt is what precedes"
        " the first token that the model wrote"
    )
    divided = replace(table.convert(divide), facts={"prompts": note})
    return batch_from_table(divided, source)


def _batch_fields(value: object) -> dict[str, Value]:
    match value:
        case Node("_io.BytesIO", state=(data, *_)):  # ROLL
            value = data
    match value:
        case Span() | bytes() | TextBytes():
            value = read_torch(as_span(value))
        case (_, _, dict(encoded)):
            decoded = {str(k): _decode(v) for k, v in encoded.items()}
            for name, field in decoded.items():
                if field is UNREAD and field_of(name):
                    fault = f"`{name}` in neither of verl's serialisations"
                    raise damage_error(found=fault)
            return decoded
    fields = {} if value is None else read_tensordict(value)
    if fields is None:
        raise damage_error(found="a DataProto with something else than a TensorDict")
    return fields


def _decode(value: object) -> Value:
    """Return one field of the numpy serialisation: (dtype, shape, bytes) or rows."""
    match value:
        case (str(), list(rows)):
            return [_decode(row) for row in rows]
        case (str(dtype), tuple(shape), data):
            array = find_tensor(data)
            if array is not None and dtype in DTYPES:
                return contiguous(array.storage, DTYPES[dtype], integers(shape))
    return UNREAD


DATA_PROTO = Format(
    name="DataProto",
    framework="verl, Agent-Lightning",
    files=("*.dp", "*.pkl", "*.pt"),
    keys=("DataProto",),
    read=read_data_proto,
    verified="written by verl 0.9.1 with tensordict 0.8.3, 0.10.0 and 0.15.3, and with"
    " Agent-Lightning 0.3.0",
)
DATA_PROTO_VARIANTS = Format(
    name="DataProto, with columns or fields of their own",
    framework="verl-agent, rLLM, ROLL",
    files=("current_batch_after_step.pkl", "*.pkl"),
    keys=DATA_PROTO.keys,
    read=read_data_proto,
)


def read_payload(payload: Mapping[object, object], source: Source) -> Batch:
    """Build a batch from the payload of verl's V1 trainer, without its padding rows.

    A session can have several outputs, for example after its context was reset. Their
    rows are joined in the order of their index, as `load(..., sample_by=...)` does.
    """
    fields = read_tensordict(payload["tensordict"])
    if fields is None:
        raise damage_error(found="a V1 payload without a TensorDict")
    tags = [*map(object_in, as_list(payload.get("tags")))]
    keys = [str(key) for key in as_list(payload.get("keys"))]
    ids = {"sample_ids": keys} if keys else {}
    ours = {**_key_columns(keys), **ids}
    theirs, left_out = collect_columns(tags)
    # `extra_info` is the queue's: `_compute_old_log_prob` sets the temperature there.
    extra = object_in(payload.get("extra_info"))
    used = {"tensordict", "tags", "keys"} | ({"extra_info"} if extra else set())
    facts = {str(k): v for k, v in payload.items() if k not in used}
    table = table_of(
        fields, columns={**theirs, **ours}, info={**OWN_PASS, **extra, **facts}
    )
    left_out += [*table.left_out, *replaced_names(theirs, ours)]
    left_out += replaced_names(extra, facts)
    batch = batch_from_table(replace(table, left_out=left_out), source)
    return _by_session(without_padding_rows(batch))


def _key_columns(keys: list[str]) -> dict[str, list[object]]:
    """Split the keys `uid_session_index`; a uid may have underscores."""
    parts = [key.rsplit("_", 2) for key in keys]
    if not parts or any(len(part) != 3 for part in parts):  # noqa: PLR2004 see above
        return {}
    uid, session, index = zip(*parts, strict=True)
    return {"uid": list(uid), "session": list(session), "index": list(index)}


def _by_session(batch: Batch) -> Batch:
    if batch.group_ids is None or "session" not in batch.sample_columns:
        return batch
    sessions = zip(batch.group_ids, batch.sample_columns["session"], strict=True)
    if len({*sessions}) == len(batch):
        return batch
    return join_rows(batch, ("uid", "session"), "index")


PAYLOAD = Format(
    name="V1 payload",
    framework="verl",
    files=("tq_batch.pt", "*.pt"),
    keys=("tensordict",),
    read=read_payload,
    verified="written by verl 0.9.1 with tensordict 0.10.0 and 0.15.3",
)
