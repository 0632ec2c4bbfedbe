"""Scores made elsewhere: tokens written out to be scored, and the scores read back."""

from rounddiag.loaders.scores.attaching import attach
from rounddiag.loaders.scores.rescore import export_rescore

__all__ = ["attach", "export_rescore"]
