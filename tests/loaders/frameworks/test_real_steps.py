"""Files with a row a step that the released frameworks wrote."""

from __future__ import annotations

from pathlib import Path

from rounddiag.loaders import load

DATA = Path(__file__).parents[2] / "data"
AGENT_LIGHTNING = DATA / "agentlightning-0.3.0_transition.pkl"


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
