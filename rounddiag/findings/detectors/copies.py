"""`copied_log_probs`: runs of values that are another run of the same column."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.special import bdtrc

from rounddiag.checks.contracts import LEVEL
from rounddiag.findings.finding import Evidence
from rounddiag.findings.measure import Measure
from rounddiag.findings.registry import register
from rounddiag.wording import pluralize

if TYPE_CHECKING:
    from rounddiag._typing import Array
    from rounddiag.findings.view import View

_RUN = 4  # tokens in a row of which a copy has bitwise equal values
_MIN_DIFF = 0.1  # nats: tokens that lost their own value
_ODD = np.uint64(0x9E3779B97F4A7C15)  # 2**64 over the golden ratio: multiplies hashes


@register("copied_log_probs", kind="fact")
def copied_log_probs(view: View) -> Evidence | None:
    """Find runs whose values are those of another run of the same column.

    Of two equal runs the copy is the one that differs more from the other engine. Two
    runs are equal by chance with the product of the shares that their values have; that
    must be below 1 / 200 for all pairs of places together. Nor may chance put as many
    tokens there that lost their value: siblings have equal runs that are right.
    """
    lost = view.abs_diff > _MIN_DIFF
    if view.is_fitted or lost.sum() < _RUN or view.batch.response_ids is None:
        return None
    for engine, values in ((view.b, view.log_prob_b), (view.a, view.log_prob_a)):
        runs = _equal_runs(view, values, lost)
        if not len(runs[0]):
            continue
        equal, tokens = _copies(view, values, runs)
        share = (lost[~tokens].sum() + 1) / ((~tokens).sum() + 2)
        num_lost = int(lost[tokens].sum())
        if num_lost and bdtrc(num_lost - 1.0, int(tokens.sum()), share) < LEVEL:
            return _evidence(view, equal, tokens, engine)
    return None


def _copies(
    view: View, values: Array, runs: tuple[Array, Array, Array]
) -> tuple[Array, Array]:
    """Return the tokens of runs that are equal, and with those of lost sources."""
    num = len(values)
    tokens, in_runs = np.zeros((2, num), dtype=bool)
    for at, _, length in zip(*runs, strict=True):
        in_runs[at : at + length] = True
    surprise = _surprise(values, in_runs)
    size, ids, prompt = view.abs_diff, view.token_id, _prompts(view)[view.sample]
    distances = []
    for at, pair, length in zip(*runs, strict=True):
        spans = [slice(first, first + length) for first in (at, pair)]
        differs = np.not_equal(*(ids[span] for span in spans))
        if prompt[at] != prompt[pair]:
            differs |= differs.any()  # equal texts after one prompt have equal values
        if surprise[spans[0]][differs].sum() > 2 * np.log(num) - np.log(LEVEL):
            copy, source = sorted(spans, key=lambda span: -size[span].sum())
            tokens[copy] = True
            rows, steps = view.sample, view.num_before
            away = [each[source.start] - each[copy.start] for each in (rows, steps)]
            distances.append(away)
    lost = np.zeros(num, dtype=bool)
    if distances:
        known, counts = np.unique(distances, axis=0, return_counts=True)
        if 2 * counts.max() > len(distances):
            distance = known[counts.argmax()]
            new, lost = _at_distance(view, values, tokens, distance)
            tokens |= new
    return tokens, tokens | lost


def _surprise(values: Array, chosen: Array) -> Array:
    """Return minus the log of the share of the tokens that have the value of each.

    It is 0 at tokens that are not chosen.
    """
    bits = _bits(values)
    known, code = np.unique(bits[chosen], return_inverse=True)
    alike = bits[_find(bits, known)]
    counts = np.bincount(np.searchsorted(known, alike), minlength=len(known))
    surprise = np.zeros(len(values))
    surprise[chosen] = np.log(len(values)) - np.log(counts)[code]
    return surprise


def _prompts(view: View) -> Array:
    """Return a code for each sample's prompt; one code for all that are not known."""
    facts = view.facts
    is_known = facts.group is not None or facts.prompt_length is not None
    return facts.prompt if is_known else np.zeros_like(facts.prompt)


def _equal_runs(view: View, values: Array, lost: Array) -> tuple[Array, Array, Array]:
    """Return where runs begin, where the next equal ones do, and their lengths.

    Runs are compared by a hash of their bits. None are returned where none of the runs
    that are equal has a token that lost its value.
    """
    last = _RUN - 1
    inside = view.sample[last:] == view.sample[: max(len(values) - last, 0)]
    bits = _bits(values)
    number, is_lost = np.zeros(len(inside), dtype=np.uint64), np.zeros_like(inside)
    for k in range(_RUN):
        part = slice(k, k + len(inside))
        number *= _ODD
        number += bits[part]
        is_lost |= lost[part]
    known = np.sort(number[inside])
    twins = np.unique(known[1:][known[1:] == known[:-1]])
    starts = _find(number, twins)
    starts = starts[inside[starts]]
    if not is_lost[starts].any():
        return (starts[:0],) * 3
    order = np.argsort(number[starts], kind="stable")
    is_same = np.diff(number[starts][order]) == 0
    first, other = starts[order[:-1][is_same]], starts[order[1:][is_same]]
    # Neighbours at the same distance from their pairs are one run.
    order = np.lexsort((first, other - first))
    first, other = first[order], other[order]
    goes_on = (np.diff(first) == 1) & (np.diff(other) == 1)
    begins = np.flatnonzero(np.r_[True, ~goes_on][: len(first)])
    return first[begins], other[begins], np.diff(np.r_[begins, len(first)]) + _RUN - 1


def _bits(values: Array) -> Array:
    """Return a number for each value, with high bits as different as the values."""
    return (values.astype(np.float64) + 0.0).view(np.uint64) * _ODD  # -0.0 is 0.0


def _find(numbers: Array, known: Array) -> Array:
    """Return where numbers are one of these, which are sorted.

    A table of their high bits leaves out most of the others.
    """
    table = np.zeros(1 << 16, dtype=bool)
    table[known >> np.uint64(48)] = True
    near = np.flatnonzero(table[numbers >> np.uint64(48)])
    at = np.minimum(np.searchsorted(known, numbers[near]), max(len(known) - 1, 0))
    return near[known[at] == numbers[near]]


def _at_distance(
    view: View, values: Array, copies: Array, distance: Array
) -> tuple[Array, Array]:
    """Return the other copies at a distance of rows and tokens that is established.

    Fewer values prove a run. Equal texts after one prompt do not count. A source that
    is a copy itself has lost its value: the other engine's stands for it.
    """
    begins = np.searchsorted(view.sample, np.arange(view.batch.num_samples + 1))
    row, step = view.sample + distance[0], view.num_before + distance[1]
    inside = (row >= 0) & (row < view.batch.num_samples) & (step >= 0)
    row = np.where(inside, row, 0)
    inside &= step < np.diff(begins)[row]
    pair = np.where(inside, begins[row] + step, 0)
    prompt = _prompts(view)
    differs = (view.token_id != view.token_id[pair]) | (distance[1] != 0)
    differs |= prompt[row] != prompt[view.sample]
    num, first = np.cumsum(differs), begins[view.sample]
    has_differed = num > num[first] - differs[first]
    equal = inside & (values == values[pair]) & has_differed & ~copies[pair]
    is_edge = np.diff(equal, prepend=False) | (np.diff(view.sample, prepend=-1) != 0)
    edges = np.flatnonzero(is_edge)
    length = np.diff(np.r_[edges, len(equal)])
    proof = np.add.reduceat(_surprise(values, equal), edges)
    is_run = equal[edges] & (length >= _RUN)
    is_run &= proof > np.log(len(values)) - np.log(LEVEL)
    others = view.log_prob_a + view.log_prob_b - values
    fits = np.abs(values - others[pair]) <= view.usual.of_tokens(values)
    lost = inside & copies[pair] & fits & (view.abs_diff > _MIN_DIFF)
    new = np.repeat(is_run, length)
    return new & ~new[pair], lost


def _evidence(view: View, equal: Array, tokens: Array, engine: str) -> Evidence:
    num, samples = int(tokens.sum()), np.flatnonzero(view.samples_with(tokens))
    at = np.flatnonzero(equal)
    begins = (np.diff(at, prepend=-2) > 1) | np.diff(view.sample[at], prepend=-1) > 0
    length = np.diff(np.r_[np.flatnonzero(begins), len(at)])
    part = "all" if len(at) == num else f"{len(at):,}"
    shortest, longest = length.min(), length.max()
    span = f"{shortest}" if shortest == longest else f"{shortest} to {longest}"
    elsewhere = float(view.abs_diff[~tokens].mean()) if not tokens.all() else 0.0
    here = float(view.abs_diff[tokens].mean())
    return Evidence(
        tokens=tokens,
        measures=(
            Measure("tokens", num, "tokens"),
            Measure("samples", len(samples), "samples"),
            Measure("mean |diff| here", here, "nat"),
            Measure("mean |diff| elsewhere", elsewhere, "nat"),
        ),
        where={
            "fact": f"{num:,} tokens have the `{engine}` log-probs of other tokens, in"
            f" {len(samples):,} of {pluralize(view.num_samples, 'sample')}: {part} bit"
            f" by bit, in {pluralize(len(length), 'run')} of {span} tokens"
        },
        shown=(
            f"The same values in a row stand at other ids, where they fit: these tokens"
            f" differ by {here:.2g} nat, the others by {elsewhere:.2g}."
        ),
    )
