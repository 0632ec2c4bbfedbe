"""Screenshots and actions of agent frameworks, attached to a batch."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rounddiag as rd
from rounddiag import Batch
from rounddiag.errors import BatchError, LoadError
from tests.batches import hand_batch
from tests.loaders.values import png, url_of
from tests.loaders.verifiers_writer import episode


def picture(path: str) -> dict[str, Any]:
    return {"type": "image", "source": {"media_type": "image/png", "path": path}}


def click(x: int) -> dict[str, Any]:
    return {"tool_call_id": "1", "function_name": "click", "arguments": {"x": x}}


HEAD = {"schema_version": "ATIF-v1.7"}  # `agent` is not needed to read the steps


def atif(session: str) -> dict[str, Any]:
    """Two turns: a picture before the first, one before the second, one at the end."""
    observed = {"results": [{"source_call_id": "1", "content": [picture("b.png")]}]}
    last = {"results": [{"content": [picture("../c.png"), picture("images/c.png")]}]}
    steps = [
        {"step_id": 1, "source": "system", "message": "be brief"},
        {"step_id": 2, "source": "user", "message": [picture("a.png")]},
        {"step_id": 3, "source": "agent", "message": "x", "tool_calls": [click(1)]},
        {"step_id": 4, "source": "agent", "message": "copy", "is_copied_context": True},
        {"step_id": 5, "source": "agent", "message": "done", "observation": last},
    ]
    steps[2]["observation"] = observed
    return {**HEAD, "session_id": session, "steps": steps}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "c.png").write_bytes(png(size=(9, 2)))
    for name in ("s0", "s1"):
        home = tmp_path / "runs" / name
        (home / "images").mkdir(parents=True)
        for width, file in enumerate(("a.png", "b.png", "images/c.png"), 1):
            (home / file).write_bytes(png(size=(width, 2)))
        (home / "trajectory.json").write_text(json.dumps(atif(f"session-{name}")))
    (tmp_path / "runs" / "manifest.json").write_text("{}")
    return tmp_path / "runs"


@pytest.fixture
def batch() -> Batch:
    """Samples of 2, 2 and 1 rounds."""
    return hand_batch()


def rounds_and_widths(batch: Batch) -> list[list[tuple[int | None, int]]]:
    return [[(one.round, one.size[0]) for one in shots] for shots in batch.images]


def test_trajectories_by_session_id(folder: Path, batch: Batch) -> None:
    sizes = np.bincount(batch.rounds.sample.numpy()).tolist()
    assert sizes[:2] == [2, 2]
    ids = ("session-s0", "other", *map(str, range(2, len(batch))))
    found = rd.attach(replace(batch, sample_ids=ids), "trajectories", folder)
    # The picture in a folder above is not read; after the last turn is no round.
    assert rounds_and_widths(found)[:2] == [[(0, 1), (1, 2), (None, 3)], []]
    columns = found.round_columns
    assert columns["sample"].tolist() == [0, 0]
    assert columns["round"].tolist() == [0, 1]
    assert columns["action"].tolist() == ["click(x=1)", None]
    note = f"1 sample of {len(batch)}; 1 picture missing or outside the folder"
    assert found.meta["trajectories"] == note


def test_names_of_folders_and_columns_of_samples(folder: Path, batch: Batch) -> None:
    names = np.array(["s1", *[None] * (len(batch) - 1)], dtype=object)
    batch = replace(batch, sample_ids=None, sample_columns={"session_id": names})
    found = rd.attach(batch, "trajectories", folder / "s1" / "trajectory.json")
    assert rounds_and_widths(found)[0] == [(0, 1), (1, 2), (None, 3)]


def test_known_columns_of_rounds_stay(folder: Path, batch: Batch) -> None:
    keys = {"sample": np.array([0, 0, 1]), "round": np.array([0, 1, 0])}
    columns = {**keys, "turn_score": np.array([1.0, 2.0, 3.0])}
    ids = ("s0", *map(str, range(1, len(batch))))
    known = replace(batch, sample_ids=ids, round_columns=columns)
    found = rd.attach(known, "trajectories", folder)
    assert found.round_columns["action"].tolist() == ["click(x=1)", None, None]
    assert found.round_columns["turn_score"].tolist() == [1.0, 2.0, 3.0]
    once = {**columns, "action": np.array(["a", "b", "c"], dtype=object)}
    found = rd.attach(replace(known, round_columns=once), "trajectories", folder)
    assert found.round_columns["action"].tolist() == ["a", "b", "c"]


def test_another_number_of_rounds_is_said(folder: Path, batch: Batch) -> None:
    last = len(batch) - 1
    assert np.bincount(batch.rounds.sample.numpy())[last] != 2
    ids = (*map(str, range(last)), "s0")
    found = rd.attach(replace(batch, sample_ids=ids), "trajectories", folder)
    assert [round_ for round_, _ in rounds_and_widths(found)[last]] == [None] * 3
    assert found.round_columns == {}
    assert found.meta["trajectories"].endswith(
        "; 1 sample with another number of rounds than turns"
        "; 1 picture missing or outside the folder"
    )


def test_episodes_of_verifiers(tmp_path: Path, batch: Batch) -> None:
    record = episode()
    url = url_of(png(size=(7, 2)))
    nodes = record["traces"][0]["nodes"]
    nodes[0]["message"]["content"] = [{"type": "image_url", "image_url": {"url": url}}]
    call = {"name": "click", "arguments": '{"x": 1}'}
    nodes[1]["message"]["tool_calls"] = [call]
    for node in nodes[1:]:
        node["sampled"] = True
    file = tmp_path / "traces.jsonl"
    file.write_text(json.dumps(record))
    ids = ("t1", *map(str, range(1, len(batch))))
    found = rd.attach(replace(batch, sample_ids=ids), "trajectories", file)
    # The first branch has two turns.
    assert rounds_and_widths(found)[0] == [(0, 7)]
    assert found.round_columns["action"].tolist() == ["click(x=1)", None]


def other(click_x: int, **ids: str) -> dict[str, Any]:
    """A trajectory of two turns."""
    steps = [{"source": "agent", "tool_calls": [click(click_x)]}] * 2
    return {**HEAD, "steps": steps, **ids}


PARENT = {
    **HEAD,
    "session_id": "s",
    "steps": [
        {"source": "agent", "tool_calls": [click(1)]},
        {
            "source": "agent",
            "observation": {
                "results": [
                    {"subagent_trajectory_ref": [{"trajectory_path": "b.json"}]},
                    {"subagent_trajectory_ref": [{"trajectory_id": "t7"}]},
                ]
            },
        },
    ],
}


@pytest.mark.parametrize(
    ("files", "column", "wanted"),
    [
        # Two of one session: the sample's own trajectory id decides.
        (
            {
                "a": other(1, session_id="s", trajectory_id="t1"),
                "b": other(2, session_id="s", trajectory_id="t2"),
            },
            ("t2", None, None),
            ["click(x=2)"] * 2,
        ),
        # A session id counts before the name of a file.
        (
            {"s": other(1, session_id="x"), "b": other(2, session_id="s")},
            ("s", None, None),
            ["click(x=2)"] * 2,
        ),
        # Two sub-agents of one agent, named by their file and by their id.
        (
            {
                "a": PARENT,
                "b": other(2, session_id="s"),
                "c": other(3, session_id="s", trajectory_id="t7"),
            },
            ("s", None, None),
            ["click(x=1)", None],
        ),
    ],
)
def test_which_of_two_trajectories(
    tmp_path: Path,
    batch: Batch,
    files: dict[str, Any],
    column: tuple[str | None, ...],
    wanted: list[str | None],
) -> None:
    for name, document in files.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(document))
    columns = {"trajectory_id": np.array(column, dtype=object)}
    batch = replace(batch, sample_ids=None, sample_columns=columns)
    found = rd.attach(batch, "trajectories", tmp_path)
    assert found.round_columns["action"].tolist() == wanted


def test_two_trajectories_of_one_name_are_an_error(
    tmp_path: Path, batch: Batch
) -> None:
    for name in ("a", "b"):
        text = json.dumps(other(1, session_id="s"))
        (tmp_path / f"{name}.json").write_text(text)
    batch = replace(batch, sample_ids=("s", "1", "2"))
    message = r"one trajectory for the sample s; found a\.json, b\.json\. Pass one"
    with pytest.raises(BatchError, match=message):
        rd.attach(batch, "trajectories", tmp_path)


def test_trajectories_of_other_samples(folder: Path, batch: Batch) -> None:
    ids = tuple(map(str, range(len(batch))))
    with pytest.raises(
        BatchError, match=r"its samples: 0, .*found those of session-s0"
    ):
        rd.attach(replace(batch, sample_ids=ids), "trajectories", folder)
    (folder / "s0" / "trajectory.json").write_text("{")
    with pytest.raises(LoadError, match="no JSON"):
        rd.attach(batch, "trajectories", folder)
