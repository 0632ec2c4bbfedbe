"""Rewards and advantages of rounds and of samples, as files have them."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import rounddiag as rd
from rounddiag.loaders import load
from tests.loaders.facts import has

# Sample 0 has two rounds, at 0-1 and 3-4, sample 1 one, sample 2 none.
MASK = [[1, 1, 0, 1, 1], [0, 1, 1, 0, 0], [0, 0, 0, 0, 0]]


def loaded(scores: Any = None, **others: Any) -> rd.Batch:
    mask = torch.tensor(MASK)
    fields = {"token_level_scores": torch.tensor(scores)} if scores else {}
    return load(
        {
            "responses": torch.ones_like(mask),
            "response_mask": mask,
            "old_log_probs": -torch.ones(3, 5),
            "rollout_log_probs": -torch.ones(3, 5) * 2,
            **fields,
            **others,
        }
    )


def rewards_of(batch: rd.Batch) -> dict[str, list[Any]]:
    return {k: np.asarray(v).tolist() for k, v in batch.round_columns.items()}


def test_rewards_of_earlier_rounds_are_a_column_of_rounds() -> None:
    """An observation counts with the round before it; a prompt with the first."""
    batch = loaded(
        [[0.5, -1.0, 2.0, 0, 8.0], [4.0, 0, 1.0, 0, 0.25], [9.0, 0, 0, 0, 0]]
    )
    assert rewards_of(batch) == {
        "sample": [0, 0, 1],
        "round": [0, 1, 0],
        "round_reward": [1.5, 8.0, 5.25],
    }
    assert batch.rewards.tolist() == [9.5, 5.25, 9.0]
    frame = rd.token_frame(batch, ["round_reward"])
    assert frame["round_reward"].tolist() == [1.5, 1.5, 8.0, 8.0, 5.25, 5.25]


LAST = [[0, 0, 0, 0.5, 8.0], [4.0, 0, 1.0, 0, 0], [9.0, 0, 0, 0, 0]]
SCORES = [[0.5, 0, 0, 0, 8.0], [0, 0, 1.0, 0, 0], [0.0] * 5]
LOST = [[{"id": "x"}], [{"id": "y"}, {"id": "z"}], []]  # one lost, one too many
OWN = [[{"round_reward": 3.0}] * 2, [{"round_reward": 4.0}], []]
OF_SAMPLES = torch.tensor([0.5, -2.0, 7.0])
OF_TOKENS = [*(0.5, 0.5, 0.0, 0.5, 0.5), *(0.0, -2.0, -2.0, 0.0, 0.0), *[0.0] * 5]
VALUES = torch.arange(15.0).reshape(3, 5)
# Scores, other fields, and what the batch has.
CASES: dict[str, tuple[Any, dict[str, Any], dict[str, Any]]] = {
    "rewards of the last round alone are of samples": (LAST, {}, {"round_columns": {}}),
    "a reward beside the records of a round": (
        SCORES,
        {"round_records": LOST},
        {
            "round_columns": {
                "sample": [0, 1, 1, 0],
                "round": [0, 0, 1, 1],
                "id": ["x", "y", "z", None],
                "round_reward": [0.5, 1, None, 8],
            }
        },
    ),
    "a reward of the file stays": (
        SCORES,
        {"round_records": OWN},
        {"round.round_reward": [3.0, 3.0, 4.0]},
    ),
    **{
        f"{name} of samples are those of their tokens": (
            None,
            {name: OF_SAMPLES},
            {
                "advantages": OF_TOKENS,
                f"sample.{name}": [0.5, -2.0, 7.0],
                "meta.left_out": None,
            },
        )
        for name in ("advantages", "advantage")
    },
    "advantages of tokens": (
        None,
        {"advantage": VALUES},
        {"advantages": VALUES.flatten().tolist()},
    ),
    "unknown advantages stay a column": (
        None,
        {"advantages": [0.5, None, 7.0]},
        {"advantages": None, "sample.advantages": [0.5, None, 7.0]},
    ),
    "without advantages numbers are no rewards": (
        None,
        {"loss": [0.5, 0.25, 1.0]},
        {"rewards": None},
    ),
}


@pytest.mark.parametrize(("scores", "others", "expected"), CASES.values(), ids=CASES)
def test_rewards_and_advantages_are_read(
    scores: Any, others: dict[str, Any], expected: dict[str, Any]
) -> None:
    has(loaded(scores, **others), expected)


def test_they_survive_a_file(tmp_path: Path) -> None:
    batch = loaded(SCORES, advantages=OF_SAMPLES)
    assert rd.round_frame(batch)["round_advantage"].tolist() == [0.5, 0.5, -2.0]
    path = tmp_path / "step.parquet"
    rd.save(batch, path)
    again = load(path)
    assert rewards_of(again) == rewards_of(batch)
    assert again.advantages.tolist() == batch.advantages.tolist()


def log_of_completions(path: Path, **rewards: list[float | None]) -> rd.Batch:
    """The columns of `GRPOTrainer.log` of TRL 1.16.0, in its order."""
    num = 4
    table = {
        "step": [7] * num,
        "prompt": [[{"role": "user", "content": f"Task {i // 2}"}] for i in range(num)],
        "completion": [[{"role": "assistant", "content": "click()"}]] * num,
        **rewards,
        "level": [3] * num,  # of `log_extra`
        "advantage": [0.5, -0.5, 0.0, 0.0],
    }
    file = path / "completions_00007.parquet"
    pd.DataFrame(table).to_parquet(file)
    return load(file)


def test_the_columns_of_rewards_in_a_log_of_trl_are_summed(tmp_path: Path) -> None:
    batch = log_of_completions(
        tmp_path,
        format_reward=[0.5, 0.5, None, None],
        correct_Reward=[1.0, 0.0, 1.0, None],
        length=[0.25, 0.5, 0.75, 1.0],
    )
    assert batch.rewards.tolist() == pytest.approx([1.5, 0.5, 1, np.nan], nan_ok=True)
    assert batch.meta["reward_source"] == (
        "the sum of `format_reward`, `correct_Reward`, each with a weight of 1"
    )
    assert "format_reward" in batch.sample_columns
    assert rd.groups(batch)["max_advantage"].tolist() == [0.5, 0.0]
    assert rd.groups(batch)["mean_reward"].tolist() == [1.0, 1.0]


def test_rewards_that_no_name_tells_are_the_numbers_before(tmp_path: Path) -> None:
    batch = log_of_completions(tmp_path, correct=[1.0, 0.0, 1.0, 1.0])
    assert batch.rewards.tolist() == [1.0, 0.0, 1.0, 1.0]
    assert batch.step == 7


NUMBERS: dict[str, Callable[[int], object]] = {
    **{kind.__name__: kind for kind in (int, float, bool, Decimal, Fraction)},
    **{f"numpy.{kind.__name__}": kind for kind in (np.int64, np.bool_, np.float32)},
    "an array of no dimension": np.array,
    "a tensor of no dimension": torch.tensor,
}


@pytest.mark.parametrize("number", NUMBERS.values(), ids=NUMBERS)
def test_a_reward_of_any_type_of_number_is_read(number: Callable[[int], Any]) -> None:
    chat = [{"role": role, "content": "Go."} for role in ("user", "assistant")]
    values = [number(n) for n in (0, 1, 1)]
    for batch in (
        load([{"messages": chat, "reward": value} for value in values]),
        load([{"prompt": "Go.", "completion": "a", "reward": v} for v in values]),
        rd.Batch.from_steps(
            [
                {"trajectory": n, "step": 0, "prompt": "Go.", "response": "a"}
                | {"reward": value}
                for n, value in enumerate(values)
            ]
        ),
    ):
        assert batch.rewards.tolist() == [0, 1, 1]


def test_rewards_that_are_no_numbers_stay_a_column() -> None:
    chat = [{"role": role, "content": "Go."} for role in ("user", "assistant")]
    batch = load([{"messages": chat, "reward": value} for value in ("good", 1)])
    assert batch.sample_columns["rewards"].tolist() == ["good", 1]
    assert batch.rewards.isnan().tolist() == [True, False]
