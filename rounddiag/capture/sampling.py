"""Which samples of a step keep their screenshots, and copies of these screenshots."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rounddiag._typing import Array
from rounddiag.batch import Batch
from rounddiag.batch.picture_places import ImagePlace, image_places
from rounddiag.capture.trainer_batch import TrainerBatch
from rounddiag.core.groups import trajectory_numbers
from rounddiag.core.sums import cpu_totals
from rounddiag.loaders.assembly.images import rows_in_memory
from rounddiag.loaders.field_reader import FieldReader
from rounddiag.segmentation import find_rounds
from rounddiag.vision import EncodedScreenshot, PatchScreenshot, patch_screenshots

Screenshots = tuple[PatchScreenshot, ...]
RANDOM, WORST = "random", "worst"
_COLOURS, _FRAMES = 3, 2  # of a patch; both frames of a screenshot are equal


@dataclass(frozen=True, kw_only=True)
class SampleOrder:
    """The trajectories of a step's file in two orders, of which any number is picked.

    Where no column names them, each sample is one.

    Attributes
    ----------
    random: A random permutation, independent of the log-probs, as far as the file has
        room.
    worst: By mean |diff|, largest first; those without a finite diff come last.
    trajectory: The number of each sample's trajectory.
    """

    random: Array
    worst: Array
    trajectory: Array

    def pick(self, count: int) -> dict[int, str]:
        """Pick samples: half at random, and the worst half of the others.

        Trajectories are picked whole, so that there can be more than `count`. A larger
        `count` picks the same samples and more.
        """
        sizes = np.bincount(self.trajectory)
        drawn = _up_to(self.random, sizes, (count + 1) // 2)
        worst = _up_to(self.worst[~np.isin(self.worst, drawn)], sizes, count // 2)
        return {
            **dict.fromkeys(self._samples_of(worst), WORST),
            **dict.fromkeys(self._samples_of(drawn), RANDOM),
        }

    def first(self, count: int | None) -> SampleOrder:
        """Keep a random part, of as many samples at most, but at least a trajectory."""
        if count is None:
            return self
        sizes = np.bincount(self.trajectory)[self.random].cumsum()
        random = self.random[: max(np.searchsorted(sizes, count, side="right"), 1)]
        return replace(
            self, random=random, worst=self.worst[np.isin(self.worst, random)]
        )

    @property
    def samples(self) -> list[int]:
        """The samples that the file has room for."""
        return self._samples_of(self.random)

    def _samples_of(self, trajectories: Array) -> list[int]:
        rank = np.full(int(self.trajectory.max(initial=-1)) + 1, len(trajectories))
        rank[trajectories] = np.arange(len(trajectories))
        order = np.argsort(rank[self.trajectory], kind="stable")
        num = int((rank[self.trajectory] < len(trajectories)).sum())
        return [*map(int, order[:num])]


def _up_to(trajectories: Array, sizes: Array, count: int) -> Array:
    before = sizes[trajectories].cumsum() - sizes[trajectories]
    return trajectories[before < count]


def order_samples(batch: TrainerBatch, seed: tuple[int, ...]) -> SampleOrder:
    """Order the trajectories of a step."""
    num_samples = FieldReader(batch.fields, batch.source).num_samples
    group = batch.columns.get("uid", np.zeros(num_samples))
    trajectory = trajectory_numbers(batch.columns, np.asarray(group))
    means = mean_abs_diffs(batch, trajectory)
    return SampleOrder(
        random=np.random.default_rng(seed).permutation(len(means)),
        worst=np.argsort(-means, kind="stable"),
        trajectory=trajectory,
    )


def mean_abs_diffs(batch: TrainerBatch, trajectory: Array) -> Array:
    """Return the mean |diff| of each trajectory's finite tokens, -1 without any."""
    reader = FieldReader(batch.fields, batch.source)
    rounds = find_rounds(reader.mask()[0], reader.tokens.offsets)
    owner = trajectory[rounds.sample.numpy()]
    num = int(trajectory.max(initial=-1)) + 1
    totals = cpu_totals(rounds, *reader.both_log_probs()).sum_by_group(owner, num)
    num_tokens = np.bincount(owner, rounds.num_tokens.numpy(), num)
    num_finite = num_tokens - totals.num_nonfinite
    means = np.full(num, -1.0)
    np.divide(totals.abs_diff, num_finite, out=means, where=num_finite > 0)
    return means


def view_screenshots(image_inputs: Any) -> Screenshots:  # noqa: ANN401 a dictionary, or a class of transformers
    """Return the screenshots of a sample, as views of the trainer's pixels."""
    pixels = _tensor(image_inputs, "pixel_values")
    grid = _tensor(image_inputs, "image_grid_thw")
    if pixels is None or grid is None:
        return ()
    grids = [(t, h, w) for t, h, w in grid.reshape(-1, 3).tolist()]
    return patch_screenshots(partial(rows_in_memory, pixels), pixels.shape, grids) or ()


def _tensor(row: Any, name: str) -> Tensor | None:  # noqa: ANN401 as above
    value = row[name] if hasattr(row, "keys") and name in row.keys() else None  # noqa: SIM118 BatchFeature
    return value if isinstance(value, torch.Tensor) else None


def copy_screenshots(image_inputs: Any, max_bytes: int) -> Screenshots | None:  # noqa: ANN401 as above
    """Copy the screenshots of a sample, one frame of each in bfloat16."""
    screenshots = view_screenshots(image_inputs)
    if sum(map(num_copied_bytes, screenshots)) > max_bytes:
        return None
    return tuple(
        replace(
            shot,
            patches=partial(_both_frames, _one_frame(shot.patches())),
            rows=None,  # of the trainer's memory
        )
        for shot in screenshots
    )


def num_copied_bytes(screenshot: PatchScreenshot) -> int:
    """Return how many bytes `copy_screenshots` needs for a screenshot."""
    width, height = screenshot.size
    frames = screenshot.grid_thw[0]
    return frames * width * height * _COLOURS * torch.bfloat16.itemsize


def _one_frame(patches: Tensor) -> Tensor:
    frames = patches.reshape(len(patches), _COLOURS, _FRAMES, -1)
    return frames[:, :, 0].to(torch.bfloat16, copy=True)


def _both_frames(frame: Tensor) -> Tensor:
    return frame[:, :, None].expand(-1, -1, _FRAMES, -1).flatten(1)


def encode_screenshots(
    batch: Batch,
    screenshots: Mapping[int, Sequence[PatchScreenshot]],
    exact: Collection[int] = (),
) -> tuple[tuple[EncodedScreenshot, ...], ...] | None:
    """Encode the screenshots of some samples: as small JPEGs, the exact ones as PNG."""
    if not any(screenshots.values()) or not _has_pillow():
        return None
    return tuple(
        _encode_sample(
            batch, sample, screenshots.get(sample, ()), is_exact=sample in exact
        )
        for sample in range(batch.num_samples)
    )


def _has_pillow() -> bool:
    try:
        import PIL  # noqa: F401 only whether it is installed
    except ImportError:
        return False
    return True


def _encode_sample(
    batch: Batch, sample: int, screenshots: Sequence[PatchScreenshot], *, is_exact: bool
) -> tuple[EncodedScreenshot, ...]:
    sizes = [shot.num_image_tokens for shot in screenshots]
    encode = partial(_encode, is_exact=is_exact)
    return tuple(map(encode, screenshots, image_places(batch, sample, sizes)))


def _encode(
    screenshot: PatchScreenshot, place: ImagePlace, *, is_exact: bool
) -> EncodedScreenshot:
    data = screenshot.png() if is_exact else screenshot.small_jpeg()
    return EncodedScreenshot(data=data, seen_size=screenshot.size, **place._asdict())
