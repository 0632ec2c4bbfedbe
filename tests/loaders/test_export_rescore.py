from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

import rounddiag as rd
from rounddiag import attach, export_rescore
from rounddiag.batch import Batch
from rounddiag.errors import BatchError
from rounddiag.vision import EncodedScreenshot, PatchScreenshot
from tests.batches import hand_batch
from tests.interop.readme import RECIPES, blocks
from tests.loaders.values import png

VOCABULARY, IMAGE = 20, 9
DATA = (*b"\x89PNG\r\n\x1a\n", *b"not more than the head")


@pytest.fixture
def batch() -> Batch:
    """The batch of `tests.batches`, with prompts of 1, 2 and 3 tokens."""
    return hand_batch(
        prompt_ids=torch.tensor([[0, 0, 1], [0, 2, 3], [4, 5, 6]]),
        prompt_mask=torch.tensor([[0, 0, 1], [0, 1, 1], [1, 1, 1]]),
        lengths=torch.tensor([4, 6, 1]),
    )


def records(folder: Path) -> list[dict[str, Any]]:
    lines = (folder / "samples.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def test_records_hold_the_exact_ids(batch: Batch, tmp_path: Path) -> None:
    named = replace(batch, sample_ids=("a", "b", "<script>"))
    export_rescore(named, tmp_path)
    assert records(tmp_path)[0] == {
        "sample": 0,
        "sample_id": "a",
        "prompt_ids": [1],
        "response_ids": [0, 1, 2, 3],
        "response_mask": [1, 1, 0, 1],
        "images": [],
        "image_positions": [],
        "image_errors": [],
        "image_sizes": [],
        "position_ids": None,
    }
    found = [record["response_ids"] for record in records(tmp_path)]
    assert found == [[0, 1, 2, 3], [6, 7, 8, 9, 10, 11], [12]]
    assert records(tmp_path)[2]["sample_id"] == "<script>"


def test_what_the_batch_lacks_is_null(tmp_path: Path) -> None:
    export_rescore(hand_batch()[1], tmp_path / "new")
    record = records(tmp_path / "new")[0]
    assert (record["sample"], record["sample_id"], record["prompt_ids"]) == (
        *(0, None, None),
    )


def test_screenshots_are_written_and_those_that_cannot_be_are_named(
    batch: Batch, tmp_path: Path
) -> None:
    jpeg = tmp_path / "shot.jpg"
    Image.new("RGB", (4, 3), "blue").save(jpeg)
    shots = (
        EncodedScreenshot(data=png("red"), round=0, position=-2),
        EncodedScreenshot(data=jpeg.read_bytes(), position=3),
        EncodedScreenshot(data=bytes(DATA)),
        PatchScreenshot(patches=lambda: torch.zeros(3, 7), grid_thw=(1, 2, 2)),
    )
    folder = tmp_path / "out"
    export_rescore(replace(batch, images=((), shots, ())), folder)
    record = records(folder)[1]
    names = ["images/00001-000.png", "images/00001-001.png", None, None]
    assert record["images"] == names
    assert record["image_positions"] == [-2, 3, None, None]
    assert record["image_errors"][:3] == [
        None,
        None,
        "`images`: expected a picture in PNG, JPEG, WEBP, TIFF, BMP, GIF; found 30"
        " bytes that start with b'\\x89PNG\\r\\n\\x1a\\n'. The numbers of the batch"
        " are not affected.",
    ]
    assert record["image_errors"][3]
    assert (folder / "images/00001-000.png").read_bytes() == png("red")
    with Image.open(folder / "images/00001-001.png") as shot:
        assert (shot.format, shot.size) == ("PNG", (4, 3))
    assert len([*(folder / "images").iterdir()]) == 2


def test_a_folder_with_files_is_left_alone(batch: Batch, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    expected = re.escape(
        f"{tmp_path}: expected a folder that is new or empty; found one with files."
        " Pass another folder: nothing is overwritten."
    )
    with pytest.raises(BatchError, match=f"^{expected}$"):
        export_rescore(batch, tmp_path)
    with pytest.raises(BatchError, match="found a file"):
        export_rescore(batch, tmp_path / "notes.txt")
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_a_redacted_batch_has_no_ids_to_score(batch: Batch, tmp_path: Path) -> None:
    rd.save(batch, tmp_path / "batch.parquet", redact=True)
    expected = re.escape(
        "This batch was saved with `redact=True`, which leaves out token ids and text:"
        " load the original file."
    )
    with pytest.raises(BatchError, match=f"^{expected}$"):
        export_rescore(rd.load(tmp_path / "batch.parquet"), tmp_path / "out")


def test_no_sample(batch: Batch, tmp_path: Path) -> None:
    export_rescore(batch[:0], tmp_path)
    assert records(tmp_path) == []


@settings(max_examples=min(30, settings().max_examples))
@given(ids=st.lists(st.integers(0, (1 << 63) - 1), min_size=1, max_size=5))
def test_ids_of_any_size_survive(
    ids: list[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    row, zeros = torch.tensor([ids]), torch.zeros(1, len(ids))
    batch = rd.Batch.from_padded(
        response_ids=row,
        response_mask=torch.ones_like(row),
        rollout_log_probs=zeros,
        old_log_probs=zeros,
    )
    folder = tmp_path_factory.mktemp("ids")
    export_rescore(batch, folder)
    assert records(folder)[0]["response_ids"] == ids
    source = {"sample": [0], "token_ids": [ids], "log_probs": [[-1.0] * len(ids)]}
    assert attach(batch, "x", source).scores["x"].tolist() == [-1.0] * len(ids)


def loop_of(name: str, folder: Path) -> str:
    """The loop in the recipe's script for one engine, for another folder."""
    (code,) = blocks(RECIPES, f"rescore-{name}")
    loop = code[code.index("with open") :]
    return loop.replace("scores.jsonl", f"{folder}/scores.jsonl").replace(
        "folder/", f"{folder}/"
    )


def log_probs_after(ids: torch.Tensor) -> torch.Tensor:
    """An engine whose logit of token t after token s is (s + t) % 3."""
    logits = (ids[:, None] + torch.arange(VOCABULARY)) % 3
    return logits.double().log_softmax(-1)


def check_scores(batch: Batch, folder: Path) -> None:
    """Attach the scores, and compare with what the engine must have given."""
    rescored = attach(batch, "rescored", folder / "scores.jsonl")
    tokens = rd.token_frame(rescored, ["rollout_log_prob"], a="rescored", b="rollout")
    # Which token came before: that before the response is the prompt's last.
    pairs = [(1, 0), (0, 1), (2, 3), (6, 7), (7, 8), (8, 9), (10, 11), (6, 12)]
    expected = [log_prob(*pair) for pair in pairs] - tokens["rollout_log_prob"]
    np.testing.assert_allclose(tokens["diff"], expected, atol=1e-6)


def log_prob(before: int, token: int) -> float:
    weights = [math.exp((before + t) % 3) for t in range(VOCABULARY)]
    return math.log(weights[token] / sum(weights))


def test_the_transformers_loop_of_the_recipe(batch: Batch, tmp_path: Path) -> None:
    def model(input_ids: torch.Tensor) -> SimpleNamespace:
        return SimpleNamespace(logits=log_probs_after(input_ids[0])[None])

    folder = tmp_path / "out"
    export_rescore(batch, folder)
    names = {"model": model, "torch": torch, "json": json}
    exec(loop_of("transformers", folder), names)  # noqa: S102 our own recipe
    check_scores(batch, folder)


class Vllm:
    """Writes two image tokens where one stands, as vLLM does for each patch."""

    def __init__(self) -> None:
        self.prompts: list[dict[str, Any]] = []

    def generate(self, prompt: dict[str, Any], _: object) -> list[SimpleNamespace]:
        self.prompts.append(prompt)
        twice = [[t, t] if t == IMAGE else [t] for t in prompt["prompt_token_ids"]]
        ids = [token for group in twice for token in group]
        rows = log_probs_after(torch.tensor(ids)).tolist()
        candidates = [
            {token: SimpleNamespace(logprob=row[token]), 0: SimpleNamespace(logprob=0)}
            if token
            else {token: SimpleNamespace(logprob=row[token])}
            for token, row in zip(ids[1:], rows, strict=False)
        ]
        return [
            SimpleNamespace(prompt_token_ids=ids, prompt_logprobs=[None, *candidates])
        ]


def test_the_vllm_loop_of_the_recipe(batch: Batch, tmp_path: Path) -> None:
    shot = EncodedScreenshot(data=png("red"))
    ids = batch.require_ids().clone()
    ids[8:10] = IMAGE  # sample 1: 6, 7, 9, 9, 10, 11
    seen = replace(batch, response_ids=ids, images=((), (shot,), ()))
    folder, llm = tmp_path / "out", Vllm()
    export_rescore(seen, folder)
    names = {"llm": llm, "params": None, "json": json, "Image": Image, "IMAGE": IMAGE}
    exec(loop_of("vllm", folder), names)  # noqa: S102 our own recipe
    rescored = attach(seen, "rescored", folder / "scores.jsonl")
    assert llm.prompts[1]["prompt_token_ids"] == [2, 3, 6, 7, 9, 10, 11]
    assert [*llm.prompts[0]] == ["prompt_token_ids"]
    pictures = llm.prompts[1]["multi_modal_data"]["image"]
    assert [picture.size for picture in pictures] == [(4, 3)]
    found = rescored.scores["rescored"][rescored.response_mask != 0].tolist()
    pairs = [(1, 0), (0, 1), (2, 3), (6, 7), (7, 9), (9, 9), (10, 11), (6, 12)]
    assert found == pytest.approx([log_prob(*pair) for pair in pairs])
