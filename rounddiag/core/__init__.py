"""Batches to tidy frames and scalars: torch in, pandas out, no files.

================  ==================================================================
`frames`          `token_frame`, `round_frame`, `sample_frame`
`columns`         the columns of these frames, as arrays
`sums`            sums and maxima per round in one pass, on the CPU and on CUDA
`aggregation`     sums of runs, means, exact quantiles
`round_summary`   counts, means and quantiles of rounds, over all samples
`divergence`      diff, k1, k2, k3, chi2 of one token: one definition each, and the
                  metrics of `schema.METRICS` as functions of a token frame
`weights`         the weights by which corrections multiply the advantage of tokens
`loss_ratio`      which ratio the loss of a batch used, and with which correction
`corrections`     what corrections do to an update
`groups`          samples of one prompt: rewards, advantages, gradient weight
`legs`            the factors of the importance ratio: engine gap, staleness, update
`versions`        the versions of the weights that sampled each token, and their lag
`images_seen`     the column `num_images`: images that a sample had been shown before a
                  token
`picture_changes` the pictures before and after a round; the column `round_change`
`kept`            whether a batch is as it was when something of it was kept
`measured`        `Measured`: one value between batches or frames and what counts them
`scores`          the pair of scores that a batch or frame compares
`verl`            `metrics`: verl's formulas in float64; `reconcile`: logged numbers
                  against those of the saved batch
================  ==================================================================
"""

import rounddiag.core.images_seen
import rounddiag.core.picture_changes  # noqa: F401 both register columns
from rounddiag.core.columns import token_roles
from rounddiag.core.frames import (
    round_and_token_frames,
    round_frame,
    rounds_of_tokens,
    sample_frame,
    token_frame,
)
from rounddiag.core.sums import take_runs
from rounddiag.core.verl import metrics, reconcile

__all__ = [
    "metrics",
    "reconcile",
    "round_and_token_frames",
    "round_frame",
    "rounds_of_tokens",
    "sample_frame",
    "take_runs",
    "token_frame",
    "token_roles",
]
