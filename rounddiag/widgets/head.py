"""What stands over an explorer: which batch, on how much data, what is wrong."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from rounddiag.batch.html import failed_checks, sources
from rounddiag.checks.words import count
from rounddiag.core import sample_frame
from rounddiag.core.open_columns import open_names
from rounddiag.figures.round_lines import MAX_LINES
from rounddiag.figures.round_options import LAYERS
from rounddiag.stats.ordering import Order
from rounddiag.stats.overall import overall
from rounddiag.text.tagging import ROLES
from rounddiag.widgets.state import AXES, METRICS

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd

    from rounddiag.batch import Batch


def head_of(batch: Batch, tokens: pd.DataFrame) -> dict[str, Any]:
    """Return name, step, counts, chips, failed checks and the verdict of a batch.

    Parameters
    ----------
    batch : Batch
    tokens : DataFrame
        The token frame of all of it, for the pair that is looked at.
    """
    diff = tokens["diff"].to_numpy()
    return {
        "name": name_of(batch),
        "step": batch.step,
        "num_samples": batch.num_samples,
        "num_rounds": batch.num_rounds,
        "num_tokens": batch.num_tokens,
        "chips": [*_chips(batch, diff)],
        "failed": failed_checks(batch.meta),
        "verdict": _verdict(diff),
    }


def name_of(batch: Batch) -> str:
    """Return the name of a batch's file, or a word for one that was never saved."""
    source = batch.meta.get("source")
    return PurePath(source).name if isinstance(source, str) else "batch"


def options_of(batch: Batch) -> dict[str, Any]:
    """Return what can be chosen in this batch."""
    samples = sample_frame(batch)
    lacking = {"reward": "reward" not in samples, "group": "group_id" not in samples}
    return {
        "batch": [0],
        "heatmap": ["batch"],
        "metric": [*METRICS],
        "order": [order for order in get_args(Order) if not lacking.get(order)],
        "scores": ["old", "rollout", *batch.scores],
        "by": [*_dividing(batch, samples)],
        "axis": [AXES[0], *(AXES[1:] if batch.images is not None else AXES[2:])],
        "layers": LAYERS,
        "groups": [*dict.fromkeys(batch.group_ids or ())],
        "roles": [] if batch.tokenizer is None or batch.is_redacted else [*ROLES],
        "samples": [*(batch.sample_ids or ())],
    }


def _dividing(batch: Batch, samples: pd.DataFrame) -> Iterator[str]:
    """Give the columns of samples and rounds that have a few values."""
    for name in dict.fromkeys([*open_names(batch), *samples.columns]):
        column = batch.round_columns.get(name, samples.get(name))
        if (
            column is not None
            and 1 < len(set(np.asarray(column).tolist())) <= MAX_LINES
        ):
            yield name


def _chips(batch: Batch, diff: np.ndarray[Any, Any]) -> Iterator[dict[str, Any]]:
    for label, value in sources(batch.meta).items():
        if label in ("mask", "old log-probs", "sampling"):
            yield {"label": label, "value": value, "tone": "plain"}
    facts = batch.meta.get("capture")
    if isinstance(facts, dict) and facts.get("num_saved"):
        share = f"{facts['num_saved']:,} of {facts.get('num_samples', '?'):,} samples"
        yield {"label": "saved", "value": share, "tone": "warn"}
    num = int((~np.isfinite(diff)).sum())
    tone = "warn" if num else "plain"
    yield {"label": "not finite", "value": count(num, "token"), "tone": tone}


def _verdict(diff: np.ndarray[Any, Any]) -> dict[str, Any]:
    """Say the signed mean, and how many tokens are far off."""
    found = overall(diff)
    if found is None:
        return {"value": "nothing can be compared", "tone": "warn"}
    return {"value": str(found), "tone": "warn" if found.share_far else "plain"}
