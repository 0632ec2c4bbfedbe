"""Advantages against the rewards and groups that they come from."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import rounddiag as rd
from rounddiag import Batch
from rounddiag.checks.advantages import (
    ADVANTAGES_DIFFER,
    BALANCED,
    EVEN_GROUPS,
    KNOWN_ESTIMATOR,
    NO_GRADIENT,
    NO_OUTLIER,
    REWARDS_READ,
    SHARED_GROUPS,
)
from rounddiag.checks.contracts import Contract
from tests.checks.chats import (
    CLICK,
    NO_TOKEN,
    PAD,
    PASSED,
    Chat,
    came_to,
    chat,
    picture,
    prompts,
    untestable,
)


def rows_of(
    advantages: Sequence[float] | torch.Tensor | None,
    rewards: Sequence[float] | None = None,
    groups: str | None = None,
    *,
    lengths: Sequence[int] = (),
    **others: Any,
) -> Batch:
    """Return samples of one advantage each; a letter of `groups` names a group."""
    num = len(rewards or groups or ())
    sizes = lengths or [2] * num
    fields: dict[str, Any] = {}
    if advantages is not None:
        values = torch.as_tensor(advantages)
        fields["advantages"] = [
            value.repeat(size) for value, size in zip(values, sizes, strict=True)
        ]
    if rewards is not None:
        fields["rewards"] = torch.tensor(rewards)
    if groups is not None:
        fields["group_ids"] = tuple(groups)
    ids = [[CLICK] * size for size in sizes]
    masks = [[1] * size for size in sizes]
    return chat(ids, masks, **fields, **others)


# The trainers' formulas, a group at a time and in float32, as they compute them.

Formula = Callable[[torch.Tensor], torch.Tensor]


def by_group(rewards: torch.Tensor, groups: str, formula: Formula) -> torch.Tensor:
    values = rewards.clone()
    for name in {*groups}:
        place = torch.tensor([other == name for other in groups])
        values[place] = formula(rewards[place])
    return values


def grpo(epsilon: float) -> Formula:
    return lambda own: (own - own.mean()) / (own.std() + epsilon)


def others_mean(own: torch.Tensor) -> torch.Tensor:
    rest = [torch.cat([own[:row], own[row + 1 :]]).mean() for row in range(len(own))]
    return own - torch.stack(rest)


def whitened(
    values: torch.Tensor, sizes: Sequence[int], *, epsilon: float = 1e-8
) -> torch.Tensor:
    tokens = values.repeat_interleave(torch.tensor(sizes))
    return (values - tokens.mean()) * (tokens.var() + epsilon).rsqrt()


def centered(own: torch.Tensor) -> torch.Tensor:
    return own - own.mean()


SIZES = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8]
GROUPS = "aaaabbbbcccc"
SOUND: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "GRPO of verl": lambda r: by_group(r, GROUPS, grpo(1e-6)),
    "GRPO of TRL": lambda r: by_group(r, GROUPS, grpo(1e-4)),
    "GRPO of AReaL": lambda r: by_group(r, GROUPS, grpo(1e-5)),
    "GRPO of OpenRLHF": lambda r: by_group(r, GROUPS, grpo(1e-9)),
    "Dr. GRPO": lambda r: by_group(r, GROUPS, centered),
    "RLOO": lambda r: by_group(r, GROUPS, others_mean),
    "REINFORCE++": lambda r: whitened(r, SIZES),
    "REINFORCE++ with baseline": lambda r: whitened(
        by_group(r, GROUPS, centered), SIZES
    ),
    "GRPO, by the deviation of all": lambda r: (
        by_group(r, GROUPS, centered) / (r.std() + 1e-4)
    ),
}
REWARDS = [1.0, 0.0, 0.0, 0.0, 1.0, 1.0, 0.0, 1.0, 0.3, 0.1, 0.9, 0.2]
_rewards = st.lists(
    st.floats(-2, 2, width=32) | st.sampled_from([0.0, 1.0, 0.95]),
    min_size=12,
    max_size=12,
)


@pytest.mark.parametrize("name", SOUND)
@given(_rewards, st.sampled_from([torch.float32, torch.bfloat16]))
def test_the_estimators_of_trainers_are_known(
    name: str, rewards: list[float], dtype: torch.dtype
) -> None:
    """Whatever the rewards, with the rounding of float32 and of the stored dtype."""
    advantages = SOUND[name](torch.tensor(rewards)).to(dtype)
    batch = rows_of(advantages, rewards, GROUPS, lengths=SIZES)
    assert came_to(KNOWN_ESTIMATOR, batch) == PASSED
    assert came_to(NO_GRADIENT, batch) == PASSED
    assert came_to(NO_OUTLIER, batch) == PASSED


def test_advantages_that_no_estimator_gives_are_not_judged() -> None:
    advantages = SOUND["GRPO of verl"](torch.tensor(REWARDS))
    advantages[3] *= 1.00001
    batch = rows_of(advantages, REWARDS, GROUPS, lengths=SIZES)
    assert came_to(KNOWN_ESTIMATOR, batch) == untestable(
        "no known estimator gives these advantages from these rewards"
    )


TWICE: dict[str, Formula] = {
    "tokens": lambda values: whitened(values, SIZES),
    "trajectories": lambda values: centered(values) / (values.std() + 1e-8),
}


@pytest.mark.parametrize("support", TWICE)
def test_a_second_normalisation_is_named(support: str) -> None:
    once = SOUND["GRPO of verl"](torch.tensor(REWARDS))
    twice = TWICE[support](once)
    batch = rows_of(twice, REWARDS, GROUPS, lengths=SIZES)
    worst = int((once - twice).abs().argmax())
    values = f"{twice[worst]:.3g}, and {once[worst]:.3g}".replace("-", "−")
    assert came_to(KNOWN_ESTIMATOR, batch) == (
        "failed",
        f"they are those of GRPO, normalised a second time, over all {support};"
        f" sample {worst} has {values} without that",
        tuple(range(12)),
    )
    assert came_to(NO_GRADIENT, batch) == PASSED


# Two trajectories a group; the first has three rows, the second one.
STEPS = np.array(["0", "0", "0", "1", "2", "2", "2", "3"], dtype=object)
STEP_REWARDS = [1.0, 1.0, 1.0, 0.0, 0.5, 0.5, 0.5, 0.25]


def test_statistics_over_rows_are_named_beside_trajectories() -> None:
    """By hand: the mean of 1, 1, 1, 0 is 0.75, that of 1 and 0 is 0.5."""
    columns = {"traj_uid": STEPS}
    rows = [0.25, 0.25, 0.25, -0.75, 0.0625, 0.0625, 0.0625, -0.1875]
    batch = rows_of(rows, STEP_REWARDS, "aaaabbbb", sample_columns=columns)
    assert came_to(KNOWN_ESTIMATOR, batch)[:2] == (
        "failed",
        "they are those of Dr. GRPO, with statistics over 8 rows, not 4 trajectories;"
        " sample 0 has 0.25, and 0.5 without that",
    )
    assert came_to(BALANCED, batch) == PASSED  # it is said already
    sound = [0.5, 0.5, 0.5, -0.5, 0.125, 0.125, 0.125, -0.125]
    batch = rows_of(sound, STEP_REWARDS, "aaaabbbb", sample_columns=columns)
    assert came_to(KNOWN_ESTIMATOR, batch) == PASSED


def test_rows_that_were_joined_are_rows() -> None:
    joined = {"num_rows": np.array([3, 1, 3, 1])}
    rows = [0.25, -0.75, 0.0625, -0.1875]
    batch = rows_of(rows, STEP_REWARDS[2:4] + STEP_REWARDS[6:], "aabb")
    assert came_to(KNOWN_ESTIMATOR, batch)[0] == "not testable"
    batch = rows_of(rows, [1.0, 0.0, 0.5, 0.25], "aabb", sample_columns=joined)
    assert came_to(KNOWN_ESTIMATOR, batch)[0] == "failed"


def test_rows_with_rewards_of_their_own_are_compared_with_rows() -> None:
    rewards = [1.0, 0.0, 0.5, 0.25]
    columns = {"traj_uid": STEPS[[0, 0, 3, 3]]}
    values = by_group(torch.tensor(rewards), "aaaa", centered)
    batch = rows_of(values, rewards, "aaaa", sample_columns=columns)
    assert came_to(KNOWN_ESTIMATOR, batch) == PASSED


def test_a_mean_of_0_over_rows_alone_is_noted() -> None:
    """A scale of its own, 3, which no estimator has."""
    rows = [3 * value for value in (0.25, 0.25, 0.25, -0.75, 0.5, 0.5, 0.5, -1.5)]
    columns = {"traj_uid": STEPS}
    batch = rows_of(rows, STEP_REWARDS, "aaaabbbb", sample_columns=columns)
    assert came_to(BALANCED, batch) == (
        "failed",
        "their mean is 0 over 8 rows and −1.1 over 4 trajectories, in 2 groups",
        tuple(range(8)),
    )
    assert came_to(BALANCED, rows_of(rows, STEP_REWARDS, "aaaabbbb")) == PASSED


SMALL = [0.5, -0.5, 1.5, -1.5]


@pytest.mark.parametrize(
    ("largest", "rewards", "status"),
    [
        (-2075.0, [1.0, 0.0, 0.5, 0.0, 0.0], "failed"),
        (149.0, [1.0, 0.0, 0.5, 0.0, 0.0], "passed"),  # not 100 times 1.5
        (150.0, [1.0, 0.0, 0.5, 0.0, 0.0], "failed"),
        (-2075.0, None, "failed"),
        (1.7e-38, None, "passed"),
    ],
)
def test_an_advantage_hundreds_of_times_the_others(
    largest: float, rewards: list[float] | None, status: str
) -> None:
    batch = rows_of([*SMALL, largest], rewards, "aaaaa")
    assert came_to(NO_OUTLIER, batch)[0] == status


def test_what_outweighs_is_said_with_its_tokens() -> None:
    batch = rows_of([*SMALL, -2075.39], None, "aaaaa")
    assert came_to(NO_OUTLIER, batch)[1:] == (
        "sample 4 has an advantage of −2,075, the others have 1.5 at most",
        (4,),
    )
    tokens = NO_OUTLIER.check(batch).tokens
    assert tokens is not None
    assert tokens.tolist() == [8, 9]
    batch = rows_of([*SMALL, -2000.0, 9000.0], None, "aaaaaa")
    assert came_to(NO_OUTLIER, batch)[1] == (
        "samples 4, 5 have advantages from 2,000 on, the others have 1.5 at most"
    )


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_advantages_that_are_no_numbers_are_reported(value: float) -> None:
    batch = rows_of([*SMALL, value], None, "aaaaa")
    assert came_to(NO_OUTLIER, batch)[1:] == (
        "1 sample with advantages that are NaN or infinite: sample 4",
        (4,),
    )


def test_rewards_on_another_scale_give_advantages_on_it() -> None:
    rewards = [1.0, 0.0, 0.5, 0.0, 4000.0, -150.0]
    values = by_group(torch.tensor(rewards), "aaaabb", centered)
    assert came_to(NO_OUTLIER, rows_of(values, rewards, "aaaabb")) == PASSED
    rewards[5] = 3998.0  # 1 from the mean of its group
    assert came_to(NO_OUTLIER, rows_of(values, rewards, "aaaabb"))[0] == "failed"


def test_one_right_answer_of_128_is_no_outlier() -> None:
    """Its advantage is 127 times that of each other, as its deviation is."""
    rewards = [128.0] + [0.0] * 127
    values = torch.tensor(rewards) - 1
    assert came_to(NO_OUTLIER, rows_of(values, rewards, "a" * 128)) == PASSED


def test_advantages_of_one_scale_are_no_outliers() -> None:
    """The mean over all tokens lies near the reward of most samples."""
    rewards = [0.0, 0.0, 0.0, -2.0, -1.375, 0.0, 1.0, 0.0, 0.95, 0.0, -1.125, 1.0]
    advantages = SOUND["REINFORCE++"](torch.tensor(rewards))
    batch = rows_of(advantages, rewards, GROUPS, lengths=SIZES)
    assert advantages.abs().max() > 100 * advantages.abs().median()
    assert came_to(NO_OUTLIER, batch) == PASSED


def asked(*rows: list[int], groups: str, **others: Any) -> Batch:
    return rows_of(None, None, groups, **prompts(*rows), **others)


def test_groups_of_one_are_reported_where_prompts_repeat() -> None:
    assert came_to(SHARED_GROUPS, asked([1], [1], [2], [2], groups="abcd")) == (
        "failed",
        "4 samples alone in their group, with a prompt that others have: samples 0, 1,"
        " 2, 3",
        (0, 1, 2, 3),
    )
    assert came_to(SHARED_GROUPS, asked([1], [1], [2], [2], groups="aabb")) == PASSED
    assert came_to(SHARED_GROUPS, asked([1], [2], [3], [4], groups="abcd")) == PASSED
    drawn_twice = asked([1], [1], [2], [3], groups="abcd")
    assert came_to(SHARED_GROUPS, drawn_twice) == PASSED


def test_a_trajectory_of_several_rows_can_be_alone() -> None:
    """Its later rows have prompts of their own."""
    columns = {"traj_uid": np.array([*"xxyy"], dtype=object)}
    rows = [[1], [1, 2], [1], [1, 3]]
    batch = asked(*rows, groups="aabb", sample_columns=columns)
    assert came_to(SHARED_GROUPS, batch)[2] == (0, 2)
    assert came_to(SHARED_GROUPS, asked(*rows, groups="aabb")) == PASSED


def test_an_estimator_without_groups_needs_none() -> None:
    rewards, sizes = [1.0, 0.0, 0.5, 0.25], [1, 2, 3, 4]
    values = whitened(torch.tensor(rewards), sizes)
    batch = rows_of(
        values, rewards, "abcd", lengths=sizes, **prompts([1], [1], [1], [1])
    )
    assert came_to(SHARED_GROUPS, batch) == PASSED


def test_equal_prompts_with_other_pictures_are_others() -> None:
    seen = [[PAD], [PAD]]
    batch = asked(*seen, groups="ab", tokenizer=Chat())
    assert came_to(SHARED_GROUPS, batch) == untestable(
        "prompts of equal ids may show pictures that are not in the file"
    )
    # Four of each of eight, one in 4^7 batches; two of each of two, one in 2.
    often = [[PAD, kind] for kind in range(8) for _ in range(4)]
    names = "".join(map(chr, range(65, 97)))
    batch = asked(*often, groups=names, tokenizer=Chat())
    assert came_to(SHARED_GROUPS, batch)[2] == tuple(range(32))
    batch = asked(*often[:2], *often[4:6], groups="abcd", tokenizer=Chat())
    assert came_to(SHARED_GROUPS, batch)[0] == "not testable"
    # A Recorder keeps the pictures of some samples.
    shots = [[picture(1, 2, 2)], []]
    batch = asked(*seen, groups="ab", tokenizer=Chat(), images=shots)
    assert came_to(SHARED_GROUPS, batch)[0] == "not testable"
    shots = [[picture(1, 2, 2)], [picture(1, 4, 2)]]
    batch = asked(*seen, groups="ab", tokenizer=Chat(), images=shots)
    assert came_to(SHARED_GROUPS, batch) == PASSED
    batch = asked(*seen, groups="ab", tokenizer=Chat(), images=[shots[0]] * 2)
    assert came_to(SHARED_GROUPS, batch)[0] == "failed"


@pytest.mark.parametrize(
    ("groups", "detail"),
    [
        ("aaabbbccc", ""),
        ("abcd", ""),
        ("aab", ""),  # no size is usual
        ("abbbcccddddeeeee", ""),  # nor where steps were not joined
        (
            "aaabbbcc",
            "1 group of 2 samples, 2 groups of 3 samples: the first of another size"
            " than 3 is c",
        ),
        (
            "aabbbcccdd",
            "2 groups of 2 samples, 2 groups of 3 samples: the first of another size"
            " than 3 is a",
        ),
    ],
)
def test_groups_of_several_sizes_are_noted(groups: str, detail: str) -> None:
    batch = rows_of(None, None, groups)
    assert came_to(EVEN_GROUPS, batch)[1] == detail
    assert came_to(EVEN_GROUPS, batch[1:]) == untestable(
        "these samples are a selection of a batch"
    )


def test_a_group_has_as_many_as_it_has_trajectories() -> None:
    batch = rows_of(None, None, "aaaabb", sample_columns={"traj_uid": STEPS[2:]})
    assert came_to(EVEN_GROUPS, batch) == PASSED


def test_a_gradient_in_groups_of_equal_rewards_is_noted() -> None:
    rewards = [1.0, 0.0, 1.0, 1.0, 0.5, 0.25]
    own = [3.0, -3.0, 0.1, -0.1, 2.0, -2.0]
    batch = rows_of(own, rewards, "aabbcc")
    assert came_to(NO_GRADIENT, batch) == (
        "failed",
        "1 group of equal rewards with advantages other than 0, 2 % of the gradient"
        " weight",
        (2, 3),
    )


def test_a_baseline_over_the_batch_leaves_a_gradient() -> None:
    rewards = torch.tensor([1.0, 0.0, 1.0, 1.0, 0.0, 0.0])
    batch = rows_of(rewards - rewards.mean(), rewards.tolist(), "aabbcc")
    assert came_to(KNOWN_ESTIMATOR, batch)[0] == "not testable"
    assert came_to(NO_GRADIENT, batch) == PASSED


def test_what_is_missing_is_said() -> None:
    values, rewards = [1.0, -1.0], [1.0, 0.0]
    nothing = chat([[1]], [[0]], group_ids=("a",), rewards=torch.ones(1))
    assert came_to(EVEN_GROUPS, nothing) == NO_TOKEN
    for contract in (KNOWN_ESTIMATOR, NO_GRADIENT, BALANCED):
        assert came_to(contract, rows_of(None, rewards, "aa")) == untestable(
            "needs `advantages`"
        )
        assert came_to(contract, rows_of(values, None, "aa")) == untestable(
            "needs `rewards`"
        )
        assert came_to(contract, rows_of(values, rewards)) == untestable(
            "needs `group_ids`"
        )
        assert came_to(
            contract, rows_of(values, [1.0, float("nan")], "aa")
        ) == untestable("some rewards are not known")
    assert came_to(SHARED_GROUPS, rows_of(None, None, "ab")) == untestable(
        "needs `prompt_ids`"
    )
    varying = chat(
        [[1, 2], [3]],
        [[1, 1], [1]],
        advantages=[torch.tensor([1.0, 2.0]), torch.ones(1)],
        rewards=torch.ones(2),
        group_ids=("a", "a"),
    )
    assert came_to(KNOWN_ESTIMATOR, varying) == untestable(
        "advantages differ within samples, as those of GAE do"
    )


@pytest.mark.parametrize(
    ("reward", "status"),
    [
        (1, "passed"),
        (True, "passed"),
        (0.5, "passed"),
        ("good", "failed"),
        ([1, 0], "failed"),
        ({"score": 1}, "failed"),
        (None, "not testable"),
    ],
)
def test_rewards_that_were_given_and_are_no_numbers_fail(
    reward: object, status: str, tmp_path: Path
) -> None:
    said = [{"role": "user", "content": "Go."}, {"role": "assistant", "content": "ok"}]
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({"messages": said, "reward": reward}) + "\n")
    assert REWARDS_READ.check(rd.load(path)).status == status


@pytest.mark.parametrize(
    "contract",
    [ADVANTAGES_DIFFER, *(SHARED_GROUPS, KNOWN_ESTIMATOR, EVEN_GROUPS), NO_GRADIENT],
)
def test_groups_that_a_loader_guessed_are_not_judged(contract: Contract) -> None:
    guess = {"group_source": "samples whose prompts have the same tokens"}
    fields: dict[str, Any] = {"rewards": [1.0, 0.0, 1.0, 1.0, 0.5, 1.0, 0.0]}
    batch = rows_of([0.0] * 7, **fields, groups="aabbccc", **prompts(*[[1]] * 7))
    assert came_to(contract, replace(batch, meta=guess)) == untestable(
        "no groups in the file: those of this batch are samples whose prompts have the"
        " same tokens"
    )


def test_an_outlier_is_none_by_the_mean_of_a_guessed_group() -> None:
    fields: dict[str, Any] = {"rewards": [0.0, 1.0, 0.0, 1.0], "groups": "aabb"}
    batch = rows_of([-1.0, 1.0, -300.0, 300.0], **fields)
    assert came_to(NO_OUTLIER, batch)[0] == "failed"
    guess = {"group_source": "samples whose prompts have the same text"}
    assert came_to(NO_OUTLIER, replace(batch, meta=guess))[0] == "failed"
    small = rows_of([-1e-3, 1e-3, -1.0, 1.0], **fields)
    assert came_to(NO_OUTLIER, small)[0] == "failed"
    assert came_to(NO_OUTLIER, replace(small, meta=guess)) == PASSED
