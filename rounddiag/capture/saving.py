"""What a trainer holds in memory -> our file."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rounddiag.capture.assembling import batch_of
from rounddiag.capture.fields import parts_of
from rounddiag.capture.screenshots import pictures_of, small_screenshots
from rounddiag.loaders.parquet import save

if TYPE_CHECKING:
    import os


def save_batch(
    data: Any,  # noqa: ANN401 verl's classes, which need not be installed
    path: str | os.PathLike[str],
    *,
    images: int = 8,
    step: int | None = None,
) -> None:
    """Save the batch of a training step, for `rounddiag.load`.

    Call it when both engines' log-probabilities are there and before anything changes
    `response_mask`: in verl, before its rollout correction. Fields are taken by name,
    so the pixels of a batch are neither copied nor written.

    Parameters
    ----------
    data : DataProto, TensorDict or mapping of str to Tensor
        Fields under verl's names: `responses`, `response_mask`, `rollout_log_probs`,
        `old_log_probs`, and of `prompts`, `attention_mask`, `entropys`, `rm_scores`,
        `uid` and others what there is. Padded or nested, on any device.
    path : path-like
        Where to write. A file that is there is replaced only by a whole one.
    images : int
        From how many samples, the first ones, the screenshots are kept, made small.
        They are rebuilt from `multi_modal_inputs` with Pillow; without Pillow none are.
    step : int, optional
        The trainer's global step, where `data` does not say it.

    Raises
    ------
    BatchError
        If a field is missing or does not fit; nothing is written then.

    Examples
    --------
    >>> import tempfile
    >>> import rounddiag as rd
    >>> import torch
    >>> data = {
    ...     "responses": torch.tensor([[5, 6]]),
    ...     "response_mask": torch.tensor([[1, 1]]),
    ...     "rollout_log_probs": torch.tensor([[-1.0, -2.0]]),
    ...     "old_log_probs": torch.tensor([[-1.5, -2.0]]),
    ... }
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_batch(data, f"{folder}/step_40.parquet", step=40)
    ...     rd.load(f"{folder}/step_40.parquet").step
    40
    """
    parts = parts_of(data)
    batch = batch_of(parts, step)
    pictures = dict(enumerate(map(pictures_of, parts.inputs[:images])))
    save(replace(batch, images=small_screenshots(batch, pictures)), path)
