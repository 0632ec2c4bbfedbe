"""Files that the writers of agent frameworks wrote; see `tests/data/README.md`."""

from __future__ import annotations

import io
import json
import shutil
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import rounddiag as rd
from rounddiag.batch.messages import read_message, write_text
from rounddiag.errors import LoadError
from rounddiag.loaders.assembly.turns import new_messages
from tests.loaders.facts import has
from tests.loaders.values import png, url_of
from tests.loaders.verifiers_writer import episode

DATA = Path(__file__).parents[1] / "data"
PNG = png(size=(2, 2))
THOUGHT = "<think>\nThe menu is at the top.\n</think>"
CLICK = '<tool_call>\n{"name": "click", "arguments": {"x": 1}}\n</tool_call>'


def said(batch: rd.Batch, sample: int = 0) -> list[tuple[str, str]]:
    return [(turn.role, turn.text) for turn in batch.turns[sample]]


@pytest.mark.parametrize("name", ["harbor-0.26.0", "verifiers-0.1.14"])
def test_a_rewritten_call_has_a_context_of_its_own(name: str) -> None:
    batch = rd.load(DATA / name)[0]
    expected = {
        "prompt_ids": [1, 2, 3, 4],
        "response_ids": [10, 11, 5, 12, 9, 13],
        "response_mask": [1, 1, 0, 1, 0, 1],
        "rollout_log_probs": [-0.5, -0.25, 0, -0.125, 0, -1],
        "old_log_probs": None,
        "rounds.num_tokens": [2, 1, 1],
        "round.num_left_tokens": [0, 0, 7],
    }
    has(batch, expected)
    contexts = [batch.context(0, index) for index in range(3)]
    assert [context.ids.tolist() for context in contexts] == [
        [1, 2, 3, 4],
        [1, 2, 3, 4, 10, 11, 5],
        [1, 9],  # 1 was known, so that 9 alone is added to the sample
    ]
    assert [c.follows for c in contexts] == ["first", "append", "rewritten"]


def test_a_trajectory_without_an_answer_beside_one_with_calls(tmp_path: Path) -> None:
    lines = (DATA / "verifiers-0.1.14" / "results.jsonl").read_text().splitlines()
    silent = {**json.loads(lines[0]), "trajectory": [], "completion": []}
    path = tmp_path / "results.jsonl"
    path.write_text("\n".join([json.dumps(silent), lines[0]]))
    batch = rd.load(path)
    assert batch.lengths.tolist() == [0, 6]
    assert batch.rounds.sample.tolist() == [1, 1, 1]
    assert batch.round_columns["is_rewritten"].tolist() == [False, False, True]
    assert batch.context(1, 2).ids.tolist() == [1, 9]
    assert "answers" in batch.meta


def test_ids_without_log_probs(tmp_path: Path) -> None:
    trial = DATA / "harbor-0.26.0" / "menu__1.8" / "agent" / "trajectory.json"
    document = json.loads(trial.read_text())
    for step in document["steps"]:
        step.get("metrics", {}).pop("logprobs", None)
    path = tmp_path / "trajectory.json"
    path.write_text(json.dumps(document))
    batch = rd.load(path)
    assert batch.require_ids().tolist() == [10, 11, 5, 12, 9, 13]
    assert batch.rollout_log_probs is None
    del document["steps"][2]["metrics"]["completion_token_ids"]
    path.write_text(json.dumps(document))
    batch = rd.load(path)
    assert batch.response_ids is None
    assert "left out: 2 of 3 rounds have them" in batch.meta.values()


def test_a_job_of_which_one_trial_has_no_ids(tmp_path: Path) -> None:
    shutil.copytree(DATA / "harbor-0.26.0", tmp_path / "job")
    path = tmp_path / "job" / "menu__1.7" / "agent" / "trajectory.json"
    document = json.loads(path.read_text())
    for step in document["steps"]:
        step.pop("metrics", None)
    path.write_text(json.dumps(document))
    batch = rd.load(tmp_path / "job")
    assert batch.lacks("text") is None
    assert batch.num_rounds == 6
    assert said(batch, 0) == said(batch, 1)
    assert [[shot.round for shot in row] for row in batch.images] == [[0, 1]] * 2
    assert batch.meta["left_out"] == ["prompt_ids", "response_ids", "rollout_log_probs"]


@pytest.mark.parametrize(("sample", "version"), [(0, "1.7"), (1, "1.8")])
def test_a_job_of_harbor(sample: int, version: str) -> None:
    batch = rd.load(DATA / "harbor-0.26.0")
    assert batch.sample_ids[sample] == f"session-{version}"
    assert batch.group_ids == ("menu", "menu")  # the task
    assert batch.rewards.tolist() == [0.5, 0.5]
    # A step that no model wrote is no round.
    assert said(batch, sample) == [
        ("user", "Open the menu."),
        ("assistant", f"{THOUGHT}\nI click.\n{CLICK}"),
        ("tool", ""),
        ("assistant", "Done."),
        ("assistant", "Again."),
        ("agent without a model", "(saved)"),
    ]
    shots = [(shot.round, shot.size) for shot in batch.images[sample]]
    assert shots == [(0, (2, 2)), (1, (2, 2))]
    first = [3 * sample + k for k in range(3)]
    actions = batch.round_columns["action"][first].tolist()
    assert actions == ["click(x=1)", None, None]
    assert batch.round_columns["prompt_tokens"][first].tolist() == [4, 7, 2]


def test_a_folder_of_decoded_samples_of_verl(tmp_path: Path) -> None:
    text = (DATA / "verl-0.9.1_rollouts" / "10.jsonl").read_text()
    for step in (8, 9, 10):
        (tmp_path / f"{step}.jsonl").write_text(text.replace("10", str(step)))
    batch = rd.load(tmp_path)
    assert batch.step is None
    assert batch.sample_columns["step"].tolist() == [8, 8, 9, 9, 10, 10]
    assert batch.sample_columns["file"].tolist()[::2] == [
        f"{n}.jsonl" for n in (8, 9, 10)
    ]
    assert said(batch, 4) == said(batch, 0)


def test_numbered_tables_are_not_joined(tmp_path: Path) -> None:
    names = ("responses", "response_mask", "rollout_log_probs", "old_log_probs")
    row = json.dumps(
        {name: [1, 1] if "res" in name else [-0.5, -1.5] for name in names}
    )
    for number in (1, 2):
        (tmp_path / f"{number}.jsonl").write_text(f"{row}\n{row}\n")
    assert len(rd.load(tmp_path / "1.jsonl")) == 2
    with pytest.raises(LoadError, match=r"one step; found 2 batches: 1.jsonl, 2.jsonl"):
        rd.load(tmp_path)


@pytest.mark.parametrize("damage", [b"no gzip", b"cut off"])
def test_a_damaged_step_of_browsergym_is_refused(damage: bytes, tmp_path: Path) -> None:
    folder = shutil.copytree(
        DATA / "browsergym-experiments-0.14.3/menu", tmp_path / "a"
    )
    step = folder / "step_1.pkl.gz"
    whole = step.read_bytes()
    step.write_bytes(damage if damage == b"no gzip" else whole[: len(whole) // 2])
    with pytest.raises(LoadError, match=r"(?s)step_1.*damaged"):
        rd.load(folder)


def osworld_row(step: int, action: str, **more: Any) -> dict[str, Any]:
    known = {"step_num": step, "action": action, "reward": 0, "done": False}
    return {**known, "screenshot_file": f"step_{step}_{action[0]}.png", **more}


def osworld(folder: Path, rows: list[dict[str, Any]]) -> Path:
    folder.mkdir(parents=True)
    (folder / "traj.jsonl").write_text("".join(f"{json.dumps(r)}\n" for r in rows))
    for row in rows:
        if "screenshot_file" in row:
            (folder / row["screenshot_file"]).write_bytes(PNG)
    return folder


def test_a_folder_of_runs_of_osworld(tmp_path: Path) -> None:
    rows = [
        osworld_row(1, "a()", response="I click.", info={"status": "ok"}),
        osworld_row(1, "b()", response="I click.", info={"status": "ok"}),
        osworld_row(2, "DONE", response={"raw_response": "Finished."}, done=True),
    ]
    first = osworld(tmp_path / "chrome" / "t1", rows)
    (first / "step_0.png").write_bytes(PNG)
    (first / "result.txt").write_text("0.5\n")
    (first / "recording.mp4").write_bytes(b"film")
    second = osworld(tmp_path / "chrome" / "t2", [osworld_row(1, "WAIT")])
    with (second / "traj.jsonl").open("a") as file:
        file.write('{"Error": "no answer"}\n')
    batch = rd.load(tmp_path)

    assert batch.sample_ids == ("t1", "t2")
    # Two actions of one answer are one round; the pictures of both follow it.
    assert said(batch)[1::2] == [("assistant", "I click."), ("assistant", "Finished.")]
    assert [shot.round for shot in batch.images[0]] == [0, 1, 1, None]
    assert said(batch, 1)[1] == ("assistant", "WAIT")
    assert batch.round_columns["action"].tolist() == ["a()\nb()", "DONE", "WAIT"]
    assert batch.round_columns["done"].tolist() == [False, True, False]
    assert batch.rewards[0] == 0.5
    assert torch.isnan(batch.rewards[1])
    assert batch.sample_columns["recording"].tolist() == ["recording.mp4", None]
    assert batch.sample_columns["error"].tolist() == [None, "no answer"]


def test_batches_beside_runs_are_named(tmp_path: Path) -> None:
    osworld(tmp_path / "task", [osworld_row(1, "WAIT")])
    assert "not_opened" not in rd.load(tmp_path).meta
    (tmp_path / "step_1.parquet").write_bytes(b"")
    assert rd.load(tmp_path).meta["not_opened"] == [
        "step_1.parquet: not named as the files that were opened"
    ]


def test_runs_of_one_task_with_one_answer_are_no_copies(tmp_path: Path) -> None:
    for model in ("a", "b"):
        osworld(tmp_path / model / "task", [osworld_row(1, "WAIT")])
    batch = rd.load(tmp_path)
    assert batch.sample_ids == ("task", "task")
    assert "num_dropped_rows" not in batch.meta
    assert batch.sample_columns["file"].tolist() == [
        "a/task/traj.jsonl",
        "b/task/traj.jsonl",
    ]


def test_pictures_outside_of_the_folder_are_not_read(tmp_path: Path) -> None:
    row = osworld_row(1, "a()")
    folder = osworld(tmp_path / "run", [row])
    (folder / row["screenshot_file"]).rename(tmp_path / "a.png")
    (folder / row["screenshot_file"]).symlink_to(tmp_path / "a.png")
    batch = rd.load(folder)
    assert not any(batch.images or ())
    assert batch.meta["screenshots"] == ["1 picture missing or outside the folder"]


def test_rollouts_of_prime_rl_are_traces(tmp_path: Path) -> None:
    trace = {**episode()["traces"][0], "task": {"key": "t"}, "ok": True}
    calls = [{"node": 1, "finish_reason": "stop", "time": {"start": 1.0, "end": 3.5}}]
    trace |= {"calls": calls, "info": {"prime_rl": {"env_name": "gui"}}}
    path = tmp_path / "train_rollouts.jsonl"
    path.write_text(json.dumps(trace) + "\n")
    batch = rd.load(path)
    assert batch.require_ids()[batch.response_mask != 0].tolist() == [10, 11, 12, 13]
    assert batch.sample_columns["env_name"].tolist() == ["gui", "gui"]
    seconds = batch.round_columns["sampling_seconds"]
    assert seconds[0] == 2.5
    assert batch.round_columns["finish_reason"].tolist() == ["stop", None, None]


def test_two_nodes_without_tokens_between_are_two_rounds(tmp_path: Path) -> None:
    """And the picture between the first and the third belongs to the third."""
    record = episode()
    nodes = record["traces"][0]["nodes"][:3]
    nodes[2] |= {"token_ids": [12], "mask": [True]}
    url = url_of(PNG)
    content = [{"type": "image_url", "image_url": {"url": url}}]
    message = {"role": "user", "content": content}
    seen = {"parent": 2, "message": message, "token_ids": [7], "mask": [False]}
    last = {"parent": 3, "message": {"role": "assistant", "content": "x"}}
    nodes += [seen, {**last, "token_ids": [8], "mask": [True], "logprobs": [-4.0]}]
    record["traces"][0]["nodes"] = nodes
    path = tmp_path / "traces.jsonl"
    path.write_text(json.dumps(record))
    batch = rd.load(path)
    assert batch.rounds.num_tokens.tolist() == [2, 1, 1]
    assert [shot.round for shot in batch.images[0]] == [2]


def test_steps_of_dart_gui(tmp_path: Path) -> None:
    folder = tmp_path / "task"
    folder.mkdir()
    for step, ids in enumerate([[5, 6], [7]]):
        values = {
            "logp": torch.tensor([-0.5, -1.0])[: len(ids)],
            "token_ids": torch.tensor(ids),
            "prompt_token_ids": torch.tensor([1, 2, 3]),
        }
        torch.save(values, folder / f"data_for_step_{step}.pt")
    batch = rd.load(folder, sample_by="dataset_ids")
    assert batch.require_ids().tolist() == [5, 6, 7]  # nothing entered
    assert batch.log_probs("rollout").tolist() == [-0.5, -1.0, -0.5]


MESSAGES = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]
STEP = {"chat_completions": MESSAGES, "reward": 0.5, "model_response": "a"}
ROWS: dict[str, dict[str, Any]] = {
    "AReaL": {"task_id": 3, "seqlen": 9, "prompt": "q", "completion": "a"},
    "messages": {"messages": MESSAGES},
    "lists": {"prompt": MESSAGES[:1], "completion": MESSAGES[1:]},
    "rLLM": {
        "training_step": 1,
        "episode_id": "e",
        "trajectories": [{"name": "x", "steps": [STEP], "reward": 1.0}],
    },
    "verl": {"input": "q", "output": "a", "score": 1.0},
    "ids of one call only": {
        "schema_version": "ATIF-v1.8",
        "agent": {"name": "x"},
        "steps": [
            {"source": "user", "message": "q"},
            {"source": "agent", "message": "a", "metrics": {"logprobs": [-1.0]}},
        ],
    },
}


ROWS["ATIF without a version"] = {**ROWS["ids of one call only"]}
del ROWS["ATIF without a version"]["schema_version"]


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_texts_of_one_answer(row: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(row) + "\n")
    batch = rd.load(path)
    assert [text for _, text in said(batch)] == ["q", "a"]
    assert batch.num_rounds == 1
    assert batch.response_ids is None
    assert batch.lacks("old", "rollout") is not None


def test_a_log_of_completions_of_trl(tmp_path: Path) -> None:
    import pandas as pd

    path = tmp_path / "completions_00002.parquet"
    rows = {"step": [2], "prompt": [MESSAGES[:1]], "completion": ["a"], "r": [0.5]}
    pd.DataFrame(rows).to_parquet(path)
    batch = rd.load(path)
    assert said(batch) == [("user", "q"), ("assistant", "a")]
    assert batch.step == 2
    assert batch.sample_columns["r"].tolist() == [0.5]


def json_file(name: str, document: dict[str, Any]) -> tuple[str, bytes]:
    return name, json.dumps(document).encode()


def zip_of(name: str, text: str) -> tuple[str, bytes]:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, text)
    return "book.zip", data.getvalue()


SILENT = {"responses_create_params": {"input": "q"}, "response": {"output": []}}
# A file, and what the message must say.
REFUSED: list[tuple[tuple[str, bytes], str]] = [
    (
        json_file("a.json", {"agent": "x", "steps": [{"action": "click"}]}),
        "a `source` in the steps of ATIF; found steps",
    ),
    (
        json_file("rollouts.jsonl", SILENT),
        "expected trajectories in which a model wrote something; found 1 without",
    ),
    (
        json_file("problems.jsonl", {"question": "q", "answer": {"a": 1}}),
        "found one JSON object of question, answer: texts without token ids",
    ),
    (zip_of("mimetype", "x" * 300), "found a zip of another program, with mimetype"),
]


@pytest.mark.parametrize(("file", "message"), REFUSED)
def test_a_file_of_no_trajectories_is_refused(
    file: tuple[str, bytes], message: str, tmp_path: Path
) -> None:
    (tmp_path / file[0]).write_bytes(file[1])
    with pytest.raises(LoadError, match=message):
        rd.load(tmp_path / file[0])


def test_names_that_are_missing_are_not_the_text_none() -> None:
    rows = {
        "response_ids": [[5], [6], [7]],
        "response_mask": [[1], [1], [1]],
        "rollout_log_probs": [[-1.0]] * 3,
        "sample_ids": ["a", None, "c"],
        "uid": np.array(["g", None, "g"], dtype=object),
    }
    names = {"sample_ids": ["a", "row 1", "c"], "group_ids": ["g", "row 1", "g"]}
    has(rd.load(rows), names)


def message(text: str, role: str = "user") -> dict[str, str]:
    return {"role": role, "content": text}


@pytest.mark.parametrize(
    ("known", "prompt", "expected"),
    [
        ("", "ab", ("ab", False)),
        ("ab", "abc", ("c", False)),
        ("abcd", "cde", ("e", True)),  # a window: the last known message is in it
        ("abcd", "abe", ("e", True)),  # the tail was replaced
        ("abcd", "xy", ("xy", True)),
    ],
)
def test_messages_of_a_prompt_that_are_new(
    known: str, prompt: str, expected: tuple[str, bool]
) -> None:
    found, is_rewritten = new_messages([*map(message, known)], [*map(message, prompt)])
    assert ("".join(one["content"] for one in found), is_rewritten) == expected


def test_the_error_of_a_tool_is_its_text() -> None:
    failed = {"role": "tool", "content": "", "error": {"message": "no such file"}}
    assert write_text(read_message(failed)) == "no such file"


def test_lists_in_place_of_names_are_no_names(tmp_path: Path) -> None:
    row = {**ROWS["ids of one call only"], "session_id": [1, 2], "agent": {"name": []}}
    path = tmp_path / "trajectory.json"
    path.write_text(json.dumps(row))
    batch = rd.load(path)
    assert batch.sample_ids == ("trajectory",)
    assert "agent" not in batch.sample_columns
