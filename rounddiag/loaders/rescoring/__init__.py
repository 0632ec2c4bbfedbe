"""Scores made elsewhere: tokens out to another engine, its log-probs back in."""

from rounddiag.loaders.rescoring.attach_scores import attach
from rounddiag.loaders.rescoring.rescore_request import export_rescore

__all__ = ["attach", "export_rescore"]
