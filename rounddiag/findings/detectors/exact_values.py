"""`identical_log_probs` and `low_precision`: equal columns, the grid of a dtype."""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING

import numpy as np

from rounddiag.findings.finding import Evidence
from rounddiag.findings.measure import Measure
from rounddiag.findings.registry import register
from rounddiag.findings.two_kinds import find_two_kinds
from rounddiag.wording import pluralize

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rounddiag._typing import Array
    from rounddiag.findings.view import View


# Fewest uncertain tokens of an equal row: certain ones are 0 in both engines.
MIN_UNCERTAIN = 5
# Largest probability that a whole row is equal by chance, if its tokens are like those
# of the other rows.
MAX_CHANCE = 1e-4


@register("identical_log_probs", kind="fact")
def identical_log_probs(view: View) -> Evidence | None:
    """Find rows whose log-probs are bitwise equal in both columns."""
    if view.is_fitted:
        return None  # a fit may leave nothing
    uncertain = view.per_sample(view.uncertain.astype(float)) * view.num_per_sample
    differs = view.per_sample((view.diff != 0).astype(float))
    rows = (differs == 0) & (uncertain >= MIN_UNCERTAIN)
    others = (view.num_per_sample > 0) & ~rows
    if not rows.any():
        return None
    whole = not view.abs_diff.any()
    if not whole:
        # By chance about half of the tokens may be equal, never a whole row.
        equal = 1 - float(np.nanmean(differs[others]))
        expected = equal ** float(np.median(uncertain[rows]))
        if expected > MAX_CHANCE:
            return None
    if not whole and "rollout" not in (view.a, view.b):
        return None  # micro-batches of equal shape are equal in both passes
    samples = "all samples"
    if not whole:
        samples = f"{int(rows.sum()):,} of {pluralize(len(rows), 'sample')}"
    fact = f"{samples} have equal log-probs from both engines"
    kinds = None if whole else find_two_kinds(view)
    if kinds and not kinds.most_elsewhere and not rows[view.sample][kinds.tokens].any():
        num_equal = kinds.num_units - len(kinds.differing)
        fact = (
            f"{num_equal:,} of {pluralize(kinds.num_units, kinds.unit)} are bitwise"
            f" equal; the others differ by {kinds.mean:.2g} nat on average"
        )
    return Evidence(
        tokens=rows[view.sample],
        adds_mismatch=False,
        where={"fact": fact},
        shown=(
            "Equal bit by bit in both columns: true on-policy scoring, or one column"
            " is a copy of the other."
        ),
        measures=(Measure("equal rows", float(rows.sum()), "samples"),),
        next_step=(
            "If the trainer makes no pass of its own (verl: "
            "`rollout_correction.bypass_mode`), let it make one to compare the engines."
        ),
    )


# Least share of the values that lie on the grid. By chance, it is one in 2**13 of
# float32 values or fewer. 0.8 or 0.97 change no answer of `tests.faults.bench --set`.
MIN_SHARE = 0.9
MIN_TOKENS = 30  # that are lower than `_FINE`
# Nearer to 0, a float32 log-prob has the steps of its logits, 2**-18 of those of up to
# 64: these lie on the grid of float16.
_FINE = -(2.0**-7)
# How many of the lowest bits of a float32 are 0 in values of each dtype.
_LOW_BITS = {"bfloat16": 16, "float16": 13}
# Steps of grids with equal distances, as of values that were quantised or printed.
_STEPS = tuple(2.0**-k for k in range(1, 9))


@register("low_precision", kind="fact")
def low_precision(view: View) -> Iterator[Evidence]:
    """Find a column whose values all lie on a coarse grid."""
    if view.is_fitted:
        return
    for values, name in ((view.log_prob_b, view.b), (view.log_prob_a, view.a)):
        lower = values[values < _FINE]
        grid = find_grid(lower) if len(lower) >= MIN_TOKENS else None
        if grid is None:
            continue
        text, step = grid
        yield Evidence(
            severity="note",
            adds_mismatch=False,
            tokens=np.ones(len(view), dtype=bool),
            measures=(
                Measure("share on the grid", 1.0, "share"),
                Measure("typical step", step, "nat"),
                Measure("median |diff|", float(np.median(view.abs_diff)), "nat"),
            ),
            shown=f"`{name}` log-probs lie on the grid of {text}.",
            next_step=(
                "Compute log-softmax, and store log-probs, in float32 on both sides; "
                "set lm_head to float32 to see what is left."
            ),
        )


def _is_on_grid(values: Array, step: float) -> bool:
    return bool((values == np.round(values / step) * step).mean() > MIN_SHARE)


def find_grid(values: Array) -> tuple[str, float] | None:
    """Return the grid that values lie on, and its step near them, or None."""
    # Each grid is part of the next one.
    fitting = takewhile(lambda step: _is_on_grid(values, step), reversed(_STEPS))
    if steps := [*fitting]:
        return f"multiples of {steps[-1]:g}", steps[-1]
    bits = values.astype(np.float32).view(np.uint32)
    for name, low in _LOW_BITS.items():
        if (bits & ((1 << low) - 1) == 0).mean() > MIN_SHARE:
            size = float(np.median(np.abs(values)))
            return name, size * 2.0 ** -(23 - low)
    return None
