from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rounddiag import round_frame, round_summary, sample_frame, schema, token_frame
from rounddiag.core import round_and_token_frames, rounds_of_tokens, take_runs
from rounddiag.core.sums import Totals, cpu_pack, cpu_totals, torch_pack, torch_totals
from rounddiag.errors import BatchError, FrameError
from tests import oracle
from tests.batches import AWKWARD, MASK, hand_batch, masks, padded, random_log_probs

NAN, INF = math.nan, math.inf
SPECIAL = st.sampled_from([NAN, INF, -INF, 0.0, -1e-4, -0.1, -2.5, -30.0])


def assert_equals_the_loop(mask: Any, old: torch.Tensor, rollout: torch.Tensor) -> None:
    found = round_frame(padded(mask, old, rollout)).to_dict("list")
    rows = oracle.round_rows(
        torch.as_tensor(mask).tolist(), old.double().tolist(), rollout.double().tolist()
    )
    for name in ("sample", "round", "start", "num_tokens", "num_nonfinite"):
        assert found[name] == [row[name] for row in rows], name
    for name in ("mean_abs_diff", "max_abs_diff", "k3"):
        wanted = [row[name] for row in rows]
        assert found[name] == pytest.approx(wanted, rel=1e-6, nan_ok=True), name
    for value, row in zip(found["mean_diff"], rows, strict=True):
        # Signed terms cancel: what is left is as exact as the terms.
        near = pytest.approx(
            row["mean_diff"], abs=1e-6 * row["mean_abs_diff"], nan_ok=True
        )
        assert value == near


def test_one_row_per_generated_token(device: torch.device) -> None:
    frame = token_frame(hand_batch(device))
    assert frame.columns.tolist() == ["sample", "round", "token", "diff"]
    assert frame.to_numpy().tolist() == [
        [0, 0, 0, 0.5],
        [0, 0, 1, -0.25],
        [0, 1, 0, 1.0],
        [1, 0, 0, 0.0],
        [1, 0, 1, 0.25],
        [1, 0, 2, -0.5],
        [1, 1, 0, 2.0],
        [2, 0, 0, -1.0],
    ]


def test_the_frame_has_four_narrow_columns_and_a_plain_index() -> None:
    frame = token_frame(hand_batch())
    assert [str(t) for t in frame.dtypes] == ["int32", "int32", "int32", "float32"]
    assert isinstance(frame.index, pd.RangeIndex)


def test_columns_on_request(device: torch.device) -> None:
    batch = hand_batch(
        device,
        entropy=torch.arange(18.0).reshape(3, 6),
        advantages=torch.arange(18.0).reshape(3, 6) / 2,
        loss_mask=torch.tensor(MASK) * torch.tensor([[1], [0], [1]]),
        tokenizer=lambda ids: "".join(chr(97 + i) for i in ids),
    )
    names = ["position", "token_id", "rollout_log_prob", "old_log_prob", "entropy"]
    names += ["advantage", "loss_mask", "importance_weight"]
    frame = token_frame(batch, [*names, "prob_diff", "text"])
    assert frame["position"].tolist() == [0, 1, 3, 1, 2, 3, 5, 0]
    assert frame["token_id"].tolist() == [0, 1, 3, 7, 8, 9, 11, 12]
    assert frame["rollout_log_prob"].tolist() == [-1, -1, -2, -1, -1, -1, -3, -2]
    assert frame["old_log_prob"].tolist() == [-0.5, -1.25, -1, -1, -0.75, -1.5, -1, -3]
    assert frame["entropy"].tolist() == [0, 1, 3, 7, 8, 9, 11, 12]
    assert frame["advantage"].tolist() == [0, 0.5, 1.5, 3.5, 4, 4.5, 5.5, 6]
    assert frame["loss_mask"].tolist() == [1, 1, 1, 0, 0, 0, 0, 1]
    assert frame["importance_weight"][2] == pytest.approx(math.e)
    assert frame["text"].tolist() == list("abdhijlm")
    assert frame["prob_diff"][6] == pytest.approx(math.exp(-1) - math.exp(-3))
    for name in [*names, "prob_diff"]:
        assert str(frame[name].dtype) == schema.TOKENS[name].dtype


def test_another_pair_of_scores(device: torch.device) -> None:
    batch = hand_batch(device, scores={"ref": torch.full((3, 6), -1.0)})
    assert token_frame(batch, a="ref")["diff"].tolist() == [0, 0, 1, 0, 0, 0, 2, 1]
    assert round_frame(batch, a="rollout", b="old")["mean_diff"].tolist() == [
        *(-0.125, -1.0, 0.25 / 3, -2.0, 1.0)
    ]


def test_one_row_per_sample_and_round(device: torch.device) -> None:
    advantages = torch.arange(18.0).reshape(3, 6)
    frame = round_frame(hand_batch(device, advantages=advantages), ["first_unequal"])
    assert frame["round_advantage"].tolist() == [0.5, 3.0, 8.0, 11.0, 12.0]
    assert frame["sample"].tolist() == [0, 0, 1, 1, 2]
    assert frame["round"].tolist() == [0, 1, 0, 1, 0]
    assert frame["start"].tolist() == [0, 3, 1, 5, 0]
    assert frame["num_tokens"].tolist() == [2, 1, 3, 1, 1]
    assert frame["mean_abs_diff"].tolist() == [0.375, 1.0, 0.25, 2.0, 1.0]
    assert frame["mean_diff"].tolist() == [0.125, 1.0, -0.25 / 3, 2.0, -1.0]
    assert frame["max_abs_diff"].tolist() == [0.5, 1.0, 0.5, 2.0, 1.0]
    assert frame["k3"][1] == pytest.approx(math.e - 2, rel=1e-6)
    dtypes = {column.name: column.dtype for column in schema.ROUNDS.columns}
    assert {name: str(t) for name, t in frame.dtypes.items()} == dtypes


def test_one_row_per_sample_also_where_nothing_was_generated(
    device: torch.device,
) -> None:
    mask = [[1, 0, 1], [0, 0, 0]]
    batch = padded(
        mask,
        torch.tensor([[0.0, 5.0, -1.0], [5.0] * 3]),
        torch.tensor([[-1.0, 5.0, 0.0], [6.0] * 3]),
        rewards=torch.tensor([0.5, 0.0]),
        group_ids=("g", "g"),
        sample_columns={"rank": np.array([3, 4]), "reward": np.array([9, 9])},
    ).to(device)
    frame = sample_frame(batch)
    assert frame["num_rounds"].tolist() == [2, 0]
    assert frame["num_tokens"].tolist() == [2, 0]
    assert frame["reward"].tolist() == [0.5, 0.0]
    assert frame["group_id"].tolist() == ["g", "g"]
    assert frame["rank"].tolist() == [3, 4]
    assert frame["mean_abs_diff"].tolist()[0] == 1.0
    assert frame["mean_diff"].tolist()[0] == 0.0
    assert (
        frame[["mean_abs_diff", "mean_diff", "max_abs_diff", "k3"]].iloc[1].isna().all()
    )


@given(masks(), st.integers(0, 2**32))
def test_the_first_unequal_token_equals_a_loop(
    mask: list[list[int]], seed: int
) -> None:
    shape = len(mask), len(mask[0]) if mask else 0
    old = random_log_probs(shape, seed)
    rng = np.random.default_rng(seed)
    keep = torch.from_numpy(rng.random(shape) < 0.8)
    rollout = torch.where(keep, old, random_log_probs(shape, seed + 1))
    rollout[torch.from_numpy(rng.random(shape) < 0.05)] = NAN
    tensor = torch.tensor(mask, dtype=torch.int64).reshape(shape)
    batch = padded(tensor, old, rollout)

    def first(row: int, places: list[int]) -> float:
        for place in places:
            d = float(old[row, place].double()) - float(rollout[row, place].double())
            if math.isfinite(d) and d != 0:
                return place
        return NAN

    places = [oracle.rounds_of(row) for row in mask]
    of_rounds = [first(i, one) for i, rows in enumerate(places) for one in rows]
    of_samples = [
        first(i, [place for one in rows for place in one])
        for i, rows in enumerate(places)
    ]
    rounds = round_frame(batch, ["first_unequal"])["first_unequal"]
    samples = sample_frame(batch, ["first_unequal"])["first_unequal"]
    np.testing.assert_array_equal(rounds.to_numpy(), np.array(of_rounds, float))
    np.testing.assert_array_equal(samples.to_numpy(), np.array(of_samples, float))


def test_the_first_unequal_token_by_hand(device: torch.device) -> None:
    batch = hand_batch(device)
    rounds = round_frame(batch, ["first_unequal"])["first_unequal"]
    samples = sample_frame(batch, ["first_unequal"])["first_unequal"]
    # Sample 1 begins at 1, and its first token is equal.
    assert rounds.tolist() == [0, 3, 2, 5, 0]
    assert samples.tolist() == [0, 2, 0]
    assert "first_unequal" not in round_frame(batch)
    with pytest.raises(FrameError, match="first_unequal"):
        round_frame(batch, ["first"])
    with pytest.raises(FrameError, match="first_unequal"):
        sample_frame(batch, ["text"])


def test_columns_of_rounds_are_joined_where_the_file_had_them() -> None:
    columns = {
        "sample": np.array([1, 0]),
        "round": np.array([1, 0]),
        "version": np.array(["v2", "v1"]),
    }
    frame = round_frame(hand_batch(round_columns=columns))
    assert frame["version"].fillna("").tolist() == ["v1", "", "", "v2", ""]


@given(masks(), st.integers(0, 2**32))
def test_random_batches_equal_the_loop(mask: list[list[int]], seed: int) -> None:
    shape = len(mask), len(mask[0]) if mask else 0
    tensor = torch.tensor(mask, dtype=torch.int64).reshape(shape)
    old, rollout = random_log_probs(shape, seed), random_log_probs(shape, seed + 1)
    assert_equals_the_loop(tensor, old, rollout)
    frame = token_frame(padded(tensor, old, rollout))
    rows = oracle.token_rows(mask, old.tolist(), rollout.tolist())
    assert frame.iloc[:, :3].to_numpy().tolist() == [list(row[:3]) for row in rows]
    assert frame["diff"].tolist() == pytest.approx([row[3] for row in rows], rel=1e-6)


@given(st.lists(SPECIAL, min_size=16, max_size=16), masks())
def test_what_is_not_finite_is_counted_and_left_out(
    values: list[float], mask: list[list[int]]
) -> None:
    shape = len(mask), len(mask[0]) if mask else 0
    tensor = torch.tensor(mask, dtype=torch.int64).reshape(shape)
    pool = torch.tensor(values)
    index = torch.arange(tensor.numel()).reshape(shape)
    assert_equals_the_loop(tensor, pool[index % 16], pool[(index * 7 + 3) % 16])


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16]
)
def test_awkward_rows_in_every_precision(dtype: torch.dtype) -> None:
    old = random_log_probs((7, 8), 1).to(dtype)
    rollout = random_log_probs((7, 8), 2).to(dtype)
    assert_equals_the_loop(AWKWARD, old, rollout)


def test_long_and_short_rounds_are_exact() -> None:
    generator = torch.Generator().manual_seed(0)
    # 66,000 positions: rounds of one token, and rounds longer than a block of 65,536.
    mask = torch.rand(3, 66_000, generator=generator) < 0.5
    mask[0] = True
    mask[1, 200:50_000] = True
    mask[2, 1000:] = False
    old = random_log_probs((3, 66_000), 3) * 1e-3
    rollout = random_log_probs((3, 66_000), 4) * 1e-3
    assert_equals_the_loop(mask, old, rollout)


def test_the_lowest_float_is_finite() -> None:
    low = torch.finfo(torch.float32).min
    frame = round_frame(padded([[1, 1]], torch.full((1, 2), low), torch.zeros(1, 2)))
    assert frame["mean_abs_diff"].tolist() == [-low]
    assert frame["num_nonfinite"].tolist() == [0]


@pytest.mark.parametrize("totals", [cpu_totals, torch_totals])
@pytest.mark.parametrize("neighbour", [-1.0, math.nan, -3e38])
def test_a_diff_beyond_float32_counts_as_it_is_stored(
    totals: Callable[..., Totals], neighbour: float
) -> None:
    old = torch.tensor([[-1e39, -3e38, neighbour]], dtype=torch.float64)
    batch, stored = padded([[1, 1, 1]], old, torch.zeros(1, 3)), np.empty(3, "f4")
    with np.errstate(over="ignore"):
        row = totals(batch.rounds, *batch.both_log_probs(), stored)
    assert row.num_nonfinite.tolist() == [np.sum(~np.isfinite(stored))]
    assert row.abs_diff.tolist() == pytest.approx(
        [np.abs(stored[np.isfinite(stored)].astype(float)).sum()]
    )
    assert round_summary(batch)["num_nonfinite"].tolist() == row.num_nonfinite.tolist()


def test_values_under_the_mask_never_matter() -> None:
    mask = torch.tensor(MASK)
    batch = hand_batch()
    for value in (NAN, INF, 3.0):
        fill = torch.full((3, 6), value)
        old = torch.where(mask == 1, batch.log_probs("old").reshape(3, 6), fill)
        rollout = torch.where(mask == 1, batch.log_probs("rollout").reshape(3, 6), fill)
        changed = padded(mask, old, rollout)
        pd.testing.assert_frame_equal(round_frame(changed), round_frame(batch))
        pd.testing.assert_frame_equal(token_frame(changed), token_frame(batch))


@given(masks(), st.integers(0, 5), st.integers(0, 99))
def test_more_padding_changes_nothing(
    mask: list[list[int]], more: int, seed: int
) -> None:
    shape = len(mask), len(mask[0]) if mask else 0
    tensor = torch.tensor(mask, dtype=torch.int64).reshape(shape)
    scores = random_log_probs(shape, seed), random_log_probs(shape, seed + 1)
    wide = [torch.nn.functional.pad(t, (0, more)) for t in (tensor, *scores)]
    left, right = padded(tensor, *scores), padded(*wide)
    pd.testing.assert_frame_equal(round_frame(left), round_frame(right))
    pd.testing.assert_frame_equal(token_frame(left), token_frame(right))


@given(st.permutations([0, 1, 2]))
def test_permuting_samples_permutes_rows(order: list[int]) -> None:
    batch, index = hand_batch(), torch.tensor(order)
    shuffled = padded(
        *(
            t.reshape(3, 6)[index]
            for t in (
                batch.response_mask,
                batch.log_probs("old"),
                batch.log_probs("rollout"),
            )
        )
    )
    left = sample_frame(shuffled).drop(columns="sample")
    right = sample_frame(batch).drop(columns="sample").iloc[order]
    pd.testing.assert_frame_equal(left, right.reset_index(drop=True))


def test_cuda_code_equals_cpu_code() -> None:
    batch = padded(AWKWARD, random_log_probs((7, 8), 5), random_log_probs((7, 8), 6))
    scores = batch.both_log_probs()
    left, right = np.empty((2, batch.num_tokens), dtype=np.float32)
    cpu = vars(cpu_totals(batch.rounds, *scores, left))
    cuda = vars(torch_totals(batch.rounds, *scores, right))
    assert cpu.keys() == cuda.keys()
    for name, values in cpu.items():
        assert values.tolist() == pytest.approx(cuda[name].tolist(), rel=1e-6), name
    assert left.tolist() == right.tolist()
    ids = [pack(batch.rounds, batch.require_ids()) for pack in (cpu_pack, torch_pack)]
    assert ids[0].tolist() == ids[1].tolist()


@pytest.mark.parametrize("length", [1, 100])
def test_short_and_long_runs_are_taken_alike(length: int) -> None:
    values = np.arange(1000)
    begins, counts = np.array([5, 700]), np.array([length, length])
    wanted = [*range(5, 5 + length), *range(700, 700 + length)]
    assert take_runs(values, begins, counts).tolist() == wanted


def test_one_pass_gives_the_same_as_two(device: torch.device) -> None:
    batch = hand_batch(device)
    rounds, tokens = round_and_token_frames(batch, ["position"])
    pd.testing.assert_frame_equal(rounds, round_frame(batch))
    pd.testing.assert_frame_equal(tokens, token_frame(batch, ["position"]))


def test_rounds_of_tokens_are_those_of_the_batch() -> None:
    batch = hand_batch()
    found = rounds_of_tokens(token_frame(batch))
    pd.testing.assert_frame_equal(found, round_frame(batch).drop(columns="start"))


def test_a_batch_of_nothing_has_empty_frames(device: torch.device) -> None:
    for shape in ((0, 0), (0, 5), (3, 0)):
        empty = torch.zeros(shape, device=device)
        batch = padded(empty, empty, empty)
        assert len(token_frame(batch, ["text", "position"])) == 0
        assert len(round_frame(batch)) == 0
        assert len(sample_frame(batch)) == shape[0]
        assert len(rounds_of_tokens(token_frame(batch))) == 0


def test_an_unknown_column_lists_the_known() -> None:
    message = (
        "expected columns out of ['position', 'token_id', 'rollout_log_prob', "
        "'old_log_prob', 'entropy', 'advantage', 'loss_mask', 'importance_weight', "
        "'prob_diff', 'equal_so_far', 'surprise', 'round_length', 'round_seconds', "
        "'round_reward', 'round_change', 'round_advantage', 'role', 'text']; "
        "found 'ratio'. `sample`, `round` and `token` are always there."
    )
    with pytest.raises(FrameError, match=f"^{re.escape(message)}$"):
        token_frame(hand_batch(), ["ratio"])


def test_a_column_that_the_batch_cannot_give() -> None:
    message = (
        "expected a batch with `entropy` for the column 'entropy'; found a batch "
        "without it. Leave the column out, or save the field in the trainer."
    )
    with pytest.raises(FrameError, match=f"^{re.escape(message)}$"):
        token_frame(hand_batch(), ["entropy"])


def test_an_unknown_score_is_refused() -> None:
    with pytest.raises(BatchError, match=r"found 'new'"):
        round_frame(hand_batch(), a="new")


def test_a_frame_without_diff_says_how_to_build_one() -> None:
    message = (
        "expected a frame with one row per generated token and the columns ['sample', "
        "'round', 'diff']; found ['sample'], without ['round', 'diff']. Build it with "
        "`rounddiag.token_frame(batch)`."
    )
    with pytest.raises(FrameError, match=f"^{re.escape(message)}$"):
        rounds_of_tokens(pd.DataFrame({"sample": [0]}))


def test_columns_are_a_list() -> None:
    message = (
        "`columns`: expected a list of columns; found the text 'position'."
        " Pass ['position']."
    )
    with pytest.raises(FrameError, match=f"^{re.escape(message)}$"):
        token_frame(hand_batch(), "position")


def test_tokens_are_equal_so_far_up_to_the_first_that_is_not() -> None:
    """A diff that is not finite does not end it; each sample begins anew."""
    nan = torch.nan
    rollout = torch.full((3, 5), -1.0)
    old = torch.tensor([[-1, -1, 0, -2, -1], [-3, 0, -1, -1, -1], [-1, nan, -1, 0, 0]])
    mask = torch.tensor([[1, 1, 0, 1, 1], [1, 0, 1, 1, 1], [1, 1, 1, 0, 0]])
    frame = token_frame(padded(mask, old, rollout), ["equal_so_far"])
    assert frame["equal_so_far"].tolist() == [1, 1, 0, 0, *[0] * 4, 1, 1, 1]
