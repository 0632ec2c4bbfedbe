"""The whole files that are damaged: one or more of every format."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd
import safetensors.torch
import torch

from tests.loaders import (
    nemo_rl_writer,
    prime_rl_writer,
    slime_writer,
    verifiers_writer,
    verl_writer,
)
from tests.loaders.frameworks.test_gui_agents import M3A, checkpoint

ROOT = Path(__file__).parents[2]
_LARGEST = 600_000  # bytes; larger ones say nothing more and take longer
# How the names of other files and folders begin.
_NO_BATCH = (".", "README", "transformers-", "run", "model", "older_model")
# Folders in which each file is a batch of its own.
_OF_BATCHES = ("openpipe-art-",)
_COLUMNS = {"rollout_log_probs": "sampler", "old_log_probs": "trainer"}


@dataclass(frozen=True, kw_only=True)
class Seed:
    """Files that belong together, what of them is opened, and names of columns."""

    name: str
    files: dict[str, bytes]
    opened: str
    columns: dict[str, str] | None = None


@cache
def corpus() -> list[Seed]:
    """Return every small file of `tests/data` and `sample_data`, and those laid out."""
    folders = (ROOT / "tests/data", ROOT / "sample_data")
    paths = sorted(path for folder in folders for path in folder.iterdir())
    paths = [
        file
        for path in paths
        for file in (
            [*path.rglob("*.*")] if path.name.startswith(_OF_BATCHES) else [path]
        )
    ]
    kept = [
        _seed(path.name, path.parent, path)
        for path in paths
        if path.suffix not in {".md", ".py", ".json"}
        and not path.name.startswith(_NO_BATCH)
        and path.stat().st_size < _LARGEST
    ]
    with TemporaryDirectory() as folder:
        laid_out = [
            _seed(place.name, place, opened)
            for place in map(Path(folder).joinpath, _WRITERS)
            for opened in [_WRITERS[place.name](place)]
        ]
    return [seed for seed in (*kept, *laid_out) if seed.files]


def _seed(name: str, folder: Path, opened: Path) -> Seed:
    """Read a file, or all that lie beside or below it where it has a folder."""
    inside = opened if opened.is_dir() else folder
    together = folder.name in _WRITERS or opened.is_dir()
    paths = sorted(inside.rglob("*")) if together else [opened]
    return Seed(
        name=name,
        files={
            str(path.relative_to(folder)): path.read_bytes()
            for path in paths
            if path.is_file() and path.suffix not in {".py", ".pyc"}
        },
        opened=str(opened.relative_to(folder)),
        columns=_COLUMNS if name.startswith("datasets-") else None,
    )


def _android_world(folder: Path) -> Path:
    folder.mkdir()
    file = folder / "OpenMenu_0.pkl.gz"
    checkpoint(file, instance_id=0, episode_data=M3A)
    return file


def _slime(folder: Path) -> Path:
    slime_writer.write_rollouts(folder, slime_writer.rollouts())
    samples = slime_writer.trained_samples()
    return slime_writer.write_train_file(folder, samples, slime_writer.shards())


def _miles_ranks(folder: Path) -> Path:
    slime_writer.write_rollouts(folder, slime_writer.rollouts())
    for rank, part in enumerate(slime_writer.shards()):
        slime_writer.write_rank(folder, part, rank)
    return folder


def _miles(folder: Path) -> Path:
    part = slime_writer.shards()[1]
    return slime_writer.write_rank(folder, part)


def _nemo_rl(folder: Path) -> Path:
    folder.mkdir()
    path = folder / "train_data_step3.jsonl"
    return nemo_rl_writer.write(path, nemo_rl_writer.small_step())


def _prime_rl(folder: Path) -> Path:
    folder.mkdir()
    return prime_rl_writer.write(folder / "rank_0.jsonl", prime_rl_writer.small_step())


def _prime_rl_traces(folder: Path) -> Path:
    return verifiers_writer.write(folder, verifiers_writer.updates())


def _tensors(folder: Path) -> Path:
    folder.mkdir()
    path = folder / "batch.safetensors"
    safetensors.torch.save_file(verl_writer.small_batch(), path)
    return path


def _arrays(folder: Path) -> Path:
    folder.mkdir()
    path = folder / "batch.npz"
    arrays = {name: value.numpy() for name, value in verl_writer.small_batch().items()}
    np.savez(path, **arrays)  # type: ignore[arg-type]
    return path


def _dictionary(folder: Path) -> Path:
    folder.mkdir()
    path = folder / "batch.pt"
    torch.save(verl_writer.small_batch(), path)
    return path


def _older_torch(folder: Path) -> Path:
    folder.mkdir()
    path = folder / "batch.pt"
    torch.save(verl_writer.small_batch(), path, _use_new_zipfile_serialization=False)
    return path


def _verl_pixels(folder: Path) -> Path:
    folder.mkdir()
    grid = torch.tensor([[1, 2, 2]])
    pixels = {"pixel_values": torch.zeros(4, 24), "image_grid_thw": grid}
    columns = {"uid": ["a", "b"], "multi_modal_inputs": [pixels, {}]}
    return verl_writer.write(folder / "step.pkl", verl_writer.small_batch(), columns)


def _rows() -> dict[str, list[object]]:
    batch = verl_writer.small_batch()
    return {**{k: v.tolist() for k, v in batch.items()}, "uid": ["a", "b"]}


def _table(folder: Path) -> Path:
    folder.mkdir()
    pd.DataFrame(_rows()).to_parquet(folder / "table.parquet")
    return folder / "table.parquet"


def _lines(folder: Path) -> Path:
    folder.mkdir()
    records = pd.DataFrame(_rows()).to_dict("records")
    text = "".join(f"{json.dumps(record)}\n" for record in records)
    (folder / "table.jsonl").write_text(text, encoding="utf-8")
    return folder / "table.jsonl"


def _areal(folder: Path) -> Path:
    folder.mkdir()
    names = {"input_ids": "responses", "loss_mask": "response_mask"}
    names |= {"logprobs": "rollout_log_probs", "prox_logp": "old_log_probs"}
    batch = verl_writer.small_batch()
    torch.save({ours: batch[verls] for ours, verls in names.items()}, folder / "a.pt")
    return folder / "a.pt"


def _osworld(folder: Path) -> Path:
    folder.mkdir()
    row = {"step_num": 1, "action": "click(1, 2)", "screenshot_file": "step_1.png"}
    picture = ROOT / "tests/data/harbor-0.26.0/menu__1.8/agent/images/0.png"
    (folder / "step_1.png").write_bytes(picture.read_bytes())
    (folder / "result.txt").write_text("1.0\n")
    return _json_lines(folder / "traj.jsonl", row)


def _json_lines(path: Path, *rows: dict[str, object]) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


_MESSAGES: list[object] = [
    {"role": "user", "content": "Open the menu."},
    {"role": "assistant", "content": "click(1, 2)"},
]


def _messages(folder: Path) -> Path:
    return _json_lines(folder / "a.jsonl", {"messages": _MESSAGES})


def _completions(folder: Path) -> Path:
    row = {"prompt": "Open the menu.", "completion": "click(1, 2)", "reward": 1.0}
    return _json_lines(folder / "a.jsonl", row, row)


def _rllm(folder: Path) -> Path:
    steps = [{"chat_completions": _MESSAGES, "reward": 1.0}]
    known = {"training_step": 1, "episode_id": "e", "task_hash": "h"}
    row = {**known, "trajectories": [{"name": "a", "steps": steps}]}
    return _json_lines(folder / "episode_1.json", row)


def _unversioned_atif(folder: Path) -> Path:
    call = {"function_name": "click", "arguments": {"x": 1}}
    asked = {"source": "user", "message": "Open the menu."}
    done = {"source": "agent", "message": "", "tool_calls": [call]}
    row: dict[str, object] = {"agent": {"name": "a"}, "steps": [asked, done]}
    return _json_lines(folder / "trajectory.json", row)


def _wire_traces(folder: Path) -> Path:
    trace = {**verifiers_writer.episode()["traces"][0], "task": {}}
    return _json_lines(folder / "train_rollouts.jsonl", trace)


def _message_list(folder: Path) -> Path:
    folder.mkdir(parents=True)
    path = folder / "interact_messages.json"
    path.write_text(json.dumps(_MESSAGES))
    return path


def _conversations(folder: Path) -> Path:
    said = [{"from": "human", "value": "<image>Go."}, {"from": "gpt", "value": "a"}]
    row = {"conversations": said, "images": [None]}
    return _json_lines(folder / "a.jsonl", row)


def _calls(folder: Path) -> Path:
    log_probs = {"content": [{"token": "a", "logprob": -0.5}]}
    choice = {"message": _MESSAGES[-1], "token_ids": [5], "logprobs": log_probs}
    response = {"prompt_token_ids": [1, 2], "choices": [choice]}
    row = {"request": {"messages": _MESSAGES[:1]}, "response": response}
    return _json_lines(folder / "a.jsonl", row)


def _responses(folder: Path) -> Path:
    response = {"output": [{"type": "function_call", "name": "f", "arguments": "{}"}]}
    row = {"request": {"input": "Go."}, "response": response}
    return _json_lines(folder / "a.jsonl", row)


def _dart_gui(folder: Path) -> Path:
    folder.mkdir()
    ids, logp = torch.tensor([5, 6]), torch.tensor([-0.5, -1.0])
    path = folder / "data_for_step_0.pt"
    torch.save({"logp": logp, "token_ids": ids, "prompt_token_ids": ids}, path)
    return path


def _dashboard(folder: Path) -> Path:
    (folder / "dashboard_columns").mkdir(parents=True)
    rows = {"sample_index": [7], "response_length": [2], "total_length": [3]}
    tokens = {"tokens": [[1, 2, 3]], "loss_mask": [[1, 1]]}
    path = folder / "dashboard_columns" / "rollout_3.parquet"
    frame = pd.DataFrame({**rows, **tokens, "rollout_log_probs": [[-0.5, -1.0]]})
    frame.to_parquet(path)
    return path


_WRITERS = {
    "osworld": _osworld,
    "android-world": _android_world,
    "messages": _messages,
    "message-list": _message_list,
    "conversations": _conversations,
    "calls": _calls,
    "responses": _responses,
    "completions": _completions,
    "rllm": _rllm,
    "wire-traces": _wire_traces,
    "unversioned-atif": _unversioned_atif,
    "dart-gui": _dart_gui,
    "dashboard": _dashboard,
    "slime": _slime,
    "miles-ranks": _miles_ranks,
    "miles": _miles,
    "nemo-rl": _nemo_rl,
    "prime-rl": _prime_rl,
    "prime-rl-traces": _prime_rl_traces,
    "safetensors": _tensors,
    "npz": _arrays,
    "dictionary": _dictionary,
    "older-torch": _older_torch,
    "verl-pixels": _verl_pixels,
    "parquet-table": _table,
    "json-lines-table": _lines,
    "areal": _areal,
}
