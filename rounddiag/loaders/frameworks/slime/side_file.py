"""slime's rollout file, which lies beside a train file and says more of its samples."""

from __future__ import annotations

import reprlib
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rounddiag.errors import LoadError
from rounddiag.loaders.files.content import names_of, read_root
from rounddiag.loaders.frameworks.slime.samples import dictionaries
from rounddiag.loaders.frameworks.slime.values import whole
from rounddiag.loaders.source import Source

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    Sample = Mapping[str, Any]

MAX_ROLLOUT_ID = 1 << 63


@dataclass(frozen=True, kw_only=True)
class RolloutFile:
    """What a rollout file says of the samples of a train file.

    Attributes
    ----------
    samples : list of mapping
        In the order of the train file's.
    source : Source
    num_others : int
        How many of its rollouts are not among the samples.
    """

    samples: list[Sample]
    source: Source
    num_others: int


def rollout_file(
    train_file: Path, rollout_id: object, samples: Sequence[Sample]
) -> RolloutFile | None:
    """Return what lies at `../rollout_data/{rollout_id}.pt` of a train file, if any.

    Raises
    ------
    LoadError
        If it cannot be read, or is of other samples.
    """
    place = neighbour(train_file, "rollout_data", rollout_id)
    if place is None:
        return None
    source = Source.of_file(place)
    rollouts = _rollouts(source, rollout_id)
    positions = _positions(samples, rollouts)
    if len(positions) < len(samples) or _others(samples, rollouts, positions):
        raise _foreign(source, "other samples")
    return RolloutFile(
        samples=[rollouts[position] for position in positions],
        source=source,
        num_others=len(rollouts) - len(set(positions)),
    )


def neighbour(file: Path, folder: str, rollout_id: object) -> Path | None:
    """Return the file of a rollout in a folder beside that of `file`, if there is one.

    Raises
    ------
    LoadError
        If it is a link that leads out of the dump.
    """
    if not isinstance(rollout_id, int) or not 0 <= rollout_id < MAX_ROLLOUT_ID:
        return None
    place = file.parent.parent / folder / f"{rollout_id:d}.pt"
    if not place.is_file():
        return None
    if not place.resolve().is_relative_to(file.parent.parent.resolve()):
        raise LoadError.build(
            file=place,
            expected="a file in the folder of the dump",
            found="a link that leads out of it",
            advice="Copy the file to its place.",
        )
    return place


def _rollouts(source: Source, rollout_id: object) -> Sequence[Sample]:
    root = read_root(source)
    if not isinstance(root, dict) or not {"rollout_id", "samples"} <= {*names_of(root)}:
        raise _foreign(source, "something else")
    if root["rollout_id"] != rollout_id:
        raise _foreign(source, f"rollout {reprlib.repr(root['rollout_id']):.40}")
    return dictionaries(root["samples"], source)


def _foreign(source: Source, found: str) -> LoadError:
    return source.error(
        expected="the rollouts that the train file was made of",
        found=found,
        advice="Keep `train_data` and `rollout_data` of one run together.",
    )


def _positions(samples: Sequence[Sample], rollouts: Sequence[Sample]) -> list[int]:
    """Return where each sample is among the rollouts, as far as that is known.

    Older files do not say where; there the index of a rollout does, if it is its own.
    """
    indices = [whole(rollout.get("index")) for rollout in rollouts]
    count = Counter(indices)
    known = {index: at for at, index in enumerate(indices) if count[index] == 1}
    known.pop(None, None)
    found = [
        whole(
            sample.get("rollout_position", known.get(whole(sample.get("sample_index"))))
        )
        for sample in samples
    ]
    return [n for n in found if n is not None and 0 <= n < len(rollouts)]


def _others(
    samples: Sequence[Sample], rollouts: Sequence[Sample], positions: Sequence[int]
) -> bool:
    """Whether a rollout has another index than the sample in its place."""
    pairs = [
        (whole(sample.get("sample_index")), whole(rollouts[position].get("index")))
        for sample, position in zip(samples, positions, strict=True)
    ]
    return any(None not in pair and pair[0] != pair[1] for pair in pairs)
