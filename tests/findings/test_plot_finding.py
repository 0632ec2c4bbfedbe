"""The figure of a finding."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

import rounddiag as rd
from rounddiag.errors import FrameError
from rounddiag.figures._parts.canvas import LIGHT
from rounddiag.findings.finding import exhibit
from tests.figures.plots import shapes, words
from tests.findings.small import arrays, made, rounds_of, shaken


def test_rounds_show_their_means_and_the_onset() -> None:
    parts = arrays()
    shaken(parts, rounds_of(parts) >= 2, 0.3)
    finding = rd.diagnose(made(parts))[0]
    chart = exhibit(finding)
    diff = np.abs(parts["old"] - parts["rollout"])[parts["mask"] > 0].reshape(32, 4, 20)
    assert chart.frame["x"].tolist() == [0, 1, 2, 3]
    np.testing.assert_allclose(chart.frame["y"], diff.mean((0, 2)), rtol=1e-4)
    assert chart.frame["inside"].tolist() == [False, False, True, True]
    figure = rd.plot_finding(finding)
    assert shapes(figure)[0].x0 == 1.5
    means = {trace.name: trace for trace in figure.data if trace.name}
    assert [*means] == ["others", "finding"]
    assert means["finding"].x.tolist() == [2, 3]


def test_means_of_rounds_have_the_intervals_and_counts_of_the_summary() -> None:
    parts = arrays()
    shaken(parts, rounds_of(parts) >= 2, 0.3)
    batch = made(parts)
    figure = rd.plot_finding(rd.diagnose(batch)[0])
    summary = rd.round_summary(batch)
    means = next(trace for trace in figure.data if trace.name == "finding")
    for bars, end in (("array", "ci_high"), ("arrayminus", "ci_low")):
        width = np.abs(summary[end] - summary["mean"])[2:]
        np.testing.assert_allclose(means.error_y[bars], width, rtol=1e-3)
    counts = [trace for trace in figure.data if trace.type == "bar"]
    # Rounds 0 and 1, and rounds 2 and 3, which the finding has.
    assert [bar.y.tolist() for bar in counts] == [[32] * 2, [640] * 2] * 2
    others, own = LIGHT.quiet, LIGHT.mark
    assert [bar.marker.color for bar in counts] == [others, others, own, own]


def test_the_title_says_what_is_seen_and_the_cause_stands_below() -> None:
    finding = rd.diagnose(rd.load("sample_data/stale.parquet"))[0]
    title, *lines = words(rd.plot_finding(finding)).split("</b>")
    seen = title.removeprefix("<b>").replace("<br>", " ")
    assert seen.lower() == finding.location.lower()
    cause = "<br>fact: older weights in the sampler (stale_weights)<br>"
    assert lines[0].startswith(cause)
    assert (
        f'<span style="color:{LIGHT.mark}">◆</span> samples of the finding' in lines[0]
    )


def test_a_finding_without_a_cause_says_so() -> None:
    parts = arrays()
    shaken(parts, rounds_of(parts) >= 2, 0.3)
    title = words(rd.plot_finding(rd.diagnose(made(parts))[0]))
    assert "</b><br>place: cause not known<br>" in title


def test_unknown_rounds_are_said_before_the_finding_and_the_verdict() -> None:
    parts = arrays()
    shaken(parts, rounds_of(parts) >= 2, 0.3)
    meta = {"rounds": "unknown", "mask_source": "attention_mask"}
    diagnosis = rd.diagnose(made(parts, meta=meta))
    note = "the rounds are unknown: `rd.check(batch)` says why"
    title = words(rd.plot_finding(diagnosis[0]))
    assert title.partition("</b><br>")[2].startswith(note)
    assert diagnosis.text.startswith(
        "The rounds are unknown, and observations count as generated tokens "
    )
    assert not rd.diagnose(made(parts)).caveat


def test_samples_of_a_worker_are_marked() -> None:
    parts = arrays()
    rank = np.arange(32) % 4
    shaken(parts, (rank == 1)[:, None] & (parts["mask"] > 0), 0.3)
    finding = rd.diagnose(made(parts, sample_columns={"rank": rank}))[0]
    chart = exhibit(finding)
    assert chart.axis == "sample"
    assert np.flatnonzero(chart.frame["inside"]).tolist() == list(range(1, 32, 4))


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_other_causes_show_the_diff_over_the_log_prob(theme: str) -> None:
    parts = arrays()
    parts["rollout"][:, -1], parts["old"][:, -1] = 0.0, -np.linspace(1, 3, 32)
    finding = rd.diagnose(made(parts))[0]
    figure = rd.plot_finding(finding, theme=theme)  # type: ignore[arg-type]
    assert figure.layout.xaxis.title.text == "log-prob by the sampling engine [nat]"
    assert figure.layout.yaxis.title.text == "old − rollout log-prob [nat]"
    assert set(figure.data[1].x) == {0.0}
    assert len(figure.data[0].x) + len(figure.data[1].x) == 32 * 80
    assert "filled_log_probs" in words(figure)


def test_a_value_of_the_file_cannot_put_tags_into_the_caption() -> None:
    parts = arrays()
    shaken(parts, rounds_of(parts) >= 2, 0.3)
    finding = rd.diagnose(made(parts))[0]
    named = replace(finding, location='all in `rank` = <a href="x">3</a>\x1b[1m\n')
    lines = words(rd.plot_finding(named))
    assert 'All in `rank` = &lt;a href="x"&gt;3&lt;/a&gt;' in lines.replace("<br>", " ")
    assert "<a" not in lines
    assert "\x1b" not in lines


def test_something_else_than_a_finding_is_an_error() -> None:
    diagnosis = rd.diagnose(made(arrays()))
    message = (
        "expected a Finding; found a Diagnosis. Pass an item of"
        " `rounddiag.diagnose(batch)`, such as its first."
    )
    with pytest.raises(FrameError, match=f"^{re.escape(message)}$"):
        rd.plot_finding(diagnosis)  # type: ignore[arg-type]


def test_a_diagnosis_without_findings_says_so_instead_of_a_bare_error() -> None:
    diagnosis = rd.diagnose(rd.load("sample_data/healthy.parquet"))
    message = (
        "expected the number of one of 0 findings; found 0. The verdict is 'healthy':"
        " `diagnosis.text` has it."
    )
    with pytest.raises(IndexError, match=f"^{re.escape(message)}$"):
        rd.plot_finding(diagnosis[0])
    assert list(diagnosis) == []
