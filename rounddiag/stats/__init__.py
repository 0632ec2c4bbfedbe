"""What a round's number is worth: frames to frames, no torch and no pictures."""

from rounddiag.stats.cohorts import cohorts, survivors
from rounddiag.stats.conditional import conditional, standardised
from rounddiag.stats.samples import correlations, groups
from rounddiag.stats.summary import FEW_SAMPLES, round_summary, worst_round
from rounddiag.stats.truncation import truncation

__all__ = [
    "FEW_SAMPLES",
    "cohorts",
    "conditional",
    "correlations",
    "groups",
    "round_summary",
    "standardised",
    "survivors",
    "truncation",
    "worst_round",
]
