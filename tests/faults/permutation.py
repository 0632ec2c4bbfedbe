"""How often the finder names a place in sound batches, and how large chance is there.

    python -m tests.faults.permutation [--batches 400] [--sizes]

Rows of generated batches: 64 samples of 2 to 32 prompts whose noise differs by e^0.2,
e^0.35 or e^0.5; a rank and a status of no meaning. Rows of the sound batches of the
benches, with the samples permuted against their columns. Rows of 1 to 16 samples of
realistic steps. Of each row: batches with a place that was tested, with the 95 % upper
bound of Clopper and Pearson, and those with a place that is described only.

`--sizes` prints what the limits of size rest on: the largest ratio and gain of places
that chance does not explain in sound batches, by what their conditions are about.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from scipy.special import betaincinv

import rounddiag as rd
from rounddiag import Batch
from rounddiag.findings import place as places
from rounddiag.findings.reference import guess_kind, named_range
from rounddiag.findings.view import View
from tests.faults import fixed, vllm_bench
from tests.faults.steps import realistic_step, small_sets

SAMPLES, ROUNDS, TOKENS, GAP = 64, 3, 50, 20
NUM_GROUPS = (2, 4, 7, 8, 16, 32)
EFFECTS = (0.2, 0.35, 0.5)
SIZES = (1, 2, 4, 8, 16)


def sound_batch(num_groups: int, effect: float, seed: int) -> Batch:
    """Samples whose noise differs by prompt, and nothing else."""
    rng = np.random.default_rng([seed, num_groups, round(100 * effect)])
    group = np.sort(np.arange(SAMPLES) % num_groups)
    size = np.exp(rng.normal(0, effect, num_groups))[group]
    mask = np.tile(np.r_[np.ones(TOKENS), np.zeros(GAP)], ROUNDS)
    shape = (SAMPLES, len(mask))
    rollout = -rng.exponential(0.8, shape)
    noise = rng.standard_t(4, shape) * 0.012 * size[:, None] * (1 - np.exp(rollout))
    return rd.Batch.from_padded(
        response_ids=torch.from_numpy(rng.integers(5, 1000, shape)),
        response_mask=torch.from_numpy(np.broadcast_to(mask, shape).astype(np.int64)),
        rollout_log_probs=torch.from_numpy(rollout).float(),
        old_log_probs=torch.from_numpy(np.minimum(rollout + noise, 0)).float(),
        group_ids=tuple(f"task-{one}" for one in group),
        sample_columns={
            "rank": rng.permutation(SAMPLES) % 8,
            "status": rng.choice(["done", "failed", "timeout"], SAMPLES),
        },
    )


def sound_of_benches() -> Iterator[tuple[str, Batch, dict[str, Any]]]:
    """Yield the sound batches of both benches."""
    for case in (*fixed.load(), *vllm_bench.load()):
        if case.causes == ("healthy",):
            yield case.name, case.batch(), case.call


def permute(batch: Batch, rng: np.random.Generator) -> Batch:
    """Return the batch with its tokens in other rows; columns and rewards stay."""
    moved = batch[rng.permutation(batch.num_samples)]
    return replace(moved, sample_columns=batch.sample_columns, rewards=batch.rewards)


def view_of(batch: Batch, call: dict[str, Any]) -> View:
    """Read a batch as `diagnose` does, with the range of its kind."""
    pair = {name: value for name, value in call.items() if name in ("a", "b")}
    kind = call.get("kind") or guess_kind(batch)[0]
    return View.from_batch(batch, **pair, usual=named_range(kind))


def rows(num: int) -> Iterator[tuple[str, Iterator[tuple[Batch, dict[str, Any]]]]]:
    """Yield the name of each row, and its batches."""
    for groups in NUM_GROUPS:
        for effect in EFFECTS:
            drawn = (sound_batch(groups, effect, seed) for seed in range(num))
            yield f"{groups} prompts, e^{effect}", ((one, {}) for one in drawn)
    known = list(sound_of_benches())
    rng = np.random.default_rng(1)
    permuted = ((permute(known[i % len(known)][1], rng), i) for i in range(num))
    yield "benches, permuted", ((one, known[i % len(known)][2]) for one, i in permuted)
    for size in SIZES:
        yield f"{size} samples of a step", ((one, {}) for one in _few(size, num))


def _few(size: int, num: int) -> Iterator[Batch]:
    for seed in range(4):
        step = realistic_step(seed, num_samples=64)
        yield from small_sets(step, size, num // 4, seed)


def bound(alarms: int, num: int) -> float:
    """Return the upper end of the 95 % interval of Clopper and Pearson.

    Examples
    --------
    >>> round(bound(0, 400), 4)
    0.0092
    """
    return float(betaincinv(alarms + 1, num - alarms, 0.975))


def print_alarms(num: int) -> None:
    """Print how often a place is found in sound batches."""
    for name, batches in rows(num):
        tested, described, total = 0, 0, 0
        for batch, call in batches:
            found = places.find_places(view_of(batch, call))
            tested += any(one.is_tested for one in found)
            described += bool(found) and not any(one.is_tested for one in found)
            total += 1
        print(
            f"{name:24} {tested:3d} of {total} ({tested / total:.1%}, at most "
            f"{bound(tested, total):.1%}); described only: {described}",
            flush=True,
        )


def print_sizes(batches: Iterable[tuple[str, Batch, dict[str, Any]]]) -> None:
    """Print the largest ratios and the gain of significant places of sound batches."""
    found = [
        (
            "/".join(sorted(one.scopes)),
            one.ratio,
            one.log_likelihood_ratio,
            name,
            one.text,
        )
        for name, batch, call in batches
        for one in places.significant(view_of(batch, call))
    ]
    for scopes in sorted({one[0] for one in found}):
        mine = sorted(one[1:] for one in found if one[0] == scopes)
        print(f"{scopes}: gain up to {max(one[1] for one in mine):.0f}; ratio up to")
        for ratio, gain, name, text in mine[-5:]:
            print(f"  {ratio:5.2f} (gain {gain:.0f}) {name}: {text}")


def main() -> None:
    """Print the false alarms, or the sizes that the limits rest on."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, default=400)
    parser.add_argument("--sizes", action="store_true")
    options = parser.parse_args()
    if options.sizes:
        print_sizes(sound_of_benches())
    else:
        print_alarms(options.batches)


if __name__ == "__main__":
    main()
