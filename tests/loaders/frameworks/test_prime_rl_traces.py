"""Files in the layout of prime-rl's trace annotations, beside their episodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rounddiag.core import token_frame
from rounddiag.errors import LoadError
from rounddiag.loaders import load
from tests.loaders.prime_rl_traces_writer import update, updates, write

if TYPE_CHECKING:
    from pathlib import Path

    from tests.loaders.prime_rl_traces_writer import Record


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write(tmp_path, updates())


def test_a_sample_is_a_branch_with_the_tokens_that_it_trained(path: Path) -> None:
    batch = load(path)
    frame = token_frame(batch, ["token_id", "rollout_log_prob", "loss_mask"])

    assert frame["sample"].tolist() == [0, 0, 0, 1]
    assert frame["round"].tolist() == [0, 0, 1, 0]
    assert frame["token_id"].tolist() == [10, 11, 12, 13]
    assert frame["rollout_log_prob"].tolist() == [-0.5, -1.0, -2.0, -3.0]
    # Null beside an entropy was not finite; of two annotations the newer one counts.
    assert frame["diff"].fillna(99).tolist() == [-0.25, 0.0, 99, -0.5]
    assert frame["loss_mask"].tolist() == [1, 0, 1, 1]


def test_what_else_a_sample_has(path: Path) -> None:
    batch = load(path)

    assert batch.rewards is not None
    assert batch.rewards.tolist() == [2.5, 2.5]
    assert batch.sample_columns["trace_id"].tolist() == ["t1", "t1"]
    assert batch.sample_columns["branch"].tolist() == [0, 1]
    assert batch.sample_columns["ship_step"].tolist() == [4, 4]
    assert batch.meta["old_log_probs_source"] == "the training pass itself"


def test_sealed_episodes_have_to_be_unpacked(path: Path) -> None:
    stream = path.parents[2] / "stream" / "00000.jsonl"
    stream.rename(stream.with_name("00000.jsonl.zst"))

    with pytest.raises(LoadError, match=r"found sealed ones\. .*zstd -d"):
        load(path)


def test_annotations_without_their_episodes_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path, [{**updates()[0], "trace_id": "other"}])

    with pytest.raises(LoadError, match="no trace of that name"):
        load(path)


@pytest.mark.parametrize(
    ("record", "found"),
    [
        ({**updates()[0], "version": 2}, "expected `version` 1; found 2"),
        (update(2, [None, -1.0]), "expected branch 2 in trace t1; found fewer"),
        (update(0, [-1.0] * 8), "expected at most 7 annotations"),
        (update(0, [-1.0] * 7, entropies=[1.0]), "expected 7 numbers in `entropies`"),
    ],
)
def test_annotations_that_do_not_fit_are_refused(
    record: Record, found: str, tmp_path: Path
) -> None:
    with pytest.raises(LoadError, match=found):
        load(write(tmp_path, [record]))
