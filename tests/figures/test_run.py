"""Mismatch over training: a line per round, a heatmap, and where it changes."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import rounddiag as rd
from rounddiag import plot_run
from rounddiag.errors import FrameError, LoadError
from tests.figures.plots import captions, shapes, words
from tests.runs.step_folders import (
    MEANS,
    STEPS,
    scaled_batch,
    summary_frame,
    write_steps,
)

NAN = math.nan


def lines_of(figure: Any) -> list[Any]:
    points = [one for one in figure.data if one.type == "scatter"]
    return [one for one in points if one.customdata is not None and one.x.size]


def test_a_line_per_round_over_the_steps() -> None:
    figure = plot_run(summary_frame())
    lines = lines_of(figure)
    assert [line.x.tolist() for line in lines] == [STEPS] * 3
    assert lines[0].y[:3].tolist() == pytest.approx([0.01, 0.011, 0.0095])
    assert lines[2].y[7:9].tolist() == pytest.approx([0.22, 0.19])
    name, text = lines[2].customdata[8]
    assert name == "step 90, round 2"
    assert text.startswith("mean 0.19 nat<br>95 % interval 0.095 to 0.38")
    assert figure.layout.yaxis.title.text == "mean |old − rollout| log-prob [nat]"
    assert figure.layout.xaxis.title.text == "training step"


def test_ribbons_are_the_intervals() -> None:
    figure = plot_run(summary_frame(), rounds=[0])
    lines = [one for one in figure.data if one.type == "scatter"]
    (ribbon,) = [one for one in lines if one.fill == "toself"]
    assert ribbon.x.tolist() == STEPS + STEPS[::-1]
    assert ribbon.y[:2].tolist() == pytest.approx([0.02, 0.022])
    assert ribbon.y[-1] == pytest.approx(0.005)


def test_a_mark_names_the_step_and_the_rounds_that_change() -> None:
    figure = plot_run(summary_frame())
    text = "┆ from step 80: rounds 1 to 2, round 1 most: 0.01 to 0.2 nat"
    assert text in captions(figure)
    (mark,) = [one for one in shapes(figure) if one.type == "line"]
    assert (mark.x0, mark.x1) == (75, 75)


def test_facts_that_change_are_triangles_with_both_values(tmp_path: Path) -> None:
    for step, version in ((1, "0.31"), (2, "0.31"), (4, "<b>0.32")):
        meta = {"facts": {"vllm": version, "tp": step // 3}}
        rd.save(replace(scaled_batch(step), meta=meta), tmp_path / f"{step}.parquet")
    run = rd.open_run(tmp_path)
    figure = plot_run(run)
    (mark,) = [one for one in figure.layout.annotations if one.text == "▽"]
    assert mark.x == 3
    assert mark.hovertext == (
        "from step 4: tp changes from 0 to 1<br>"
        "from step 4: vllm changes from 0.31 to &lt;b&gt;0.32"
    )
    assert "▽ from step 4: tp changes from 0 to 1" in captions(figure)


def test_the_heatmap_has_the_mean_of_each_step_and_round() -> None:
    rows = summary_frame()
    rows.loc[0, "mean"] = NAN  # step 10, round 0
    rows = rows.drop(index=[3])  # step 20, round 0
    heat = next(one for one in plot_run(rows).data if one.type == "heatmap")
    assert heat.x.tolist() == STEPS
    assert heat.z.shape == (3, 20)
    assert np.isnan(heat.z[0, :2]).all()
    assert heat.z[2, 7:9].tolist() == pytest.approx([0.22, 0.19])
    crosses = [one for one in plot_run(rows).data if one.type == "scatter"]
    crosses = [one for one in crosses if one.yaxis == "y2" and len(one.x)]
    assert [(one.x.tolist(), one.y.tolist()) for one in crosses] == [([10], [0])]


def test_step_0_stands_apart() -> None:
    figure = plot_run(summary_frame(first=3))
    points = [one for one in figure.data if one.type == "scatter"]
    diamonds = [one for one in points if one.marker.symbol == "diamond-open"]
    assert [one.x.tolist() for one in diamonds] == [[0]] * 3
    assert all(0 not in line.x for line in lines_of(figure) if len(line.x) > 1)
    assert "◇ step 0, before the first update" in captions(figure)


def test_the_band_is_the_usual_range_of_the_kind() -> None:
    figure = plot_run(summary_frame(), kind="vlm")
    (band,) = [one for one in shapes(figure) if one.type == "rect"]
    assert band.y1 == 0.03
    usual = "▒ usual: up to 0.03 nat (a dense vision-language model in bf16)"
    assert usual in captions(figure)


@pytest.mark.parametrize("metric", ["diff", "k3", "prob_diff"])
def test_a_metric_without_published_levels_has_no_band(metric: str) -> None:
    figure = plot_run(summary_frame(), metric=metric, kind="vlm")
    assert [one for one in shapes(figure) if one.type == "rect"] == []


def test_a_run_has_its_kind_and_its_panels(tmp_path: Path) -> None:
    run = rd.open_run(write_steps(tmp_path, {1: 1, 2: 2, 3: 1}))
    figure = plot_run(run, panels=["reward", "length"])
    assert "▒ usual: up to 0.02 nat (a dense model in bf16, assumed)" in captions(
        figure
    )
    assert lines_of(figure)[0].y.tolist() == pytest.approx(
        [MEANS[0], 2 * MEANS[0], MEANS[0]]
    )
    heads = [note.text for note in figure.layout.annotations]
    assert heads[0] == "mean reward: not in the files"
    assert heads[1] == "mean number of generated tokens per sample"
    length = next(one for one in figure.data if one.yaxis == "y3")
    assert length.y.tolist() == pytest.approx([8 / 3] * 3)


def test_steps_whose_rounds_are_unknown_are_said_first(tmp_path: Path) -> None:
    known, unknown = scaled_batch(1), scaled_batch(2)
    rd.save(known, tmp_path / "step_1.parquet")
    facts = {"rounds": "unknown", "mask_source": "attention_mask"}
    rd.save(
        replace(unknown, meta={**unknown.meta, **facts}), tmp_path / "step_2.parquet"
    )
    figure = plot_run(rd.open_run(tmp_path))
    note = "the rounds of 1 step are unknown: `rd.check(batch)` says why"
    assert captions(figure)[1].endswith(note)


def test_the_entropy_of_steps_is_beside_them_on_request(tmp_path: Path) -> None:
    for step in (1, 2):
        batch = scaled_batch(step)
        entropy = torch.full_like(batch.log_probs("old"), 0.5 * step)
        rd.save(replace(batch, entropy=entropy), tmp_path / f"step_{step}.parquet")
    figure = plot_run(rd.open_run(tmp_path), panels=["entropy"])
    (line,) = [one for one in figure.data if one.yaxis == "y2" and one.mode == "lines"]
    assert (line.x.tolist(), line.y.tolist()) == ([1, 2], [0.5, 1.0])


def test_the_legs_of_the_ratio_are_beside_them_on_request(tmp_path: Path) -> None:
    """At step 1 `old` is 0.5 nat above the rollout and the update 0.25 more."""
    for step in (1, 2):
        batch = scaled_batch(1)
        old = batch.log_probs("rollout") + step / 2
        scores = {"current": old + 0.25} if step == 1 else {}
        changed = replace(batch, old_log_probs=old, scores=scores)
        rd.save(changed, tmp_path / f"step_{step}.parquet")
    run = rd.open_run(tmp_path)
    rows = run.legs().set_index(["step", "leg"])["mean_log_ratio"]
    assert rows.to_dict() == {
        (1, "engine gap and staleness"): pytest.approx(0.5),
        (1, "update"): pytest.approx(0.25),
        (1, "whole"): pytest.approx(0.75),
        (2, "engine gap and staleness"): pytest.approx(1.0),
        (2, "whole"): pytest.approx(1.0),
    }
    figure = plot_run(run, panels=["legs"])
    first, second = (one for one in figure.data if one.yaxis == "y2" and one.name)
    assert (first.x.tolist(), first.y.tolist()) == ([1, 2], pytest.approx([0.5, 1.0]))
    assert (second.x.tolist(), second.y.tolist()) == ([1], pytest.approx([0.25]))
    lines = captions(figure)
    assert any("■ engine gap and staleness" in one for one in lines)
    assert any("gap and staleness are one leg" in one for one in lines)


def test_more_rounds_than_lines_are_chosen_evenly() -> None:
    rows = pd.concat([summary_frame().assign(round=round_) for round_ in range(20)])
    rows = rows.drop_duplicates(["step", "round"])
    figure = plot_run(rows)
    assert "round  ● 0  ● 3  ● 5  ● 8  ● 11  ● 14  ● 16  ● 19" in captions(figure)
    assert figure.layout.yaxis2.range == (19.5, -0.5)


def test_a_run_of_one_step_and_of_no_tokens(tmp_path: Path) -> None:
    one = rd.open_run(write_steps(tmp_path, {4: 1}))
    assert plot_run(one).layout.xaxis.range == (3.5, 4.5)
    (tmp_path / "empty").mkdir()
    rd.save(one.batch(4).where([False] * 3), tmp_path / "empty" / "step_4.parquet")
    empty = plot_run(rd.open_run(tmp_path / "empty"))
    assert "no generated tokens" in words(empty)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"metric": "kl"}, "`metric`: expected one of"),
        ({"rounds": [7]}, "`rounds`: expected 1 to 8 rounds from 0 to 2; found [7]"),
        ({"rounds": []}, "`rounds`: expected 1 to 8 rounds from 0 to 2; found []"),
        ({"panels": ["loss"]}, "`panels`: expected one of"),
        ({"panels": ["reward"]}, "`panels`: expected a Run"),
        ({"kind": "huge"}, "`kind`: expected one of"),
        ({"layers": {"ci": False}}, "`layers`: expected no such argument"),
    ],
)
def test_an_option_that_does_not_exist_is_an_error(
    options: dict[str, Any], message: str
) -> None:
    with pytest.raises(FrameError, match=re.escape(message)):
        plot_run(summary_frame(), **options)


def test_other_data_is_an_error() -> None:
    with pytest.raises(FrameError, match="expected a Run or its summary; found a str"):
        plot_run("folder")  # type: ignore[arg-type]
    message = "Build it with `rounddiag.open_run(folder).summary()`."
    with pytest.raises(FrameError, match=re.escape(message)):
        plot_run(pd.DataFrame({"step": [0]}))


def test_another_pair_of_scores(tmp_path: Path) -> None:
    for step in (1, 2):
        batch = scaled_batch(step)
        ref = batch.log_probs("rollout") - 0.125 * step
        rd.save(replace(batch, scores={"ref": ref}), tmp_path / f"step_{step}.parquet")
    run = rd.open_run(tmp_path)
    summary = run.summary(a="ref")
    assert summary["mean"].tolist() == [0.125, 0.125, 0.25, 0.25]
    assert run.summary()["mean"].tolist()[:2] == pytest.approx(MEANS)
    figure = plot_run(run, a="ref")
    assert lines_of(figure)[0].y.tolist() == [0.125, 0.25]
    assert figure.layout.yaxis.title.text == "mean |ref − rollout| log-prob [nat]"
    assert not any("usual" in line for line in captions(figure))
    of_frame = plot_run(summary, a="ref")
    assert of_frame.layout.yaxis.title.text == "mean |ref − rollout| log-prob [nat]"
    with pytest.raises(FrameError, match="found a frame of the pair"):
        plot_run(run.summary(), a="ref")
    with (
        pytest.warns(UserWarning, match="2 steps left out"),
        pytest.raises(LoadError, match="lora"),
    ):
        plot_run(run, a="lora")
