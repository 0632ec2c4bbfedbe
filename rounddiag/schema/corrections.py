"""CORRECTIONS: what trainers do with the importance ratio, with their own defaults.

Every correction multiplies the advantage of a token by a weight and drops tokens, or
whole samples, whose statistic is outside bounds. A new one is a record here;
`core.corrections` computes any of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from rounddiag.errors import FrameError, nearest

# Of the log ratio L of a token: e^L, e^-L, L^2/2, e^L - 1 - L; the absolute difference
# of probabilities, and the signed one, which drops only what the advantage would take
# further away; and the larger of the two Kullback-Leibler divergences of Bernoulli
# distributions with both probabilities.
Estimator: TypeAlias = Literal[
    "ratio", "k1", "k2", "k3", "prob_diff", "signed_prob_diff", "binary_kl"
]
# Of each token; of the sum or the mean over a sample; of every token of a sample.
_Level: TypeAlias = Literal["token", "sum", "mean", "all"]


@dataclass(frozen=True)
class Correction:
    """One way to correct an update for the mismatch.

    Attributes
    ----------
    meaning: What it does, for a label.
    source: The trainers that have it, with these bounds as their default.
    weight: What the advantage is multiplied by: 1, the token's ratio, the product of
        the ratios of its sample, or the `current / old` ratio as PPO clips it.
    clip: The weight is clamped to this range.
    estimator, level: The statistic that decides what is dropped.
    bounds: What is inside them is kept. Those of `k1` are ratios, as verl writes them.
    """

    name: str
    meaning: str
    source: str
    weight: Literal["one", "token", "sample", "update"] = "token"
    clip: tuple[float, float] = (0.0, math.inf)
    estimator: Estimator = "ratio"
    level: _Level = "token"
    bounds: tuple[float, float] = (0.0, math.inf)

    @property
    def limit(self) -> float | None:
        """The upper one of its bounds, else the largest weight; None without any."""
        highs = (self.bounds[1], self.clip[1])
        return next((high for high in highs if math.isfinite(high)), None)

    @property
    def is_ratio(self) -> bool:
        """Whether its limit is a ratio, of which 1 is no mismatch."""
        return math.isinf(self.bounds[1]) or self.estimator in ("ratio", "k1")

    def limited(self, limit: float) -> Correction:
        """Return it with another limit; of two bounds, the lower one moves as far.

        Examples
        --------
        >>> CORRECTIONS["icepop"].limited(25.0).bounds
        (0.25, 25.0)
        """
        low, high = self.bounds
        if not limit > (1 if self.is_ratio else 0):
            raise FrameError.build(
                key="limit",
                expected="a ratio above 1" if self.is_ratio else "a number above 0",
                found=f"{limit!r:.80}",
                advice="Leave it out for the default of the trainers.",
            )
        if math.isinf(high):
            return replace(self, clip=(self.clip[0], limit))
        if low > 0:
            low **= math.log(limit) / math.log(high)
        elif low < 0:
            low = -limit
        return replace(self, bounds=(low, limit))


CORRECTIONS: dict[str, Correction] = {
    correction.name: correction
    for correction in (
        Correction("none", "no correction", "", weight="one"),
        Correction(
            "tis",
            "token ratio, at most 2",
            "verl `rollout_is: token`, SkyRL `tis_ratio_type: token`, slime",
            clip=(0.0, 2.0),
        ),
        Correction(
            "tis_trl", "token ratio, at most 3", "TRL `token_truncate`", clip=(0.0, 3.0)
        ),
        Correction(
            "icepop",
            "token ratio, dropped outside 0.5 to 5",
            "verl IcePop, OpenRLHF `token`, `mask`, NeMo-RL `icepop`, prime-rl",
            bounds=(0.5, 5.0),
        ),
        Correction(
            "mis_prime_rl",
            "token ratio, dropped outside 1/8 to 8",
            "prime-rl before IPO",
            bounds=(0.125, 8.0),
        ),
        Correction(
            "ipo_prime_rl",
            "token ratio, dropped above a probability difference of 0.3",
            "prime-rl `ipo`",
            estimator="prob_diff",
            bounds=(0.0, 0.3),
        ),
        Correction(
            "dppo_prime_rl",
            "token ratio, dropped where the probability is 0.2 off and would go on",
            "prime-rl `default`, `dppo_mask_low`, `dppo_mask_high`",
            estimator="signed_prob_diff",
            bounds=(-0.2, 0.2),
        ),
        Correction(
            "sequence_tis",
            "product of a sample's ratios, at most 2",
            "verl `rollout_is: sequence`",
            weight="sample",
            clip=(0.0, 2.0),
        ),
        Correction(
            "sequence_tis_skyrl",
            "product of a sample's ratios, at most 5",
            "SkyRL `tis_ratio_type: sequence`",
            weight="sample",
            clip=(0.0, 5.0),
        ),
        Correction(
            "sequence_mask_trl",
            "product of a sample's ratios, dropped above 3",
            "TRL `sequence_mask`",
            weight="sample",
            level="sum",
            bounds=(0.0, 3.0),
        ),
        Correction(
            "sequence_rejection",
            "product of a sample's ratios, dropped outside 0.5 to 2",
            "verl `decoupled_seq_is_rs`",
            weight="sample",
            clip=(0.0, 2.0),
            estimator="k1",
            level="sum",
            bounds=(0.5, 2.0),
        ),
        Correction(
            "product_mask_skyrl",
            "samples dropped outside a product of 0.5 to 2",
            "SkyRL `sequence_mask_metric: product`",
            weight="one",
            level="sum",
            bounds=(0.5, 2.0),
        ),
        Correction(
            "geometric",
            "samples dropped outside a mean of 0.999 to 1.001",
            "verl `decoupled_geo_rs`",
            weight="one",
            estimator="k1",
            level="mean",
            bounds=(0.999, 1.001),
        ),
        Correction(
            "geometric_skyrl",
            "samples dropped outside a mean of 0.99 to 1.01",
            "SkyRL `sequence_mask_metric: geometric`",
            weight="one",
            level="mean",
            bounds=(0.99, 1.01),
        ),
        Correction(
            "geometric_openrlhf",
            "token ratio, samples dropped outside a mean of 0.5 to 5",
            "OpenRLHF `seq`, `mask`",
            level="mean",
            bounds=(0.5, 5.0),
        ),
        Correction(
            "seq_mask_tis",
            "token ratio, samples dropped outside a mean of 0.999 to 1.002",
            "NeMo-RL `seq-mask-tis` with the bounds of its recipe",
            level="mean",
            bounds=(0.999, 1.002),
        ),
        Correction(
            "k3_rejection",
            "samples dropped above a mean k3 of 0.01",
            "verl `bypass_ppo_clip_k3_rs`",
            weight="one",
            estimator="k3",
            level="mean",
            bounds=(0.0, 0.01),
        ),
        Correction(
            "veto",
            "samples dropped with a token outside 1e-4 to 100",
            "SkyRL `outlier_token_is_threshold`, verl before 0.7",
            weight="one",
            level="all",
            bounds=(1e-4, 100.0),
        ),
        Correction(
            "ppo_clip",
            "update ratio, clipped outside 0.8 to 1.2",
            "PPO, GRPO",
            weight="update",
            bounds=(0.8, 1.2),
        ),
        Correction(
            "gspo_clip",
            "geometric mean of a sample's update ratios, clipped",
            "GSPO",
            weight="update",
            level="mean",
            bounds=(1 - 3e-4, 1 + 4e-4),
        ),
    )
}


def find_correction(name: str | Correction) -> Correction:
    """Return the correction of this name; one of your own is returned as it is.

    Examples
    --------
    >>> find_correction("icepop").bounds
    (0.5, 5.0)
    """
    if isinstance(name, Correction):
        return name
    if name in CORRECTIONS:
        return CORRECTIONS[name]
    raise FrameError.build(
        key="names",
        expected=f"corrections out of {[*CORRECTIONS]}",
        found=repr(name),
        advice=nearest(name, CORRECTIONS, "Name one of these, or pass a Correction."),
    )


def weight_column(correction: Correction) -> str:
    """Return the column of a token frame that has the weights of a correction.

    Examples
    --------
    >>> weight_column(CORRECTIONS["tis"])
    'weight_tis'
    """
    return f"weight_{correction.name}"
