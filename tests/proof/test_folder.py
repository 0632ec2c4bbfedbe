"""By file: exported here, scored elsewhere, judged here without a model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rounddiag as rd
from rounddiag.errors import BatchError, LoadError
from rounddiag.proof.__main__ import main
from rounddiag.proof.folder import read_samples, score_folder
from tests.proof.fake_server import PAD, SYSTEM, make_batch, score, serve
from tests.proof.test_servers import without_pictures, without_system

SAMPLE_DATA = Path(__file__).parents[2] / "sample_data"


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def function(ids: list[int], images: list[Any]) -> Any:
    del images
    return score(ids)


def test_a_proof_by_file_is_that_of_the_engine(tmp_path: Path) -> None:
    batch = make_batch(without_system, pictures=False)
    rd.export_rescore(batch, tmp_path / "out", hypotheses="auto", samples=5)
    score_folder(tmp_path / "out", function)
    scored = rd.attach(batch, "again", tmp_path / "out")
    assert scored.num_samples == 5
    proof = rd.prove(scored)
    direct = rd.prove(batch, function)
    assert (
        (proof.verdict, proof.side, proof.cause)
        == ((direct.verdict, direct.side, direct.cause))
        == ("proved", "old", "prompt_mismatch")
    )
    assert proof.conclusions[0].says == direct.conclusions[0].says


def test_requests_hold_what_is_read(tmp_path: Path) -> None:
    batch = make_batch(pictures=True)
    names = ["first_message_removed", "grey_images", "bfloat16_positions"]
    rd.export_rescore(batch, tmp_path, hypotheses=names, samples=[1])
    base, removed, grey, rounded = lines(tmp_path / "requests.jsonl")
    assert [one["change"] for one in (base, removed, grey, rounded)] == ["base", *names]
    assert removed["ids"] == base["ids"][len(SYSTEM) :]
    assert base["images"] == [
        ["images/00001-000.png", "seen"],
        ["images/00001-001.png", "seen"],
    ]
    assert [look for _, look in grey["images"]] == ["grey", "grey"]
    assert rounded["positions"] == "change"
    assert len(base["scored"]) == len(removed["scored"]) == 60
    assert removed["source"] == base["source"]
    records = lines(tmp_path / "samples.jsonl")
    assert [one["sample"] for one in records] == [*range(8)]
    assert records[1]["image_sizes"] == [[56, 28], [56, 28]]
    assert sorted(file.name for file in (tmp_path / "images").iterdir()) == [
        "00001-000.png",
        "00001-001.png",
    ]


def test_positions_of_a_text_are_written_out(tmp_path: Path) -> None:
    names = ["positions_restart_at_response"]
    rd.export_rescore(
        make_batch(pictures=False), tmp_path, hypotheses=names, samples=[0]
    )
    _, restarted = lines(tmp_path / "requests.jsonl")
    start = restarted["source"][0]
    assert restarted["positions"][start - 1 : start + 2] == [start - 1, 0, 1]


def test_a_server_scores_a_folder_with_pictures(tmp_path: Path) -> None:
    batch = make_batch(without_pictures, pictures=True)
    rd.export_rescore(batch, tmp_path, hypotheses=["dropped_image", "wrong_image"])
    with serve() as server:
        assert main(["score", str(tmp_path), "--model", server.url]) == 0
        assert main(["score", str(tmp_path), "--model", server.url]) == 0
    proof = rd.prove(rd.attach(batch, "vllm", tmp_path))
    assert (proof.verdict, proof.side, proof.cause) == (
        "proved",
        "old",
        "dropped_image",
    )


def test_scoring_goes_on_where_it_was_interrupted(tmp_path: Path) -> None:
    rd.export_rescore(make_batch(pictures=False), tmp_path, hypotheses="auto")
    asked = 0

    def interrupted(ids: list[int], images: list[Any]) -> Any:
        nonlocal asked
        asked += 1
        if asked == 20:
            raise KeyboardInterrupt
        return function(ids, images)

    with pytest.raises(KeyboardInterrupt):
        score_folder(tmp_path, interrupted)
    path = tmp_path / "scores.jsonl"
    kept = path.read_text()
    assert 10 < len(kept.splitlines()) < 20
    path.write_text(kept + '{"sample": 0, "chan')
    score_folder(tmp_path, function)
    assert path.read_text().startswith(kept)
    done = [(one["sample"], one["change"]) for one in lines(path)]
    assert len(done) == len(set(done)) == 50  # of 5 samples


def test_the_samples_of_a_folder_are_those_of_the_batch(tmp_path: Path) -> None:
    batch = make_batch(pictures=True)
    rd.export_rescore(batch, tmp_path, hypotheses=["grey_images"], samples=[2])
    found = read_samples(tmp_path)
    assert found.response_ids.tolist() == batch.response_ids.tolist()
    assert found.prompt_ids is not None
    assert batch.prompt_ids is not None
    assert found.prompt_ids.tolist() == batch.prompt_ids.tolist()
    assert found.images is not None
    assert batch.images is not None
    assert found.images[2][1].png() == batch.images[2][1].png()
    assert int((found.prompt_ids == PAD).sum()) == 16


def test_temperature_is_fitted_between_recorded_numbers(tmp_path: Path) -> None:
    """0.83 is no number of the grid: the scores of its neighbours tell it."""
    torch = pytest.importorskip("torch")
    batch = rd.load(SAMPLE_DATA / "healthy.parquet")[:4]
    model = str(SAMPLE_DATA / "model")
    from dataclasses import replace

    from rounddiag.proof.engines.opening import open_engine
    from rounddiag.proof.hypotheses.sampling import FAMILIES
    from rounddiag.proof.scorer import Scorer

    engine = open_engine(model, with_low_precision=False).engine
    scorer = Scorer(batch, engine)
    cooled = torch.zeros(len(batch.response_ids))
    one = FAMILIES[0].at(0.83)
    for sample in range(batch.num_samples):
        each = scorer.samples[sample]
        values = scorer.scores((one,), sample)
        assert values is not None
        at = torch.from_numpy(each.targets - each.start) + int(batch.offsets[sample])
        cooled[at] = torch.from_numpy(values).float()
    batch = replace(batch, rollout_log_probs=cooled)
    rd.export_rescore(batch, tmp_path, hypotheses=["no_images"], samples=4)
    score_folder(tmp_path, engine)
    proof = rd.prove(rd.attach(batch, "again", tmp_path))
    assert (proof.verdict, proof.side) == ("proved", "rollout")
    assert proof.conclusions[0].says[0].startswith("temperature 0.8")


def test_a_batch_without_scores_of_a_folder_needs_an_engine() -> None:
    with pytest.raises(BatchError, match="Pass the checkpoint of this step"):
        rd.prove(make_batch(pictures=False))


def test_folders_that_are_not_scored_are_errors(tmp_path: Path) -> None:
    batch = make_batch(pictures=False)
    rd.export_rescore(batch, tmp_path / "plain")
    with pytest.raises(LoadError, match="Export with `hypotheses="):
        score_folder(tmp_path / "plain", function)
    with pytest.raises(LoadError, match=r"Run `python -m rounddiag\.proof score`"):
        rd.attach(batch, "again", tmp_path / "plain")
    assert main(["score", str(tmp_path / "none"), "--model", "http://127.0.0.1:9"]) == 1


def test_scores_of_another_batch_are_an_error(tmp_path: Path) -> None:
    batch = make_batch(pictures=False)
    rd.export_rescore(batch, tmp_path, hypotheses=["first_message_removed"])
    score_folder(tmp_path, function)
    with pytest.raises(LoadError, match="Attach to the batch that was exported"):
        rd.attach(batch[:1], "again", tmp_path)
    path = tmp_path / "scores.jsonl"
    path.write_text(path.read_text().replace('"token_ids": [', '"token_ids": [1, ', 1))
    with pytest.raises(LoadError, match=r"scores\.jsonl"):
        rd.attach(batch, "again", tmp_path)


def test_hypotheses_that_nobody_knows_are_an_error(tmp_path: Path) -> None:
    batch = make_batch(pictures=False)
    rd.export_rescore(batch, tmp_path, hypotheses=["first_message_removed"])
    path = tmp_path / "requests.jsonl"
    path.write_text(path.read_text().replace("first_message_removed", "of_my_own"))
    with pytest.raises(BatchError, match="of_my_own"):
        score_folder(tmp_path, function)
    assert np.isfinite(score([1, 2])).all()
