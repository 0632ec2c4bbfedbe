"""Files that are damaged, forged or of another kind: the error says what is wrong.

A row is the name of a case, how its file is made in a folder (or what is loaded in its
place), and what the message must name. Each ends quickly and in little memory.
"""

from __future__ import annotations

import gzip
import json
import shutil
import sqlite3
import struct
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from pyarrow import feather

from rounddiag.loaders import load
from tests.loaders import (
    nemo_rl_writer,
    prime_rl_writer,
    skyrl_writer,
    slime_writer,
    verifiers_writer,
    verl_writer,
)
from tests.loaders.hostile_files import shared_lists
from tests.loaders.parquet import tables as ours
from tests.loaders.refusal import refused_file
from tests.loaders.table_cases import COLUMNS

Make: TypeAlias = Callable[[Path], Any]
Cases: TypeAlias = dict[str, tuple[Make, str]]
DATA = Path(__file__).parents[1] / "data"
AGAIN = "It is cut off, damaged or forged: copy or save it again."
WHOLE = "expected a whole file of its kind; found "
HUGE = 1 << 40


def held(data: object) -> Make:
    """Make nothing: load what is in memory."""
    return lambda _: data


def written(data: bytes, name: str = "a.pkl") -> Make:
    """Make a file of these bytes."""

    def make(folder: Path) -> Path:
        (folder / name).write_bytes(data)
        return folder / name

    return make


def saved(data: object, name: str = "a.pt", *, is_zip: bool = True) -> Make:
    """Make a file as `torch.save` does."""

    def make(folder: Path) -> Path:
        torch.save(data, folder / name, _use_new_zipfile_serialization=is_zip)
        return folder / name

    return make


def changed(make: Make, change: Callable[[bytes], bytes]) -> Make:
    """Make a file, then change its bytes."""

    def make_other(folder: Path) -> Path:
        path: Path = make(folder)
        path.write_bytes(change(path.read_bytes()))
        return path

    return make_other


def without(fields: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name not in names}


def skyrl(metadata: Any = None, **changes: object) -> Make:
    fields = {**skyrl_writer.small_batch(), **changes}
    name = "global_step_3_training_input.pkl"
    return lambda folder: skyrl_writer.write(folder / name, fields, metadata)


def skyrl_state(state: dict[str, Any]) -> Make:
    name = "global_step_3_training_input.pkl"
    return lambda folder: skyrl_writer.write_state(folder / name, state)


PATCHES = [torch.zeros(8, 1176)] * 3
GRIDS = [torch.tensor([[1, 2, 4]])] * 3
WIDE_SKYRL = {
    name: torch.zeros(2, 6)
    for name, value in skyrl_writer.small_batch().items()
    if value is not None and value.shape == (2, 3)
}
NO_FORMATS: list[object] = [
    {"format": "numpy", "data": b"", "shape": (2, 3), "dtype": "object"},
    {"format": "numpy", "data": "text", "shape": (2, 3), "dtype": "float32"},
    {"format": "torch", "data": 3},
    {"format": "tensor_list", "items": [None]},
    3,
]
SHAPES: list[Any] = [(2, 3), (HUGE, 3), (-2, 3), ("2", 3)]
SKYRL: Cases = {
    "no loss mask": (
        skyrl(loss_mask=None),
        "`loss_mask`: expected a tensor; found only sequences, attention_mask,"
        " response_mask, rollout_logprobs, action_log_probs. Save the whole",
    ),
    **{
        f"{name} of {shape}": (
            skyrl(**{name: torch.zeros(shape)}),
            f"`{name}`: expected shape {expected}; found shape {shape}. Dump it again",
        )
        for name, shape, expected in [
            ("rollout_logprobs", (2, 2), (2, 3)),
            ("action_log_probs", (3, 3), (2, 3)),
            ("attention_mask", (2, 6), (2, 5)),
            ("loss_mask", (6,), (2, 3)),
        ]
    },
    "responses longer than sequences": (
        skyrl(**WIDE_SKYRL),
        "`response_mask`: expected the last columns of shape (2, 5); found shape (2, 6",
    ),
    **{
        f"{size!r} rows that pad": (
            skyrl({"pad_size": size}),
            "`pad_size`: expected 0 to 2, the rows that pad the batch; found"
            f" {size!r}.",
        )
        for size in (3, -1, "1", 1.0)
    },
    "padding that the loss looks at": (
        skyrl({"pad_size": 1}),
        "`loss_mask`: expected 0 in the rows that pad the batch; found other values.",
    ),
    "pictures of more rows": (
        skyrl(pixel_values=PATCHES, image_grid_thw=GRIDS),
        "`pixel_values`: expected 2 tensors, as there are rows; found 3, and 3 grids.",
    ),
    **{
        f"no format {number}": (
            skyrl(advantages=value),
            "`advantages` in none of SkyRL's formats.",
        )
        for number, value in enumerate(NO_FORMATS)
    },
    **{
        f"a shape of {shape}": (
            skyrl(
                advantages={
                    "format": "numpy",
                    "data": b"123",
                    "shape": shape,
                    "dtype": "float32",
                }
            ),
            WHOLE,
        )
        for shape in SHAPES
    },
    "an empty state": (skyrl_state({}), "a TrainingInputBatch without its tensors"),
    "a state of a number": (skyrl_state({"batch_dict": 3}), "without its tensors"),
    "a state without tensors": (skyrl_state({"batch_dict": {}}), "`sequences`"),
    "the layout of 0.1": (
        written(b"\x80\x04cskyrl_train.training_batch\nTrainingInputBatch\n)\x81."),
        "SkyRL 0.1: a layout ",
    ),
}


def nemo_rl(*records: dict[str, Any]) -> Make:
    name = "train_data_step12.jsonl"
    return lambda folder: nemo_rl_writer.write(folder / name, records)


NEMO = nemo_rl_writer.record([1, 2, 3], [0, 1, 1])
NEMO_ROWS = nemo_rl_writer.small_step()
NEMO_RL: Cases = {
    "an older release": (
        nemo_rl(without(NEMO, "token_ids", "token_loss_mask")),
        "expected `token_ids` in the records of NeMo-RL; found only content, rewards,"
        " input_lengths, sample_loss_mask, advantages, generation_logprobs,"
        " prev_logprobs, idx.",
    ),
    "a row of another length": (
        nemo_rl(*NEMO_ROWS, {**NEMO, "prev_logprobs": [0.0, -1.0]}),
        "expected a list of 3 numbers in `prev_logprobs` of line 4; found 2 numbers.",
    ),
    "a line that lacks a field": (
        nemo_rl(*NEMO_ROWS, without(NEMO, "generation_logprobs")),
        "expected a list of 3 numbers in `generation_logprobs` of line 4; found no such"
        " field.",
    ),
    **{
        f"{length!r} tokens of 3": (
            nemo_rl({**NEMO, "input_lengths": length}),
            "expected 0 to 3 in `input_lengths` of line 1; found ",
        )
        for length in (4, -1, "2", None, 1.5)
    },
    "a mask of 2": (
        nemo_rl({**NEMO, "token_loss_mask": [0, 2, 1]}),
        "`response_mask`: expected a mask of 0 and 1; found the value 2.",
    ),
    **{
        f"ids that are {value!r}": (
            nemo_rl({**NEMO, "token_ids": value}),
            f"expected a list of numbers in `token_ids` of line 1; found {found}.",
        )
        for value, found in [
            (["a", "b", "c"], "a list of other values"),
            ([1, 2, 1 << 70], "a list of other values"),
            ("<script>", "text"),
            ({"a": 1}, "an object"),
            (3, "one number"),
        ]
    },
    "a field of some lines": (
        nemo_rl(NEMO_ROWS[0], without(NEMO_ROWS[1], "advantages"), NEMO_ROWS[2]),
        "`advantages`: expected 3 rows",
    ),
    "an end in the middle": (
        changed(nemo_rl(*NEMO_ROWS), lambda data: data[:-30]),
        "found line 3: no JSON: ",
    ),
}


def prime_rl(*records: dict[str, Any]) -> Make:
    return lambda folder: prime_rl_writer.write(folder / "rank_0.jsonl", records)


PRIME = prime_rl_writer.record([1, 2], [False, True])
PRIME_ROWS = prime_rl_writer.small_step()
PRIME_RL: Cases = {
    **{
        f"version {version!r}": (
            prime_rl(*PRIME_ROWS, {**PRIME, "schema_version": version}),
            f"expected `schema_version` 1; found {found} in line 3. Update rounddiag",
        )
        for version, found in [(2, "2"), ("1", "'1'"), (None, "None")]
    },
    "a version of numbers": (
        prime_rl(*PRIME_ROWS, {**PRIME, "schema_version": [1]}),
        "expected `schema_version` 1; found array([1]",
    ),
    "a mask of another length": (
        prime_rl({**PRIME, "token_ids": [1, 2, 3]}),
        "expected a list of 3 numbers in `loss_mask` of line 1; found 2 numbers.",
    ),
    "a mask of nulls": (
        prime_rl(*PRIME_ROWS, {**PRIME, "loss_mask": [None, None]}),
        "`response_mask`",
    ),
    "ids of null": (
        prime_rl({**PRIME, "entropy": 1, "token_ids": None}),
        "`token_ids` of line 1; found null.",
    ),
}


def trained(**change: object) -> Make:
    """Write slime's train file; its second sample is changed."""
    first, second = slime_writer.trained_samples()
    return lambda to: slime_writer.write_train_file(to, [first, second | change])


def train_file(*samples: object) -> Make:
    return lambda folder: slime_writer.write_train_file(folder, samples)


def rank_file(shard: int, **changes: object) -> Make:
    part = slime_writer.shards()[shard]
    return lambda folder: slime_writer.write_rank(folder, part | changes)


def payload(content: object, name: str = "3.pt") -> Make:
    return lambda folder: slime_writer.write_payload(folder / name, content)


SHARED = shared_lists()
FACTS = {"rollout_id": SHARED, "rank": SHARED}
MISFIT = "expected 2 rows, as long as those of `responses`; found 1 of 2 rows with"
NO_ROWS = "expected rows of numbers; found"
LENGTHS = "`response_lengths`: expected 0 to"
SECOND: dict[str, tuple[dict[str, Any], str]] = {
    "no log-probs of the sampler": (
        {"rollout_log_probs": None},
        f"`rollout_log_probs`: {NO_ROWS} nothing in row 1. Dump the step again: a sam",
    ),
    "no log-probs": ({"log_probs": None}, f"`log_probs`: {NO_ROWS} nothing in row 1."),
    "a mask of text": (
        {"loss_masks": "11"},
        f"`loss_masks`: {NO_ROWS} text in row 1. Dump the step again; the mask of a",
    ),
    "an id of 70 bits": (
        {"tokens": [1, 1 << 70]},
        f"`tokens`: {NO_ROWS} a list of other values in row 1.",
    ),
    "an id of text": (
        {"tokens": [1, "2"]},
        f"`tokens`: {NO_ROWS} a list of other values in row 1.",
    ),
    "entropy of 3 tokens": (
        {"entropy": torch.ones(3)},
        f"`entropy`: {MISFIT} another length, by 1: 1 (row 1 has 3, and 2 there).",
    ),
    "1 token of 2": (
        {"response_lengths": 1},
        f"`rollout_log_probs`: {MISFIT} another length, by 1: 1 (row 1 has 2, and 1",
    ),
    "5 tokens of 4": (
        {"response_lengths": 5},
        f"{LENGTHS} 4 for sample 1, as there are tokens; found 5.",
    ),
    "a length of text": (
        {"response_lengths": "2"},
        f"{LENGTHS} 4 for sample 1, as there are tokens; found no number.",
    ),
    "fewer ids than tokens": (
        {"tokens": torch.tensor([1])},
        f"{LENGTHS} 1 for sample 1, as there are tokens; found 2.",
    ),
    "a mask of 1 token": (
        {"loss_masks": torch.ones(1)},
        f"`loss_masks`: {MISFIT} another length, by 1: 1 (row 1 has 1, and 2 there).",
    ),
    "a mask of 2": (
        {"loss_masks": torch.tensor([1, 2])},
        "`response_mask`: expected a mask of 0 and 1; found the value 2.",
    ),
}
SLIME: Cases = {
    **{name: (trained(**change), found) for name, (change, found) in SECOND.items()},
    "masks of two dimensions": (
        train_file(
            *(
                row | {"loss_masks": torch.ones(row["response_lengths"], 1)}
                for row in slime_writer.trained_samples()
            )
        ),
        "`loss_masks`: expected one value per token; found rows of 2 dimensions.",
    ),
    **{
        f"samples of {sample}": (
            train_file(sample),
            WHOLE + "`samples` that is not a list of dictionaries.",
        )
        for sample in ("a", None, [1])
    },
    "no sample": (train_file(), "expected samples that were trained on; found none."),
    "format 3": (
        payload({"format_version": 3, "rollout_id": 3, "samples": []}),
        "expected slime's train data in `format_version` 2; found 3. Update rounddiag",
    ),
    "columns that are a list": (
        payload({"rollout_id": 3, "rank": 0, "cp_size": 1, "rollout_data": [1]}),
        WHOLE + "`cp_size` 1. ",
    ),
    "a column of no rows": (
        rank_file(1, log_probs=[]),
        WHOLE + "0 rows of `log_probs`, 1 of `response_lengths`.",
    ),
    "rollouts alone": (
        lambda folder: slime_writer.write_rollouts(folder, slime_writer.rollouts()),
        "expected slime's train file beside this rollout file, which has no"
        " log-probabilities of the training engine; found no ../train_data/3.pt. Run",
    ),
    **{
        f"a rank of {size} slices": (
            payload({"rollout_id": 3, "rank": 0, "cp_size": size, "rollout_data": {}}),
            found,
        )
        for size, found in [
            (2, "of one of 2 context-parallel"),
            (None, "`cp_size` None"),
        ]
    },
    **{
        f"a {name} that shares parts": (payload({"rollout_id": 3, **facts}), "expected")
        for name, facts in dict[str, dict[str, Any]](
            version={"format_version": SHARED, "samples": []},
            rollout={"rollout_id": SHARED, "samples": []},
            slice={"rank": 0, "rollout_data": {}, "cp_size": SHARED},
            rank={**FACTS, "rollout_data": {}, "cp_size": 1},
        ).items()
    },
}


def dashboard(**changes: Any) -> Make:
    columns = {
        "sample_index": [7, 8],
        "response_length": [2, 3],
        "total_length": [4, 4],
        "tokens": [[1, 2, 3, 4], [5, 6, 7, 8]],
        "loss_mask": [[1, 1], [1, 0, 1]],
        "rollout_log_probs": [[-0.5, -1.0], [-0.25, 0.0, -2.0]],
    }
    rows = {name: v for name, v in {**columns, **changes}.items() if v is not None}

    def make(folder: Path) -> Path:
        (folder / "dashboard_columns").mkdir()
        path = folder / "dashboard_columns" / "rollout_12.parquet"
        pq.write_table(pa.table(rows), path)
        return path

    return make


LISTS = "expected a list of numbers per sample; found "
DASHBOARD: Cases = {
    "tokens of numbers": (dashboard(tokens=[1, 2]), f"`tokens`: {LISTS}a column of an"),
    "a mask of texts": (dashboard(loss_mask=["a", "b"]), f"`loss_mask`: {LISTS}a col"),
    "lengths of lists": (
        dashboard(response_length=[[2], [3]]),
        "`response_length`: expected one number per sample; found a column of another",
    ),
    "no log-probs": (
        dashboard(rollout_log_probs=None),
        f"`rollout_log_probs`: {LISTS}no such column",
    ),
}


def annotated(record: dict[str, Any]) -> Make:
    """Write prime-rl's annotations of the trace of an episode of verifiers."""
    return lambda folder: verifiers_writer.write(folder, [record])


def packed_badly(folder: Path) -> Path:
    path = verifiers_writer.write(folder, verifiers_writer.updates())
    data = pa.compress(path.read_bytes(), codec="zstd", asbytes=True)
    path.with_name("00000.jsonl.zst").write_bytes(data[:10] + b"????" + data[14:])
    return path.with_name("00000.jsonl.zst")


UPDATE = verifiers_writer.updates()[0]
update = verifiers_writer.update
VERIFIERS: Cases = {
    "no episode": (annotated({**UPDATE, "trace_id": "b"}), "no trace of that name"),
    "version 2": (annotated({**UPDATE, "version": 2}), "expected `version` 1; found 2"),
    "branch 2": (
        annotated(update(2, [None, -1.0])),
        "expected branch 2 in trace t1; found fewer",
    ),
    "8 annotations": (
        annotated(update(0, [-1.0] * 8)),
        "expected at most 7 annotations",
    ),
    "1 entropy of 7": (
        annotated(update(0, [-1.0] * 7, entropies=[1.0])),
        "expected 7 numbers in `entropies`",
    ),
    "other bytes in the middle": (packed_badly, "zstd cannot unpack"),
}


def ledger(*queries: str) -> Make:
    """Copy martingale's demo, and change it."""

    def make(folder: Path) -> Path:
        path = Path(shutil.copy(DATA / "martingale-0.2.0/tokens.db", folder))
        with closing(sqlite3.connect(path)) as database, database:
            for query in queries:
                database.execute(query)
        return path

    return make


MARTINGALE: Cases = {
    "another database": (
        ledger("DROP TABLE scores", 'CREATE TABLE "a""; DROP" (x)'),
        "llm_revisions",
    ),
    "cut off": (changed(ledger(), lambda data: data[:200_000]), "malformed"),
    "empty": (ledger("DELETE FROM sequences"), "with sequences; found none"),
}


def proto(data: bytes = b"", **changes: Any) -> Make:
    """Write verl's DataProto; with no tensor where data are given."""
    fields = {**verl_writer.small_batch(), **changes}
    return written(data or verl_writer.pickled(fields))


NESTED = {
    "<NJT_VALUES>responses": torch.arange(4),
    "<NJT_LENGTHS>responses": torch.tensor([9, -9]),
    "<NJT_OFFSETS>responses": torch.tensor([0, 9, 4]),
}
PROTO = verl_writer.pickled(verl_writer.small_batch())
REAL = b"K\x20K\x60K\x00t"  # `responses` stands from byte 32 to 96
assert PROTO.count(REAL) == 1
VERL: Cases = {
    "ROLL without tensors": (
        written(verl_writer.roll_pickled({})),
        "expected ROLL's tensors; found a DataProto without any: `transfer_backend`",
    ),
    "a payload without a TensorDict": (
        saved({"tensordict": [1, 2], "keys": []}),
        "found a V1 payload without a TensorDict",
    ),
    "records that are texts": (
        written(
            verl_writer.pickled(
                verl_writer.small_batch(), {"round_records": [["x"], []]}
            )
        ),
        "`round_records`: expected 2 lists of dict",
    ),
    **{
        f"tensors from {start} to {stop}": (
            written(PROTO.replace(REAL, bytes([75, start, 75, stop, 75, 0, 116]))),
            "found bytes",
        )
        for start, stop in ((0xF0, 0x60), (0x20, 0x21), (0x20, 0x10), (0xF0, 0xFF))
    },
    "nested lengths that lie": (
        written(verl_writer.pickled(NESTED)),
        "`responses`: expected rows of numbers; found ",
    ),
    "nested offsets that fall": (
        written(verl_writer.pickled(without(NESTED, "<NJT_LENGTHS>responses"))),
        "found offsets that do not rise from 0 to the end.",
    ),
    **{
        f"{share} of a DataProto": (
            written(PROTO[: int(len(PROTO) * share)]),
            WHOLE + "a bad pickle: ",
        )
        for share in (0.1, 0.5, 0.9, 0.999)
    },
}


class Lie:
    """Pickles as a tensor with this offset, shape and stride, on a real storage."""

    def __init__(
        self, offset: int, shape: tuple[int, ...], stride: tuple[int, ...]
    ) -> None:
        self.view = (offset, shape, stride)
        self.storage = torch.zeros(4).untyped_storage()

    def __reduce__(self) -> tuple[object, ...]:
        typed = torch.storage.TypedStorage(
            wrap_storage=self.storage, dtype=torch.float32, _internal=True
        )
        hooks: OrderedDict[str, object] = OrderedDict()
        return torch._utils._rebuild_tensor_v2, (typed, *self.view, False, hooks)


LIES = {
    "a negative stride": Lie(3, (2, 2), (-1, 1)),
    "a negative size": Lie(0, (2, -2), (1, 1)),
    "a negative offset": Lie(-1, (2, 2), (2, 1)),
    "an offset beyond the storage": Lie(4, (1, 1), (1, 1)),
    "a shape beyond the storage": Lie(0, (2, 3), (3, 1)),
    "a stride beyond the storage": Lie(0, (2, 2), (HUGE, 1)),
    "a terabyte of one element": Lie(0, (1, HUGE), (0, 0)),
    "more elements than there are numbers": Lie(0, (HUGE, HUGE), (0, 0)),
    "fewer strides than sizes": Lie(0, (2, 2), (1,)),
}
SMALL = verl_writer.small_batch()


def at(mark: bytes, offset: int, value: bytes) -> Callable[[bytes], bytes]:
    """Return a change of the bytes after the last such mark in a file."""

    def change(data: bytes) -> bytes:
        start = data.rindex(mark) + offset
        return data[:start] + value + data[start + len(value) :]

    return change


def zip_bomb(folder: Path) -> Path:
    with zipfile.ZipFile(folder / "a.pt", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", b"\0" * 10_000_000)
    return folder / "a.pt"


TORCH: Cases = {
    **{
        f"{name}, {'zipped' if is_zip else 'older format'}": (
            saved({**SMALL, "responses": lie}, is_zip=is_zip),
            AGAIN,
        )
        for name, lie in LIES.items()
        for is_zip in (True, False)
    },
    "a storage that claims too much": (
        changed(
            saved({"x": torch.zeros(3)}, is_zip=False),
            lambda data: data[:-20] + struct.pack("<Q", HUGE) + data[-12:],
        ),
        WHOLE + "bytes ",
    ),
    "half a zip": (
        changed(saved(SMALL), lambda data: data[: len(data) // 2]),
        WHOLE + "a bad zip: File is not a zip file.",
    ),
    "a directory that points elsewhere": (
        changed(saved(SMALL), at(b"PK\x01\x02", 42, struct.pack("<L", 7))),
        "no zip entry where",
    ),
    "an entry larger than the file": (
        changed(saved(SMALL), at(b"PK\x01\x02", 24, b"\xf0\xff\xff\xff")),
        "found bytes",
    ),
    "a zip bomb, unread": (
        zip_bomb,
        "expected tensors stored as they are; found 'archive/data.pkl' compressed.",
    ),
    "a key that hashes as others": (
        written(b"\x80\x04}\x8a\x09" + b"\x00" * 8 + b"\xffNs."),
        "a dictionary key that is not a plain value but a int",
    ),
    "a storage that is not in the zip": (
        changed(saved(SMALL), lambda data: data.replace(b"data/1", b"data/_")),
        "found no storage '1' in the zip. ",
    ),
}


def safetensors(header: object, data: bytes = b"\0" * 64) -> Make:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    whole = struct.pack("<Q", len(text)) + text + data
    return written(whole, "a.safetensors")


def npz(shape: str) -> Make:
    """Write an array whose header has this shape."""
    text = f"{{'descr': '<i8', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    npy = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + b"\0" * 64

    def make(folder: Path) -> Path:
        with zipfile.ZipFile(folder / "a.npz", "w") as archive:
            archive.writestr("responses.npy", npy)
        return folder / "a.npz"

    return make


class Evil:
    def __reduce__(self) -> tuple[object, ...]:
        return print, ("executed",)


def npz_of_objects(folder: Path) -> Path:
    fields: dict[str, Any] = {name: value.numpy() for name, value in SMALL.items()}
    np.savez(folder / "a.npz", uid=np.array([Evil(), "b"], dtype=object), **fields)
    return folder / "a.npz"


def npz_compressed(folder: Path) -> Path:
    np.savez_compressed(folder / "a.npz", responses=np.zeros((2, 4), dtype=np.int64))
    return folder / "a.npz"


ENTRIES: list[object] = [
    {"dtype": "I64", "shape": [2, HUGE], "data_offsets": [0, 64]},
    {"dtype": "I64", "shape": [2, 2], "data_offsets": [0, 65]},
    {"dtype": "I64", "shape": [2, 2], "data_offsets": [-8, 32]},
    {"dtype": "I64", "shape": [2, 2], "data_offsets": [32, 0]},
    {"dtype": "I64", "shape": [2, "2"], "data_offsets": [0, 32]},
    {"dtype": "C64", "shape": [2, 2], "data_offsets": [0, 32]},
    {"dtype": "I64", "shape": [2, 2]},
    ["I64"],
]
ARRAYS: Cases = {
    **{
        f"an entry of safetensors, {entry}": (safetensors({"responses": entry}), AGAIN)
        for entry in ENTRIES
    },
    "a header 50,000 deep": (safetensors(b"{" * 50_000), "no JSON"),
    "a header that is cut off": (safetensors(b'{"a":'), "no JSON"),
    "a header of nothing": (safetensors(b"{}"), "expected a saved batch"),
    "an array of 8 TB": (npz("(1099511627776,)"), "found bytes 0 to 8796093022208 of"),
    "an array of -1": (npz("(2, -1)"), "a tensor of an impossible shape"),
    "a shape 3,000 deep": (npz("(" * 3000), "an array without a good header"),
    "a call in an array of objects": (
        npz_of_objects,
        "a call of `builtins.print`, which was not made",
    ),
    "a compressed npz": (
        npz_compressed,
        "expected tensors stored as they are; found 'responses.npy' compressed.",
    ),
}


def parquet(footer: bytes | None = None, **changes: Any) -> Make:
    """Write a file of ours with another footer or other columns."""
    return lambda folder: ours.write(folder / "odd.parquet", footer, **changes)


def marked(name: str, array: pa.Array, marks: dict[str, str]) -> Make:
    """Write a file of ours with marks of a column."""
    field = pa.field(name, array.type, metadata=marks)
    return lambda to: ours.write_table(to / "odd.parquet", {field: array})


def twice(folder: Path) -> Path:
    names = [*ours.COLUMNS, "old_log_probs"]
    arrays = [*ours.COLUMNS.values(), ours.COLUMNS["old_log_probs"]]
    footer = {b"rounddiag": json.dumps(ours.FOOTER)}
    table = pa.table(arrays, names=names).replace_schema_metadata(footer)
    pq.write_table(table, folder / "twice.parquet")
    return folder / "twice.parquet"


NOT_OURS = "`rounddiag`: expected JSON with `version`, `step`, `tokenizer` and `meta`;"
NO_DTYPE = "expected the name of a dtype in the column's metadata; found "
NO_META = {**ours.FOOTER, "meta": None}
IDS = ours.COLUMNS["response_ids"]
OURS: Cases = {
    "version 3": (
        parquet(b'{"version": 3}'),
        "`rounddiag`: expected version 2 of the layout; found version 3. Update rou",
    ),
    **{
        f"a footer of {footer!r}": (parquet(footer), f"{NOT_OURS} found {found}. Save")
        for footer, found in [
            (b"[1]", "[1]"),
            (b'{"version": "1"}', "{'version': '1'}"),
            (b'{"version": true}', "{'version': True}"),
            (b'{"version": 1}', "{'version': 1}"),
            (json.dumps(NO_META).encode(), str(NO_META)),
            (b"", "no JSON: Expecting value: line 1 column 1 (char 0)"),
        ]
    },
    "no text": (parquet(b"\xff\xfe"), NOT_OURS),
    "a deep footer": (parquet(b"[" * 1_000_000), NOT_OURS),
    "a long number": (parquet(b'{"version": ' + b"9" * 100_000 + b"}"), NOT_OURS),
    "a text over 4 MiB": (parquet(b'"' + b"x" * 5_000_000 + b'"'), "`rounddiag`: exp"),
    "no mask": (
        parquet(response_mask=None),
        "`response_mask`: expected one column of this name; found 0 among response_ids",
    ),
    "two columns of one name": (twice, "expected one column of this name; found 2"),
    "ids of numbers": (
        parquet(response_ids=pa.array([3])),
        "`response_ids`: expected a list in each row; found int64.",
    ),
    "ids of null": (
        parquet(response_ids=pa.array([None], ours.INTS)),
        "found list<element: int32> with 1 nulls.",
    ),
    "log-probs of texts": (
        parquet(old_log_probs=pa.array([["a", "b"]])),
        "`old_log_probs`: expected a list of numbers in each row; found string.",
    ),
    "log-probs of null": (
        parquet(old_log_probs=pa.array([[-1.5, None]], ours.FLOATS)),
        "found float with 1 nulls.",
    ),
    "a score of another length": (
        parquet(**{"score:ref": pa.array([[-1.5]], ours.FLOATS)}),
        "`score:ref`: expected 2 values in row 0, as `response_mask`; found 1.",
    ),
    "groups of numbers": (
        parquet(group_id=pa.array([1])),
        "`group_id`: expected strings; found int64.",
    ),
    "rewards of texts": (
        parquet(reward=pa.array(["1"])),
        "`reward`: expected numbers; found string.",
    ),
    "round columns of numbers": (
        parquet(round_columns=pa.array([[1, 2]])),
        "`round_columns`: expected a list of structs in each row; found int64.",
    ),
    "places of another shape": (
        parquet(
            position_ids=pa.array([[1, 2]], ours.INTS),
            position_ids_shape=pa.array([[3]], ours.INTS),
        ),
        "`position_ids_shape`: expected the shape of each row of `position_ids`;",
    ),
    "pictures that are paths": (
        parquet(screenshots=pa.array([["a.png"]])),
        "and `screenshot_facts` beside it; found list<element: string>, None.",
    ),
    "log-probs of whole numbers": (
        parquet(old_log_probs=pa.array([[1, 2]], ours.INTS)),
        "`old_log_probs`: expected floating-point log-probabilities; found torch.int32",
    ),
    "a mask of 7": (
        parquet(response_mask=pa.array([[0, 7]], ours.INTS)),
        "`response_mask`: expected a mask of 0 and 1; found the value 7.",
    ),
    **{
        f"a tensor of {mark!r}": (
            marked("response_ids", IDS, {"rounddiag.dtype": mark}),
            f"`response_ids`: {NO_DTYPE}{mark.encode()!r}.",
        )
        for mark in ("float7", "\u00fc", "", "O", "numpy.int64")
    },
    **{
        f"an array of {mark!r}": (
            marked("sample:x", pa.array([1]), {"rounddiag.dtype": mark}),
            f"`sample:x`: {NO_DTYPE}{mark.encode()!r}.",
        )
        for mark in ("O", "V9", "nothing", "(9,9)i4", "i4,f8", "")
    },
    "values that are not of their dtype": (
        marked("sample:x", pa.array([float("nan")]), {"rounddiag.dtype": "int8"}),
        f"`sample:x`: {NO_DTYPE}b'int8'.",
    ),
    **{
        f"a cell of JSON that is {cell!r}": (
            marked("sample:x", pa.array([cell]), {"rounddiag": "json"}),
            "expected a whole Parquet file as",
        )
        for cell in ("{", None, 3)
    },
    "a page without a header": (
        changed(parquet(), lambda data: data[:4] + b"\xff" * 4 + data[8:]),
        "expected a whole Parquet file as",
    ),
}


def table(columns: Any, name: str = "a.parquet") -> Make:
    """Write a table of another program."""

    def make(folder: Path) -> Path:
        made = columns if isinstance(columns, pa.Table) else pa.table(columns)
        pq.write_table(made, folder / name)
        return folder / name

    return make


def feathered(folder: Path) -> Path:
    feather.write_feather(pa.table(COLUMNS), str(folder / "a.dat"))
    return folder / "a.dat"


def streamed(folder: Path, columns: Any = COLUMNS) -> Path:
    whole = pa.table(columns)
    with (
        pa.OSFile(str(folder / "a.arrow"), "wb") as file,
        pa.ipc.new_stream(file, whole.schema) as to,
    ):
        to.write_table(whole, max_chunksize=1)
    return folder / "a.arrow"


def offset_of(last: int) -> bytes:
    return np.array([0, 1, 3, last], dtype="<i4").tobytes()


def false_offsets(folder: Path) -> Path:
    path = folder / "a.arrow"
    whole = pa.table({"response_ids": [[1], [2, 3], [4]]})
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, whole.schema) as to:
        to.write_table(whole)
    assert path.read_bytes().count(offset_of(4)) == 1
    path.write_bytes(path.read_bytes().replace(offset_of(4), offset_of(1 << 20)))
    return path


def cut(share: float) -> Callable[[bytes], bytes]:
    return lambda data: data[: int(len(data) * share)]


FRAME = pd.DataFrame(COLUMNS)
ROWS = "`old_log_probs`: expected rows of numbers; found "
TABLES: Cases = {
    "rows of another length": (
        table({**COLUMNS, "old_log_probs": [[-1.5, -9.0], [-0.25]]}),
        "`old_log_probs`: expected 2 rows of [3, 1] positions; found 2 rows of [2, 1]",
    ),
    "a row of null": (
        table({**COLUMNS, "old_log_probs": [[-1.5, -9.0, -2.0], None]}),
        "`old_log_probs`: expected a table of numbers, texts and lists of numbers;"
        " found null in 1 of 2 rows.",
    ),
    "two columns of one name": (
        table(pa.Table.from_arrays([pa.array([1])] * 2, ["lp", "lp"])),
        "expected one column of each name; found 2 columns of 1 names.",
    ),
    "two columns of a frame": (
        held(pd.concat([FRAME, FRAME[["turns"]]], axis=1)),
        "DataFrame: expected one column of each name; found 11 columns of 10 names.",
    ),
    "offsets that lie": (false_offsets, "expected a table"),
    **{
        f"{share} of {name}": (changed(make, cut(share)), WHOLE)
        for name, make in [
            ("Parquet", table(COLUMNS)),
            ("Feather", feathered),
            ("a stream", streamed),
        ]
        for share in (0.1, 0.5, 0.9, 0.99)
    },
    "rows of texts": (
        held({**COLUMNS, "old_log_probs": [["a"], ["b"]]}),
        f"{ROWS}a list of other values in row 0.",
    ),
    "a row of nothing": (
        held({**COLUMNS, "old_log_probs": [[1, 2], None]}),
        f"{ROWS}nothing in row 1.",
    ),
    "rows of uneven lists": (
        held({**COLUMNS, "old_log_probs": [[[1], [2, 3]], [1]]}),
        f"{ROWS}a list of other values in row 0.",
    ),
    "no rows": (held({**COLUMNS, "response_ids": []}), "`response"),
    "ids of no dimension": (
        held({**COLUMNS, "response_ids": [np.array(5), np.array(6)]}),
        "`response",
    ),
    "pictures of too few samples": (
        held({**COLUMNS, "images": [b"1"]}),
        "`images`: expected 2 rows, one per sample; found 1.",
    ),
    **{
        f"{name} of {odd}": (
            table({**COLUMNS, name: pa.array(values, pa.list_(pa.float64()))}),
            f"`{name}`: expected whole numbers",
        )
        for name in ("response_ids", "prompt_ids")
        for odd in (None, 2.5)
        for values in [[[odd, *map(float, row[1:])] for row in COLUMNS[name]]]
    },
    "a list of numbers": (
        held([1, 2]),
        "expected a saved batch; found a list of 2 values, not all of them objects.",
    ),
    "empty rows": (
        held([{}, {"a": 1}]),
        "expected a saved batch; found JSON objects, the first of them empty: texts",
    ),
    **{
        f"{found} in memory": (
            held(data),
            "expected a path, a mapping of columns, a list of rows, a frame or a data"
            f" set; found {found}.",
        )
        for data, found in list[tuple[Any, str]](
            [
                (None, "nothing"),
                (3, "a number"),
                (torch.zeros(2), "a single tensor"),
                (np.zeros(2), "a single numpy array"),
            ]
        )
    },
}
FORMATS = ". `rounddiag.formats()` lists what can be opened."
NAMES = '"rollout_log_probs": "...", "old_log_probs": "..."}`.'
OTHERS: Cases = {
    **{
        found: (written(content, "step_1.jsonl"), f"a saved batch; found {found}")
        for content, found in [
            (b"<html>", "HTML or XML text"),
            (gzip.compress(b"a", mtime=0), "bytes that start with b'a'"),
            (gzip.compress(b"PAR1"), "a parquet file in a packed one. Unpack it first"),
            (
                b"ids,mask\n1,2\n",
                "text with commas, as in a CSV file. Lists of numbers",
            ),
            (b"\x93NUMPY\x01\x00", "a single numpy array"),
            (b"hello, world", "bytes that start with b'hello, w'"),
            (b"\x80\x04K\x03.", "a pickle of a number"),
        ]
    },
    "nothing": (saved(None), "found a pickle of nothing"),
    "weights": (
        saved({"layer.weight": torch.zeros(2, 2), "layer.bias": torch.zeros(2)}),
        "model weights, not a batch",
    ),
    "weights without layers": (
        saved({"weight": torch.zeros(2, 2), "bias": torch.zeros(2)}),
        f"found a dictionary of weight, bias{FORMATS} Name the columns: `columns="
        f'{{"response_ids": "...", "response_mask": "...", {NAMES}',
    ),
    "a table that lacks columns": (
        saved({"old_log_probs": torch.zeros(2, 2)}),
        'columns={"response_ids": "...", "response_mask": "...", "rollout_log_probs":',
    ),
    "columns under other names": (
        written(
            b'{"ids": [5], "mask": [1], "vllm_lp": [-1.5], "train_lp": [-2.5]}',
            "a.jsonl",
        ),
        "one JSON object of ids, mask, vllm_lp, train_lp. ",
    ),
    "no path": (
        lambda folder: folder / "none.pkl",
        "expected a file, a folder or a glob; found nothing.",
    ),
    "no path of a glob": (
        lambda folder: folder / "none_*.pkl",
        "expected a file, a folder or a glob; found nothing.",
    ),
    **{
        url: (held(url), "expected a local path; found a URL.")
        for url in ("s3://bucket/a.pt", "https://host/a.pt")
    },
}
CASES: dict[str, tuple[Make, str]] = {
    f"{kind}: {name}": case
    for kind, cases in {
        "SkyRL": SKYRL,
        "NeMo-RL": NEMO_RL,
        "prime-rl": PRIME_RL,
        "slime": SLIME,
        "miles' dashboard": DASHBOARD,
        "verifiers": VERIFIERS,
        "martingale": MARTINGALE,
        "verl": VERL,
        "torch": TORCH,
        "arrays": ARRAYS,
        "ours": OURS,
        "tables": TABLES,
        "another": OTHERS,
    }.items()
    for name, case in cases.items()
}


@pytest.mark.parametrize("name", CASES)
def test_the_error_says_what_is_wrong(name: str, tmp_path: Path) -> None:
    make, message = CASES[name]
    found = refused_file(make(tmp_path))
    assert message in found
    assert len(found) < 800


def test_what_is_changed_is_sound_before(tmp_path: Path) -> None:
    for make in (skyrl(), nemo_rl(NEMO), prime_rl(PRIME), trained(), parquet()):
        assert load(make(tmp_path)).num_tokens > 0
