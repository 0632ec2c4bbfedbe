"""The core: batches to tidy frames and scalars. torch in, pandas out, no files."""

from rounddiag.core.columns import token_roles
from rounddiag.core.frames import (
    round_and_token_frames,
    round_frame,
    rounds_of_tokens,
    sample_frame,
    token_frame,
)
from rounddiag.core.reconciliation import reconcile
from rounddiag.core.sums_cpu import take_runs
from rounddiag.core.verl import metrics

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
