from __future__ import annotations

import re
import struct
from hashlib import blake2b
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from rounddiag.batch import Batch
from rounddiag.batch.contexts import SAMPLER_PROMPTS
from rounddiag.capture import Recorder, round_record, save_batch
from rounddiag.core import round_frame
from rounddiag.errors import BatchError
from rounddiag.loaders.parquet import load_parquet
from tests.capture.conftest import DataProto, rows


def save_and_load(proto: DataProto, folder: Path) -> Batch:
    save_batch(proto, folder / "step.parquet")
    return load_parquet(folder / "step.parquet")


def columns_of(batch: Batch) -> dict[str, list[Any]]:
    return {name: values.tolist() for name, values in batch.round_columns.items()}


def test_a_record_of_one_call() -> None:
    def hashed(data: bytes) -> str:
        return blake2b(data, digest_size=8).hexdigest()

    picture = Image.new("RGB", (4, 3))
    record = round_record([5, 6, 7], [8, 9], images=[picture, b"a"], request_id="r")
    assert record == {
        "num_tokens": 2,
        "prompt_length": 3,
        "prompt_hash": hashed(struct.pack("=3q", 5, 6, 7)),
        "num_images": 2,
        "image_hashes": [hashed(bytes(4 * 3 * 3)), "40f89e395b66422f"],
        "request_id": "r",
    }


def test_equal_prompts_have_equal_hashes_in_any_form() -> None:
    forms = [[5, 6], (5, 6), np.array([5, 6], dtype=np.int32), torch.tensor([5, 6])]
    hashes = {round_record(form, [])["prompt_hash"] for form in forms}  # type: ignore[arg-type]
    assert len(hashes) == 1
    assert hashes != {round_record([6, 5], [])["prompt_hash"]}


def test_records_become_columns_of_rounds(proto: DataProto, tmp_path: Path) -> None:
    proto.non_tensor_batch["round_records"] = rows(
        [
            round_record([1], [7, 7], weight_version=3, cached_tokens=None),
            round_record([1, 7, 7], [8], weight_version=4, images=[b"a"]),
        ],
        [round_record([2], [7, 7], weight_version=3, finish_reason="stop")],
    )
    batch = save_and_load(proto, tmp_path)
    found = columns_of(batch)
    assert [len(value) for value in found.pop("prompt_hash")] == [16, 16, 16]
    assert [len(value) for value in found.pop("image_hashes")] == [0, 1, 0]
    assert found == {
        "sample": [0, 0, 1],
        "round": [0, 1, 0],
        "num_tokens": [2, 1, 2],
        "prompt_length": [1, 3, 1],
        "num_images": [0, 1, 0],
        "weight_version": [3, 4, 3],
        "cached_tokens": [None, None, None],
        "finish_reason": [None, None, "stop"],
    }
    frame = round_frame(batch)
    assert frame["weight_version"].tolist()[:3] == [3, 4, 3]
    assert frame["weight_version"].isna().tolist() == [False, False, False, True]


def test_a_recorder_keeps_prompts_that_are_not_the_tokens_before_a_round(
    proto: DataProto, tmp_path: Path
) -> None:
    """Prompt 3 4, round 7 7, eight image tokens, round 8, which lost the prompt."""
    image = int(proto.batch["responses"][0, 2])
    known = [3, 4, 7, 7, *[image] * 8]
    proto.non_tensor_batch["round_records"] = rows(
        [
            round_record([3, 4], [7, 7], keep_prompt=True),
            round_record(known[2:], [8], keep_prompt=True),
        ],
        [round_record([3, 4, 5], [7, 7], keep_prompt=True), {}],
    )
    with Recorder(tmp_path, prove_samples=2) as recorder:
        recorder.step(40, proto)
    batch = load_parquet(tmp_path / "step_40.parquet")
    kept = [
        None if one is None else list(one)
        for one in batch.round_columns[SAMPLER_PROMPTS]
    ]
    assert kept == [None, known[2:], None, None]
    with Recorder(tmp_path, prove_samples=0) as recorder:
        recorder.step(40, proto)
    batch = load_parquet(tmp_path / "step_40.parquet")
    assert SAMPLER_PROMPTS not in batch.round_columns
    assert batch.meta["versions"]["torch"] == version("torch")
    # Processors of one transformers resize otherwise with another Pillow.
    assert batch.meta["versions"]["pillow"] == version("pillow")


def test_records_in_the_extra_fields_of_the_v1_trainer(
    proto: DataProto, tmp_path: Path
) -> None:
    proto.non_tensor_batch["extra_fields"] = rows(
        {"round_records": [{"request_id": "r"}], "turn_scores": []}, {}
    )
    assert columns_of(save_and_load(proto, tmp_path)) == {
        "sample": [0],
        "round": [0],
        "request_id": ["r"],
    }


def test_a_call_without_an_answer_is_no_round_and_is_counted(
    proto: DataProto, tmp_path: Path
) -> None:
    aborted, done = round_record([1], []), round_record([1], [7, 7])
    proto.non_tensor_batch["round_records"] = rows([aborted, done], None)
    batch = save_and_load(proto, tmp_path)
    assert batch.round_columns["round"].tolist() == [0]
    assert batch.round_columns["num_tokens"].tolist() == [2]
    assert batch.meta["num_records_without_tokens"] == 1


@pytest.mark.parametrize(
    ("records", "found"),
    [
        (rows([{}]), "1"),
        (rows([{}], ["stop"]), "a str in one"),
        (rows([{}], 3), "a int in one"),
    ],
)
def test_records_that_are_no_lists_of_dictionaries(
    proto: DataProto, tmp_path: Path, records: Any, found: str
) -> None:
    proto.non_tensor_batch["round_records"] = records
    message = (
        "DataProto: `round_records`: expected 2 lists of dictionaries, one list per"
        f" sample; found {found}. Collect the return values of"
        " `rounddiag.capture.round_record`."
    )
    with pytest.raises(BatchError, match=f"^{re.escape(message)}$"):
        save_and_load(proto, tmp_path)


@pytest.mark.parametrize(
    "form", ["lists", "tensors", pytest.param("nested", marks=pytest.mark.slow)]
)
def test_the_ids_of_the_sampler(proto: DataProto, tmp_path: Path, form: str) -> None:
    ids: Any = [torch.tensor([7, 7, 8]), torch.tensor([7])]
    if form == "lists":
        ids = rows([7, 7, 8], [7])
    elif form == "nested":
        ids = torch.nested.as_nested_tensor(ids, layout=torch.jagged)
    proto.non_tensor_batch["rollout_ids"] = ids
    batch = save_and_load(proto, tmp_path)
    assert [row.tolist() for row in batch.rollout_ids] == [[7, 7, 8], [7]]
