"""The figures of corrections and legs: rows, marks, and what is not advised."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

import rounddiag as rd
from tests.figures.plots import captions

ADVANTAGES = "sample_data/advantages.parquet"


def labels(figure: Any) -> list[str]:
    """The names of the rows, from the top."""
    return list(figure.data[0].y)


def test_eight_rows_that_look_different() -> None:
    batch = rd.load(ADVANTAGES)
    rows = rd.corrections(batch).set_index("correction")
    figure = rd.plot_corrections(batch)
    names = [label.split()[0] for label in labels(figure)]
    assert len(names) == 8
    assert {"none", "tis", "sequence_tis", "geometric"} < {*names}
    assert "icepop" not in names  # looks as tis
    for index, panel in enumerate(("tokens_kept", "share_at_limit", "moved")):
        values = rows.loc[names, panel].tolist()
        assert list(figure.data[2 * index].x) == pytest.approx(values)
    assert figure.layout.yaxis.title.text == "old / rollout ratio"


def test_the_rule_of_the_run_is_first_and_marked() -> None:
    batch = rd.load(ADVANTAGES)
    settings = {"rollout_is": "sequence", "rollout_is_threshold": 2.0}
    named = replace(batch, meta={**batch.meta, "rollout_correction": settings})
    figure = rd.plot_corrections(named)
    assert labels(figure)[0] == "▸ sequence_tis"
    assert "▸ the rule of this run" in captions(figure)


def test_what_none_beats_is_marked_unless_an_engine_is_wrong() -> None:
    batch = rd.load(ADVANTAGES)
    figure = rd.plot_corrections(batch, ["none", "tis", "geometric"])
    assert labels(figure) == ["none ◆", "tis ◆", "geometric"]
    rollout, old = batch.log_probs("rollout"), batch.log_probs("old").clone()
    mask = batch.response_mask != 0
    old[mask] = torch.roll(rollout[mask], 1)  # those of the token before
    broken = replace(batch, old_log_probs=old)
    figure = rd.plot_corrections(broken, ["none", "tis"])
    assert labels(figure) == ["none", "tis"]
    assert "mend the engine first: shifted log probs" in captions(figure)
    figure = rd.plot_corrections(rd.corrections(broken, ["none", "tis"]))
    assert labels(figure) == ["none", "tis"]


def test_tokens_without_a_weight_and_without_advantages_are_said() -> None:
    batch = rd.load("sample_data/healthy.parquet")
    old = batch.log_probs("old").clone()
    old[int(batch.response_mask.nonzero()[0])] = torch.nan
    given = replace(batch, old_log_probs=old)
    figure = rd.plot_corrections(given, ["tis", "none"])
    assert "left out: up to 1 token without a weight" in captions(figure)
    assert "no advantages: every token counts as much" in captions(figure)


def test_a_whole_ratio_of_one_leg_has_no_diamond() -> None:
    batch = rd.load("sample_data/healthy.parquet")
    one = rd.plot_legs(batch)
    assert "◆ whole ratio" not in captions(one)
    assert "whole ratio" not in {trace.name for trace in one.data}
    both = replace(batch, scores={"current": batch.log_probs("old") + 0.1})
    two = rd.plot_legs(both)
    assert "◆ whole ratio" in captions(two)
    assert "whole ratio" in {trace.name for trace in two.data}
