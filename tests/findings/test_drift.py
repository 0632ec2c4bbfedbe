"""The policy of a step before and after its updates."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from rounddiag import Batch, diagnose, round_summary
from rounddiag.findings import REFERENCE
from tests.findings.small import arrays, literal, made


def drifted(size: float) -> Batch:
    """A sound batch after an update that moves each id its own way."""
    batch = made(arrays(noise=0.005))
    shift = torch.from_numpy(np.random.default_rng(3).normal(0, size, 60)).float()
    moved = batch.log_probs("old") + shift[batch.require_ids() % 60]
    current = torch.where(batch.response_mask > 0, moved, 0).clamp(max=0)
    return replace(batch, scores={"current": current})


def test_drift_has_its_own_range_and_words() -> None:
    diagnosis = diagnose(drifted(0.03), a="current", b="old")

    assert (diagnosis.kind, diagnosis.kind_is_assumed) == ("update", False)
    assert diagnosis.reference is REFERENCE["update"]
    assert diagnosis.verdict == "healthy"
    assert diagnosis.headline.startswith("Drift within the step: mean |diff| is 0.02")
    assert "micro-batches" in diagnosis.advice  # nothing says that there was an update


def test_a_large_drift_is_above_the_range_and_no_older_weights() -> None:
    diagnosis = diagnose(drifted(0.15), a="current", b="old")

    assert diagnosis.verdict in ("noisy", "suspicious")
    assert "weights" not in diagnosis.text
    assert "clip_share" in diagnosis.advice
    assert diagnose(drifted(0.15)).kind == "dense"


def test_no_update_yet() -> None:
    batch = made(arrays())
    batch = replace(batch, scores={"current": batch.log_probs("old").clone()})

    diagnosis = diagnose(batch, a="current", b="old")

    assert diagnosis.verdict == "identical"
    assert "no update yet, or a copy" in diagnosis.headline


def test_the_clip_share_of_a_round() -> None:
    ratios = np.array([[0.79, 0.81, 1.0, 1.19, 1.21]])
    batch = literal(np.log(ratios / 4).tolist(), [[np.log(0.25)] * 5])

    summary = round_summary(batch, metric="clip_share")

    assert summary["mean"].tolist() == [2 / 5]
