"""The onset as a change point, and untrusted text."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import rounddiag as rd
from tests.figures.plots import words
from tests.findings.small import arrays, made, rounds_of, shaken

FAULT = 0.3


@pytest.mark.parametrize("first", [1, 2, 3])
def test_the_onset_is_the_first_round_that_differs(first: int) -> None:
    parts = arrays()
    late = rounds_of(parts) >= first
    shaken(parts, late, FAULT)
    batch = made(parts)
    onset = rd.diagnose(batch).onset
    assert onset is not None
    assert (onset.low, onset.round, onset.high) == (first, first, first)
    size, mask = np.abs(parts["old"] - parts["rollout"]), parts["mask"] > 0
    assert onset.before == pytest.approx(size[mask & ~late].mean(), rel=1e-5)
    assert onset.after == pytest.approx(size[mask & late].mean(), rel=1e-5)


def test_a_worst_round_is_no_onset() -> None:
    parts = arrays()
    assert rd.diagnose(made(parts)).onset is None
    shaken(parts, np.ones_like(parts["mask"], dtype=bool), FAULT)
    assert rd.diagnose(made(parts)).onset is None


def test_an_onset_that_varies_over_samples_has_an_interval() -> None:
    parts = arrays(24, noise=0.02)
    starts = np.where(np.arange(24) % 12 < 3, 1, 2)[:, None]
    shaken(parts, rounds_of(parts) >= starts, 0.1)
    onset = rd.diagnose(made(parts)).onset
    assert onset is not None
    assert onset.low <= onset.round <= onset.high
    assert (onset.low, onset.high) == (1, 2)


@pytest.mark.parametrize(("kind", "first"), [("dense", 2), ("nvfp4", None)])
def test_the_onset_is_judged_by_the_range_of_the_kind(
    kind: str, first: int | None
) -> None:
    # 1.9 times the noise: above what is usual for bfloat16, but not for four bits.
    parts = arrays(noise=0.06)
    shaken(parts, rounds_of(parts) >= 2, 0.1)
    batch = made(parts, meta={"facts": {"kind": kind}})
    onset = rd.diagnose(batch).onset
    assert (None if onset is None else onset.round) == first
    assert len(rd.places(batch)) == (first is not None)


def test_figure_and_summary_name_the_onset_in_place_of_the_worst_round() -> None:
    from rounddiag.cli.summary import describe

    parts = arrays()
    shaken(parts, rounds_of(parts) >= 2, FAULT)
    batch = made(parts)
    onset = rd.diagnose(batch).onset
    title = words(rd.plot_rounds(batch, onset=onset))
    assert "onset: round 2 (95 %: this round alone)" in title
    assert "worst" not in title
    text = describe(batch)
    assert "onset: round 2 (95 % interval: this round alone), mean |diff| " in text
    assert "worst round" not in text


def test_names_of_a_file_command_no_terminal() -> None:
    parts = arrays()
    rank = np.array(["a", "b", "c", "\x1b[2J"])[np.arange(32) % 4]
    shaken(parts, (rank == "\x1b[2J")[:, None] & (parts["mask"] > 0), 3 * FAULT)
    diagnosis = rd.diagnose(made(parts, sample_columns={"rank": rank}))
    for text in (repr(diagnosis), diagnosis._repr_html_(), repr(diagnosis[0])):
        assert "\x1b" not in text
    assert "\\x1b[2J" in repr(diagnosis)


def _placed(axes: list[list[int]]) -> rd.Batch:
    """One round of 6 tokens after a prompt with an image of 8 tokens."""
    ids, mask = torch.arange(10, 16), torch.ones(6, dtype=torch.int64)
    generator = torch.Generator().manual_seed(0)
    old = [-torch.rand(6, generator=generator) for _ in range(3)]
    return rd.Batch.from_rows(
        response_ids=[ids] * 3,
        response_mask=[mask] * 3,
        rollout_log_probs=[1.1 * values for values in old],
        old_log_probs=old,
        prompt_ids=[torch.tensor([5, *[7] * 8, 6])] * 3,
        position_ids=[torch.tensor(axes)] * 3,
        round_columns={
            "sample": np.arange(3),
            "round": np.zeros(3, dtype=int),
            "num_images": np.ones(3, dtype=int),
        },
    )


def test_position_ids_that_no_processor_gives() -> None:
    image = [[1] * 8, [1, 1, 1, 1, 2, 2, 2, 2], [1, 2, 3, 4] * 2]
    sound = [[0, *grid, *range(5, 12)] for grid in image]
    causes = [finding.cause for finding in rd.diagnose(_placed(sound))]
    assert "position_ids" not in causes
    plain = [list(range(16))] * 3
    causes = [finding.cause for finding in rd.diagnose(_placed(plain))]
    assert "position_ids" in causes
    moved = [sound[0], *([*row[:10], *range(9, 15)] for row in sound[1:])]
    by_cause = {finding.cause: finding for finding in rd.diagnose(_placed(moved))}
    assert by_cause["position_ids"].num_tokens == 18
