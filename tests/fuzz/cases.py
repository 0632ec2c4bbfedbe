"""Numbered cases: the number alone decides the file, so that each can be made again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

from tests.fuzz.corpus import Seed
from tests.fuzz.damage import DAMAGES, truncated
from tests.fuzz.structure import json_lines_changed, parquet_changed, torch_changed

_PERCENT = 100


def case(number: int, seeds: list[Seed], run: int) -> tuple[Seed, str, bytes]:
    """Return the files of a case, how one was damaged, and that one's new bytes.

    The first cases cut each file off at every percent; the others are drawn at random,
    from a generator that `run` and the number seed.
    """
    files = [(seed, name) for seed in seeds for name in sorted(seed.files)]
    if number < _PERCENT * len(files):
        seed, name = files[number // _PERCENT]
        cut = truncated(seed.files[name], number % _PERCENT)
        return _with(seed, name, cut), f"cut at {number % _PERCENT} %", cut
    random = Random(f"{run} {number}")  # noqa: S311 no secret
    seed = random.choice(seeds)
    name = random.choice(sorted(seed.files))
    damage = random.choice(_damages(seed.files[name]))
    return _damaged(random, seed, name, damage)


def _damaged(
    random: Random, seed: Seed, name: str, damage: Callable[[Random, bytes], bytes]
) -> tuple[Seed, str, bytes]:
    try:
        data = damage(random, seed.files[name])
    except Exception:  # noqa: BLE001 the writer itself refuses such a value
        damage = random.choice(DAMAGES)
        data = damage(random, seed.files[name])
    return _with(seed, name, data), damage.__name__, data


def _with(seed: Seed, name: str, data: bytes) -> Seed:
    return replace(seed, files={**seed.files, name: data})


def _damages(data: bytes) -> tuple[Callable[[Random, bytes], bytes], ...]:
    """Return the damages for a kind of file; those of its structure come as often."""
    if data.startswith(b"PAR1"):
        return (*DAMAGES, *[parquet_changed] * len(DAMAGES))
    if data.startswith(b"{"):
        return (*DAMAGES, *[json_lines_changed] * len(DAMAGES))
    if data.startswith(b"PK"):
        return (*DAMAGES, *[torch_changed] * len(DAMAGES))
    return DAMAGES
