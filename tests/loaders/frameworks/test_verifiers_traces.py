"""Episodes as verifiers writes them, and prime-rl's annotations of their traces."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest

from rounddiag.core import token_frame
from rounddiag.errors import LoadError
from rounddiag.loaders import load
from tests.loaders.facts import has
from tests.loaders.verifiers_writer import episode, updates, write


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write(tmp_path, updates())


def test_a_sample_is_a_branch_with_the_tokens_that_it_trained(path: Path) -> None:
    expected = {
        "rounds.sample": [0, 0, 1],
        "rounds.num_tokens": [2, 1, 1],
        "rewards": [2.5, 2.5],
        "sample.trace_id": ["t1", "t1"],
        "sample.branch": [0, 1],
        "sample.ship_step": [4, 4],
        "sample.min_weight_version": [2, 2],
        "sample.max_weight_version": [3, 3],
        "meta.old_log_probs_source": "the training pass itself",
    }
    batch = load(path)
    has(batch, expected)
    frame = token_frame(batch, ["token_id", "rollout_log_prob", "loss_mask"])
    assert frame["token_id"].tolist() == [10, 11, 12, 13]
    assert frame["rollout_log_prob"].tolist() == [-0.5, -1.0, -2.0, -3.0]
    # Null beside an entropy was not finite; of two annotations the newer one counts.
    assert frame["diff"].fillna(99).tolist() == [-0.25, 0.0, 99, -0.5]
    assert frame["loss_mask"].tolist() == [1, 0, 1, 1]


@pytest.mark.parametrize("names", [["stream"], ["stream", "annotations/trainer"]])
def test_packed_files(path: Path, names: list[str]) -> None:
    """As prime-rl packs them: independent frames, and a table of them at the end."""
    expected = token_frame(load(path))
    traces = path.parents[2]
    for name in names:
        plain = traces / name / "00000.jsonl"
        lines = plain.read_bytes().splitlines(keepends=True)
        frames = [pa.compress(line, codec="zstd", asbytes=True) for line in lines]
        table = bytes.fromhex("5e2a4d18 04000000 00000000")
        plain.with_name("00000.jsonl.zst").write_bytes(b"".join([*frames, table]))
        plain.unlink()
    pd.testing.assert_frame_equal(token_frame(load(traces)), expected)


def test_a_part_that_is_being_packed_counts_once(path: Path) -> None:
    stream = path.parents[2] / "stream" / "00000.jsonl"
    stream.with_name("00000.jsonl.zst").write_bytes(b"not finished")
    assert len(load(path)) == 2


def test_annotations_outside_of_their_run_are_an_error(
    path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    alone = path.rename(tmp_path_factory.mktemp("alone") / path.name)
    with pytest.raises(LoadError, match="expected annotations in the folder"):
        load(alone)


def test_one_file_for_each_stream(path: Path) -> None:
    """As prime-rl wrote them before it split them, with an index beside them."""
    expected = token_frame(load(path))
    traces = path.parents[2]
    for name in ("annotations/trainer", "annotations/orch", "stream"):
        (traces / name / "00000.jsonl").rename(traces / f"{name}.jsonl")
        (traces / name).rmdir()
    (traces / "stream.index.jsonl").write_text('{"id": "e1", "line": 1}\n')
    batch = load(traces / "annotations" / "trainer.jsonl")
    pd.testing.assert_frame_equal(token_frame(batch), expected)
    assert batch.sample_columns["ship_step"].tolist() == [4, 4]


def test_episodes_with_the_trainers_log_probs(tmp_path: Path) -> None:
    record = episode()
    first, second, third = record["traces"][0]["nodes"][1:]
    first |= {"trainer_logprobs": [-0.75, -1.0], "entropies": [0.5, 0.25]}
    third["trainer_logprobs"] = [-3.5]
    assert "trainer_logprobs" not in second
    file = tmp_path / "traces.jsonl"
    file.write_text(json.dumps(record))
    batch = load(file)
    frame = token_frame(batch, ["token_id", "entropy"])
    # The first answer counts in the first branch only; the second was not trained.
    assert frame["sample"].tolist() == [0, 0, 1]
    assert frame["token_id"].tolist() == [10, 11, 13]
    assert frame["diff"].tolist() == [-0.25, 0.0, -0.5]
    assert frame["entropy"].fillna(99).tolist() == [0.5, 0.25, 99]
    assert batch.sample_columns["max_weight_version"].tolist() == [3, 3]


def test_episodes_without_them_have_the_sampler_s_log_probs(tmp_path: Path) -> None:
    file = tmp_path / "traces.jsonl"
    file.write_text(json.dumps(episode()))
    batch = load(file)
    mask = batch.response_mask != 0
    assert batch.old_log_probs is None
    # The first answer counts in the first branch only.
    assert batch.response_ids[mask].tolist() == [10, 11, 12, 13]
    assert batch.rollout_log_probs[mask].tolist() == [-0.5, -1.0, -2.0, -3.0]
    assert batch.rounds.sample.tolist() == [0, 0, 1]
    assert batch.sample_columns["branch"].tolist() == [0, 1]
