"""What a round's number is worth: frames to frames, no torch and no pictures."""

from rounddiag.stats.summary import round_summary, worst_round

__all__ = ["round_summary", "worst_round"]
