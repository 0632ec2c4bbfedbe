"""Tokens that differ more than equally likely ones usually do, at several levels."""

from __future__ import annotations

import numpy as np

from rounddiag._typing import Array
from rounddiag.findings.bins import group_by_bin, mean_by_bin
from rounddiag.findings.conditions import ColumnOfTokens, token_id_column
from rounddiag.findings.slices import MAD, scan
from rounddiag.findings.view import LARGEST_DIFF, ROUNDING, View

# Factors by which a token exceeds its usual |diff|. Each is a level of its own: a place
# has many small excesses, or few large ones.
EXCESS_FACTORS = (3.0, 10.0, 40.0)
_SOFT = 0.01  # least 1 - p: below it, |diff| is mostly rounding of the log-prob itself
_NORMAL = 5.37  # median over 10 % quantile of |x| for a standard normal x
# At most so many ids can name a place, each with at least so many tokens, and with an
# excess so many spreads above that of the other ids.
_MAX_IDS, _MIN_OF_ID, _ID_SPREADS = 24, 5, 3.0


def find_excesses(view: View) -> list[Array]:
    """Return, for each level, the tokens that exceed it.

    The unit is the median of equally likely tokens. Where most tokens are at fault, it
    is too large, and the unit of those that agree best counts as well.
    """
    weight = np.sqrt(np.expm1(np.minimum(view.log_prob_b, 0.0)) ** 2 + _SOFT**2)
    size = np.minimum(view.abs_diff, 2 * LARGEST_DIFF) / weight
    code = view.bin
    groups = group_by_bin(code, int(code.max()) + 1)
    low, middle = np.array(
        [np.quantile(size[tokens], (0.1, 0.5)) for tokens in groups]
    ).T
    unit = _bound_units(middle)[code]
    excesses = [size > level * unit for level in EXCESS_FACTORS]
    quiet = _NORMAL * low
    if np.median(quiet) < np.median(middle) / EXCESS_FACTORS[0]:
        unit = _bound_units(quiet)[code]
        excesses += [size > level * unit for level in EXCESS_FACTORS[:2]]
    return excesses


def _bound_units(units: Array) -> Array:
    return np.maximum(units, max(0.3 * float(np.median(units)), ROUNDING))


def usual_size(view: View, outside: Array) -> tuple[Array, Array]:
    """Return |diff| of each token, and that of equally likely tokens outside."""
    size = np.minimum(view.abs_diff, LARGEST_DIFF)
    usual = mean_by_bin(view.log_prob_b[outside], size[outside], view.log_prob_b)
    return size, np.maximum(usual, ROUNDING)


def odd_id_columns(view: View, excesses: list[Array]) -> list[ColumnOfTokens]:
    """Return the column of the ids that exceed the usual most often.

    Ids differ by nature: one counts if it is far outside of their spread.
    """
    if view.batch.response_ids is None:
        return []
    known, code = view.distinct_ids
    num = np.bincount(code)
    size = np.minimum(view.abs_diff, LARGEST_DIFF)
    usual = np.bincount(code, weights=view.of_equally_likely(size))
    ratio = np.log(np.bincount(code, weights=size) + 1e-12) - np.log(usual + 1e-12)
    often = ratio[num >= _MIN_OF_ID]
    if not len(often):
        return []
    middle = float(np.median(often))
    spread = float(np.median(np.abs(often - middle))) / MAD
    is_odd = (ratio - middle > _ID_SPREADS * spread) & (num >= _MIN_OF_ID)
    chosen: set[int] = set()
    for over in excesses:
        hits = np.bincount(code[over], minlength=len(known)).astype(float)
        gain = scan(hits, num * (hits.sum() / len(view)), hits.sum(), hits.sum())
        gain[~is_odd | (hits < _MIN_OF_ID)] = 0.0
        best = np.argsort(-gain)[: _MAX_IDS // len(excesses)]
        chosen |= {int(known[index]) for index in best if gain[index] > 0}
    if not chosen:
        return []
    return [token_id_column(view, np.array(sorted(chosen)))]
