"""Make the sample batches: vLLM samples trajectories, transformers scores them.

    python sample_data/make.py            with the agent of `model/`
    python sample_data/make.py --train    trains that agent first

Runs in an environment with vLLM (README.md says how to make one). Everything is
seeded; README.md describes the method and the results.
"""

import argparse
import shutil
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import torch
import transformers
from synthetic.app import App
from synthetic.chat import PROCESSOR, train_tokenizer
from synthetic.checkpoint import load_agent, save_agent
from synthetic.files import GROUP, group_id, to_batch, with_advantages
from synthetic.model import build
from synthetic.report import is_good, show
from synthetic.rollout import Trajectory, roll_out
from synthetic.run import save_run
from synthetic.score import WINDOW, old_log_probs, window_log_probs
from synthetic.step_rows import to_step_rows
from synthetic.train import APPS, Lesson, Teacher, batches, fit, teacher_texts
from synthetic.vllm_engine import Engine
from tokenizers import Tokenizer
from transformers import Qwen2_5_VLForConditionalGeneration

import rounddiag as rd

HERE = Path(__file__).parent
MODEL, OLDER = HERE / "model", HERE / "older_model"
SEED = 0
TASKS = 16
TEXTS = 1500
DRILLS = ((2400, 1), (2400, 2), (1200, 3))  # number, widgets
TASKS_TAUGHT = ((1500, 1, 2), (1000, 2, 2))  # number, goals per task, repeats
LAG = 40  # training steps between the two models
VERL_SCREENSHOTS = 16  # 113 kB each


def train_agent() -> None:
    """Train the agent; write its tokenizer, its folder and that of older weights."""
    torch.manual_seed(SEED)
    tokenizer = train_tokenizer(teacher_texts(np.random.default_rng(SEED), TEXTS))
    tokenizer.save(str(HERE / "tokenizer.json"))
    model = build(-(-tokenizer.get_vocab_size() // 8) * 8)  # vLLM wants a multiple of 8
    plan = curriculum(Teacher(model, tokenizer, SEED))
    weights = fit(model, plan, kept=(0, LAG))
    for step, folder in zip(sorted(weights), (OLDER, MODEL), strict=True):
        save_agent(model, weights[step], step, tokenizer, folder)


def curriculum(teacher: Teacher) -> list[list[Lesson]]:
    """Return the training batches: first locating widgets, then whole tasks."""
    plan: list[list[Lesson]] = []
    for count, crowd in DRILLS:
        plan += batches(teacher.drills(count, crowd), 8, teacher.rng)
    for count, goals, times in TASKS_TAUGHT:
        rows = teacher.tasks(count, goals)
        for _ in range(times):
            plan += batches(rows, 6, teacher.rng)
    return plan


def apps(tasks: Iterable[int]) -> list[App]:
    """Open the page of each task, once for every attempt."""
    return [
        APPS[task % len(APPS)](np.random.default_rng([SEED, task]))
        for task in tasks
        for _ in range(GROUP)
    ]


def sample_both(
    engine: Engine, tokenizer: Tokenizer, step: int
) -> tuple[list[Trajectory], list[Trajectory]]:
    """Sample every task, twice: with the model, and half of them with older weights."""
    fresh = roll_out(engine, tokenizer, apps(range(TASKS)), step)
    even = roll_out(engine, tokenizer, apps(range(0, TASKS, 2)), step)
    engine.load(OLDER)
    odd = roll_out(engine, tokenizer, apps(range(1, TASKS, 2)), step - LAG)
    mixed = []
    for start in range(0, len(even), GROUP):
        mixed += even[start : start + GROUP] + odd[start : start + GROUP]
    return fresh, mixed


def choose_solved(trajectories: Sequence[Trajectory]) -> list[int]:
    """Choose solved samples, at most two per task, within the screenshot limit."""
    chosen: list[int] = []
    room = VERL_SCREENSHOTS
    for index, one in enumerate(trajectories):
        size = len(one.screenshots)
        if index % GROUP < GROUP // 2 and one.reward and 1 < size <= room:
            chosen.append(index)
            room -= size
    return chosen


def save_verl(
    model: Qwen2_5_VLForConditionalGeneration,
    trajectories: Sequence[Trajectory],
    old: Sequence[torch.Tensor],
    step: int,
) -> None:
    """Write a few samples with the real verl package."""
    try:
        from synthetic.verl_file import to_data_proto
    except ModuleNotFoundError as error:
        print(f"No {error.name}: image_window_verl.pkl is not rewritten (see README).")
        return
    chosen = choose_solved(trajectories)
    rows = [trajectories[index] for index in chosen]
    scores = [old[index] for index in chosen]
    uids = [group_id(index) for index in chosen]
    data = to_data_proto(model, rows, scores, uids, step)
    data.save_to_disk(str(HERE / "image_window_verl.pkl"))


def main() -> int:
    """Make every file; return 1 if the agent solves too few tasks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--train", action="store_true", help="train the agent anew")
    torch.set_num_threads(1)
    if parser.parse_args().train:
        train_agent()
    tokenizer = Tokenizer.from_file(str(HERE / "tokenizer.json"))
    model = load_agent(MODEL)
    step = model.config.training_step
    engine = Engine(MODEL, SEED)
    fresh, stale = sample_both(engine, tokenizer, step)
    facts = {
        **engine.facts(),
        "model": MODEL.name,
        "image_pixels": PROCESSOR.size["longest_edge"],
        "training_engine": "transformers",
        "training_engine_version": transformers.__version__,
        "training_dtype": "float32",
        "torch_version": torch.__version__,
    }
    whole = "one float32 forward pass over the whole trajectory"
    window = f"a float32 forward pass a round, with its last {WINDOW} screenshots only"
    cut = [window_log_probs(model, one) for one in fresh]
    full = [old_log_probs(model, one) for one in fresh]
    late = [old_log_probs(model, one) for one in stale]
    files = {
        "healthy": to_batch(fresh, full, step, whole, facts),
        "stale": to_batch(stale, late, step, whole, facts),
        "image_window": to_batch(fresh, cut, step, window, facts),
    }
    files["advantages"] = with_advantages(files["image_window"])
    for name, batch in files.items():
        rd.save(batch, HERE / f"{name}.parquet")
        show(name, batch, tokenizer)
    save_verl(model, fresh, cut, step)
    rd.save(to_step_rows(files["healthy"], MODEL), HERE / "step_rows.parquet")
    save_run(files["healthy"], files["image_window"], HERE / "run")
    shutil.copy(HERE / "tokenizer.json", HERE / "run")  # found beside the step files
    return 0 if all(is_good(batch) for batch in files.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
