"""Files in the layout of prime-rl's token export."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from rounddiag.batch import Batch
from rounddiag.core import token_frame
from rounddiag.core.divergence import k3
from rounddiag.loaders import load
from tests.loaders.prime_rl_writer import record, small_step, write
from tests.loaders.refusal import refused_file


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "token_exports" / "step_7" / "rank_0.jsonl"


@pytest.fixture
def batch(path: Path) -> Batch:
    return load(write(path, small_step()))


def test_rounds_are_the_runs_of_the_loss_mask(batch: Batch) -> None:
    frame = token_frame(batch)

    assert frame["sample"].tolist() == [0, 0, 0, 1]
    assert frame["round"].tolist() == [0, 0, 1, 0]
    assert frame["diff"].tolist() == [-0.25, -0.375, -0.625, -0.25]
    assert batch.meta["mask_source"] == "loss_mask"
    assert batch.meta["old_log_probs_source"] == "the training pass itself"
    assert batch.step == 7


def test_the_mismatch_is_the_one_that_prime_rl_computed(path: Path) -> None:
    rows = small_step()
    batch = load(write(path, rows))
    theirs = [
        value
        for row in rows
        for value, on in zip(row["mismatch_kl"], row["loss_mask"], strict=True)
        if on
    ]

    written = batch.response_mask != 0
    ours = k3((batch.log_probs("old") - batch.log_probs("rollout"))[written].double())
    assert ours.tolist() == pytest.approx(theirs)


def test_the_filler_of_the_first_position_is_no_log_prob(path: Path) -> None:
    batch = load(write(path, [record([1, 2, 3], [True, True, True])]))

    assert batch.require_ids().tolist() == [2, 3]
    assert batch.log_probs("old").tolist() == [-0.25, -0.5]


def test_entropy_and_advantages_are_kept_for_each_token(batch: Batch) -> None:
    assert batch.entropy.tolist() == [1.0, 1.5, 2.0, 2.5, 1.0]
    assert batch.advantages.tolist() == [0.5, 0.5, 0.0, 0.5, 0.5]


def test_position_ids_are_those_of_the_whole_sequence(batch: Batch) -> None:
    assert batch.position_ids is not None
    assert [row.tolist() for row in batch.position_ids] == [
        [0, 1, 2, 3, 4, 5],
        [0, 1, 2],
    ]


def test_tokens_that_the_loss_clipped_are_out_of_the_loss_mask(path: Path) -> None:
    clipped = [False, False, True, False]
    row = record([1, 2, 3, 4], [False, True, True, True], is_masked=clipped)
    batch = load(write(path, [row]))

    assert batch.response_mask.tolist() == [1, 1, 1]
    assert batch.loss_mask.tolist() == [1, 0, 1]


@pytest.mark.parametrize("absent", [True, False])
def test_without_a_clipping_loss_the_two_masks_are_one(
    path: Path, absent: bool
) -> None:
    row = record([1, 2, 3], [False, True, True], is_masked=[None] * 3)
    if absent:
        del row["is_masked"]
    batch = load(write(path, [row]))

    assert batch.loss_mask.tolist() == [1, 1]


def test_a_lost_log_prob_stays_a_token_without_a_value(path: Path) -> None:
    row = record([1, 2, 3], [False, True, True], inference_logprobs=[None, None, -1.0])
    frame = token_frame(load(write(path, [row])))

    assert np.isnan(frame["diff"][0])
    assert frame["diff"][1] == 0.5


def test_ranks_environments_and_places_are_columns(batch: Batch) -> None:
    columns = {name: list(values) for name, values in batch.sample_columns.items()}

    assert columns == {
        "step": [7, 7],
        "rank": [0, 0],
        "micro_step": [0, 0],
        "micro_sequence_idx": [0, 1],
        "export_sequence_idx": [0, 1],
        "env_name": ["gui", "gui"],
    }


def test_samples_of_the_same_prompt_are_a_group(batch: Batch) -> None:
    assert batch.group_ids[0] == batch.group_ids[1]


def test_what_was_computed_from_the_log_probs_is_left_out_and_named(
    batch: Batch,
) -> None:
    assert batch.meta["left_out"] == [
        *("importance_ratio", "is_masked_high", "is_masked_low"),
        *("log_importance_ratio", "mismatch_kl", "prob_delta"),
    ]


def test_a_later_release_has_rewards_runs_and_losses_of_each_token(path: Path) -> None:
    later = record(
        [1, 2, 3],
        [False, True, True],
        export_step=3,
        run_id="run_a",
        rewards=[1.5, 1.5, 1.5],
        losses=[{"rl": {"advantage": 0.5, "mask": on}} for on in (False, True, True)],
    )
    batch = load(write(path, [later]))

    assert batch.step == 3
    assert batch.rewards.tolist() == [1.5]
    assert batch.sample_columns["run_id"].tolist() == ["run_a"]
    assert "losses" in batch.meta["left_out"]


def test_rewards_that_were_not_exported_are_absent(path: Path) -> None:
    rows = [{**row, "rewards": [None] * len(row["loss_mask"])} for row in small_step()]

    assert load(write(path, rows)).rewards is None


def test_a_reward_that_one_sample_lacks_is_nan(path: Path) -> None:
    first, second = small_step()
    rows = [{**first, "rewards": [2.0] * 6}, {**second, "rewards": [None] * 3}]
    batch = load(write(path, rows))

    assert batch.rewards[0] == 2
    assert batch.rewards[1].isnan()


def test_log_probs_by_another_model_are_a_score(path: Path) -> None:
    row = record([1, 2, 3], [False, True, True], ref_logprobs=[None, -1.0, -2.0])

    assert load(write(path, [row])).scores["ref"].tolist() == [-1.0, -2.0]


@pytest.mark.parametrize(
    ("version", "found"), [(2, "2"), ("1", "'1'"), (None, "None"), ([1], "array([1]")]
)
def test_another_version_of_the_layout_is_an_error(
    path: Path, version: object, found: str
) -> None:
    write(path, [*small_step(), record([1, 2], [False, True], schema_version=version)])
    message = refused_file(path)

    assert message.startswith(f"expected `schema_version` 1; found {found}")
    assert message.endswith(
        " in line 3. Update rounddiag: this one does not know the newer layout."
    )


def test_a_row_of_another_length_names_its_line(path: Path) -> None:
    write(path, [record([1, 2, 3], [False, True])])

    assert refused_file(path) == (
        "expected a list of 3 numbers in `loss_mask` of line 1; found 2 numbers. Every"
        " line must have one number per token in it."
    )


def test_a_mask_of_nulls_is_an_error(path: Path) -> None:
    nulls = {**record([1, 2], [False, True]), "loss_mask": [None, None]}
    write(path, [*small_step(), nulls])

    assert "response_mask" in refused_file(path)


def test_the_ranks_of_a_step_are_joined(path: Path) -> None:
    write(path, small_step())
    write(path.with_name("rank_1.jsonl"), [record([6, 7], [False, True], rank=1)])
    (path.parent / "STABLE").touch()
    batch = load(path.parent)

    assert batch.num_samples == 3
    assert batch.sample_columns["rank"].tolist() == [0, 0, 1]


def test_a_field_of_null_is_an_error(path: Path) -> None:
    write(path, [{**record([1, 2], [False, True]), "entropy": 1, "token_ids": None}])

    assert "`token_ids` of line 1; found null." in refused_file(path)


def test_a_line_may_be_spaced_as_json_allows(path: Path) -> None:
    path.parent.mkdir(parents=True)
    lines = [json.dumps(row, separators=(" , ", " : ")) for row in small_step()]
    path.write_text("\r\n".join(["", *lines, "  "]))

    assert load(path).num_tokens == 4
