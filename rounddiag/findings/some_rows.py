"""A setting of the sampler in some rows only: those without an image, or of a client.

The relation of a setting is summed by sample, so that each set of samples that a column
names costs a sum. The best set must follow it better than the best of sets of permuted
samples, which pays for the search. It is then judged as a batch of its own; the first
place may not lie elsewhere: what differs there as well is no setting of these rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from scipy.special import bdtrc

from rounddiag.checks.contracts import LEVEL
from rounddiag.findings.conditions import columns_of_tokens
from rounddiag.findings.detectors.temperature import (
    MIN_EXPLAINED,
    about_means,
    sums_of_line,
)
from rounddiag.findings.detectors.truncation import MIN_MISSING, sums_of_mass
from rounddiag.findings.level import MIN_SAMPLES
from rounddiag.findings.permutation import Null
from rounddiag.findings.place import find_places
from rounddiag.findings.registry import DETECTORS

if TYPE_CHECKING:
    from rounddiag._typing import Array
    from rounddiag.findings.finding import Evidence
    from rounddiag.findings.view import View

# Values of a relation by sample, and how far sets of samples follow it: above 0 from
# the share on that a setting of all tokens needs.
_Relation: TypeAlias = "tuple[Array, Callable[[Array], Array]]"


def settings_of_sets(view: View) -> Iterator[Evidence]:
    """Yield what undoes a setting of the sampler in a set of samples."""
    if view.is_fitted or not len(view):
        return
    sets = [*_natural_sets(view)]
    masks = np.array([samples for _, samples in sets])
    for name, relation in (_relations(view) if sets else {}).items():
        sums, follow = relation
        gains = follow(sums @ masks.T)
        text, samples = sets[int(np.argmax(gains))]
        rng = np.random.default_rng(0)
        chance = Null(partial(_draw_best, masks, relation, rng), masks.size)
        if gains.max() > 0 and chance.p_value(float(gains.max())) <= LEVEL:
            yield from _undone(view, name, samples, text)
    yield from _undone(view, "truncated_sampling", _one_sided(view), "")


def _draw_best(
    masks: Array, relation: _Relation, rng: np.random.Generator, num: int
) -> Array:
    sums, follow = relation
    orders = (rng.permutation(masks.shape[1]) for _ in range(num))
    return np.array([follow(sums[:, order] @ masks.T).max() for order in orders])


def _relations(view: View) -> dict[str, _Relation]:
    return {
        "truncated_sampling": (
            sums_of_mass(view),
            lambda s: s[1] - MIN_MISSING * s[2],
        ),
        "temperature": (sums_of_line(view), _excess_of_line),
    }


def _excess_of_line(sums: Array) -> Array:
    """Return the squares that a line explains beyond the least part of them."""
    xx, xy, yy = about_means(sums)
    line = np.divide(xy**2, xx, out=np.zeros_like(xy), where=xx > 0)
    return line - MIN_EXPLAINED * yy


def _natural_sets(view: View) -> Iterator[tuple[str, Array]]:
    present = np.flatnonzero(view.num_per_sample)
    begins = np.searchsorted(view.sample, present)
    for column in columns_of_tokens(view):
        codes = np.full(view.batch.num_samples, -1)
        codes[present] = column.codes[begins]
        if column.name == "images_seen":
            code = [*column.values].index(0) if 0 in column.values else -1
            chosen = (column.codes == code) & (code >= 0)
            samples = codes == code
            if samples.any() and (chosen == samples[view.sample]).all():
                yield column.condition("<=", code).text, samples
        elif column.scope == "sample" and "=" in column.relations:
            for code in range(len(column.values)):
                yield column.condition("=", code).text, codes == code


def _one_sided(view: View) -> Array:
    """Return the samples that a truncation can have: `b` is never below `a` there.

    Those with a log-prob of exactly 0 at an uncertain token, or with so many diffs
    below 0 that a fair coin gives as many in one batch of 200.
    """
    num = view.batch.num_samples
    differs = view.uncertain & (view.diff != 0)
    total, below, alone = (
        np.bincount(view.sample[chosen], minlength=num)
        for chosen in (
            differs,
            differs & (view.diff < 0),
            differs & (view.log_prob_b == 0),
        )
    )
    p = np.where(below > 0, bdtrc(below - 1.0, total, 0.5), 1.0)
    return (alone > 0) | (p * num < LEVEL)


def _undone(view: View, name: str, samples: Array, text: str) -> Iterator[Evidence]:
    chosen = samples[view.sample]
    if (
        view.samples_with(chosen).sum() < MIN_SAMPLES
        or chosen.all()
        or name not in DETECTORS
    ):
        return
    for place in find_places(view)[:1]:
        size = view.abs_diff * place.tokens
        if 2 * size[chosen].sum() <= size.sum():
            return
    for evidence in DETECTORS[name].evidence(view.keep(chosen)):
        tokens = np.zeros(len(view), dtype=bool)
        tokens[chosen] = evidence.tokens
        yield replace(
            evidence,
            cause=evidence.cause or name,
            tokens=tokens,
            effect=_within(samples, evidence),
            where={**evidence.where, "condition": text} if text else evidence.where,
        )


def _within(samples: Array, evidence: Evidence) -> Callable[[View], Array]:
    undo = evidence.effect

    def effect(view: View) -> Array:
        inside = samples[view.sample]
        left = np.zeros(len(view))
        if undo is not None:
            left[inside] = undo(view.keep(inside))
        return left

    return effect
