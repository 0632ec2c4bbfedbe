"""CORRECTIONS: what trainers do with the importance ratio, with their own defaults.

A correction multiplies the advantage of a token by factors, its `weight`, and drops
tokens, or whole samples, that do not meet the conditions of its `mask`. A rule of a
trainer is a record here; `core.weights` computes any of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, TypeAlias, TypeVar

from rounddiag.errors import FrameError, require_one_of

# Of the mismatch (a / b, by default old / rollout); of the update (current / old); the
# whole one (current / rollout; that of the mismatch where `current` is unknown).
RatioName: TypeAlias = Literal["mismatch", "update", "whole"]
# Of the log ratio L of a token: e^L; with L clamped to 20 nats, as in verl's rejection,
# k1 (e^-L), k2 (L^2/2) and k3 (e^L - 1 - L); the difference of probabilities |p - q|;
# and the divergence KL(q, p) of Bernoulli distributions with them, as in DPPO.
Quantity: TypeAlias = Literal["ratio", "k1", "k2", "k3", "prob_diff", "binary_kl"]
# Of each token; the sum or mean over a sample, of ratios in logarithms: their product
# or geometric mean; every token of a sample.
_Level: TypeAlias = Literal["token", "sum", "mean", "all"]
Bounds: TypeAlias = tuple[float, float]
_ANY: Bounds = (0.0, math.inf)
_RATIO = {"mismatch": "ratio", "update": "update ratio", "whole": "whole ratio"}
_OF_RATIO = {
    "token": "",
    "sum": "product of a sample's ",
    "mean": "mean of a sample's ",
}
_SIGN = {
    "any": "",
    "away": " in the direction of the advantage",
    "negative": " at a negative advantage",
}


@dataclass(frozen=True, kw_only=True)
class Edges:
    """What a trainer does with log ratios that are large, infinite or unknown.

    Attributes
    ----------
    nats: A log ratio, or the sum or mean of a sample, is clamped to it before its
        exponential: with 20 nats, the ratio of -inf is 2e-9.
    zeroes: Log ratios that count as 0, a ratio of 1.
    drops_infinite: A ratio beyond float32, or an unknown one, is a weight of 0.
    keeps_unknown: A mask keeps what it cannot compare with its bounds.
    spreads: A token outside `loss_mask` that is not finite spoils its sample.
    """

    nats: float = math.inf
    zeroes: Literal["none", "nan", "nonfinite"] = "none"
    drops_infinite: bool = False
    keeps_unknown: bool = False
    spreads: bool = False


_VERL = Edges(nats=20.0)
_SKYRL = Edges(nats=20.0, keeps_unknown=True, spreads=True)
_TRL = Edges(zeroes="nan")
_OPENRLHF = Edges(spreads=True)
_PRIME_RL = Edges(keeps_unknown=True)
_NEMO_RL = Edges(zeroes="nonfinite", drops_infinite=True)


@dataclass(frozen=True)
class Weight:
    """A factor of the weight: a ratio, clipped to its bounds or dropped outside.

    A token that is dropped here has the weight 0 and stays in the loss's denominator.

    Attributes
    ----------
    is_normalised: The factor is divided by its mean over the tokens of the batch, or
        over its samples where the level is one of samples.
    """

    bounds: Bounds = _ANY
    level: Literal["token", "sum", "mean"] = "token"
    ratio: RatioName = "mismatch"
    outside: Literal["clip", "drop"] = "clip"
    is_normalised: bool = False

    def __post_init__(self) -> None:
        _check_bounds(self.bounds, needs_one=False)
        if self.outside == "drop" and self.bounds == _ANY:
            raise _refuse(expected="a bound, to drop what is outside", found="none")

    @property
    def meaning(self) -> str:
        """What it is, for a label."""
        verb = {"drop": ", dropped", "clip": ", clipped"}[self.outside]
        bounds = "" if self.bounds == _ANY else f"{verb} {_outside(self.bounds)}"
        mean = ", over its mean" if self.is_normalised else ""
        return f"{_OF_RATIO[self.level]}{_RATIO[self.ratio]}{bounds}{mean}"


@dataclass(frozen=True)
class Mask:
    """A condition that a token, or its sample, has to meet.

    Attributes
    ----------
    bounds: What is inside of them is kept. Those of `k1` are ratios, as verl has them.
    sign: Where it holds: at any advantage; where the advantage takes the token further
        `away` (it has the sign of the log ratio, as where PPO clips); at a `negative`
        advantage.
    shrinks: A mean over tokens divides by those that are left, as with verl's
        `rollout_rs`, and not by all.
    """

    bounds: Bounds
    quantity: Quantity = "ratio"
    level: _Level = "token"
    ratio: RatioName = "mismatch"
    sign: Literal["any", "away", "negative"] = "any"
    shrinks: bool = False

    def __post_init__(self) -> None:
        _check_bounds(self.bounds, needs_one=self.is_ratio and self.sign == "away")

    @property
    def is_ratio(self) -> bool:
        """Whether its bounds are ratios, of which 1 is no mismatch."""
        return self.quantity in ("ratio", "k1")

    @property
    def meaning(self) -> str:
        """What it drops, for a label."""
        ratio = _RATIO[self.ratio]
        names = {"ratio": ratio, "k1": f"1 / {ratio}", "prob_diff": "|p - q|"}
        name = {**names, "binary_kl": "binary KL"}.get(self.quantity, self.quantity)
        of = {"sum": "product of" if self.is_ratio else "sum of", "all": "any"}
        level = {"token": "the", "mean": "the mean"}.get(self.level, of.get(self.level))
        unit = "tokens" if self.level == "token" else "samples"
        where = f"{_outside(self.bounds)}{_SIGN[self.sign]}"
        return f"{unit} dropped where {level} {name} is {where}"


_Part = TypeVar("_Part", Weight, Mask)


@dataclass(frozen=True)
class Correction:
    """One way to correct an update for the mismatch.

    Attributes
    ----------
    source: The trainers that have it: version, file and setting.
    weight: The advantage is multiplied by their product; by 1 without any.
    mask: A token is kept if it meets all of them.
    edges: What happens to log ratios that are large, infinite or unknown.
    """

    name: str
    source: str = ""
    weight: tuple[Weight, ...] = ()
    mask: tuple[Mask, ...] = ()
    edges: Edges = _VERL

    @property
    def meaning(self) -> str:
        """What it does, for a label.

        Examples
        --------
        >>> CORRECTIONS["icepop"].meaning
        'ratio, dropped outside 0.5 to 5'
        """
        return "; ".join(part.meaning for part in self.parts) or "no correction"

    @property
    def parts(self) -> tuple[Weight | Mask, ...]:
        """Its masks, then its weights."""
        return (*self.mask, *self.weight)

    @property
    def ratios(self) -> set[RatioName]:
        """Which ratios it reads."""
        return {part.ratio for part in self.parts}

    @property
    def _limited(self) -> Mask | Weight | None:
        return next((p for p in self.parts if math.isfinite(p.bounds[1])), None)

    @property
    def bounds(self) -> Bounds:
        """Those of its first mask or else weight that has an upper one."""
        return self._limited.bounds if self._limited else _ANY

    @property
    def limit(self) -> float | None:
        """The upper one of its bounds; None without any."""
        return self.bounds[1] if self._limited else None

    @property
    def is_ratio(self) -> bool:
        """Whether its limit is a ratio, of which 1 is no mismatch."""
        return not isinstance(self._limited, Mask) or self._limited.is_ratio

    def limited(self, limit: float) -> Correction:
        """Return it with another limit; of two bounds, the lower one moves as far.

        Examples
        --------
        >>> CORRECTIONS["icepop"].limited(25.0).bounds
        (0.25, 25.0)
        """
        part = self._limited
        if part is None or not limit > (1 if self.is_ratio else 0):
            raise _refuse(
                key="limit",
                expected="a ratio above 1" if self.is_ratio else "a number above 0",
                found=f"{limit!r:.80}" if part else "a correction without bounds",
            )
        low, high = part.bounds
        if low > 0:
            low **= math.log(limit) / math.log(high)
        bounds = (low, limit)

        def moved(own: _Part) -> _Part:
            return replace(own, bounds=bounds) if own is part else own

        weight, mask = ([*map(moved, parts)] for parts in (self.weight, self.mask))
        return replace(self, weight=(*weight,), mask=(*mask,))


def _check_bounds(bounds: Bounds, *, needs_one: bool) -> None:
    if not 0 <= bounds[0] < bounds[1]:
        raise _refuse(expected="0 or more, the lower one first", found=bounds)
    if needs_one and not bounds[0] <= 1 <= bounds[1]:
        raise _refuse(expected="a range around 1 for `away`", found=bounds)


def _refuse(*, expected: str, found: object, key: str = "bounds") -> FrameError:
    advice = "Leave it out for the default of the trainers."
    return FrameError.build(key=key, expected=expected, found=str(found), advice=advice)


def _outside(bounds: Bounds) -> str:
    low, high = (f"{bound:.6g}" for bound in bounds)
    if math.isinf(bounds[1]):
        return f"below {low}"
    return f"above {high}" if bounds[0] == 0 else f"outside {low} to {high}"


def _preset(
    place: str, edges: Edges, name: str, setting: str, *parts: Weight | Mask
) -> Correction:
    return Correction(
        name=name,
        source=f"{place}: {setting}",
        weight=tuple(part for part in parts if isinstance(part, Weight)),
        mask=tuple(part for part in parts if isinstance(part, Mask)),
        edges=edges,
    )


_TIS, _SEQUENCE_TIS = Weight((0.0, 2.0)), Weight((0.0, 2.0), "sum")
_NORMALISED_TIS = replace(_TIS, is_normalised=True)
_UPDATE, _UPDATE_TO_3 = Weight(ratio="update"), Weight((0.0, 3.0), ratio="update")
_UPDATE_MEAN, _WHOLE = Weight(level="mean", ratio="update"), Weight(ratio="whole")
# PPO stops a gradient beyond its range that goes on in the same direction; a dual clip
# also stops one of a negative advantage where the ratio is large.
_CLIP = Mask((0.8, 1.2), ratio="update", sign="away")
_DUAL_CLIP = Mask((0.0, 3.0), ratio="update", sign="negative")
_TV, _KL = (
    Mask((0.0, 0.2), quantity, ratio="whole", sign="away")
    for quantity in ("prob_diff", "binary_kl")
)
# DeepSeek-V3.2 drops a sample of a negative advantage where the mean of -L is large.
_OFF_POLICY = Mask((math.exp(-0.5), math.inf), level="mean", sign="negative")

_verl = partial(_preset, "verl 0.9.1, trainer/config/algorithm.py", _VERL)
_verl_loss = partial(_preset, "verl 0.9.1, trainer/ppo/core_algos.py", _VERL)
_gspo = partial(_preset, "verl 0.9.1, trainer/ppo/core_algos.py", Edges(nats=10.0))
_trl = partial(_preset, "_TRL 1.16.0, trainer/grpo_config.py", _TRL)
_skyrl = partial(_preset, "SkyRL 0.3.0, train/config/config.py", _SKYRL)
_openrlhf = partial(_preset, "OpenRLHF 0.11.2, models/loss.py", _OPENRLHF)
_nemo_rl = partial(_preset, "NeMo-RL 006907a9, loss_functions.py", _NEMO_RL)
_slime = partial(_preset, "slime, train_infer_mismatch_helper/mis.yaml", _SKYRL)
_opsm = partial(_preset, "slime 06787cf5, utils/ppo_utils.py", _PRIME_RL)
_prime_rl = partial(_preset, "prime-rl, configs/trainer.py", _PRIME_RL)
CORRECTIONS: dict[str, Correction] = {
    preset.name: preset
    for preset in (
        Correction("none"),
        _verl("tis", "decoupled_token_is; SkyRL token; slime --use-tis", _TIS),
        _verl("tis_normalised", "rollout_is_batch_normalize", _NORMALISED_TIS),
        _verl(
            *("icepop", "decoupled_token_icepop; OpenRLHF token; NeMo-RL icepop"),
            Weight((0.5, 5.0), outside="drop"),
        ),
        _verl("sequence_tis", "decoupled_seq_is", _SEQUENCE_TIS),
        _verl(
            *("sequence_rejection", "decoupled_seq_is_rs"),
            _SEQUENCE_TIS,
            Mask((0.5, 2.0), "k1", "sum", shrinks=True),
        ),
        _verl(
            *("geometric", "decoupled_geo_rs"),
            Mask((0.999, 1.001), "k1", "mean", shrinks=True),
        ),
        _verl(
            *("k3_rejection", "decoupled_k3_rs"),
            Mask((0.0, 0.01), "k3", "mean", shrinks=True),
        ),
        _trl(
            *("sequence_mask_trl", "sequence_mask, its default"),
            Weight((0.0, 3.0), "sum", outside="drop"),
        ),
        _trl("sequence_truncate_trl", "sequence_truncate", Weight((0.0, 3.0), "sum")),
        _trl("tis_trl", "token_truncate", Weight((0.0, 3.0))),
        _trl("token_mask_trl", "token_mask", Weight((0.0, 3.0), outside="drop")),
        _trl(
            *("off_policy_mask_trl", "off_policy_mask_threshold, off by default"),
            replace(_OFF_POLICY, ratio="whole"),
        ),
        _skyrl(
            *("sequence_tis_skyrl", "tis_ratio_type: sequence"),
            Weight((0.0, 5.0), "sum"),
        ),
        _skyrl(
            *("product_mask_skyrl", "sequence_mask_metric: product"),
            Mask((0.5, 2.0), level="sum"),
        ),
        _skyrl(
            *("geometric_skyrl", "sequence_mask_metric: geometric"),
            Mask((0.99, 1.01), level="mean"),
        ),
        _skyrl(
            *("veto", "outlier_token_is_threshold_low, _high, off by default"),
            Mask((1e-4, 100.0), level="all"),
        ),
        _openrlhf(
            *("geometric_openrlhf", "is_correction_level: seq", Weight()),
            Mask((0.5, 5.0), level="mean"),
        ),
        _nemo_rl(
            *("seq_mask_tis", "seq-mask-tis, bounds of its comment", Weight()),
            Mask((0.999, 1.002), level="mean"),
        ),
        _slime(
            *("mis_slime", "tis_mode, rs_level, rs_veto_threshold", _NORMALISED_TIS),
            Mask((0.5, 2.0), shrinks=True),
            Mask((1e-4, math.inf), level="all", shrinks=True),
        ),
        _opsm(
            *("off_policy_mask_slime", "--opsm-delta, off by default"),
            replace(_OFF_POLICY, ratio="update", bounds=(math.exp(-1e-4), math.inf)),
        ),
        _prime_rl(
            *("ipo_prime_rl", "eps, of 2026-09-18, its default", Weight((0.0, 1e4))),
            Mask((0.0, 0.3), "prob_diff"),
        ),
        _prime_rl(
            *("icepop_prime_rl", "ratio_low, ratio_high, of 2026-09-10", Weight()),
            Mask((0.2, 5.0)),
        ),
        _prime_rl(
            *("dppo_prime_rl", "dppo_mask_low, _high, until 2026-08-27", Weight()),
            replace(_TV, ratio="mismatch"),
        ),
        _prime_rl(
            *("mis_prime_rl", "mask_ratio_low, mask_ratio_high, of 2025", Weight()),
            Mask((0.125, 8.0)),
        ),
        _skyrl("dppo_tv_skyrl", "dppo_type: binary_tv", _WHOLE, _TV),
        _skyrl("dppo_kl_skyrl", "dppo_type: binary_kl", _WHOLE, _KL),
        _verl_loss("ppo_clip", "vanilla without clip_ratio_c; _TRL", _UPDATE, _CLIP),
        _verl_loss("ppo_dual_clip", "vanilla", _UPDATE, _CLIP, _DUAL_CLIP),
        _verl_loss(
            *("ppo_clip_tis", "vanilla with rollout_is: token"),
            *(_UPDATE, _TIS, _CLIP, _DUAL_CLIP),
        ),
        _verl_loss("cispo", "cispo", Weight((0.8, 1.2), ratio="update")),
        _skyrl("cispo_skyrl", "cispo", Weight((1.0, 6.0), ratio="update")),
        _trl(
            *("cispo_trl", "loss_type: cispo, epsilon_high: 5.0 as advised"),
            Weight((0.0, 5.0), ratio="update"),
        ),
        _gspo(
            *("gspo_clip", "gspo, clip_ratio_low, _high of the paper", _UPDATE_MEAN),
            replace(_CLIP, level="mean", bounds=(1 - 3e-4, 1 + 4e-4)),
        ),
        _gspo("gspo_clip_verl", "gspo", _UPDATE_MEAN, replace(_CLIP, level="mean")),
        _verl_loss(
            "dppo_tv_verl", "dppo_tv", _UPDATE_TO_3, replace(_TV, ratio="update")
        ),
        _verl_loss(
            "dppo_kl_verl", "dppo_kl", _UPDATE_TO_3, replace(_KL, ratio="update")
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
    advice = "Name one of these, or pass a Correction."
    require_one_of(name, CORRECTIONS, key="names", advice=advice)
    return CORRECTIONS[name]


def weight_column(correction: Correction) -> str:
    """Return the column of a token frame that has the weights of a correction.

    Examples
    --------
    >>> weight_column(CORRECTIONS["tis"])
    'weight_tis'
    """
    return f"weight_{correction.name}"
