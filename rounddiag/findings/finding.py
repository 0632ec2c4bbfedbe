"""A finding: one cause, with its evidence, its places and what to do next."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from rounddiag.wording import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pandas as pd

    from rounddiag._typing import Array
    from rounddiag.findings.view import View

# The causes that a finding can name, and what each means.
CAUSES: dict[str, str] = {
    # From ids, masks and values.
    "filled_log_probs": "a fixed value in place of log-probs",
    "shifted_log_probs": "log-probs shifted against the tokens",
    "swapped_rows": "log-probs of another row",
    "padding_rows": "padding rows or copies",
    "mask_too_wide": "a mask that covers tokens the model did not write",
    "mask_punched": "holes that a rejection rule left in the mask",
    "identical_log_probs": "two bitwise equal columns",
    "retokenised": "token ids that are not the sampled ones",
    "prompt_mismatch": "different prompts in the two engines",
    "image_expansion": "image tokens counted differently by the engines",
    "position_ids": "different position ids",
    # Sampling.
    "temperature": "different temperatures",
    "truncated_sampling": "log-probs of a truncated distribution (top-p, top-k)",
    "logit_processor": "a penalty on repeated tokens in one engine",
    # Context.
    "dropped_image": "images that one engine did not see",
    "wrong_image": "images of another sample",
    "image_window": "older images that one engine no longer sees",
    "context_masked": "observations that one engine does not attend to",
    # Engines.
    "stale_cache": "a cache filled by older weights",
    "decode_path": "a sampler whose decoding differs from its prefill",
    "packing_leak": "rows of a pack that attend to each other",
    "batch_shape": "kernels that depend on the shape of the batch",
    "low_precision": "log-probs or logits in a short dtype",
    "moe_routing": "experts routed differently",
    "model_mismatch": "a model implemented differently",
    "lora_mismatch": "an adapter applied differently",
    # Weights.
    "stale_weights": "older weights in the sampler",
    "mixed_weights": "weights that changed while samples were written",
    "sync_broken": "weights that did not arrive intact",
    # Places whose cause is not known.
    "bad_worker": "one worker that differs from the others",
    "truncated_round": "samples cut off at the length limit",
    "outlier_tokens": "single tokens far off",
}


@dataclass(frozen=True, kw_only=True)
class Measure:
    """One named number of the evidence.

    Attributes
    ----------
    name : str
    value : float
    unit : str
        `nat`, `tokens`, `samples`, `share`, or empty for a plain number.
    low, high : float, optional
        Its 95 % interval.

    Examples
    --------
    >>> print(Measure(name="temperature", value=0.7, low=0.69, high=0.71))
    temperature 0.7 (0.69 to 0.71)
    """

    name: str
    value: float
    unit: str = ""
    low: float | None = None
    high: float | None = None

    def __str__(self) -> str:
        unit = f" {self.unit}" if self.unit else ""
        interval = ""
        if self.low is not None and self.high is not None:
            interval = f" ({self.low:.3g} to {self.high:.3g})"
        return f"{self.name} {self.value:.3g}{unit}{interval}"


@dataclass(frozen=True, kw_only=True)
class Alternative:
    """A cause that this batch cannot tell from the one that is named.

    Attributes
    ----------
    cause : str
    would_tell : str
        The record or the experiment that would decide.
    """

    cause: str
    would_tell: str


@dataclass(frozen=True, kw_only=True, eq=False)
class Evidence:
    """What a detector returns: tokens or a fitted effect, and the numbers behind it.

    Attributes
    ----------
    score : float
        Strength of the evidence, 0 to 1; calibrated to `Finding.confidence`.
    explanation : str
        What was seen, in at most two sentences.
    next_step : str
    tokens : bool array
        The tokens of the view that the mismatch goes with.
    effect : callable, optional
        From a `View` to a fitted part of its `diff`, taken out in place of the tokens:
        of this view, and of the whole batch where only a part of it was fitted.
    measures : tuple of Measure
    where : mapping of str to object
        Places that the detector knows: `rounds_from`, `samples`, `column`, `value`, ...
    alternatives : tuple of Alternative
    cause : str
        Left empty for the name that the detector is registered under.
    adds_mismatch : bool
        False for what distorts the batch without a mismatch, such as padding rows.
    gain : float
        How much better than chance the pattern fits, in nats of log-likelihood;
        compares place patterns with one another.
    """

    score: float
    explanation: str
    next_step: str
    tokens: Array
    effect: Callable[[View], Array] | None = None
    measures: tuple[Measure, ...] = ()
    where: Mapping[str, Any] = field(default_factory=dict)
    alternatives: tuple[Alternative, ...] = ()
    cause: str = ""
    adds_mismatch: bool = True
    gain: float = 0.0


@dataclass(frozen=True, kw_only=True, eq=False)
class Finding:
    """One cause of the mismatch, as far as this batch tells.

    Attributes
    ----------
    cause : str
        A name of `rounddiag.findings.CAUSES`.
    confidence : float
        0 to 1. Of the findings at 0.9, nine in ten are right on injected faults.
    share : float
        The part of the sum of |diff| that goes with it.
    evidence : tuple of Measure
    where : mapping of str to object
        Onset, samples, rounds, roles and column values that it follows.
    explanation : str
    alternatives : tuple of Alternative
    next_step : str
    place : str
        `where` as one clause of a sentence.
    """

    cause: str
    confidence: float
    share: float
    evidence: tuple[Measure, ...]
    where: Mapping[str, Any]
    explanation: str
    alternatives: tuple[Alternative, ...]
    next_step: str
    place: str = ""
    view: View = field(repr=False)
    indices: Array = field(repr=False)

    @property
    def num_tokens(self) -> int:
        """Number of tokens that it goes with."""
        return len(self.indices)

    @property
    def samples(self) -> Array:
        """The samples in which these tokens are."""
        known = self.where.get("samples")
        if known is not None:
            return np.asarray(known)
        return np.unique(self.view.sample[self.indices])

    def tokens(self) -> pd.DataFrame:
        """Return its tokens: `sample, round, token, diff` and the two log-probs.

        Of a batch that was thinned, only the tokens that were read.
        """
        import pandas as pd

        view, index = self.view, self.indices
        frame = pd.DataFrame(
            {
                "sample": view.sample[index].astype(np.int32),
                "round": view.round[index].astype(np.int32),
                "token": view.token[index].astype(np.int32),
                "diff": view.d[index].astype(np.float32),
                "position": view.position[index].astype(np.int32),
                "token_id": view.id[index].astype(np.int32),
                "rollout_log_prob": view.r[index].astype(np.float32),
                "old_log_prob": view.o[index].astype(np.float32),
            }
        )
        frame.attrs["is_thinned"] = view.is_thinned
        return frame

    def __repr__(self) -> str:
        numbers = "; ".join(map(str, self.evidence))
        rank = f"confidence {self.confidence:.2f}, {self.share:.0%}"
        lines = (
            f"{self.cause} ({rank} of the sum of |diff|)",
            f"  {self.explanation}",
            f"  evidence: {numbers}",
            f"  next: {self.next_step}",
        )
        return "\n".join(map(printable, lines))
