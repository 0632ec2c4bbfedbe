"""Files with a row a step that the released frameworks wrote."""

from __future__ import annotations

from pathlib import Path

from rounddiag.loaders import load

DATA = Path(__file__).parents[2] / "data"
SESSIONS = DATA / "verl-0.9.1_tensordict-0.10.0_v1-sessions.pt"
AGENT_LIGHTNING = DATA / "agentlightning-0.3.0_transition.pkl"


def test_two_outputs_of_a_session_of_verl_are_one_sample() -> None:
    batch = load(SESSIONS)

    assert batch.sample_ids == ("g0_0", "g1_0")
    assert batch.group_ids == ("g0", "g1")
    assert batch.rounds.num_tokens.tolist() == [3, 2, 2, 2]
    assert batch.rounds.start.tolist() == [0, 7, 10, 12]
    # The second output's prompt: a token, a screenshot of two, which is the first
    # output's, and the token 7, which alone is new.
    assert batch.context(0, 2).ids.tolist() == [1, 151652, 151655, 151655, 151653, 7]
    assert batch.require_ids()[9:12].tolist() == [7, 100, 101]
    assert batch.log_probs("old")[7:12].tolist() == [-1.5, -1.625, 0, -0.375, -0.5]
    assert batch.round_columns["row"].tolist() == [2, 2, 0, 3]
    assert batch.rewards.tolist() == [0.0, 0.0]
    assert batch.round_columns["row_reward"].tolist() == [1.0, 1.0, 0.0, 0.0]
    assert batch.meta["num_dropped_rows"] == 1


def test_a_later_output_has_the_screenshot_of_its_own_context() -> None:
    batch = load(SESSIONS)

    places = [(shot.round, shot.position) for shot in batch.images[0]]
    assert places == [(0, -4), (1, 4)]
    assert batch.require_ids()[4] == 151655
    # The first picture of a row, as in the other files.
    (picture,) = batch.context(0, 2).images
    assert picture == batch.images[0][0]
    assert picture.image().getpixel((0, 0)) == (123, 117, 104)


def test_rows_of_agent_lightning_are_joined_by_rollout_in_the_order_of_turns() -> None:
    rows, batch = (
        load(AGENT_LIGHTNING),
        load(AGENT_LIGHTNING, sample_by="rollout_id_list"),
    )

    assert rows.num_samples == 3
    assert rows.meta["rows"] == (
        "rows are steps of trajectories: load(..., sample_by='rollout_id_list')"
        " joins them"
    )
    assert batch.sample_ids == ("rollout-b", "rollout-a")
    assert batch.group_ids == ("task", "task")
    assert batch.require_ids().tolist() == [5, 6, 7, 3, 8, 9, 9]
    assert batch.rounds.num_tokens.tolist() == [3, 1, 2]
    assert batch.round_columns["turn_index_list"].tolist() == [0, 1, 0]
    assert batch.sample_columns["is_drop_mask"].tolist() == [False, False]
    assert batch.rewards.tolist() == [0.0, 1.0]
    assert batch.meta["rows"] == (
        "3 rows joined into 2 samples by `rollout_id_list`, ordered by"
        " `turn_index_list`"
    )
