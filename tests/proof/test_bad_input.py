"""What a proof cannot be made of: each an error that says what to do."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import rounddiag as rd
from rounddiag.batch import Batch
from rounddiag.errors import BatchError, LoadError
from rounddiag.proof.engines.engine import Readout
from rounddiag.proof.engines.local import LocalEngine
from rounddiag.proof.hypotheses.processor import Seen

SAMPLE_DATA = Path(__file__).parents[2] / "sample_data"
MODEL = SAMPLE_DATA / "model"
IMAGE = 5


@pytest.fixture(scope="module")
def engine() -> LocalEngine:
    return LocalEngine.open(str(MODEL), dtype="float32")


@pytest.fixture(scope="module")
def batch() -> Batch:
    return rd.load(SAMPLE_DATA / "healthy.parquet")[:2]


def test_pictures_that_are_missing(batch: Batch, engine: LocalEngine) -> None:
    without = replace(batch, images=None)
    with pytest.raises(BatchError, match="Save the pictures of this sample"):
        rd.prove(without, engine)


def test_pictures_of_another_size(batch: Batch, engine: LocalEngine) -> None:
    """One picture too few in front: the tokens are those of other pictures."""
    assert batch.images is not None
    fewer = replace(batch, images=tuple(shots[1:] for shots in batch.images))
    with pytest.raises(BatchError, match="pictures for all 24 image tokens"):
        rd.rescore(fewer, engine, samples=[0])


def test_an_engine_that_is_used_twice_sees_the_pictures_of_each_batch(
    batch: Batch, engine: LocalEngine
) -> None:
    assert batch.images is not None
    turned = replace(batch, images=tuple(shots[::-1] for shots in batch.images))
    wrong = rd.rescore(turned, engine).scores["rescored"]
    right = rd.rescore(batch, engine).scores["rescored"]
    mask = batch.response_mask != 0
    assert float((right - batch.log_probs("old"))[mask].abs().max()) < 1e-4
    assert float((wrong - right)[mask].abs().max()) > 0.001


def test_an_image_token_that_the_model_wrote(batch: Batch, engine: LocalEngine) -> None:
    ids = batch.require_ids().clone()
    ids[(batch.response_mask != 0).nonzero()[3]] = IMAGE
    with pytest.raises(BatchError, match="Leave this sample out"):
        rd.rescore(replace(batch, response_ids=ids), engine, samples=[0])


def test_a_sample_that_cannot_be_scored_is_left_out_and_named(
    batch: Batch, engine: LocalEngine
) -> None:
    ids = batch.require_ids().clone()
    ids[(batch.response_mask != 0).nonzero()[3]] = IMAGE
    proof = rd.prove(
        replace(batch, response_ids=ids), engine, hypotheses=["grey_images"]
    )
    assert proof.not_tested["sample 0"].startswith("expected no image token")
    assert proof.batch.num_samples == 1


def test_a_cut_response_is_scored_as_far_as_it_goes(
    batch: Batch, engine: LocalEngine
) -> None:
    """Its last picture comes after the cut: it has no image tokens."""
    cut = rd.Batch.from_rows(
        response_ids=[batch.require_ids()[:30]],
        response_mask=[batch.response_mask[:30]],
        old_log_probs=[batch.log_probs("old")[:30]],
        rollout_log_probs=[batch.log_probs("rollout")[:30]],
        prompt_ids=[batch.prompt_ids[: int(batch.prompt_offsets[1])]],  # type: ignore[index]
        images=[batch.images[0]],  # type: ignore[index]
    )
    rescored = rd.rescore(cut, engine).scores["rescored"]
    mask = cut.response_mask != 0
    assert float((rescored - cut.log_probs("old"))[mask].abs().max()) < 1e-4


def test_a_folder_with_code_of_its_own(tmp_path: Path, batch: Batch) -> None:
    folder = tmp_path / "model"
    shutil.copytree(MODEL, folder)
    config = json.loads((folder / "config.json").read_text())
    config["model_type"] = "of_its_own"
    config["auto_map"] = {"AutoConfig": "evil.Config", "AutoModel": "evil.Model"}
    (folder / "config.json").write_text(json.dumps(config))
    ran = tmp_path / "ran"
    code = f"from pathlib import Path\nPath({str(ran)!r}).touch()\n"
    (folder / "evil.py").write_text(code)
    with pytest.raises(LoadError, match="Read that code, then pass"):
        rd.prove(batch, str(folder))
    assert not ran.exists()


def readout(head: Any) -> Readout:
    ids = torch.arange(600) % 7
    at = torch.arange(1, 600)
    seen = Seen(ids, at, torch.ones(599, dtype=torch.long), 7)
    hidden = torch.randn(599, 7, generator=torch.Generator().manual_seed(0))
    return Readout(hidden, head, ids[1:], seen)


def test_with_little_memory_fewer_logits_are_held_at_once() -> None:
    sizes = []

    def head(hidden: torch.Tensor) -> torch.Tensor:
        if len(hidden) > 100:
            raise torch.OutOfMemoryError
        sizes.append(len(hidden))
        return hidden

    values = readout(head).log_probs()
    assert max(sizes) == 37  # 599 // 4 // 4
    assert values.tolist() == readout(lambda hidden: hidden).log_probs().tolist()


def test_without_memory_the_error_says_what_to_do() -> None:
    def head(_: torch.Tensor) -> torch.Tensor:
        raise torch.OutOfMemoryError

    with pytest.raises(LoadError, match=r"the logits of 8 tokens.*export_rescore"):
        readout(head).log_probs()


def test_a_pass_that_does_not_fit_is_an_error(
    batch: Batch, engine: LocalEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def fail(**arguments: Any) -> None:
        asked.append(arguments)
        msg = "CUDA out of memory"
        raise torch.OutOfMemoryError(msg)

    monkeypatch.setattr(
        type(engine.model.base_model), "forward", lambda _, **a: fail(**a)
    )
    with pytest.raises(LoadError, match="memory for a pass of"):
        rd.rescore(batch, engine, samples=[0])
    assert len(asked) == 2


def test_names_are_checked_before_anything_is_loaded(batch: Batch) -> None:
    with pytest.raises(BatchError, match="hypotheses"):
        rd.prove(batch, "no/such/folder", hypotheses=["temprature"])
    with pytest.raises(BatchError, match="hypotheses"):
        rd.rescore(batch, "no/such/folder", "temprature")
    for name in ("position_gap", "position_gap_-2"):
        with pytest.raises(BatchError, match="Use the cause `position_ids`, or write"):
            rd.rescore(batch, "no/such/folder", name)
        with pytest.raises(BatchError, match="Use the cause `position_ids`, or write"):
            rd.prove(batch, "no/such/folder", hypotheses=[name])
    with pytest.raises(LoadError, match="found no such folder"):
        rd.prove(batch, "no/such/folder")


@pytest.mark.parametrize(
    ("found", "end"),
    [("HTTP 500: it died.", "it died. Ask"), ("'abc...", "'abc.... Ask")],
)
def test_an_error_that_quotes_a_sentence_has_one_full_stop(
    found: str, end: str
) -> None:
    error = BatchError.build(expected="an answer", found=found, advice="Ask again.")
    assert str(error).endswith(f"{end} again.")
