"""What corrections of an update for the mismatch do to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rounddiag._typing import Array
from rounddiag.batch import Batch
from rounddiag.core.aggregation import means_of_sums
from rounddiag.core.measured import Measured, number_values
from rounddiag.core.scores import tag_as
from rounddiag.core.weights import Ratios
from rounddiag.schema import CORRECTIONS, Correction, find_correction

if TYPE_CHECKING:
    import pandas as pd


def corrections(
    batch: Batch,
    names: Sequence[str | Correction] | None = None,
    *,
    advantages: Array | None = None,
    by: str | None = None,
    a: str = "old",
    b: str = "rollout",
) -> pd.DataFrame:
    r"""Return what each correction does to the update: weights, and what it drops.

    Parameters
    ----------
    batch : Batch
    names : sequence of str or Correction, optional
        Names of `rounddiag.schema.CORRECTIONS`, or records of your own. All of them
        where left out, those of the update only for the standard pair of a batch with a
        score `current`.
    advantages : array, optional
        One per sample or per generated token, in place of the batch's own. Without
        any, every token counts as much.
    by : str, optional
        A column of tokens, rounds or samples: a row for each of its values too.
    a, b : str
        The scores of the ratio :math:`\pi_a / \pi_b`.

    Returns
    -------
    DataFrame
        A row per correction, with `by` one per value of it: `correction`; `num_tokens`;
        `tokens_kept` and `samples_kept`, shares; `mean_weight`;
        `effective_sample_size`, :math:`(\sum w)^2 / (n \sum w^2)` over the tokens, 0 to
        1; `gradient_share`, the part of the step's :math:`\sum |A w|` in this row;
        `gradient_kept`, its :math:`\sum |A w|` over that without correction; `cosine`
        of the weights :math:`A w` and :math:`A`, and `max_weight`. Tokens whose log
        ratio is not finite are left out: `attrs["num_nonfinite"]`.

    Notes
    -----
    The formulas are those of verl 0.9 (`rollout_corr_helper`), SkyRL 0.3, TRL 1.16 and
    OpenRLHF 0.11, with a log ratio clamped to 20 nats. A sequence is a sample.

    Examples
    --------
    >>> import rounddiag as rd
    >>> batch = rd.load("sample_data/image_window.parquet")
    >>> rows = rd.corrections(batch, ["none", "tis", "sequence_tis"])
    >>> rows["tokens_kept"].tolist()
    [1.0, 1.0, 1.0]
    """
    import pandas as pd

    ratios = Ratios.of(batch, a, b, advantages)
    if names is None:
        has_update = ratios.update is not None
        chosen = [c for c in CORRECTIONS.values() if has_update or c.weight != "update"]
    else:
        chosen = [find_correction(name) for name in names]
    code, values = np.zeros(len(ratios.sample), dtype=np.int64), [None]
    if by is not None:
        column = Measured.of(batch, a, b).tokens(by)[by].to_numpy()[ratios.kept]
        code, groups = number_values(by, column)
        values = groups.tolist()
    parts = _Parts.of(code, ratios.sample, len(values))
    frames = [
        _measure(ratios, correction, parts).assign(correction=correction.name)
        for correction in chosen
    ]
    rows = pd.concat(frames, ignore_index=True)
    if by is not None:
        rows[by] = values * len(chosen)
    keys = ["correction", *([by] if by is not None else [])]
    rows = rows[[*keys, *(name for name in rows if name not in keys)]]
    rows.attrs["num_nonfinite"] = int((~ratios.kept).sum())
    return tag_as(rows, Measured.of(batch, a, b).pair)


@dataclass(frozen=True, eq=False, kw_only=True)
class _Parts:
    """A division of tokens by the values of a column.

    Attributes
    ----------
    code: The value of each token, by its number.
    num: Tokens of each value.
    pair, value: Which value and sample a token is in; the value of each such pair.
    """

    code: Array
    num: Array
    pair: Array
    value: Array

    @classmethod
    def of(cls, code: Array, sample: Array, num_values: int) -> _Parts:
        width = int(sample.max(initial=0)) + 1
        known, pair = np.unique(code * width + sample, return_inverse=True)
        num = np.bincount(code, minlength=num_values)
        return cls(code=code, num=num, pair=pair, value=known // width)

    def add(self, values: Array) -> Array:
        """Sum values of tokens."""
        if len(self.num) == 1:  # much faster
            return np.array([values.sum()])
        share: Array = np.bincount(
            self.code, weights=values, minlength=len(self.num)
        ).astype(np.float64)
        return share

    def share_of_samples(self, is_kept: Array) -> Array:
        """Return the share of samples with a token that is kept."""
        alive = np.bincount(self.pair, weights=is_kept, minlength=len(self.value)) > 0
        sizes = [
            np.bincount(v, minlength=len(self.num))
            for v in (self.value[alive], self.value)
        ]
        return means_of_sums(sizes[0].astype(np.float64), sizes[1])


def _measure(ratios: Ratios, correction: Correction, parts: _Parts) -> pd.DataFrame:
    """Return a row for each value of a column."""
    import pandas as pd

    weight, plain = ratios.weights(correction), np.abs(ratios.advantage)
    is_kept, pulled = (weight > 0).astype(np.float64), plain * weight
    largest = np.full(len(parts.num), np.nan)
    np.fmax.at(largest, parts.code, weight)
    total, norm = parts.add(weight), np.sqrt(parts.add(plain**2) * parts.add(pulled**2))
    with np.errstate(invalid="ignore", divide="ignore"):
        return pd.DataFrame(
            {
                "num_tokens": parts.num,
                "tokens_kept": parts.add(is_kept) / parts.num,
                "samples_kept": parts.share_of_samples(is_kept),
                "mean_weight": total / parts.num,
                "max_weight": largest,
                "effective_sample_size": total**2 / (parts.num * parts.add(weight**2)),
                "gradient_share": parts.add(pulled) / pulled.sum(),
                "gradient_kept": parts.add(pulled) / parts.add(plain),
                "cosine": parts.add(plain * pulled) / norm,
            }
        )
