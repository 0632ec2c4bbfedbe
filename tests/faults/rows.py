"""Rows of a batch as plain arrays: what the cache holds and what faults change."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, fields, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch

import rounddiag as rd
from rounddiag.vision import EncodedScreenshot

Array = np.ndarray[Any, Any]
TOKENIZER = Path("sample_data/tokenizer.json")
NUM_RANKS = 4
STEP = 40

OPTIONAL = ("entropy", "groups", "ranks", "versions", "images", "tokenizer", "places")
"""Columns that a batch may be made with or without."""


@dataclass(frozen=True)
class Rows:
    """Trajectories: one array a row in every field; NaN where a value is unknown.

    `ids`, `mask`, `rollout`, `old` and `entropy` cover the response, `prompt` the ids
    before it; `places` are M-RoPE positions [3, prompt and response].
    """

    ids: list[Array]
    mask: list[Array]
    rollout: list[Array]
    old: list[Array]
    entropy: list[Array]
    prompt: list[Array]
    group: list[str]
    reward: list[float]
    shots: list[list[bytes]] = field(default_factory=list)
    places: list[Array] = field(default_factory=list)
    rollout_ids: list[Array] = field(default_factory=list)
    sample_columns: dict[str, Array] = field(default_factory=dict)
    version: list[Array] = field(default_factory=list)
    current: list[Array] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def is_one_round(self) -> bool:
        """Whether no row has a second round."""
        return all(first_of_rounds(mask).sum() < 2 for mask in self.mask)

    def take(self, which: Iterable[int]) -> Rows:
        """Return some of the rows; a row may come twice."""
        found = list(which)
        changed: dict[str, Any] = {}
        for item in fields(self):
            values = getattr(self, item.name)
            if isinstance(values, dict):
                changed[item.name] = {
                    name: column[found] for name, column in values.items()
                }
            else:
                changed[item.name] = [values[i] for i in found] if values else []
        return Rows(**changed)

    def cut(self, lengths: Iterable[int]) -> Rows:
        """Keep the first positions of each response, and the screenshots in them."""
        ends = list(lengths)
        changed: dict[str, Any] = {
            name: [row[:end] for row, end in zip(values, ends, strict=True)]
            for name in (
                "ids",
                "mask",
                "rollout",
                "old",
                "entropy",
                "version",
                "current",
            )
            if (values := getattr(self, name))
        }
        found = replace(self, **changed)
        if self.shots:
            counts = [int(first_of_rounds(mask).sum()) for mask in found.mask]
            shots = [one[:count] for one, count in zip(self.shots, counts, strict=True)]
            found = replace(found, shots=shots)
        if self.places:
            places = [
                one[:, : len(prompt) + end]
                for one, prompt, end in zip(self.places, self.prompt, ends, strict=True)
            ]
            found = replace(found, places=places)
        return found

    def first_round(self) -> Rows:
        """Cut every row after its first round."""
        ends = [int(np.argmin([*mask, False])) for mask in self.mask]
        return self.cut(ends)

    def change(self, name: str, edit: Callable[[int, Array], Array]) -> Rows:
        """Return the rows with one field changed, row by row."""
        values = [edit(i, one.copy()) for i, one in enumerate(getattr(self, name))]
        changed: dict[str, Any] = {name: values}
        return replace(self, **changed)

    def mean_abs_diff(self, where: list[Array] | None = None) -> float:
        """Return mean |old - rollout| over generated tokens, or over some of them."""
        total, count = 0.0, 0
        for i, mask in enumerate(self.mask):
            kept = mask.astype(bool) if where is None else where[i]
            diff = np.abs(self.old[i][kept].astype(float) - self.rollout[i][kept])
            finite = diff[np.isfinite(diff)]
            total += float(finite.sum())
            count += len(finite)
        return total / max(count, 1)

    def save(self, path: Path) -> None:
        """Write an npz file."""
        path.parent.mkdir(parents=True, exist_ok=True)
        arrays: dict[str, Array] = {}
        for item in fields(self):
            values = getattr(self, item.name)
            if not values:
                continue
            if item.name == "shots":
                arrays["shots.counts"] = np.array([len(one) for one in values])
                flat = [data for one in values for data in one]
                arrays["shots.sizes"] = np.array([len(data) for data in flat])
                arrays["shots"] = np.frombuffer(b"".join(flat), np.uint8)
            elif item.name == "sample_columns":
                for name, column in values.items():
                    arrays[f"column.{name}"] = column
            elif item.name in ("group", "reward"):
                arrays[item.name] = np.array(values)
            else:
                arrays[f"{item.name}.sizes"] = np.array(
                    [one.shape[-1] for one in values]
                )
                arrays[item.name] = np.concatenate(values, axis=-1)
        np.savez(path, **arrays)  # type: ignore[arg-type]

    @classmethod
    def load(cls, path: Path) -> Rows:
        """Read an npz file."""
        with np.load(path) as file:
            arrays = dict(file)
        found: dict[str, Any] = {"sample_columns": {}}
        for item in fields(cls):
            if item.name not in arrays:
                continue
            values = arrays[item.name]
            if item.name == "shots":
                ends = np.cumsum(arrays["shots.sizes"])
                flat = [part.tobytes() for part in np.split(values, ends[:-1])]
                counts = np.cumsum([0, *arrays["shots.counts"]])
                found["shots"] = [flat[a:b] for a, b in pairwise(counts)]
            elif item.name in ("group", "reward"):
                found[item.name] = values.tolist()
            else:
                ends = np.cumsum(arrays[f"{item.name}.sizes"])
                found[item.name] = np.split(values, ends[:-1], axis=-1)
        for name, column in arrays.items():
            if name.startswith("column."):
                found["sample_columns"][name.removeprefix("column.")] = column
        return cls(**found)


def first_of_rounds(mask: Array) -> Array:
    """Mark the first token of every round."""
    before = np.concatenate([[False], mask[:-1].astype(bool)])
    return np.asarray(mask.astype(bool) & ~before)


def round_bounds(mask: Array) -> list[tuple[int, int]]:
    """Return where each round begins and ends."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], mask.astype(int), [0]])))
    return [(int(a), int(b)) for a, b in edges.reshape(-1, 2)]


def to_batch(rows: Rows, columns: Collection[str], **meta: object) -> rd.Batch:
    """Return the batch, with those of the `OPTIONAL` columns that are asked for."""
    others: dict[str, Any] = {}
    sample_columns = dict(rows.sample_columns)
    if "entropy" in columns:
        others["entropy"] = _tensors(rows.entropy, torch.float32)
    if "groups" in columns:
        others["group_ids"] = list(rows.group)
        others["rewards"] = torch.tensor(rows.reward)
    if "ranks" in columns and "rank" not in sample_columns:
        sample_columns["rank"] = np.arange(len(rows)) * NUM_RANKS // len(rows)
    if "tokenizer" in columns:
        others["tokenizer"] = TOKENIZER
        others["prompt_ids"] = _tensors(rows.prompt, torch.int64)
    if "images" in columns and rows.shots:
        others["images"] = [
            tuple(EncodedScreenshot(data=data, round=i) for i, data in enumerate(one))
            for one in rows.shots
        ]
    if "places" in columns and rows.places:
        others["position_ids"] = [torch.tensor(one) for one in rows.places]
        others["prompt_ids"] = _tensors(rows.prompt, torch.int64)
    if rows.rollout_ids:
        others["rollout_ids"] = [torch.tensor(one).long() for one in rows.rollout_ids]
    if rows.current:
        others["scores"] = {"current": _tensors(rows.current, torch.float32)}
    round_columns = _round_columns(rows, columns)
    return rd.Batch.from_rows(
        response_ids=_tensors(rows.ids, torch.int64),
        response_mask=_tensors(rows.mask, torch.int64),
        rollout_log_probs=_tensors(rows.rollout, torch.float32),
        old_log_probs=_tensors(rows.old, torch.float32),
        step=STEP,
        sample_columns=sample_columns,
        round_columns=round_columns,
        meta={"mask_source": "response_mask", **meta},
        **others,
    )


def _round_columns(rows: Rows, columns: Collection[str]) -> dict[str, Array]:
    found: dict[str, list[int]] = {"sample": [], "round": []}
    has_versions = "versions" in columns and bool(rows.version)
    has_images = "images" in columns and bool(rows.shots)
    for sample, mask in enumerate(rows.mask):
        for round_, (_, end) in enumerate(round_bounds(mask)):
            found["sample"].append(sample)
            found["round"].append(round_)
            if has_versions:
                version = int(rows.version[sample][end - 1])
                found.setdefault("weight_version", []).append(version)
            if has_images:
                num_seen = min(round_ + 1, len(rows.shots[sample]))
                found.setdefault("num_images", []).append(num_seen)
    if len(found) == 2:
        return {}
    return {name: np.array(values) for name, values in found.items()}


def _tensors(values: list[Array], dtype: torch.dtype) -> list[torch.Tensor]:
    return [torch.as_tensor(one).to(dtype) for one in values]
