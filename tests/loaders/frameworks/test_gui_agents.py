"""Histories of browser-use, groups of OpenPipe ART, checkpoints of AndroidWorld."""

from __future__ import annotations

import gzip
import json
import pickle
import shutil
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rounddiag as rd
from rounddiag.errors import LoadError

DATA = Path(__file__).parents[2] / "data"
HISTORY = DATA / "browser-use-0.13.14" / "AgentHistory.json"


def said(batch: rd.Batch, sample: int = 0) -> list[tuple[str, str, int]]:
    return [(turn.role, turn.text, turn.num_images) for turn in batch.turns[sample]]


def rounds_of(batch: rd.Batch, *names: str) -> list[list[Any]]:
    return [batch.round_columns[name].tolist() for name in names]


def test_a_history_whose_screenshots_are_in_it_or_missing(tmp_path: Path) -> None:
    document = json.loads(HISTORY.read_text())
    shutil.copyfile(HISTORY, tmp_path / "AgentHistory.json")
    batch = rd.load(tmp_path / "AgentHistory.json")
    assert batch.meta["screenshots"] == ["3 pictures missing or outside the folder"]
    data = document["history"][2]["result"][0]["images"][0]["data"]
    for step in document["history"]:
        del step["state"]["screenshot_path"]
        step["state"]["screenshot"] = data
    answer = document["history"][0]["model_output"]  # as older versions have it
    inner = {"memory": answer.pop("memory"), "next_goal": answer.pop("next_goal")}
    answer["current_state"] = inner
    answer["action"] = [{"click": {"index": 1}, "wait": None}]
    (tmp_path / "old.json").write_text(json.dumps(document))
    batch = rd.load(tmp_path / "old.json")
    assert [shot.size for shot in batch.images[0]] == [(2, 2)] * 4
    assert "screenshots" not in batch.meta
    assert json.loads(said(batch)[1][1].split("</think>\n")[1])["memory"] == "m1"
    assert batch.round_columns["action"][0] == "click(index=1)"


def test_a_folder_of_histories(tmp_path: Path) -> None:
    for name in ("AgentHistory_a", "AgentHistory_b"):
        shutil.copyfile(HISTORY, tmp_path / f"{name}.json")
    assert rd.load(tmp_path).sample_ids == ("AgentHistory_a", "AgentHistory_b")


@dataclass
class Action:
    """Like AndroidWorld's `JSONAction`, which is pickled as an object."""

    action_type: str
    index: int | None = None


def checkpoint(path: Path, **episode: Any) -> None:
    """Write what `IncrementalCheckpointer` writes: a gzipped pickle of episodes."""
    known = {
        "goal": "Open the menu.",
        "task_template": "OpenMenu",
        "is_successful": 1.0,
        "run_time": 31.5,
        "finish_dtime": datetime(2026, 1, 5),  # noqa: DTZ001 as they do
        "exception_info": None,
        "screen_config": {"width": 1080},
    }
    path.write_bytes(gzip.compress(pickle.dumps([{**known, **episode}])))


def screen(grey: int) -> np.ndarray[Any, Any]:
    return np.full((4, 3, 3), grey, dtype=np.uint8)


M3A = {
    "raw_screenshot": [screen(0), screen(50)],
    "before_screenshot_with_som": [screen(1), screen(51)],
    "after_screenshot_with_som": [screen(2), None],
    "action_prompt": ["p0", "p1"],
    "action_output": [
        'Reason: It is at the top.\nAction: {"action_type": "click", "index": 0}',
        'Reason: It is open.\nAction: {"action_type": "status"}',
    ],
    "summary": ["It opened.", "Done."],
    "step_number": [0, 1],
}


def test_a_checkpoint_of_android_world(tmp_path: Path) -> None:
    checkpoint(tmp_path / "OpenMenu_0.pkl.gz", instance_id=0, episode_data=M3A)
    failed = {"is_successful": np.nan, "exception_info": "no device"}
    checkpoint(
        tmp_path / "OpenMenu_1.pkl.gz", instance_id=1, episode_data=np.nan, **failed
    )
    batch = rd.load(tmp_path)
    assert batch.sample_ids == ("OpenMenu_0",)
    assert [(role, images) for role, _, images in said(batch)] == [
        *(("user", 2), ("assistant", 0)) * 2
    ]
    assert batch.rewards.tolist() == [1.0]
    assert rounds_of(batch, "action", "summary", "step_number") == [
        ['{"action_type": "click", "index": 0}', '{"action_type": "status"}'],
        ["It opened.", "Done."],
        [0, 1],
    ]
    shots = batch.images[0]
    assert [shot.size for shot in shots] == [(3, 4)] * 4
    colors = [shot.image().getpixel((0, 0)) for shot in shots]
    assert colors == [(grey,) * 3 for grey in (0, 1, 50, 51)]
    assert batch.sample_columns["seconds"].tolist() == [31.5]
    assert batch.meta["left_out"] == [
        "episode_data.after_screenshot_with_som",
        "finish_dtime",
    ]
    (other,) = batch.meta["not_opened"]
    assert other.startswith(
        "OpenMenu_1.pkl.gz: expected trajectories in which a model wrote something;"
        " found 1 without an answer, no device."
    )


def test_the_action_of_seeact_is_an_object(tmp_path: Path) -> None:
    data = {
        "screenshot": [screen(7)],
        "action_gen_response": ["I click."],
        "action_ground_response": ["ELEMENT: A"],
        "action": [Action("click", 3)],
        "action_description": ["click on A"],
    }
    path = tmp_path / "OpenMenu_0.pkl.gz"
    checkpoint(path, episode_data=data)
    batch = rd.load(path)
    assert said(batch)[1] == ("assistant", "I click.\nELEMENT: A", 0)
    assert rounds_of(batch, "action", "action_description") == [
        ['{"action_type": "click", "index": 3}'],
        ["click on A"],
    ]


def test_a_checkpoint_runs_no_code(tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self) -> tuple[Any, ...]:
            return Path.touch, (tmp_path / "touched",)

    path = tmp_path / "OpenMenu_0.pkl.gz"
    checkpoint_bytes = pickle.dumps([{"episode_data": Bomb(), "goal": "g"}])
    path.write_bytes(gzip.compress(checkpoint_bytes))
    with pytest.raises(LoadError, match="which was not made"):
        rd.load(path)
    assert not (tmp_path / "touched").exists()
