"""A proof in a file is the proof that was made."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import rounddiag as rd
from rounddiag.errors import LoadError
from rounddiag.proof import Proof
from tests.proof.fake_server import make_batch, score
from tests.proof.test_servers import without_system


def function(ids: list[int], images: list[Any]) -> Any:
    del images
    return score(ids)


@pytest.fixture(scope="module")
def batch() -> rd.Batch:
    return make_batch(without_system, pictures=False)


@pytest.fixture(scope="module")
def proof(batch: rd.Batch) -> Proof:
    return rd.prove(batch, function, hypotheses=["prompt_mismatch"])


def test_what_is_read_is_what_was_written(
    batch: rd.Batch, proof: Proof, tmp_path: Path
) -> None:
    proof.save(tmp_path / "proof.json")
    again = rd.load_proof(tmp_path / "proof.json")
    assert repr(again) == repr(proof)
    assert again.frame.equals(proof.frame)
    assert again.pair == proof.pair == ("first_message_removed", "old")
    assert again.batch.scores.keys() == proof.batch.scores.keys()
    for name, values in proof.batch.scores.items():
        assert torch.equal(again.batch.scores[name].nan_to_num(9), values.nan_to_num(9))
    assert again.batch.prompt_ids is None
    of_batch = rd.load_proof(tmp_path / "proof.json", batch)
    assert of_batch.batch.prompt_ids is not None
    assert torch.equal(of_batch.batch.require_ids(), proof.batch.require_ids())
    assert rd.token_frame(of_batch.batch, a="base", b="old").equals(
        rd.token_frame(proof.batch, a="base", b="old")
    )


def edit(text: str, change: str) -> str:
    facts = json.loads(text)
    if change == "verdict":
        facts["proof"]["value"] = [["verdict", "proved"]]
    if change == "type":
        facts["proof"]["type"] = "os.system"
    if change == "ids":
        facts["batch"]["response_ids"][0] = [[1], [2]]
    if change == "kind":
        del facts["rounddiag_proof"]
    return json.dumps(facts)


@pytest.mark.parametrize("change", ["verdict", "type", "ids", "kind"])
def test_a_file_that_was_changed_is_an_error(
    proof: Proof, tmp_path: Path, change: str
) -> None:
    path = tmp_path / "proof.json"
    proof.save(path)
    path.write_text(edit(path.read_text(), change))
    with pytest.raises(LoadError, match=r"proof\.json: expected a proof"):
        rd.load_proof(path)


@pytest.mark.parametrize("text", ["", "[" * 100_000, "7", "\udcff", "{}"])
def test_a_file_of_something_else_is_an_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "proof.json"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(LoadError, match="expected a proof"):
        rd.load_proof(path)
    with pytest.raises(LoadError, match="No such file"):
        rd.load_proof(tmp_path / "none.json")


def test_another_batch_is_an_error(proof: Proof, tmp_path: Path) -> None:
    proof.save(tmp_path / "proof.json")
    with pytest.raises(LoadError, match="samples that this batch lacks"):
        rd.load_proof(tmp_path / "proof.json", make_batch(pictures=False)[:1])
    with pytest.raises(LoadError, match="other token ids"):
        rd.load_proof(tmp_path / "proof.json", make_batch(pictures=True))
