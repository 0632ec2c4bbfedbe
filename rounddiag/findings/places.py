"""Where a finding is: its onset, samples, roles and the column values it follows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rounddiag.findings.view import Array, View


def places(view: View, indices: Array) -> dict[str, Any]:
    """Return where some tokens of a view are."""
    samples = np.unique(view.sample[indices])
    rounds = view.round[indices]
    return {
        "samples": samples,
        "rounds": (int(rounds.min()), int(rounds.max())) if len(rounds) else None,
    }


def place_clause(where: Mapping[str, Any], indices: Array, view: View) -> str:
    """Return the places as one clause."""
    num_samples = len(where["samples"])
    total = int((view.num_per_sample > 0).sum())
    if len(indices) == len(view):
        return "all tokens"
    return f"{len(indices)} tokens in {num_samples} of {total} samples"
