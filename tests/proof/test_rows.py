"""Log-probs of other rows: all rows of a batch, or one pair of a group."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import rounddiag as rd
from rounddiag.batch import Batch
from tests.proof.test_prove import OPEN, SYSTEM, say, score

NUM_GROUPS, IN_GROUP = 4, 3


def sound(seed: int = 5) -> Batch:
    """Groups of rows of one prompt; rows have two rounds, and lengths of their own."""
    rng = np.random.default_rng(seed)
    rows: dict[str, list[torch.Tensor]] = {}
    for _ in range(NUM_GROUPS):
        prompt = [*SYSTEM, OPEN, *rng.integers(20, 90, 5).tolist(), OPEN, 7]
        for _ in range(IN_GROUP):
            parts = [rng.integers(20, 90, n) for n in rng.integers(18, 36, 2)]
            gap = [2, OPEN, *rng.integers(20, 90, 4).tolist(), OPEN, 7]
            response = [*parts[0].tolist(), *gap, *parts[1].tolist()]
            mask = torch.ones(len(response), dtype=torch.int64)
            mask[len(parts[0]) : len(parts[0]) + len(gap)] = 0
            plain = torch.tensor(score([*prompt, *response], [])[len(prompt) :])
            for name, values in {
                "response_ids": torch.tensor(response),
                "response_mask": mask,
                "prompt_ids": torch.tensor(prompt),
                "old_log_probs": plain + 0.002 * torch.randn(len(plain)),
                "rollout_log_probs": plain + 0.002 * torch.randn(len(plain)),
            }.items():
                is_score = name.endswith("log_probs")
                rows.setdefault(name, []).append(values * mask if is_score else values)
    groups = tuple(f"g{i // IN_GROUP}" for i in range(NUM_GROUPS * IN_GROUP))
    return rd.Batch.from_rows(**rows, group_ids=groups)


def exchange(
    batch: Batch, engine: str, partners: dict[int, int], *, in_order: bool = False
) -> Batch:
    """Give rows the log-probs of others: by place, or in the order of tokens."""
    name = f"{engine}_log_probs"
    values, mask = getattr(batch, name).clone(), batch.response_mask != 0
    offsets = batch.offsets.tolist()
    for row, partner in partners.items():
        mine = slice(offsets[row], offsets[row + 1])
        theirs = slice(offsets[partner], offsets[partner + 1])
        source = getattr(batch, name)[theirs]
        source = source[mask[theirs]] if in_order else source
        place = torch.zeros(mine.stop - mine.start)
        target = mask[mine] if in_order else torch.ones(len(place), dtype=torch.bool)
        number = min(int(target.sum()), len(source))
        place[torch.nonzero(target)[:number, 0]] = source[:number]
        values[mine] = place
    return replace(batch, **{name: values})


@pytest.mark.parametrize("engine", ["old", "rollout"])
@pytest.mark.parametrize("in_order", [False, True])
@pytest.mark.parametrize("which", ["all", "pair"])
def test_exchanged_rows_are_proved(engine: str, which: str, in_order: bool) -> None:
    torch.manual_seed(1)
    batch = sound()
    num = batch.num_samples
    everything = {row: (row + 1) % num for row in range(num)}
    partners = everything if which == "all" else {3: 4, 4: 3}
    proof = rd.prove(exchange(batch, engine, partners, in_order=in_order), score)
    assert say(proof) == ("proved", engine, "swapped_rows")


def test_rows_of_their_own_are_not_exchanged() -> None:
    torch.manual_seed(1)
    assert rd.prove(sound(), score).verdict == "nothing_to_prove"
