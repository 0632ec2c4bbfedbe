"""The ten case cards of public threads, each rebuilt with its published numbers.

What a thread publishes (a mean, a ratio, how many rows) is what is built; the rest is
of the bench's models.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.random import Generator

from tests.faults import arrays
from tests.faults.rows import Array, Rows
from tests.faults.store import broken_rows, healthy_rows


@dataclass(frozen=True)
class Card:
    """A rebuilt thread: its rows, its columns and how it is asked about."""

    name: str
    cause: str
    published: str
    rows: Rows
    columns: frozenset[str]
    healthy: Rows | None = None
    call: dict[str, Any] = field(default_factory=dict)


def scaled(rows: Rows, mean: float) -> Rows:
    """Stretch diff to a mean |diff|."""
    factor = mean / rows.mean_abs_diff()
    return rows.change(
        "old", lambda i, old: rows.rollout[i] + factor * (old - rows.rollout[i])
    )


def added(rows: Rows, broken: Rows, before: Rows, factor: float) -> Rows:
    """Add the effect of a fault on another score of the same rows."""
    return rows.change(
        "old", lambda i, old: old + factor * (broken.old[i] - before.old[i])
    )


class Cards:
    """The cards of the agents of one name, such as `tune-0`."""

    def __init__(self, cache: Path, name: str) -> None:
        self.dense = cache / f"dense-{name}"
        self.vision = cache / f"vision-{name}"

    def all(self) -> Iterator[Card]:
        """Yield the cards whose trajectories are in the cache."""
        builds: list[Callable[[], Card]] = [
            self.circle_click, self.sleep_mode, self.decode_kernel,
            self.bfloat16_positions, self.off_by_one, self.temperature, self.end_token,
            self.prefix_cache, self.fused_kernels, self.ratio_not_one,
        ]  # fmt: skip
        for build in builds:
            with suppress(FileNotFoundError):
                yield build()

    def healthy(self, mean: float, count: int = 64) -> Rows:
        """Return sound rows of the text model at a level of noise."""
        rows = healthy_rows(self.dense)
        return scaled(rows.take(range(count)), mean)

    def circle_click(self) -> Card:
        """NeMo-RL 2260: no picture reaches the trainer; text rows are fine."""
        seen = broken_rows(self.vision, "blank_pictures.gross")
        rows = scaled(seen.take(range(32)), 0.45)
        text = self.healthy(0.01, 16)
        return Card(
            "circle_click",
            "dropped_image",
            "KL 0.15 to 1.75 with pictures, 0.007 to 0.028 after the fix",
            joined(rows, text),
            frozenset({"images", "groups", "tokenizer"}),
        )

    def sleep_mode(self) -> Card:
        """TRL 5312: the sampler reloads the base checkpoint."""
        before = healthy_rows(self.dense).take(range(48))
        broken = broken_rows(self.dense, "stale_weights.gross")
        effect = replace(broken, rollout=before.old).mean_abs_diff()
        rows = added(scaled(before, 0.015), broken, before, 0.201 / effect)
        return Card(
            "sleep_mode",
            "stale_weights",
            "mean |diff| 0.201, its control 0.015",
            rows,
            frozenset({"entropy", "groups"}),
            healthy=scaled(before, 0.015),
        )

    def decode_kernel(self) -> Card:
        """NeMo-RL 2100: whole groups of sequences off from one token on."""
        before = self.healthy(0.03, 48)
        base = healthy_rows(self.dense).take(range(48))
        broken = broken_rows(self.dense, "decode_path.gross")
        rows = added(before, broken, base, 4.0)
        return Card(
            "decode_kernel",
            "decode_path",
            "token_mult_prob_error 35; 15 to 20 % of sequences at 100 to 670",
            rows,
            frozenset({"groups"}),
        )

    def bfloat16_positions(self) -> Card:
        """verl-omni 254: positions above 256 collapse."""
        base = healthy_rows(self.dense).take(range(48))
        broken = broken_rows(self.dense, "half_places.gross")
        late = [
            i
            for i, (prompt, ids) in enumerate(zip(base.prompt, base.ids, strict=True))
            if len(prompt) + len(ids) > 300
        ]
        where = [
            (mask > 0) & (np.abs(new - old) > 1e-6)
            for mask, new, old in zip(broken.mask, broken.old, base.old, strict=True)
        ]
        size = broken.mean_abs_diff(where)
        rows = replace(added(base, broken, base, 6.3 / size), places=broken.places)
        return Card(
            "bfloat16_positions",
            "position_ids",
            "log_ppl_diff 6.3, Pearson r 0.13; healthy until position 256",
            rows.take(late),
            frozenset({"places", "tokenizer"}),
        )

    def off_by_one(self) -> Card:
        """eval-protocol 457: one behind from a byte token on, in 2 % of rows."""
        rows = self.healthy(0.028, 128)
        few = healthy_rows(self.dense).take(range(128))
        broken = arrays.shifted_tails(few, _generator(5), "gross")
        worst = {40, 97}
        rows = rows.change(
            "rollout",
            lambda i, values: broken.rollout[i] if i in worst else values,
        )
        return Card(
            "off_by_one",
            "shifted_log_probs",
            "KLD 60 now and then in 1 to 2 % of rows, 0.028 elsewhere",
            rows,
            frozenset({"tokenizer", "groups"}),
        )

    def temperature(self) -> Card:
        """tinker-cloud 26: one side is tempered."""
        rows = broken_rows(self.dense, "temperature.gross")
        return Card(
            "temperature",
            "temperature",
            "gap -0.998 nat, correlation 0.99245, best-fit temperature 0.70",
            rows,
            frozenset({"groups"}),
        )

    def end_token(self) -> Card:
        """SkyRL 2148: the end token re-appended with a log-prob of 0."""
        rows = self.healthy(0.01)
        last = [np.flatnonzero(mask)[-1] for mask in rows.mask]

        def put(value: float) -> Callable[[int, Array], Array]:
            def edit(i: int, values: Array) -> Array:
                values[last[i]] = value
                return values

            return edit

        rows = rows.change("rollout", put(0.0)).change("old", put(float(np.log(0.01))))
        return Card(
            "end_token",
            "filled_log_probs",
            "one 0.0 a row at the last token; probability 0.01 in training",
            rows,
            frozenset({"tokenizer"}),
        )

    def prefix_cache(self) -> Card:
        """NeMo-RL 4018: prefixes cached over 17 refits."""
        base = healthy_rows(self.dense).take(range(48))
        broken = broken_rows(self.dense, "stale_prefix.gross")
        first = [i % 4 == 0 for i in range(48)]  # the row that fills the cache
        rows = broken.change(
            "old", lambda i, values: base.old[i] if first[i] else values
        )
        cached = [
            0 if is_first else len(prompt)
            for is_first, prompt in zip(first, rows.prompt, strict=True)
        ]
        return Card(
            "prefix_cache",
            "stale_cache",
            "diff goes with cached tokens, not with length; first rows healthy",
            replace(rows, sample_columns={"cached_tokens": np.array(cached)}),
            frozenset({"groups", "tokenizer"}),
        )

    def fused_kernels(self) -> Card:
        """NeMo-RL 1801: a tail, not a level."""
        rows, rng = self.healthy(0.012), _generator(9)

        def spoil(i: int, values: Array) -> Array:
            hit = (rng.random(len(values)) < 0.001) & (rows.mask[i] > 0)
            values[hit] -= 17.5
            return values

        return Card(
            "fused_kernels",
            "outlier_tokens",
            "token_mult_prob_error 38565, 1.0121 without; reward unharmed",
            rows.change("old", spoil),
            frozenset({"entropy"}),
        )

    def ratio_not_one(self) -> Card:
        """verl 6280: old against current, whole ranks off."""
        rows = batch_shape(
            healthy_rows(self.dense),
            healthy_rows(self.dense, "both_bf16"),
            1.0,
        )
        return Card(
            "ratio_not_one",
            "batch_shape",
            "old against current: 0 in most rows, whole ranks off",
            rows,
            frozenset({"ranks"}),
            call={"a": "current", "b": "old"},
        )


def batch_shape(exact: Rows, half: Rows, factor: float) -> Rows:
    """Return a second score that differs by rounding, on some ranks only."""
    count = len(half)
    rows = exact.take(range(count))
    ranks = np.arange(count) * 4 // count
    current = [
        old + factor * (half.old[i] - old) * (ranks[i] in (1, 2))
        for i, old in enumerate(rows.old)
    ]
    return replace(rows, current=current, sample_columns={"rank": ranks})


def joined(rows: Rows, text: Rows) -> Rows:
    """Put rows without pictures after rows with pictures."""
    text = replace(text, shots=[[] for _ in text.ids], places=[])
    rows = replace(rows, places=[])
    lists: dict[str, Any] = {
        name: [*getattr(rows, name), *getattr(text, name)]
        for name in (
            "ids", "mask", "rollout", "old", "entropy", "prompt", "group", "reward",
            "shots", "version",
        )
    }  # fmt: skip
    return Rows(**lists)


def _generator(seed: int) -> Generator:
    return np.random.default_rng(seed)
