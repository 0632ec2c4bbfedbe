"""Train the agent of the sample data for 20 steps, with vLLM as its sampler.

    python tests/interop/vllm_loop.py FOLDER

in an environment with vLLM, with the checkout on PYTHONPATH. A step samples with vLLM,
scores with transformers in float32, is recorded and judged, updates the weights once,
and gives them to vLLM. Two runs: a sound one, and one whose weights do not reach vLLM
from step 10 on, which goes on from the sound one's step 9. `rd.open_run` must find no
change in the first and must name step 10 in the second; the Recorder must speak of the
second alone.
"""

from __future__ import annotations

import copy
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import transformers
from tokenizers import Tokenizer
from torch.nn.utils.rnn import pad_sequence

import rounddiag as rd
from rounddiag.capture import Recorder
from sample_data.synthetic.checkpoint import load_agent, save_agent
from sample_data.synthetic.rollout import roll_out
from sample_data.synthetic.score import patches_of, token_log_probs
from sample_data.synthetic.train import APPS
from sample_data.synthetic.vllm_engine import Engine

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rounddiag.findings import Diagnosis
    from sample_data.synthetic.app import App
    from sample_data.synthetic.rollout import Trajectory

SAMPLE_DATA = Path(__file__).parents[2] / "sample_data"
STEPS, ONSET = 20, 10
TASKS, GROUP = 6, 4
LEARNING_RATE = 2e-4
JUDGED = [
    f"rounddiag/{name}" for name in ("step", "severity", "mean_abs_diff", "seconds")
]


class Loop:
    """The trainer's state: weights, optimiser, engine, and where steps are recorded."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.model = load_agent(SAMPLE_DATA / "model")
        self.tokenizer = Tokenizer.from_file(str(SAMPLE_DATA / "tokenizer.json"))
        self.engine = Engine(SAMPLE_DATA / "model", 0)
        self.master = [value.detach().clone() for value in self.model.parameters()]
        self.optimiser = torch.optim.AdamW(self.master, LEARNING_RATE)

    def run(
        self, steps: Sequence[int], folder: Path, *, is_synced: bool
    ) -> list[tuple[int, str]]:
        """Do some steps, and record each; return where the verdict changed, to what."""
        changes: list[tuple[int, str]] = []

        def note(diagnosis: Diagnosis, file: str) -> None:
            changes.append((int(Path(file).stem.split("_")[1]), diagnosis.verdict))

        facts = {
            **self.engine.facts(),
            "training_engine": f"transformers {transformers.__version__}",
            "training_dtype": "float32",
        }
        options: dict[str, Any] = {"every": 1, "images": 0, "facts": facts}
        with Recorder(folder, **options, diagnose=True, on_verdict=note) as recorder:
            for step in steps:
                start = time.perf_counter()
                if step and is_synced:
                    self.hand_over(step)
                pages = draw(step)
                found = roll_out(self.engine, self.tokenizer, pages, step)
                sampled = time.perf_counter()
                with torch.no_grad():
                    old = [score(self.model, one) for one in found]
                batch = as_batch(found, old)
                recorder.step(step, batch)
                self.update(found, old)
                diff = (batch["old_log_probs"] - batch["rollout_log_probs"]).abs()
                written = batch["response_mask"] > 0
                print(
                    f"step {step}: mean |diff| {diff[written].mean():.4f} nat,"
                    f" reward {np.mean([one.reward for one in found]):.2f},"
                    f" sampled in {sampled - start:.1f} s, all"
                    f" {time.perf_counter() - start:.1f} s",
                    flush=True,
                )
                if judged := recorder.metrics():
                    print("  judged:", {k: round(judged[k], 4) for k in JUDGED})
        return changes

    def hand_over(self, step: int) -> None:
        """Write the weights in bfloat16, and let vLLM load them."""
        folder = self.home / "weights"
        weights = self.model.state_dict()
        save_agent(self.model, weights, step, self.tokenizer, folder)
        self.engine.load(folder)

    def update(self, found: list[Trajectory], old: list[torch.Tensor]) -> None:
        """Do one step of GRPO: advantages within the group of a task."""
        rewards = torch.tensor([one.reward for one in found]).view(-1, GROUP)
        centred = rewards - rewards.mean(1, keepdim=True)
        advantages = (centred / (rewards.std(1, keepdim=True) + 1e-4)).flatten()
        count = sum(sum(one.talk.mask) for one in found)
        for one, before, advantage in zip(found, old, advantages, strict=True):
            if advantage:
                mask = torch.tensor(one.talk.mask[one.prompt_length :])
                ratio = (score(self.model, one) - before).exp()
                (-(advantage * ratio * mask).sum() / count).backward()
        used = [*self.model.parameters()]
        torch.nn.utils.clip_grad_norm_(used, 1.0)
        for master, value in zip(self.master, used, strict=True):
            master.grad, value.grad = value.grad, None
        self.optimiser.step()
        self.round_weights()

    @torch.no_grad()
    def round_weights(self) -> None:
        """Give the forward pass the weights in bfloat16, as mixed precision does."""
        for master, value in zip(self.master, self.model.parameters(), strict=True):
            value.copy_(master.bfloat16())

    def state(self) -> Any:
        """Return a copy of what a checkpoint has."""
        return copy.deepcopy((self.master, self.optimiser.state_dict()))

    def restore(self, state: Any) -> None:
        """Go back to a copy."""
        for master, value in zip(self.master, state[0], strict=True):
            master.copy_(value)
        self.optimiser.load_state_dict(state[1])
        self.round_weights()


def draw(step: int) -> list[App]:
    """Open the pages of a step: a few tasks, each tried by a group."""
    return [
        APPS[task % len(APPS)](np.random.default_rng([1, step, task]))
        for task in range(TASKS)
        for _ in range(GROUP)
    ]


def score(model: Any, one: Trajectory) -> torch.Tensor:
    """Return the log-probs of a response, with their gradients where they are on."""
    ids = torch.tensor(one.talk.ids)
    return token_log_probs(model, ids, patches_of(one))[one.prompt_length :]


def as_batch(found: list[Trajectory], old: list[torch.Tensor]) -> dict[str, Any]:
    """Return the step as verl's trainer holds it: padded tensors by name."""
    ids = [torch.tensor(one.talk.ids) for one in found]
    starts = [one.prompt_length for one in found]
    prompts = [row[:at].flip(0) for row, at in zip(ids, starts, strict=True)]
    responses = [row[at:] for row, at in zip(ids, starts, strict=True)]
    masks = [torch.tensor(one.talk.mask[one.prompt_length :]) for one in found]
    real = [
        pad_sequence([torch.ones_like(row) for row in rows], batch_first=True)
        for rows in (prompts, responses)
    ]
    return {
        "prompts": pad_sequence(prompts, batch_first=True).flip(1),
        "responses": pad_sequence(responses, batch_first=True),
        "response_mask": pad_sequence(masks, batch_first=True),
        "attention_mask": torch.cat([real[0].flip(1), real[1]], 1),
        "rollout_log_probs": pad_sequence(
            [torch.tensor(one.log_probs) for one in found], batch_first=True
        ),
        "old_log_probs": pad_sequence(old, batch_first=True),
        "uid": np.array([f"task-{i // GROUP}" for i in range(len(found))], object),
    }


def check(sound: Path, planted: Path) -> None:
    """Compare what is said of the two runs with what was done."""
    for folder in (sound, planted):
        run = rd.open_run(folder)
        print(run.diagnose())
        print([(one.step, one.previous) for one in run.breaks()])
    assert not list(rd.open_run(sound).breaks())
    found = [one.step for one in rd.open_run(planted).breaks()]
    assert ONSET in found, found


def watch(folder: Path) -> int:
    """Judge the files of a run in another process, as a scheduler does."""
    options = ["--once", "--fail-on", "suspicious"]
    command = [sys.executable, "-m", "rounddiag", "watch", str(folder), *options]
    done = subprocess.run(command, check=False)
    print(f"rounddiag watch {folder.name}: exit code {done.returncode}", flush=True)
    return done.returncode


def main() -> None:
    home = Path(sys.argv[1])
    home.mkdir(parents=True, exist_ok=True)
    sound, planted = home / "sound", home / "planted"
    for folder in (sound, planted):
        shutil.rmtree(folder, ignore_errors=True)
    torch.manual_seed(0)
    loop = Loop(home)
    spoken = loop.run(range(ONSET), sound, is_synced=True)
    shutil.copytree(sound, planted)
    state = loop.state()
    alarms = loop.run(range(ONSET, STEPS), planted, is_synced=False)
    loop.restore(state)
    spoken += loop.run(range(ONSET, STEPS), sound, is_synced=True)
    check(sound, planted)
    codes = watch(planted), watch(sound)
    assert codes == (1, 0), codes
    print(f"the Recorder spoke of the sound run: {spoken}, of the planted: {alarms}")
    assert not spoken
    assert alarms
    print(f"after {alarms[0][0] - ONSET + 1} steps without new weights")


if __name__ == "__main__":
    main()
