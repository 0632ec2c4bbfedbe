"""The core: batches to tidy frames and scalars. torch in, pandas out, no files."""

from rounddiag.core.frames import (
    round_and_token_frames,
    round_frame,
    rounds_of_tokens,
    sample_frame,
    token_frame,
)

__all__ = [
    "round_and_token_frames",
    "round_frame",
    "rounds_of_tokens",
    "sample_frame",
    "token_frame",
]
