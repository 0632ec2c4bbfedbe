"""Files in the layout of prime-rl's trace annotations, beside their episodes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from rounddiag.core import token_frame
from rounddiag.errors import LoadError
from rounddiag.loaders import load

if TYPE_CHECKING:
    from pathlib import Path

    Record = dict[str, Any]


def node(
    parent: int | None, ids: list[int], mask: list[bool], *log_probs: float
) -> Record:
    more = {"logprobs": [*log_probs]} if log_probs else {}
    message = {"role": "assistant" if log_probs else "user", "content": "x"}
    known = {"parent": parent, "message": message, "token_ids": ids, "mask": mask}
    return {**known, **more}


def episode() -> Record:
    """Two branches of one prompt: the second leaves after the first answer."""
    nodes = [
        node(None, [1, 2], [False, False]),
        node(0, [3, 10, 11], [False, True, True], -0.5, -1.0),
        node(1, [4, 12], [False, True], -2.0),
        node(1, [5, 13], [False, True], -3.0),
    ]
    rewards = {"a": {"score": 1.0, "weight": 0.5}, "b": {"score": 2.0, "weight": 1.0}}
    trace = {"id": "t1", "rewards": rewards, "nodes": nodes}
    return {"id": "e1", "env": {"id": "gui"}, "task": {}, "traces": [trace]}


def update(index: int, old: list[float | None], **more: Any) -> Record:
    branch = {"index": index, "trainer_logprobs": old, **more}
    return {"version": 1, "trace_id": "t1", "info": {}, "branches": [branch]}


def updates() -> list[Record]:
    none = [None] * 3
    return [
        update(
            0,
            [*none, -0.75, -1.0, None, None],
            entropies=[*none, 0.5, 0.25, None, 0.125],
            is_masked=[*none, False, True, None, False],
        ),
        update(1, [*none, None, None, None, -9.0]),
        update(1, [*none, None, None, None, -3.5]),
    ]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write(tmp_path, updates())


def write(folder: Path, records: list[Record]) -> Path:
    traces = folder / "monitors" / "file" / "traces"
    ship = {"version": 1, "trace_id": "t1", "info": {"ship": {"step": 4}}}
    files = {
        "stream": [{**episode(), "id": "e0", "traces": []}, episode()],
        "annotations/orch": [{**ship, "branches": []}],
        "annotations/trainer": records,
    }
    for name, rows in files.items():
        (traces / name).mkdir(parents=True)
        text = "".join(f"{json.dumps(row)}\n" for row in rows)
        (traces / name / "00000.jsonl").write_text(text)
    return traces / "annotations" / "trainer" / "00000.jsonl"


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
