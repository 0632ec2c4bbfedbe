"""The batches of the snapshot: files, demos, planted faults, small inputs, damage.

A case is a name and a function that makes the batch (one case: the run), or raises a
`RounddiagError`.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any, TypeAlias, get_args

import numpy as np
import torch
from PIL import Image

import rounddiag as rd
from rounddiag import Batch
from rounddiag.loaders.sample_batches import DemoName
from rounddiag.runs import Run
from tests.faults import fixed
from tests.loaders.table_cases import COLUMNS, named_otherwise

Make: TypeAlias = Callable[[], Batch | Run]
DATA = Path("tests/data")
SAMPLES = Path("sample_data")
TOKENIZER = SAMPLES / "tokenizer.json"
NOT_READ = {".md", ".npz", ".png", ".py", ".txt"}
FOLDERS = [  # of which `load` takes the folder, not a file
    "browser-use-0.13.14",
    "browsergym-experiments-0.14.3",
    "datasets-5.2.0",
    "harbor-0.26.0",
    "miles/train_data",
    "nemo-gym-0.4.0",
    "prime-rl-65a1858",
    "prime-rl-d2f82fa/step_7",
    "slime-v2/train_data",
    "vime-5d429bd/train_data",
]
FIRST_HALVES = [  # one of each container: files that a full disk cut
    "agentlightning-0.3.0_transition.pkl",
    "browser-use-0.13.14/AgentHistory.json",
    "datasets-5.2.0/data-00000-of-00002.arrow",
    "inspect-ai-0.3.285/gui.eval",
    "nemo-rl-0275e75/train_data_step7.jsonl",
    "prime-rl-65a1858/stream/00000.jsonl.zst",
    "rounddiag-0.1.0_layout-2.parquet",
    "skyrl-0.3.0_default_global_step_7_training_input.pkl",
    "transformers-5.23.0_qwen2-vl_bfloat16.safetensors",
    "trl-1.16.0_step_2_rank_0.pt",
]


def cases(folder: Path) -> Iterator[tuple[str, Make]]:
    """Yield every case; files that are made lie in `folder`."""
    yield from _files()
    for name in get_args(DemoName):
        yield f"demo {name}", partial(rd.demo, name)
    for case in fixed.load():
        yield f"fault {case.name}", case.batch
    yield from _layouts(folder)
    yield from _copies(folder)
    yield from _damaged(folder)


def _files() -> Iterator[tuple[str, Make]]:
    for path in sorted(DATA.rglob("*")):
        if path.is_file() and path.suffix not in NOT_READ:
            yield str(path.relative_to(DATA)), partial(rd.load, path)
    for name in FOLDERS:
        yield f"{name}/", partial(rd.load, DATA / name)
    for path in sorted(SAMPLES.glob("*.p*")):
        if path.suffix not in NOT_READ:
            yield path.name, partial(rd.load, path, tokenizer=TOKENIZER)
    steps = partial(rd.load, SAMPLES / "step_rows.parquet", tokenizer=TOKENIZER)
    yield (
        "step_rows.parquet joined",
        partial(steps, sample_by="traj_uid", order_by="step_idx"),
    )
    yield "run/step_30.parquet", partial(rd.load, SAMPLES / "run" / "step_30.parquet")


def _picture(width: int, height: int) -> bytes:
    data = BytesIO()
    Image.new("RGB", (width, height), "white").save(data, "PNG")
    return data.getvalue()


CALL = {
    "type": "function",
    "id": "1",
    "function": {"name": "click", "arguments": '{"x": 3, "y": 4}'},
}
MESSAGES: list[dict[str, Any]] = [
    {"role": "system", "content": "You use a phone."},
    {"role": "user", "content": "Open the menu."},
    {"role": "assistant", "content": "At the top.", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "1", "content": "It is open."},
    {"role": "assistant", "content": "Done."},
]
STEPS: list[dict[str, Any]] = [
    {
        "trajectory": name,
        "step": step,
        "messages": MESSAGES[: 2 + 2 * step],
        "response": MESSAGES[2 + 2 * step],
        "screenshot": _picture(8, 4),
        "reward": float(step),
        "seconds": 0.5 * step,
    }
    for name in ("a", "b")
    for step in (0, 1)
]
ID_STEPS: list[dict[str, Any]] = [  # the second context of "b" is rewritten
    {
        "trajectory": name,
        "step": step,
        "prompt_ids": prompt,
        "response": [7, 8],
        "rollout_log_probs": [-1.0, -0.5],
        "old_log_probs": [-1.25, -0.5],
        "action": f"click({step}, 2)",
    }
    for name, step, prompt in [
        ("a", 0, [1, 2]),
        ("a", 1, [1, 2, 7, 8, 3]),
        ("b", 0, [1, 5]),
        ("b", 1, [1, 6, 3]),
    ]
]
TURNS: list[list[tuple[Any, ...]]] = [
    [("user", "Open."), ("assistant", "click(3, 4)"), ("tool", "open")],
    [("user", "Close."), ("assistant", "done", [], ["do", "ne"], [-0.5, -1.0])],
]
COMPLETIONS = [
    {"prompt": "Open.", "completion": "click(3, 4)", "reward": 0.5},
    {"prompt": "Open.", "completion": "back()", "reward": 0.0},
]


def _layouts(folder: Path) -> Iterator[tuple[str, Make]]:
    """Yield small inputs in memory, and as rows of text."""
    yield "steps of messages", partial(Batch.from_steps, STEPS)
    yield "steps of ids", partial(Batch.from_steps, ID_STEPS)
    yield "turns", partial(Batch.from_turns, TURNS)
    yield "columns", partial(rd.load, COLUMNS)
    yield (
        "columns renamed",
        partial(
            rd.load,
            named_otherwise(),
            columns={name: f"my_{name}" for name in COLUMNS if name != "turns"},
        ),
    )
    per_token = [[0.5, 0.0, 0.25], [1.0]]
    for others in (
        ("entropy", "advantages", "token_level_scores", "global_step"),
        ("entropys", "advantage", "rm_scores", "global_steps"),
    ):
        table = COLUMNS | dict.fromkeys(others[:3], per_token) | {others[3]: 7}
        yield f"columns with {others[0]}", partial(rd.load, table)
    conversations = [{"messages": MESSAGES, "reward": 1.0, "task": "menu"}] * 2
    for name, rows in [("messages", conversations), ("completions", COMPLETIONS)]:
        lines = folder / f"{name}.jsonl"
        lines.write_text("\n".join(map(json.dumps, rows)))
        yield f"rows of {name}", partial(rd.load, lines)


def _copies(folder: Path) -> Iterator[tuple[str, Make]]:
    """Yield batches that were saved, redacted, cut, and scored again."""

    def copy(batch: Batch, **options: bool) -> Batch:
        path = folder / "copy.parquet"
        path.unlink(missing_ok=True)
        rd.save(batch, path, **options)
        return rd.load(path)

    def scored() -> Batch:
        batch = rd.demo("healthy")[:3]
        rd.export_rescore(batch, folder / "rescore")
        lines = (folder / "rescore" / "samples.jsonl").read_text().splitlines()
        records = [json.loads(line) for line in lines]
        scores = {
            "sample": [record["sample"] for record in records],
            "token_ids": [record["response_ids"] for record in records],
            "log_probs": [[-0.5] * len(record["response_ids"]) for record in records],
        }
        return rd.attach(batch, "rescored", scores)

    yield "saved", lambda: copy(rd.demo("image_window"))
    yield "redacted", lambda: copy(rd.demo("image_window"), redact=True)
    yield "saved steps of messages", lambda: copy(Batch.from_steps(STEPS))
    yield "saved steps of ids", lambda: copy(Batch.from_steps(ID_STEPS))
    yield "slice", lambda: rd.demo("stale")[10:14]
    yield "scored again", scored
    yield (
        "untrusted",
        partial(rd.load, DATA / "trl-1.16.0_step_2_rank_0.pt", untrusted=True),
    )


def _verl() -> dict[str, Any]:
    """Return tensors with verl's names: two samples of four positions."""
    mask = torch.tensor([[1, 1, 0, 1], [1, 0, 0, 0]])
    return {
        "prompts": torch.tensor([[1, 2], [0, 3]]),
        "responses": torch.tensor([[5, 6, 7, 8], [9, 0, 0, 0]]),
        "attention_mask": torch.tensor([[1, 1, 1, 1, 1, 1], [0, 1, 1, 0, 0, 0]]),
        "response_mask": mask,
        "rollout_log_probs": -mask.float(),
        "old_log_probs": -1.25 * mask,
    }


def _with(**fields: Any) -> dict[str, Any]:
    return {
        name: value
        for name, value in {**_verl(), **fields}.items()
        if value is not None
    }


def _at(name: str, value: float) -> dict[str, Any]:
    """Return the tensors with one value changed."""
    changed = _verl()[name].clone()
    changed[0, 1] = value
    return _with(**{name: changed})


def _tables() -> dict[str, object]:
    """Return what is wrong, and the object that a file holds."""
    whole = _verl()
    return {
        "sound": whole,
        "no mask": _with(response_mask=None),
        "no responses": _with(responses=None),
        "no log-probs of training": _with(old_log_probs=None),
        "no log-probs": _with(old_log_probs=None, rollout_log_probs=None),
        "equal log-probs": _with(old_log_probs=whole["rollout_log_probs"]),
        "a log-prob is NaN": _at("old_log_probs", np.nan),
        "a log-prob is infinite": _at("rollout_log_probs", -np.inf),
        "a log-prob is above 0": _at("old_log_probs", 0.5),
        "a mask of 2": _at("response_mask", 2),
        "a negative id": _at("responses", -1),
        "log-probs of another length": _with(old_log_probs=torch.zeros(2, 3)),
        "log-probs of more rows": _with(old_log_probs=torch.zeros(3, 4)),
        "a mask of three axes": _with(response_mask=torch.ones(2, 4, 1)),
        "ids of texts": _with(responses=[["a"] * 4, ["b"] * 4]),
        "rewards of another number": _with(rewards=torch.zeros(5)),
        "an empty mask": _with(response_mask=torch.zeros(2, 4, dtype=torch.long)),
        "no rows": {name: value[:0] for name, value in whole.items()},
        "a tensor alone": whole["responses"],
        "a number": 5,
        "an empty dictionary": {},
    }


def _damaged(folder: Path) -> Iterator[tuple[str, Make]]:
    """Yield files with a damage each."""
    for name, table in _tables().items():
        path = folder / f"{name}.pt"
        torch.save(table, path)
        yield f"damaged: {name}", partial(rd.load, path)
    for name in FIRST_HALVES:
        data = (DATA / name).read_bytes()
        path = folder / "halves" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data[: len(data) // 2])
        yield f"first half of {name}", partial(rd.load, path)
    for suffix in (".pt", ".pkl", ".jsonl", ".parquet"):
        path = folder / f"empty{suffix}"
        path.touch()
        yield path.name, partial(rd.load, path)
    odd = {"not there": "nothing.pt", "an empty folder": "nothing"}
    (folder / "nothing").mkdir(exist_ok=True)
    for name, missing in odd.items():
        yield name, partial(rd.load, folder / missing)
    yield "steps without an answer", partial(Batch.from_steps, [{"step": 0}])
    yield (
        "a step twice",
        partial(Batch.from_steps, [STEPS[0], STEPS[0]]),
    )
    several = folder / "run"
    several.mkdir(exist_ok=True)
    for number in range(200, 280, 10):  # the mismatch begins at step 240
        shutil.copy(SAMPLES / "run" / f"step_{number}.parquet", several)
    yield "a folder of many steps", partial(rd.load, several)
    yield "a run", partial(rd.open_run, several)
    lost = partial(replace, rd.demo("healthy"), rollout_log_probs=None)
    yield "no log-probs of sampling", lost
