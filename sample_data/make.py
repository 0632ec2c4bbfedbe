"""Make the sample batches: train a small agent, sample trajectories, score them.

Run `python sample_data/make.py`, with the extra `sample-data` installed. Everything
is seeded and runs on one thread; README.md describes the method and the results.
"""

import copy
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from synthetic.chat import train_tokenizer
from synthetic.files import GROUP, group_id, to_batch
from synthetic.model import build
from synthetic.report import is_good, show
from synthetic.rollout import Trajectory, roll_out
from synthetic.run import save_run
from synthetic.score import WINDOW, old_log_probs, window_log_probs
from synthetic.train import APPS, Lesson, State, Teacher, batches, fit, teacher_texts
from tokenizers import Tokenizer
from tqdm.auto import tqdm
from transformers import Qwen2_5_VLForConditionalGeneration

import rounddiag as rd

HERE = Path(__file__).parent
SEED = 0
TASKS = 16
TEXTS = 1500
DRILLS = ((2400, 1), (2400, 2), (1200, 3))  # number, widgets
TASKS_TAUGHT = ((1500, 1, 2), (1000, 2, 2))  # number, goals per task, repeats
LAGS = (5, 10, 20, 40)  # training steps by which the sampler of `stale` lags
VERL_SCREENSHOTS = 16  # 113 kB each


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


def sample(
    model: Qwen2_5_VLForConditionalGeneration,
    tokenizer: Tokenizer,
    weights: dict[int, State],
    versions: Sequence[int],
) -> list[Trajectory]:
    """Sample a trajectory of every task, with alternating versions of the weights."""
    trajectories = []
    copies = {version: copy.deepcopy(model) for version in versions}
    for version, sampler in copies.items():
        sampler.load_state_dict(weights[version])
        sampler.to(torch.bfloat16)
    for index in tqdm(range(TASKS * GROUP), "samples"):
        task = index // GROUP
        app = APPS[task % len(APPS)](np.random.default_rng([SEED, task]))
        version = versions[task % len(versions)]
        rolled = roll_out(copies[version], tokenizer, app, index, version)
        trajectories.append(rolled)
    return trajectories


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
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    texts = teacher_texts(np.random.default_rng(SEED), TEXTS)
    tokenizer = train_tokenizer(texts)
    tokenizer.save(str(HERE / "tokenizer.json"))
    model = build(tokenizer.get_vocab_size())
    plan = curriculum(Teacher(model, tokenizer, SEED))
    weights = fit(model, plan, kept=(0, *LAGS))
    model.eval()
    step = max(weights)
    fresh = sample(model, tokenizer, weights, [step])
    stale = sample(model, tokenizer, weights, [step - lag for lag in LAGS])
    whole = "one float32 forward pass over the whole trajectory"
    window = f"a float32 forward pass a round, with its last {WINDOW} screenshots only"
    cut = [window_log_probs(model, one) for one in fresh]
    full = [old_log_probs(model, one) for one in fresh]
    late = [old_log_probs(model, one) for one in stale]
    files = {
        "healthy": to_batch(fresh, full, step, whole),
        "stale": to_batch(stale, late, step, whole),
        "image_window": to_batch(fresh, cut, step, window),
    }
    for name, batch in files.items():
        rd.save(batch, HERE / f"{name}.parquet")
        show(name, batch, tokenizer)
    save_verl(model, fresh, cut, step)
    save_run(files["healthy"], files["image_window"], HERE / "run")
    return 0 if all(is_good(batch) for batch in files.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
