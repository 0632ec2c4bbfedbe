"""Measures how `diagnose` sees and names places planted in realistic steps."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pandas as pd

import rounddiag as rd
from tests.faults.place_kinds import (
    FURTHER,
    KINDS,
    draw_place,
    draw_strength,
    is_named,
)
from tests.faults.planted import Place, place_columns, plant, tokens_at
from tests.faults.steps import FIRST_HELD_BACK, realistic_step, small_sets, variant_of

SIZES = (1, 2, 3, 4, 8, 16, 32)
SETS = {1: 12, 2: 12, 3: 8, 4: 8, 8: 8, 16: 8, 32: 4}  # of each size, per step
SOUND = ("identical", "healthy", "noisy", "not_measurable")


@dataclass(frozen=True)
class Outcome:
    """What was said of one planted place."""

    kind: str
    place: Place
    strength: str
    num_tokens: int
    num_affected: int
    verdict: str
    text: str
    best: str
    is_seen: bool
    named: dict[str, bool]
    best_named: dict[str, bool]
    seconds: float

    @property
    def is_all_named(self) -> bool:
        """Whether the sentence names every condition, of a fault that was seen."""
        return self.is_seen and all(self.named.values())


def best_place(batch: rd.Batch) -> str:
    """The conditions of the best place; empty without one, or without `rd.places`."""
    places: Callable[[rd.Batch], pd.DataFrame] | None = getattr(rd, "places", None)
    if places is None:
        return ""
    found = places(batch)
    return str(found["conditions"].iloc[0]) if len(found) else ""


def judge(
    batch: rd.Batch, frame: pd.DataFrame, kind: str, seed: int, strength: str = ""
) -> Outcome:
    """Plant one place in a step and diagnose it."""
    place = draw_place(kind, seed, frame)
    num_tokens = int(tokens_at(frame, place).sum())
    strength = strength or draw_strength(kind, seed, num_tokens)
    planted, affected, truth = plant(batch, place, strength, seed, columns=frame)
    start = time.perf_counter()
    diagnosis = rd.diagnose(planted)
    seconds = time.perf_counter() - start
    text = diagnosis.text
    best = best_place(planted)
    return Outcome(
        kind=kind,
        place=truth,
        strength=strength,
        num_tokens=num_tokens,
        num_affected=int(affected.sum()),
        verdict=diagnosis.verdict,
        text=text,
        best=best,
        is_seen=diagnosis.verdict not in SOUND,
        named={k: is_named(text, k, *v) for k, v in truth.items()},
        best_named={k: is_named(best, k, *v) for k, v in truth.items()},
        seconds=seconds,
    )


def clean_sets(batch: rd.Batch, seed: int) -> Iterator[tuple[int, rd.Batch]]:
    """Clean batches of all sizes, and the step itself."""
    for size in SIZES:
        for one in small_sets(batch, size, SETS[size], seed):
            yield size, one
    yield batch.num_samples, batch


def main() -> None:
    """Run the bench and print what it measures."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.steps")
    parser.add_argument("--seeds", default="0:3", help="first:stop, 0:3 by default")
    parser.add_argument("--names", action="store_true", help="print every sentence")
    parser.add_argument("--further", action="store_true", help="ten more kinds")
    parser.add_argument("--samples", type=int, default=128)
    parser.add_argument("--no-clean", action="store_true", help="planted places only")
    options = parser.parse_args()
    first, stop = map(int, options.seeds.split(":"))
    kinds = [*KINDS, *(FURTHER if options.further else ())]
    outcomes: list[Outcome] = []
    alarms: dict[int, list[str]] = {}
    for seed in range(first, stop):
        batch = realistic_step(seed, num_samples=options.samples)
        held = "held back" if seed >= FIRST_HELD_BACK else "development"
        variant = variant_of(seed)
        print(
            f"\nstep {seed} ({held}): {batch.num_tokens} tokens, "
            f"{variant.text_format}, {variant.noise}, {variant.level:.4f} nat"
        )
        frame = place_columns(batch)
        for kind in kinds:
            outcomes.append(judge(batch, frame, kind, seed))
            print(_line(outcomes[-1], sentence=options.names), flush=True)
        if not options.no_clean:
            for size, one in clean_sets(batch, seed):
                diagnosis = rd.diagnose(one)
                alarms.setdefault(size, [])
                if diagnosis.verdict not in SOUND:
                    alarms[size].append(f"step {seed}: {diagnosis.text}")
                elif (best := best_place(one)) and options.names:
                    print(f"  clean, {size} samples: a place all the same: {best}")
    print(_totals(outcomes, alarms, stop - first, sentence=options.names))


def _line(one: Outcome, *, sentence: bool) -> str:
    conditions = ", ".join(f"{k} {v[0]} {v[1]}" for k, v in one.place.items())
    missed = [k for k, found in one.named.items() if not found]
    said = "named" if one.is_all_named else f"not named: {', '.join(missed)}"
    text = (
        f"  {one.verdict:11} {said if one.is_seen else 'NOT SEEN':30.30} "
        f"{one.strength:4} {one.num_affected:6d} of {one.num_tokens:6d}  "
        f"{one.kind}: {conditions}"
    )
    if one.best:
        is_right = "right" if all(one.best_named.values()) else "WRONG"
        text += f"\n      best place ({is_right}): {one.best}"
    return f"{text}\n      {one.text}" if sentence else text


def _totals(
    outcomes: list[Outcome],
    alarms: dict[int, list[str]],
    num_steps: int,
    *,
    sentence: bool,
) -> str:
    lines = ["", _share("all", outcomes)]
    for strength in ("rare", "weak", "all"):
        part = [one for one in outcomes if one.strength == strength]
        lines.append(_share(f"  {strength}", part))
    lines += [
        _share(f"  {kind}", [one for one in outcomes if one.kind == kind])
        for kind in dict.fromkeys(one.kind for one in outcomes)
    ]
    conditions = [found for one in outcomes for found in one.named.values()]
    lines.append(f"conditions named: {sum(conditions)} of {len(conditions)}")
    if any(one.best for one in outcomes):
        right = sum(bool(o.best) and all(o.best_named.values()) for o in outcomes)
        lines.append(f"best place right: {right} of {len(outcomes)}")
    seconds = sum(one.seconds for one in outcomes) / max(len(outcomes), 1)
    lines.append(f"{seconds:.2f} s for one diagnosis")
    for size, texts in alarms.items():
        num = SETS.get(size, 1) * num_steps
        lines.append(f"clean, {size:3d} samples: {len(texts)} of {num} called a fault")
        lines += [f"    {text}" for text in texts if sentence]
    return "\n".join(lines)


def _share(name: str, part: list[Outcome]) -> str:
    num = len(part)
    seen = sum(one.is_seen for one in part)
    named = sum(one.is_all_named for one in part)
    if not num:
        return f"{name}: none"
    return (
        f"{name:36} {num:3d} places, seen {seen} ({seen / num:.0%}), "
        f"named {named} ({named / num:.0%})"
    )
