"""The same batch as frameworks write it: what a file does not say is no fact."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch

import rounddiag as rd
from rounddiag.capture import Recorder
from rounddiag.cli import main
from tests.findings.small import arrays

WIDTH = 12  # of each prompt


@dataclass
class Step:
    """Rows of a step, as tensors [row, position]; `prompt` has one length."""

    prompt: torch.Tensor
    ids: torch.Tensor
    mask: torch.Tensor
    rollout: torch.Tensor
    old: torch.Tensor
    rewards: list[float]
    versions: torch.Tensor

    @classmethod
    def sound(cls, seed: int) -> Step:
        """A sampler has log-probs where it wrote, a trainer at all of the response."""
        parts = arrays(seed=seed)
        mask = torch.from_numpy(parts["mask"]).long()
        generator = torch.Generator().manual_seed(seed)
        prompt = torch.randint(70, 99, (len(mask), WIDTH), generator=generator)
        prompt[1::3] = prompt[0]  # tasks of the same words, as many as it happens
        return cls(
            prompt=prompt,
            ids=torch.from_numpy(parts["ids"]).long(),
            mask=mask,
            rollout=torch.from_numpy(parts["rollout"]).float() * mask,
            old=torch.from_numpy(parts["old"]).float(),
            rewards=(torch.rand(len(mask), generator=generator) < 0.5).float().tolist(),
            versions=torch.full_like(mask, 50),
        )


def verl_fields(step: Step) -> dict[str, Any]:
    ones = torch.ones(len(step.mask), WIDTH + step.mask.shape[1], dtype=torch.long)
    return {
        "prompts": step.prompt,
        "responses": step.ids,
        "attention_mask": ones,
        "response_mask": step.mask,
        "rollout_log_probs": step.rollout,
        "old_log_probs": step.old,
    }


def write_verl(step: Step, folder: Path, **more: Any) -> Path:
    path = folder / "step_50.pt"
    fields = {"rewards": step.rewards, "global_steps": 50, **more}
    torch.save({**verl_fields(step), **fields}, path)
    return path


def write_recorder(step: Step, folder: Path, **options: Any) -> Path:
    with Recorder(folder, **options) as recorder:
        recorder.step(50, verl_fields(step))
    return folder / "step_50.parquet"


def _whole(step: Step, values: torch.Tensor, fill: float = 0) -> torch.Tensor:
    return torch.cat([torch.full_like(step.prompt, fill).to(values), values], 1)


def write_nemo_rl(step: Step, folder: Path) -> Path:
    path = folder / "train_data_step50.jsonl"
    rows = zip(
        torch.cat([step.prompt, step.ids], 1).tolist(),
        _whole(step, step.mask).tolist(),
        _whole(step, step.rollout).tolist(),
        _whole(step, step.old).tolist(),
        step.rewards,
        strict=True,
    )
    lines = [
        {
            "token_ids": ids,
            "token_loss_mask": mask,
            "generation_logprobs": rollout,
            "prev_logprobs": old,
            "input_lengths": len(ids),
            "sample_loss_mask": 1.0,
            "rewards": reward,
            "idx": number,
        }
        for number, (ids, mask, rollout, old, reward) in enumerate(rows)
    ]
    path.write_text("\n".join(map(json.dumps, lines)) + "\n")
    return path


def write_areal(step: Step, folder: Path) -> Path:
    path = folder / "step_50.pt"
    ids = torch.cat([step.prompt, step.ids], 1)
    fields = {
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids, dtype=torch.bool),
        "loss_mask": _whole(step, step.mask),
        "logprobs": _whole(step, step.rollout),
        "prox_logp": _whole(step, step.old).roll(-1, 1),  # of the next token
        "versions": _whole(step, step.versions, -1),
        "rewards": torch.tensor(step.rewards),
    }
    rows = {name: [*value] for name, value in fields.items()}
    torch.save({**rows, "global_step": 50}, path)
    return path


WRITERS: dict[str, Callable[[Step, Path], Path]] = {
    "verl": write_verl,
    "NeMo-RL": write_nemo_rl,
    "AReaL": write_areal,
    "Recorder": write_recorder,
}
every_file = pytest.mark.parametrize("name", WRITERS)


@every_file
@pytest.mark.parametrize("seed", range(3))
def test_a_sound_step_is_sound_whoever_writes_it(
    name: str, seed: int, tmp_path: Path
) -> None:
    path = WRITERS[name](Step.sound(seed), tmp_path)
    diagnosis = rd.diagnose(path)
    assert (diagnosis.verdict, diagnosis.checks.failed) == ("healthy", ())
    assert main(["check", str(path), "--fail-on", "noisy"]) == 0


@every_file
def test_equal_engines_are_identical_whoever_writes_them(
    name: str, tmp_path: Path
) -> None:
    step = Step.sound(3)
    step.old = step.rollout.clone()
    path = WRITERS[name](step, tmp_path)
    diagnosis = rd.diagnose(path)
    assert (diagnosis.verdict, diagnosis.checks.failed) == ("identical", ())
    assert main(["check", str(path), "--fail-on", "noisy"]) == 0


RECORDED = {"facts": {"rollout_correction": {"bypass_mode": True}}}


@pytest.mark.parametrize(
    ("write", "options", "reason"),
    [
        (
            write_verl,
            {"old_log_probs_source": "those of the rollout (bypass)"},
            "the file says that `old_log_probs` are those of the rollout (bypass)",
        ),
        (write_recorder, RECORDED, "the run recorded `rollout_correction.bypass_mode"),
    ],
)
def test_equal_engines_are_not_measured_where_a_bypass_is_recorded(
    write: Callable[..., Path], options: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    step = Step.sound(3)
    step.old = step.rollout.clone()
    path = write(step, tmp_path, **options)
    diagnosis = rd.diagnose(path)
    assert diagnosis.verdict == "not_measurable"
    assert diagnosis.reason.startswith(reason)
    assert main(["check", str(path)]) == 1


@every_file
def test_an_inverted_mask_is_named_first(name: str, tmp_path: Path) -> None:
    step = Step.sound(4)
    step.mask = 1 - step.mask
    diagnosis = rd.diagnose(WRITERS[name](step, tmp_path))
    assert diagnosis.verdict == "not_measurable"
    first = diagnosis.headline.partition(". ")[0]
    assert first.startswith("The mask leaves out every token that has a log-prob")


@pytest.mark.parametrize(
    ("versions", "text"),
    [
        ([50], ""),
        ([50, 48], "Staleness is "),
        ([42, 41], "of older weights, 8 to 9 versions behind the trainer's; none has"),
        ([42], "of older weights, 8 versions behind the trainer's; none has lag 0"),
    ],
)
def test_staleness_counts_from_the_trainer_s_version(
    versions: list[int], text: str, tmp_path: Path
) -> None:
    step = Step.sound(5)
    every = len(versions)
    for number, version in enumerate(versions):
        step.versions[number::every] = version
    diagnosis = rd.diagnose(write_areal(step, tmp_path))
    words = ("Staleness is ", "of older weights")
    said = [each for each in words if each in diagnosis.text]
    assert text in diagnosis.text
    assert bool(said) == bool(text)


def test_where_no_file_says_the_trainer_s_version_it_is_unknown(
    tmp_path: Path,
) -> None:
    step = Step.sound(5)
    known = rd.load(write_areal(step, tmp_path))
    meta = {name: v for name, v in known.meta.items() if name != "trainer_version"}
    batch = replace(known, step=None, meta=meta)
    assert "staleness is not known" in rd.diagnose(batch).text
