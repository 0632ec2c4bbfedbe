"""Faults that happen after the engines: log-probs, masks, ids and rows mixed up.

Each function takes healthy rows, a generator and a severity and returns broken rows.
What a severity means here is how much is touched: the values themselves are simply
wrong. `just_visible` touches few rows or tokens, `gross` nearly all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import numpy as np
from numpy.random import Generator

from tests.faults.rows import Array, Rows, round_bounds

Fault = Callable[["Rows", "Generator", str], "Rows"]

SHARE = {"just_visible": 0.06, "clear": 0.3, "gross": 1.0}
"""Share of the rows that are touched."""
PAD, IM_END = 0, 2


def _some(rows: Rows, rng: Generator, severity: str, least: int = 1) -> set[int]:
    """Choose the rows that are touched; rows of two rounds or more come first."""
    count = max(least, round(SHARE[severity] * len(rows)))
    order = rng.permutation(len(rows)).tolist()
    order.sort(key=lambda i: len(round_bounds(rows.mask[i])) < 2)
    return set(order[:count])


def filled_ends(rows: Rows, rng: Generator, severity: str) -> Rows:
    """A token re-appended at the end of rows with a log-prob of 0 (SkyRL 2148).

    The least sure of the last tokens: these models are sure of their ends.
    """
    touched = _some(rows, rng, severity)

    def fill(i: int, values: Array) -> Array:
        if i in touched:
            last = np.flatnonzero(rows.mask[i])[-12:]
            values[last[np.argmin(rows.old[i][last])]] = 0.0
        return values

    return rows.change("rollout", fill)


def filled_tails(rows: Rows, rng: Generator, severity: str) -> Rows:
    """A list that was too short, padded at its end (rLLM 816)."""
    touched = _some(rows, rng, severity)
    value = rng.choice([0.0, 1.0, -100.0])

    def fill(i: int, values: Array) -> Array:
        if i in touched:
            tokens = np.flatnonzero(rows.mask[i])
            values[tokens[-max(3, len(tokens) // 4) :]] = value
        return values

    return rows.change("rollout", fill)


def shifted_rows(rows: Rows, rng: Generator, severity: str) -> Rows:
    """One position to the left or right in whole rows (ms-swift 8196)."""
    touched, lag = _some(rows, rng, severity), int(rng.choice([-1, 1]))
    return rows.change(
        "rollout", lambda i, values: _rolled(values, lag) if i in touched else values
    )


def shifted_rounds(rows: Rows, rng: Generator, severity: str) -> Rows:
    """One position inside each round: the lists of rounds were cut at the wrong end."""
    touched, lag = _some(rows, rng, severity), int(rng.choice([-1, 1]))

    def shift(i: int, values: Array) -> Array:
        for start, end in round_bounds(rows.mask[i]) if i in touched else []:
            values[start:end] = _rolled(values[start:end], lag)
        return values

    return rows.change("rollout", shift)


def shifted_tails(rows: Rows, rng: Generator, severity: str) -> Rows:
    """From a token of several bytes on (eval-protocol 457)."""
    touched = _some(rows, rng, severity)

    def shift(i: int, values: Array) -> Array:
        if i in touched:
            tokens = np.flatnonzero(rows.mask[i])
            tokens = tokens[rng.integers(len(tokens) // 5, len(tokens) // 2 + 1) :]
            values[tokens] = _rolled(values[tokens], 1)
        return values

    return rows.change("rollout", shift)


def _rolled(values: Array, lag: int) -> Array:
    found = np.roll(values, lag)
    found[0 if lag > 0 else -1] = values[0 if lag > 0 else -1]
    return found


def swapped_rows(rows: Rows, rng: Generator, severity: str) -> Rows:
    """Log-probs of other rows of the batch; zeros where those are shorter."""
    touched = sorted(_some(rows, rng, severity, least=2))
    source = dict(zip(touched, touched[1:] + touched[:1], strict=True))
    return rows.change("rollout", lambda i, _: _other_row(rows, i, source.get(i, i)))


def swapped_in_groups(rows: Rows, rng: Generator, severity: str) -> Rows:
    """Log-probs of another attempt at the same task."""
    count = max(1, round(SHARE[severity] * len(set(rows.group))))
    names = set(rng.permutation(sorted(set(rows.group)))[:count].tolist())
    source: dict[int, int] = {}
    for name in names:
        members = [i for i, group in enumerate(rows.group) if group == name]
        source.update(zip(members, members[1:] + members[:1], strict=True))
    return rows.change("rollout", lambda i, _: _other_row(rows, i, source.get(i, i)))


def _other_row(rows: Rows, i: int, j: int) -> Array:
    values = np.zeros_like(rows.rollout[i])
    size = min(len(values), len(rows.rollout[j]))
    values[:size] = rows.rollout[j][:size]
    return values


def copied_rows(rows: Rows, rng: Generator, severity: str) -> Rows:
    """Rows that were copied to fill the last micro-batch."""
    count = max(2, round(SHARE[severity] * len(rows)))
    kept = list(range(len(rows)))[: max(len(rows) - count, len(rows) // 2)]
    copies = [kept[int(rng.integers(len(kept)))]] * (len(rows) - len(kept))
    return rows.take(kept + copies)


def empty_rows(rows: Rows, rng: Generator, severity: str) -> Rows:
    """Padding rows of one token that nobody wrote."""
    count = max(2, round(0.5 * SHARE[severity] * len(rows)))
    last = set(range(len(rows) - count, len(rows)))
    del rng
    short = rows.cut([1 if i in last else len(one) for i, one in enumerate(rows.ids)])
    for name in ("ids", "mask", "rollout", "old"):
        short = short.change(
            name, lambda i, values: values * 0 if i in last else values
        )
    return short


def mask_on_templates(rows: Rows, rng: Generator, severity: str) -> Rows:
    """The template's tokens before or after a round counted as written."""
    size = {"just_visible": 1, "clear": 2, "gross": 3}[severity]
    before = bool(rng.integers(2))
    return _widened(
        rows,
        lambda start, end: (end - size, end) if before else (start, start + size),
    )


def mask_on_observations(rows: Rows, rng: Generator, severity: str) -> Rows:
    """Whole observations counted as written, with rollout log-probs of 0."""
    share = {"just_visible": 0.1, "clear": 0.4, "gross": 1.0}[severity]
    return _widened(
        rows, lambda start, end: (start, end if rng.random() < share else start)
    )


def _widened(rows: Rows, part: Callable[[int, int], tuple[int, int]]) -> Rows:
    masks, rollouts = [], []
    for mask, rollout in zip(rows.mask, rows.rollout, strict=True):
        wide, values = mask.copy(), rollout.copy()
        bounds = round_bounds(mask)
        for (_, start), (end, _) in pairwise(bounds):
            first, last = part(start, end)
            first, last = max(first, start), min(last, end)
            wide[first:last] = 1
            values[first:last] = 0.0
        masks.append(wide)
        rollouts.append(values)
    return replace(rows, mask=masks, rollout=rollouts)


def identical(rows: Rows, rng: Generator, severity: str) -> Rows:
    """Old log-probs copied from the rollout's, as in bypass mode."""
    del rng, severity
    return replace(rows, old=[one.copy() for one in rows.rollout])


def retokenised(rows: Rows, rng: Generator, severity: str) -> Rows:
    """A word split otherwise: one token more, and its round one behind from there.

    The trainer's ids have the word in two pieces where the sampler had one, so the
    sampler's list of log-probs runs ahead for the rest of the round.
    """
    touched = _some(rows, rng, severity)

    def shift(i: int, values: Array) -> Array:
        bounds = round_bounds(rows.mask[i])[1:] if i in touched else []
        for start, end in bounds:
            if end - start > 6 and rng.random() < 0.7:
                at = start + int(rng.integers((end - start) // 3, end - start - 3))
                values[at:end] = _rolled(values[at:end], -1)
        return values

    return rows.change("rollout", shift)


def retokenised_ids(rows: Rows, rng: Generator, severity: str) -> Rows:
    """As `retokenised`, in a file that keeps the sampler's ids beside the trainer's."""
    broken = retokenised(rows, rng, severity)
    sampled = []
    for ids, before, after in zip(rows.ids, rows.rollout, broken.rollout, strict=True):
        changed = np.flatnonzero(before != after)
        at = int(changed[0]) if len(changed) else 0
        # One token of the sampler stands for the two of the trainer at `at`.
        kept = np.delete(ids, at) if at else ids.copy()
        kept[at - 1] = (kept[at - 1] + 1) if at else kept[at - 1]
        sampled.append(kept)
    return replace(broken, rollout_ids=sampled)


def truncated_rounds(rows: Rows, rng: Generator, severity: str) -> Rows:
    """Rows that hit the length limit, with their last tokens scored without an end."""
    size = {"just_visible": 3, "clear": 6, "gross": 12}[severity]
    longest = int(np.quantile([len(one) for one in rows.ids], 0.6))
    short = rows.cut([min(len(one), longest) for one in rows.ids])
    hit = {i for i, one in enumerate(rows.ids) if len(one) > longest}
    scale = {"just_visible": 0.1, "clear": 0.6, "gross": 3.0}[severity]

    def spoil(i: int, values: Array) -> Array:
        if i in hit:
            tokens = np.flatnonzero(short.mask[i])[-size:]
            tokens = tokens[tokens >= longest - 2 * size]
            values[tokens] -= np.abs(rng.normal(0, scale, len(tokens)))
        return values

    return short.change("rollout", lambda i, v: np.minimum(spoil(i, v), 0.0))


def outlier_tokens(rows: Rows, rng: Generator, severity: str) -> Rows:
    """Few tokens far off anywhere, as fused kernels leave them."""
    share = {"just_visible": 0.002, "clear": 0.005, "gross": 0.02}[severity]
    size = {"just_visible": 1.0, "clear": 2.5, "gross": 6.0}[severity]

    def spoil(i: int, values: Array) -> Array:
        hit = (rng.random(len(values)) < share) & rows.mask[i].astype(bool)
        values[hit] -= size * (0.5 + rng.exponential(0.5, hit.sum()))
        return values

    return rows.change("old", spoil)


def mask_punched(rows: Rows, rng: Generator, severity: str) -> Rows:
    """Holes of one to three tokens, left by a rejection rule."""
    share = {"just_visible": 0.01, "clear": 0.04, "gross": 0.12}[severity]

    def punch(i: int, mask: Array) -> Array:
        for start, end in round_bounds(rows.mask[i]):
            for at in range(start + 1, end - 3):
                if rng.random() < share:
                    mask[at : at + int(rng.integers(1, 3))] = 0
        return mask

    return rows.change("mask", punch)


def coarse_values(rows: Rows, rng: Generator, severity: str) -> Rows:
    """Rollout log-probs stored in bfloat16, or in coarser steps."""
    del rng
    if severity == "just_visible":
        return rows.change("rollout", lambda _, v: _bfloat16(v))
    step = {"clear": 0.03125, "gross": 0.125}[severity]
    return rows.change("rollout", lambda _, v: np.round(v / step) * step)


def _bfloat16(values: Array) -> Array:
    bits = values.astype(np.float32).view(np.uint32)
    bits = (bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)
    return np.asarray(bits.astype(np.uint32).view(np.float32))


def bad_worker(rows: Rows, rng: Generator, severity: str) -> Rows:
    """One rank whose scores scatter: rows in a block, each token by itself."""
    scale = {"just_visible": 2.5, "clear": 12.0, "gross": 60.0}[severity]
    ranks = np.arange(len(rows)) * 4 // len(rows)
    bad = int(rng.integers(4))
    level = max(rows.mean_abs_diff(), 1e-4)  # two engines in float32 have hardly any
    usual = max(float(np.mean([-one[m > 0].mean() for one, m in _pairs(rows)])), 0.05)

    def spoil(i: int, values: Array) -> Array:
        if ranks[i] == bad:
            size = level * scale * 1.25 * np.minimum(-values, 2.0) / usual
            values = np.minimum(values + rng.normal(0, 1, len(values)) * size, 0.0)
        return values.astype(np.float32)

    return rows.change("old", spoil)


def _pairs(rows: Rows) -> list[tuple[Array, Array]]:
    return list(zip(rows.old, rows.mask, strict=True))


FAULTS: dict[str, tuple[str, Fault]] = {
    "filled_ends": ("filled_log_probs", filled_ends),
    "filled_tails": ("filled_log_probs", filled_tails),
    "shifted_rows": ("shifted_log_probs", shifted_rows),
    "shifted_rounds": ("shifted_log_probs", shifted_rounds),
    "shifted_tails": ("shifted_log_probs", shifted_tails),
    "swapped_rows": ("swapped_rows", swapped_rows),
    "swapped_in_groups": ("swapped_rows", swapped_in_groups),
    "copied_rows": ("padding_rows", copied_rows),
    "empty_rows": ("padding_rows", empty_rows),
    "mask_on_templates": ("mask_too_wide", mask_on_templates),
    "mask_on_observations": ("mask_too_wide", mask_on_observations),
    "identical": ("identical_log_probs", identical),
    "retokenised": ("retokenised", retokenised),
    "retokenised_ids": ("retokenised", retokenised_ids),
    "truncated_rounds": ("truncated_round", truncated_rounds),
    "outlier_tokens": ("outlier_tokens", outlier_tokens),
    "mask_punched": ("mask_punched", mask_punched),
    "coarse_values": ("low_precision", coarse_values),
    "bad_worker": ("bad_worker", bad_worker),
}
"""Each way to break arrays: the cause that it is, and the function."""
