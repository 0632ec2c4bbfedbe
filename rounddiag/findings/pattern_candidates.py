"""Candidate patterns of places: rounds, steps, columns, rows, periods, changes."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from rounddiag.findings.excess import ENDS, ExcessCells, decoding_step

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rounddiag._typing import Array

_MAX_ROUNDS = 40
_MAX_VALUES = 64
_STEPS = 32
_LONGEST_PERIOD = 16
_MIN_PERIODS = 4
_ALTERNATE = 2
_MIN_ROWS = 4
_FLAT = 0.35
_JUMP = 0.5
# Rise of the excess after round 0 if context is lost; within rounds it then falls. With
# the position it rises by less, or within rounds too.
_SHARP = 0.9
_MAX_BLOCK_ROWS = 1024
# Families of sets of samples, and how much of the spread between prompts they must
# explain, in nats.
_SAMPLES, _BY_PROMPT = ("block", "rows", "groups"), 3.0
_SMALLEST_GAP = 0.2
MIN_TOKENS = 64
# Positions from which a cast to bfloat16 rounds, coarser at each.
POWERS = 2 ** np.arange(8, 17)


# Columns that name the weights, which are expected to change the level.
VERSIONS = re.compile(r"version|global_step|policy_step|staleness|lag", re.IGNORECASE)
CACHES = re.compile(r"cached", re.IGNORECASE)


@dataclass(frozen=True, eq=False, kw_only=True)
class Pattern:
    """One hypothesis of where a batch differs.

    Attributes
    ----------
    family : str
        `round`, `image`, `step`, `change`, `column`, `block`, `rows`, `groups`,
        `period`, `slope`, `round_start`, `limit`.
    inside : bool array, one a cell
        For a slope, the cells of its upper half.
    gap, t, gain : float
        As of `Contrast`.
    price : float
        Cost of the search for it, in nats; `worth` is gain minus price.
    where : mapping of str to object
    """

    family: str
    inside: Array
    gap: float
    t: float
    gain: float
    price: float
    where: Mapping[str, Any] = field(default_factory=dict)
    cells: ExcessCells = field(repr=False)

    @property
    def tokens(self) -> Array:
        """The tokens inside, a boolean array."""
        inside: Array = self.inside[self.cells.code]
        return inside

    @property
    def ratio(self) -> float:
        """The ratio of |diff| inside to outside, for equally likely tokens."""
        return float(np.exp(self.gap))

    @property
    def worth(self) -> float:
        """The gain minus the price, in nats."""
        return self.gain - self.price


def patterns(cells: ExcessCells) -> Iterator[Pattern]:
    """Yield every pattern that a batch can have."""
    yield from _rounds(cells)
    yield from _images(cells)
    yield from _steps(cells)
    yield from _slopes(cells)
    yield from _columns(cells)
    yield from _row_sets(cells)
    yield from _periods(cells)
    yield from _changes(cells)
    yield from _starts(cells)
    yield from _limits(cells)


def _set(
    cells: ExcessCells, family: str, inside: Array, price: float, **where: object
) -> Iterator[Pattern]:
    found = cells.contrast(inside)
    if found.gap > _SMALLEST_GAP and (
        family not in _SAMPLES or cells.worth_by_prompt(inside) > _BY_PROMPT
    ):
        yield Pattern(
            family=family,
            inside=inside,
            gap=found.gap,
            t=found.t,
            gain=found.gain,
            price=price,
            where=where,
            cells=cells,
        )


def _rounds(cells: ExcessCells) -> Iterator[Pattern]:
    last = min(int(cells.round.max()), _MAX_ROUNDS)
    for k in range(1, last + 1):
        yield from _set(
            cells, "round", cells.round >= k, np.log(last + 1), rounds_from=k
        )


def _images(cells: ExcessCells) -> Iterator[Pattern]:
    if cells.view.images is None:
        return
    images = cells.view.images[cells.first]
    values = np.unique(images)[1 : _MAX_ROUNDS + 1]
    for k in values:
        yield from _set(
            cells, "image", images >= k, np.log(len(values) + 1), images_from=int(k)
        )


def _steps(cells: ExcessCells) -> Iterator[Pattern]:
    """Yield places from which on, or up to which, all samples differ.

    The place is counted in generated tokens, or in the context including the prompt:
    batched engines may count either way.
    """
    view = cells.view
    coordinates = {"generated tokens": decoding_step(view)[cells.first]}
    if view.facts.prompt_length is not None:
        before = view.facts.prompt_length[cells.sample]
        coordinates["context positions"] = before + view.position[cells.first]
    for name, place in coordinates.items():
        edges = np.quantile(place, np.linspace(0, 1, _STEPS + 1)[1:-1])
        if name == "context positions":
            edges = np.r_[edges, POWERS]
        price = np.log(2 * len(coordinates) * (len(edges) + 1))
        for edge in np.unique(edges.astype(int)):
            where = {"place": int(edge), "unit": name}
            yield from _set(cells, "step", place >= edge, price, **where, is_after=True)
            yield from _set(cells, "step", place < edge, price, **where, is_after=False)


def _slopes(cells: ExcessCells) -> Iterator[Pattern]:
    written = decoding_step(cells.view)[cells.first]
    covariates = {"position": np.log1p(written + cells.num / 2)}
    known = cells.view.facts.round_columns
    for name in ("cached_tokens", "num_cached_tokens"):
        if name in known and known[name].dtype.kind in "iuf":
            values = known[name][cells.segment].astype(float)
            covariates[name] = np.log1p(np.where(np.isfinite(values), values, 0.0))
    for name, covariate in covariates.items():
        found = cells.slope(covariate)
        upper = covariate >= np.median(covariate)
        yield Pattern(
            family="slope",
            inside=upper if found.gap > 0 else ~upper,
            gap=found.gap,
            t=found.t,
            gain=found.gain,
            price=1.0,
            where={
                "follows": name,
                "rises": found.gap > 0,
                "is_flat": _is_flat_at_first(cells, covariate),
            },
            cells=cells,
        )


def _is_flat_at_first(cells: ExcessCells, covariate: Array) -> bool:
    """Return whether the slope of the first round is small beside the overall one."""
    first = cells.round == 0
    if first.all() or not first.any():
        return False
    whole = _slope(cells, covariate, np.ones(len(first), dtype=bool))
    if _slope(cells, covariate, first) < _FLAT * whole:
        return True
    # Or it jumps between the end of round 0 and the start of round 1.
    middle = cells.view.token[cells.first] >= np.median(cells.view.token)
    end, start = first & middle, (cells.round == 1) & ~middle
    if not end.any() or not start.any():
        return False
    rise = cells.mean_excess(~first) - cells.mean_excess(first)
    starts, ends = ~first & ~middle, ~first & middle
    if rise > _SHARP and starts.any() and ends.any():
        return cells.mean_excess(ends) < cells.mean_excess(starts)
    return bool(cells.mean_excess(start) - cells.mean_excess(end) > _JUMP * rise)


def _slope(cells: ExcessCells, covariate: Array, chosen: Array) -> float:
    num, total, x = cells.num[chosen], cells.total[chosen], covariate[chosen]
    x = x - (num * x).sum() / num.sum()
    square = float((num * x**2).sum())
    return float((x * total).sum() / square) if square > 0 else 0.0


def _columns(cells: ExcessCells) -> Iterator[Pattern]:
    facts = cells.view.facts
    values = {
        name: column[cells.sample] for name, column in facts.sample_columns.items()
    }
    values |= {
        name: column[cells.segment] for name, column in facts.round_columns.items()
    }
    for name, column in values.items():
        if CACHES.search(name) and column.dtype.kind in "iuf":
            yield from _set(
                cells, "column", column > 0, 1.0, column=name, value="above 0"
            )
        text = column.astype(str) if column.dtype.kind not in "iufb" else column
        known = np.unique(text)
        if not 1 < len(known) <= _MAX_VALUES:
            continue
        for value in known:
            yield from _set(
                cells,
                "column",
                text == value,
                np.log(len(known) * len(values)),
                column=name,
                value=value.item() if isinstance(value, np.generic) else value,
            )


def _row_sets(cells: ExcessCells) -> Iterator[Pattern]:
    """Yield samples that differ as a whole: a block of neighbours, groups, or any."""
    num_rows = cells.view.batch.num_samples
    num = np.bincount(cells.sample, weights=cells.num, minlength=num_rows)
    total = np.bincount(cells.sample, weights=cells.total, minlength=num_rows)
    is_present = num > 0
    if is_present.sum() < _MIN_ROWS:
        return
    rest = np.where(is_present, total - cells.mean * num, 0.0)
    block = _best_block(rest, num)
    if block is not None:
        rows = np.zeros(num_rows, dtype=bool)
        rows[block[0] : block[1]] = True
        rows &= is_present
        yield from _set(
            cells,
            "block",
            rows[cells.sample],
            2 * np.log(is_present.sum()),
            samples=np.flatnonzero(rows),
        )
    rows = _upper(rest, num, is_present)
    chosen = rows.sum() / is_present.sum()
    bits = -(chosen * np.log(chosen) + (1 - chosen) * np.log1p(-chosen))
    yield from _set(
        cells,
        "rows",
        rows[cells.sample],
        float(is_present.sum() * bits) + np.log(is_present.sum()),
        samples=np.flatnonzero(rows),
    )
    group = cells.view.facts.group
    if group is None or not _MIN_ROWS <= int(group.max()) + 1 < is_present.sum():
        return
    num_groups = int(group.max()) + 1
    num_g = np.bincount(group, weights=num, minlength=num_groups)
    rest_g = np.bincount(group, weights=rest, minlength=num_groups)
    upper = _upper(rest_g, num_g, num_g > 0)
    chosen = upper.sum() / num_groups
    bits = -(chosen * np.log(chosen) + (1 - chosen) * np.log1p(-chosen))
    rows = upper[group]
    yield from _set(
        cells,
        "groups",
        rows[cells.sample],
        float(num_groups * bits) + np.log(num_groups),
        samples=np.flatnonzero(rows),
        groups=np.flatnonzero(upper),
    )


def _periods(cells: ExcessCells) -> Iterator[Pattern]:
    """Yield every p-th sample, or all but every p-th."""
    num_rows = cells.view.batch.num_samples
    longest = min(_LONGEST_PERIOD, num_rows // _MIN_PERIODS)
    price = np.log(longest * longest + 1)
    for period in range(2, longest + 1):
        phase = cells.sample % period
        where = {"period": period}
        if period > _ALTERNATE:
            yield from _set(cells, "period", phase != 0, price, **where, all_but=0)
        for k in range(period):
            yield from _set(cells, "period", phase == k, price, **where, phase=k)


def _best_block(rest: Array, num: Array) -> tuple[int, int] | None:
    """Return the block of neighbours whose mean is furthest above the others'."""
    size = len(rest)
    if size > _MAX_BLOCK_ROWS:
        return None
    sums, counts = np.r_[0.0, np.cumsum(rest)], np.r_[0.0, np.cumsum(num)]
    inside = sums[None, :] - sums[:, None]
    weight = counts[None, :] - counts[:, None]
    others = counts[-1] - weight
    with np.errstate(divide="ignore", invalid="ignore"):
        gain = inside**2 * counts[-1] / (weight * others)
    gain = np.where((inside > 0) & (weight > 0) & (others > 0), gain, -np.inf)
    gain[np.tril_indices(size + 1, 1)] = -np.inf  # a single row is not a block
    begin, stop = np.unravel_index(gain.argmax(), gain.shape)
    return (int(begin), int(stop)) if np.isfinite(gain[begin, stop]) else None


def _upper(rest: Array, num: Array, is_present: Array) -> Array:
    """Return the rows above the threshold that explains most."""
    mean = np.where(is_present, rest / np.maximum(num, 1), -np.inf)
    order = np.argsort(-mean, kind="stable")[: int(is_present.sum())]
    sums, counts = np.cumsum(rest[order]), np.cumsum(num[order])
    whole = counts[-1]
    gain = sums[:-1] ** 2 * whole / (counts[:-1] * (whole - counts[:-1]))
    rows = np.zeros(len(rest), dtype=bool)
    rows[order[: int(gain.argmax()) + 1]] = True
    return rows


def _changes(cells: ExcessCells) -> Iterator[Pattern]:
    """Yield samples that differ, each from its own place on."""
    begins = np.flatnonzero(np.r_[True, np.diff(cells.sample) != 0])
    ends = np.r_[begins[1:], len(cells.sample)]
    row = np.repeat(np.arange(len(begins)), ends - begins)
    rest = cells.total - cells.mean * cells.num
    after = np.cumsum(rest)
    num_after = np.cumsum(cells.num)
    rest_after = after[ends - 1][row] - after + rest
    size_after = num_after[ends - 1][row] - num_after + cells.num
    total, size = rest_after[begins][row], size_after[begins][row]
    size_before = size - size_after
    with np.errstate(divide="ignore", invalid="ignore"):
        gap = rest_after / size_after - (total - rest_after) / size_before
        gain = size_before * size_after / size * gap**2 / (2 * cells.variance)
    gain = np.where((gap > _SMALLEST_GAP) & (size_before > 0), gain, 0.0)
    top = np.maximum.reduceat(gain, begins)
    price = np.log(ends - begins) + 5
    hit = top > price
    if not hit.any():
        return
    at = np.arange(len(gain))
    first = np.minimum.reduceat(np.where(gain == top[row], at, len(gain)), begins)
    inside = hit[row] & (at >= first[row])
    chosen = hit.mean()
    bits = 0.0
    if 0 < chosen < 1:
        bits = -(chosen * np.log(chosen) + (1 - chosen) * np.log1p(-chosen))
    yield from _set(
        cells,
        "change",
        inside,
        float(np.log(ends - begins)[hit].sum() + len(hit) * bits),
        samples=cells.sample[begins[hit]],
    )


def _starts(cells: ExcessCells) -> Iterator[Pattern]:
    start = cells.view.token[cells.first] == 0
    yield from _set(cells, "round_start", start & (cells.round > 0), 2.0)


def _limits(cells: ExcessCells) -> Iterator[Pattern]:
    """Yield the last tokens of the samples that reach the maximum length."""
    lengths = cells.view.batch.lengths.cpu().numpy()
    longest = lengths >= 0.98 * lengths.max()
    if not 1 < longest.sum() < len(lengths):
        return
    left = lengths[cells.sample] - cells.view.position[cells.first]
    for width in ENDS:
        yield from _set(
            cells,
            "limit",
            longest[cells.sample] & (left <= width),
            np.log(len(ENDS)),
            samples=np.flatnonzero(longest),
            num_last=width,
        )
