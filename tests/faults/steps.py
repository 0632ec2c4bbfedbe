"""Realistic steps of a GUI agent, and places planted in them.

    python -m tests.faults.steps [--seeds 0:3] [--names]

128 samples in groups of 8, 6 to 25 rounds of a thought and an action each, some 200,000
to 300,000 tokens with text, roles and the columns that files have. Both log-probs come
from one logit per token, so that noise follows probability as in a real engine; its
size differs by group, sample, round and token id. Seeds below 100 are for development;
those from 100 on are held back and only measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

import rounddiag as rd
from tests.faults import step_texts

Array = np.ndarray[Any, Any]
FIRST_HELD_BACK = 100
NUM_RANKS = 8
NOISES = ("gaussian", "student", "bf16", "mixed")
# Mean and spread of a token's logit against all others, by role.
_LOGITS = {
    "thought": (2.4, 2.9),
    "action": (4.0, 2.2),
    "coordinates": (3.4, 2.4),
    "typed text": (2.8, 2.8),
    "syntax": (7.0, 2.0),
    "special": (10.0, 1.5),
    "other": (3.5, 2.2),
    "other arguments": (3.5, 2.2),
}


@dataclass(frozen=True)
class Variant:
    """What differs between healthy steps."""

    text_format: str
    thought: tuple[int, int]
    noise: str
    level: float
    degrees: float
    coordinate_noise: float
    coordinate_spread: float
    sample_effect: float
    group_effect: float
    round_effect: float
    is_round_table: bool
    is_named_model: bool


def variant_of(seed: int) -> Variant:
    """The variant of a seed: nearby seeds differ in format and in noise."""
    rng = np.random.default_rng([seed, 1])
    noise = NOISES[seed % len(NOISES)]
    thoughts = [(60, 100), (60, 100), (60, 100), (12, 30)]
    top = 0.012 if noise == "student" else 0.03
    return Variant(
        text_format=step_texts.FORMATS[(seed + seed // 4) % len(step_texts.FORMATS)],
        thought=thoughts[int(rng.integers(4))] if seed % 5 else (60, 100),
        noise=noise,
        level=float(np.exp(rng.uniform(np.log(0.002), np.log(top)))),
        degrees=float(rng.uniform(4, 7)),
        coordinate_noise=float(rng.choice([0.75, 1.0, 1.0, 1.35])),
        coordinate_spread=float(rng.choice([0.7, 1.0, 1.4])),
        sample_effect=float(rng.uniform(0.05, 0.2)),
        group_effect=float(rng.uniform(0.03, 0.12)),
        is_round_table=bool(rng.random() < 0.5),
        is_named_model=bool(rng.random() < 0.5),
        round_effect=float(rng.uniform(0.05, 0.2)),
    )


def realistic_step(
    seed: int,
    *,
    num_samples: int = 128,
    rounds: tuple[int, int] = (6, 25),
    variant: Variant | None = None,
) -> rd.Batch:
    """A healthy step.

    Parameters
    ----------
    seed : int
        Below 100 for development, from 100 on held back.
    num_samples : int
        In groups of 8, or of all samples if there are fewer.
    rounds : pair of int
        Fewest and most rounds of a sample.
    variant : Variant, optional
        That of the seed by default.

    Returns
    -------
    Batch
        With `tokenizer`, `prompt_ids`, `rewards`, `advantages`, `group_ids`,
        `sample_ids`, and the sample columns `rank`, `replica`, `status`, `application`
        and `weight_version`; in some variants the round columns `num_images`,
        `prompt_length`, `cached_tokens` and `finish_reason`.
    """
    variant = variant or variant_of(seed)
    rng = np.random.default_rng([seed, 2])
    samples = _samples(rng, num_samples)
    low, high = rounds
    num_rounds = low + np.rint((high - low) * rng.beta(2, 1.3, num_samples)).astype(int)
    written, seen = _texts(rng, num_rounds, variant)
    ids, mask = _rows(written, seen, num_rounds)
    prompts = _prompts(rng, samples)
    length = torch.tensor([len(row) for row in ids])
    group = np.arange(num_samples) // 8
    mean = np.bincount(group, samples["reward"]) / np.bincount(group)
    advantage = samples["reward"] - mean[group]
    zeros = [torch.zeros(int(n)) for n in length]
    batch = rd.Batch.from_rows(
        response_ids=[torch.from_numpy(row) for row in ids],
        response_mask=[torch.from_numpy(row) for row in mask],
        rollout_log_probs=zeros,
        old_log_probs=zeros,
        advantages=[
            torch.from_numpy((row * value).astype(np.float32))
            for row, value in zip(mask, advantage, strict=True)
        ],
        prompt_ids=[torch.from_numpy(prompts[i]) for i in group],
        rewards=torch.from_numpy(samples["reward"].astype(np.float32)),
        group_ids=tuple(f"task-{seed}-{i}" for i in group),
        sample_ids=tuple(f"task-{seed}-{g}/{i % 8}" for i, g in enumerate(group)),
        step=seed,
        tokenizer=step_texts.tokenizer(),
        sample_columns={k: v for k, v in samples.items() if k != "reward"},
        meta=_meta(variant),
    )
    if variant.is_round_table:
        batch = replace(batch, round_columns=_round_columns(rng, batch, prompts, group))
    return _with_log_probs(batch, rng, variant)


def _samples(rng: np.random.Generator, num: int) -> dict[str, Array]:
    """The columns of the samples; tasks, and with them applications, are groups'."""
    num_groups = -(-num // 8)
    group = np.arange(num) // 8
    names = rng.permutation(step_texts.APPLICATIONS)[: max(2, min(5, num_groups // 3))]
    application = rng.permutation(np.resize(names, num_groups))
    hard = rng.uniform(0.15, 0.8, num_groups)
    reward = (rng.random(num) < hard[group]).astype(float)
    failed = np.where(rng.random(num) < 0.35, "timeout", "failed")
    # What the agent says of itself is not always what it is rewarded for.
    is_done = (reward > 0) ^ (rng.random(num) < 0.12)
    ages = rng.choice(3, num, p=[0.6, 0.25, 0.15])
    return {
        "rank": rng.permutation(np.arange(num) % NUM_RANKS),
        "replica": rng.permutation(np.arange(num) % max(2, min(16, num // 2))),
        "status": np.where(is_done, "completed", failed),
        "application": application[group],
        "weight_version": 412 - ages,
        "reward": reward,
    }


def _meta(variant: Variant) -> dict[str, Any]:
    meta: dict[str, Any] = {
        "mask_source": "response_mask",
        "sampling": {"temperature": 1.0, "top_p": 1.0, "dtype": "bfloat16"},
    }
    if variant.is_named_model:
        meta["model"] = "Qwen2.5-VL-7B-Instruct"
    return meta


def _texts(
    rng: np.random.Generator, num_rounds: Array, variant: Variant
) -> tuple[list[Array], list[Array]]:
    """The ids of all rounds, and of the observations after them."""
    total = int(num_rounds.sum())
    patches = int(rng.integers(16, 49))
    low, high = variant.thought
    written = [
        step_texts.round_text(rng, variant.text_format, low, high) for _ in range(total)
    ]
    seen = [step_texts.observation_text(rng, patches) for _ in range(total)]
    return _encode(written), _encode(seen)


def _encode(texts: list[str]) -> list[Array]:
    found = step_texts.tokenizer().encode_batch(texts)
    return [np.array(one.ids, dtype=np.int64) for one in found]


def _rows(
    written: list[Array], seen: list[Array], num_rounds: Array
) -> tuple[list[Array], list[Array]]:
    """The responses: rounds with observations between them, none after the last."""
    ids, mask, at = [], [], 0
    for num in num_rounds.tolist():
        parts, flags = [], []
        for i in range(at, at + num):
            parts.append(written[i])
            flags.append(np.ones(len(written[i]), dtype=np.int64))
            if i < at + num - 1:
                parts.append(seen[i])
                flags.append(np.zeros(len(seen[i]), dtype=np.int64))
        at += num
        ids.append(np.concatenate(parts))
        mask.append(np.concatenate(flags))
    return ids, mask


def _prompts(rng: np.random.Generator, samples: dict[str, Array]) -> list[Array]:
    patches = int(rng.integers(16, 49))
    names = samples["application"][::8]
    return _encode([step_texts.prompt_text(rng, str(name), patches) for name in names])


def _round_columns(
    rng: np.random.Generator, batch: rd.Batch, prompts: list[Array], group: Array
) -> dict[str, Array]:
    rounds = batch.rounds
    sample, index = rounds.sample.numpy(), rounds.round.numpy()
    offset = rounds.start.numpy() - batch.offsets.numpy()[sample]
    size = np.array([len(row) for row in prompts])[group]
    length = size[sample] + offset
    cached = (length * rng.uniform(0.5, 1, len(length))).astype(int)
    return {
        "sample": sample,
        "round": index,
        "num_images": index + 1,
        "prompt_length": length,
        "cached_tokens": cached // 16 * 16,
        "finish_reason": np.where(rng.random(len(length)) < 0.97, "stop", "length"),
    }


def _with_log_probs(
    batch: rd.Batch, rng: np.random.Generator, variant: Variant
) -> rd.Batch:
    """Draw a logit for each token, and let both engines compute it."""
    frame = rd.token_frame(batch, columns=["role", "token_id"])
    names = [str(name) for name in frame["role"].cat.categories]
    role = frame["role"].cat.codes.to_numpy()
    sample = frame["sample"].to_numpy()
    logits = np.array([_LOGITS[name] for name in names])
    mean, spread = logits[role, 0], logits[role, 1]
    is_coordinate = (frame["role"] == "coordinates").to_numpy()
    spread = np.where(is_coordinate, spread * variant.coordinate_spread, spread)
    known, code = np.unique(frame["token_id"].to_numpy(), return_inverse=True)
    by_id = rng.normal(0, 0.8, len(known))[code]
    by_sample = rng.normal(0, 0.3, batch.num_samples)[sample]
    logit = mean + by_id + by_sample + spread * rng.normal(size=len(frame))
    logit = np.clip(logit, -9, 16)
    size = np.where(is_coordinate, variant.coordinate_noise, 1.0)
    by_sample = rng.normal(0, variant.sample_effect, batch.num_samples)
    by_group = rng.normal(0, variant.group_effect, batch.num_samples // 8 + 1)
    size = (
        size * np.exp(by_sample + by_group[np.arange(batch.num_samples) // 8])[sample]
    )
    size = size * np.exp(rng.normal(0, 0.1, len(known)))[code]
    by_round = np.exp(rng.normal(0, variant.round_effect, batch.num_rounds))
    size = size * np.repeat(by_round, batch.rounds.num_tokens.numpy())
    noise = _noise(rng, logit, variant) * size
    rollout = log_sigmoid(logit)
    level = np.abs(log_sigmoid(logit + noise) - rollout).mean()
    old = log_sigmoid(logit + noise * (variant.level / level))
    return with_log_probs(batch, rollout, old)


def _noise(rng: np.random.Generator, logit: Array, variant: Variant) -> Array:
    """Noise of the logits, in the shape of its family; its size is set later."""
    if variant.noise == "gaussian":
        normal: Array = rng.normal(size=len(logit))
        return normal
    if variant.noise == "student":
        return rng.standard_t(variant.degrees, len(logit))
    # The logit is a difference: of that of the token, and that of all others together.
    top = rng.uniform(10, 28, len(logit))
    rounding = _rounding(top) - _rounding(top - logit)
    if variant.noise == "mixed":
        rounding += rng.normal(size=len(logit)) * rounding.std()
    return rounding


def _rounding(values: Array) -> Array:
    """What bfloat16 changes."""
    kept = torch.from_numpy(values).to(torch.bfloat16).double().numpy()
    difference: Array = kept - values
    return difference


def log_sigmoid(logit: Array) -> Array:
    """Log-probability of a token with a logit against all others."""
    result: Array = -np.logaddexp(0, -logit)
    return result


def with_log_probs(batch: rd.Batch, rollout: Array, old: Array) -> rd.Batch:
    """The batch with these log-probs of its generated tokens, 0 elsewhere."""
    is_written = batch.response_mask > 0
    scores = []
    for values in (rollout, old):
        score = torch.zeros(len(is_written))
        score[is_written] = torch.from_numpy(values.astype(np.float32))
        scores.append(score)
    return replace(batch, rollout_log_probs=scores[0], old_log_probs=scores[1])


def small_sets(batch: rd.Batch, size: int, num: int, seed: int) -> Sequence[rd.Batch]:
    """Clean batches of few samples: half neighbours, half drawn from all."""
    rng = np.random.default_rng([seed, size])
    found = []
    for i in range(num):
        first = int(rng.integers(batch.num_samples - size + 1))
        drawn = np.sort(rng.permutation(batch.num_samples)[:size]).tolist()
        rows = range(first, first + size) if i % 2 == 0 else drawn
        found.append(batch.where(np.isin(np.arange(batch.num_samples), list(rows))))
    return found


if __name__ == "__main__":
    from tests.faults.steps_bench import main

    main()
