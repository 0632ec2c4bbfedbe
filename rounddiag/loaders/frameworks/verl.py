"""What verl saves of a batch: a DataProto. Others save it too, under its name."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from rounddiag.loaders.fields.sequences import divided
from rounddiag.loaders.format import Format
from rounddiag.loaders.frameworks.trainer_fields import roll_fields
from rounddiag.loaders.pickles.inert import Node, TextBytes
from rounddiag.loaders.source import Span
from rounddiag.loaders.tables.stored_fields import plain_values, stored_table
from rounddiag.loaders.tables.table import Table, Watched, batch_from_table
from rounddiag.loaders.tensors.numpy_nodes import StoredArray, stored_array
from rounddiag.loaders.tensors.stored import DTYPES, StoredTensor, contiguous
from rounddiag.loaders.tensors.tensor_nodes import as_span, integers
from rounddiag.loaders.tensors.tensordict import Value, read_tensordict
from rounddiag.loaders.tensors.torch_file import read_torch

if TYPE_CHECKING:
    from rounddiag.batch import Batch
    from rounddiag.loaders.source import Source

OWN_PASS = {"old_log_probs_source": "a pass of its own"}
# Per token in files of whole sequences.
_OF_SEQUENCES = (
    "rollout_log_probs",
    "old_log_probs",
    "ref_log_prob",
    "entropys",
    "advantages",
    "loss_mask",
    "token_level_scores",
    "rm_scores",
)


def read_data_proto(node: Node, source: Source) -> Batch:
    """Build a batch from a pickled DataProto, of either serialisation.

    verl chooses between the two by an environment variable, which a reader cannot know;
    here the content says which it is: bytes, or a tuple. ROLL's state has a fourth
    part, and fields of its own.
    """
    match node.state:
        case (held, dict(others), *remote, dict(info)) if len(remote) <= 1:
            fields = _batch(held, source)
            columns = {str(k): plain_values(v, source) for k, v in others.items()}
            table = stored_table(fields, columns, {**info, **OWN_PASS}, source)
            if remote:
                return batch_from_table(_of_roll(table, source), source)
            if _are_whole(fields.get("responses"), fields.get("input_ids")):
                return _from_sequences(table, source)
            return batch_from_table(table, source)
    raise source.damaged(found="a DataProto without its three parts")


def _of_roll(table: Table, source: Source) -> Table:
    """Return ROLL's fields and groups under verl's names."""
    held, columns = Watched(table.fields), dict(table.columns)
    groups = columns.pop("traj_group_id", None)
    named = {} if groups is None else {"uid": groups}
    fields = roll_fields(held, source.path)
    return replace(
        table, fields=fields, columns={**named, **columns}, left_out=held.left_out
    )


def _are_whole(responses: Value | None, sequences: Value | None) -> bool:
    """Tell whether `responses` are `input_ids`, prompts and all, as ARPO has it."""
    pair = responses, sequences
    match pair:
        case (StoredTensor(shape=shape), StoredTensor(shape=other)) if shape == other:
            return torch.equal(pair[0].read(), pair[1].read())
    return False


def _from_sequences(table: Table, source: Source) -> Batch:
    held = Watched(table.fields)
    names = {name: name for name in _OF_SEQUENCES}
    fields = divided(
        held, source.path, tokens="responses", written="response_mask", names=names
    )
    whole = replace(table, fields=fields, left_out=held.left_out)
    batch = batch_from_table(whole, source)
    told = (
        "`responses` are whole sequences, as `input_ids`: prompts are what is before"
        " the first token that the model wrote"
    )
    return replace(batch, meta={**batch.meta, "prompts": told})


def _batch(value: object, source: Source) -> dict[str, Value]:
    match value:
        case Node("_io.BytesIO", state=(data, *_)):  # ROLL
            value = data
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


DATA_PROTO = Format(
    name="DataProto",
    framework="verl, Agent-Lightning",
    files=("*.dp", "*.pkl", "*.pt"),
    keys=("DataProto",),
    read=read_data_proto,
    verified="written by verl 0.9.1 with tensordict 0.8.3, 0.10.0 and 0.15.3, and with"
    " Agent-Lightning 0.3.0",
)
DATA_PROTO_OF_OTHERS = Format(
    name="DataProto, with columns or fields of their own",
    framework="skyrl-agent, verl-agent, rLLM, ARPO, ROLL",
    files=("current_batch_after_step.pkl", "*.pkl"),
    keys=DATA_PROTO.keys,
    read=read_data_proto,
)
