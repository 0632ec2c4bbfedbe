"""`Proof`: which engine was wrong, about what, on which evidence."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import pandas as pd

from rounddiag.batch import Batch
from rounddiag.errors import BatchError
from rounddiag.proof.hypotheses.hypothesis import NEEDS
from rounddiag.proof.judge import MOST_RESIDUAL_TO_NOISE, Opinion
from rounddiag.proof.saving import read_proof, write_proof
from rounddiag.wording import join_names, percent, pluralize, printable

_Verdict: TypeAlias = Literal[
    "proved",
    "so_far",
    "partly",
    "none_of_these",
    "scorer_differs",
    "nothing_to_prove",
    "not_measurable",
]
NOTHING_CHANGED = "changes nothing in these samples"
NOT_APPLICABLE = {
    NOTHING_CHANGED,
    *(f"needs {NEEDS[need]}" for need in ("experts", "state")),
}
ENGINE_NAMES = {"old": "the training engine", "rollout": "the sampling engine"}
ONLY = "the only engine"
_MOST_VARIANTS = 4


@dataclass(frozen=True, eq=False, kw_only=True)
class Conclusion:
    """What was found about one engine.

    Attributes
    ----------
    engine: `old`, `rollout`, or another score of the batch.
    says: What reproduces it, in the order in which it was found.
    opinions: The evidence of each.
    rivals: Hypotheses that do as well.
    """

    engine: str
    says: tuple[str, ...]
    causes: tuple[str, ...]
    opinions: tuple[Opinion, ...]
    rivals: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name of its score in `Proof.batch`."""
        return " + ".join(opinion.name for opinion in self.opinions)


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Proof:
    """The result of `rounddiag.prove`.

    Attributes
    ----------
    verdict : {"proved", "so_far", "partly", "none_of_these", "scorer_differs", \
"nothing_to_prove", "not_measurable"}
        `so_far`: it stopped before all hypotheses were tried; see `tried` and `more`.
    side: The engine that was wrong, such as `old` or `rollout`; `both` if each of two
        was; `the only engine` if the batch has one.
    cause: A name of `rounddiag.findings.CAUSES`.
    causes: All proved causes, the one that explains most first.
    frame: One row per hypothesis and engine: `hypothesis, cause, engine, where,
        residual, noise, before, residual_to_noise, residual_to_noise_before, share,
        log_likelihood_ratio, num_tokens, num_samples, num_nearer, is_proved, seconds`.
        `residual`, `noise` and `before` are medians in nats of the tokens that the
        hypothesis or the engine changes. `residual_to_noise` and
        `residual_to_noise_before` are residuals on the scale of logits, in multiples of
        the noise. `log_likelihood_ratio` is against the base, tempered, in nats; it is
        no e-value.
    batch: The scored samples, with a score for `base` and for what was found: of two
        changes together `a + b`, where it holds in a part, and the base elsewhere.
    not_tested: Hypotheses, causes and samples that could not be tested, and why; those
        that do not apply too, which are not printed.
    scorer: What scored.
    refuted: Variants that were tested and reproduce nothing. Others of the same cause
        may.
    note: Which checkpoint, or temperature, is of the base, where it is not the model
        as it was given; of one engine that nothing else reproduces, what the proved
        hypothesis leaves.
    num_sent: How many pictures were sent to a server.
    temperature: By which the base divides logits, where the batch records one and both
        engines do.
    tried: With `so_far`: how many hypotheses were scored, of how many.
    """

    verdict: _Verdict
    side: str | None
    cause: str | None
    causes: tuple[str, ...]
    conclusions: tuple[Conclusion, ...]
    frame: pd.DataFrame
    batch: Batch
    not_tested: Mapping[str, str]
    next_step: str
    scorer: str
    seconds: float
    base: Mapping[str, Opinion] = field(repr=False)
    refuted: tuple[str, ...] = ()
    note: str = ""
    num_sent: int = 0
    temperature: float = 1.0
    tried: tuple[int, int] = (0, 0)
    go_on: Callable[..., Proof] | None = field(default=None, repr=False)

    def __repr__(self) -> str:
        lines = [f"{self.verdict}: {self._headline()}"]
        lines += [_describe(conclusion) for conclusion in self.conclusions]
        if self.verdict != "scorer_differs":
            lines += [_describe_base(self.base[name]) for name in self._sound()]
        if self.note:
            lines.append(self.note)
        if self.refuted:
            more = len(self.refuted) - _MOST_VARIANTS
            parts = [*self.refuted[:_MOST_VARIANTS]]
            if more > 0:
                parts.append(f"{more} more")
            lines.append(f"Not this variant: {'; '.join(parts)}.")
        parts = [
            f"{name} ({why})"
            for name, why in self.not_tested.items()
            if why not in NOT_APPLICABLE
        ]
        if parts:
            lines.append(f"Not tested: {join_names(parts, most=4)}.")
        if self.num_sent:
            lines.append(
                f"Sent: {pluralize(self.num_sent, 'picture')} to {self.scorer}."
            )
        if self.next_step:
            lines.append(f"Next: {self.next_step}")
        return "\n".join(map(printable, lines))

    def _repr_html_(self) -> str:
        body = "<br>".join(escape(line) for line in repr(self).split("\n"))
        return f'<div class="mathjax_ignore"><p>{body}</p></div>'

    def more(self, budget_s: float = 600.0) -> Proof:
        """Go on where it stopped: what is known is not scored again.

        Parameters
        ----------
        budget_s : float
            Of further seconds.

        Examples
        --------
        >>> import rounddiag as rd
        >>> batch = rd.load("sample_data/image_window.parquet")
        >>> proof = rd.prove(batch, "sample_data/model", hypotheses=["last_2_images"])
        >>> proof.more().verdict
        'proved'
        """
        if self.go_on is None:
            raise BatchError.build(
                expected="a proof that was made in this process",
                found="one from a file",
                advice="Prove again with a larger `budget_s`.",
            )
        return self.go_on(begin=time.perf_counter(), budget_s=budget_s)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to a file, which `rounddiag.load_proof` reads on any machine."""
        left = {"batch", "go_on"}  # written apart; of this process
        fields = {name: value for name, value in vars(self).items() if name not in left}
        write_proof(fields, self.batch, Path(path))

    @property
    def noise_limit(self) -> float:
        """The largest residual that counts as noise, in multiples of the noise."""
        return MOST_RESIDUAL_TO_NOISE

    @property
    def pair(self) -> tuple[str, str]:
        """What `explore(proof)` compares: the best hypothesis, and the engine."""
        for conclusion in self.conclusions:
            if conclusion.name in self.batch.scores:
                return conclusion.name, conclusion.engine
        odd = self.side if self.side in self.base else next(iter(self.base), "old")
        return "base", str(odd)

    def _sound(self) -> list[str]:
        concluded = {conclusion.engine for conclusion in self.conclusions}
        return [name for name in self.base if name not in concluded]

    def _headline(self) -> str:
        if self.verdict == "scorer_differs":
            return f"{self.scorer} is not a sound engine of this batch."
        if self.verdict == "not_measurable":
            return "no engine has finite log-probs in the scored samples."
        if self.verdict == "nothing_to_prove":
            who = {1: ONLY, 2: "both engines"}.get(len(self.base), "all engines")
            return f"{self.scorer} reproduces {who}, as far as noise allows."
        who = self._call(self.side) if self.side else "one of the engines"
        if self.verdict == "none_of_these":
            return f"no hypothesis reproduces {who}."
        number, of = self.tried
        if not self.conclusions:
            return (
                f"stopped after {number} of {of:,} hypotheses; nothing"
                f" tried reproduces {who}."
            )
        by_engine = [
            f"{self._call(conclusion.engine)} ({conclusion.engine}):"
            f" {' and '.join(conclusion.causes)}"
            for conclusion in self.conclusions
        ]
        is_whole = all(
            conclusion.opinions[-1].reproduces for conclusion in self.conclusions
        )
        rest = "" if self.verdict == "proved" else " explains a part"
        if self.verdict == "so_far":
            rest = " reproduces it" if is_whole else " explains a part"
            rest += f" so far ({number} of {of} tried)"
        return f"{'; '.join(by_engine)}{rest}."

    def _call(self, engine: str) -> str:
        return ONLY if len(self.base) == 1 else ENGINE_NAMES.get(engine, engine)


def load_proof(path: str | os.PathLike[str], batch: Batch | None = None) -> Proof:
    """Read a proof that `rounddiag prove FILE --model MODEL -o proof.json` wrote.

    Parameters
    ----------
    path : path-like
    batch : Batch, optional
        The batch that it is about: text and screenshots are those of its samples then.
        By default `Proof.batch` has token ids and scores only.

    Examples
    --------
    >>> import tempfile
    >>> import rounddiag as rd
    >>> batch = rd.load("sample_data/image_window.parquet")
    >>> proof = rd.prove(batch, "sample_data/model", hypotheses=["last_2_images"])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     proof.save(f"{folder}/proof.json")
    ...     print(rd.load_proof(f"{folder}/proof.json", batch).cause)
    image_window
    """

    def make(**fields: Any) -> Proof:  # noqa: ANN401 of a file
        proof = Proof(**fields)
        repr(proof)  # it cannot be printed with fields of other types
        return proof

    return read_proof(path, batch, (Conclusion, Opinion), make)


def _describe(conclusion: Conclusion) -> str:
    last = conclusion.opinions[-1]
    first = conclusion.opinions[0]
    where = "" if last.where == "all" else f", {last.where}"
    rivals = ""
    if conclusion.rivals:
        rivals = f" As good: {join_names(conclusion.rivals)}."
    share = f", {percent(max(last.share, 0))} explained" if last is first else ""
    evidence = sum(each.evidence for each in conclusion.opinions)
    return (
        f"{conclusion.engine}: {' and '.join(conclusion.says)}{where}."
        f" {pluralize(first.num_tokens, 'token')} of"
        f" {pluralize(first.num_samples, 'sample')}, residual {last.residual:.2g} nat"
        f" (noise {last.noise:.2g}), before {first.before:.2g}{share}; nearer in"
        f" {first.num_nearer} of {first.num_samples} samples; log-likelihood ratio"
        f" {evidence:.0f}.{rivals}"
    )


def _describe_base(opinion: Opinion) -> str:
    if not np.isfinite(opinion.residual):
        return f"{opinion.engine}: not measurable, without finite log-probs."
    fits = (
        "reproduced without any change"
        if opinion.residual_to_noise <= MOST_RESIDUAL_TO_NOISE
        else "not reproduced"
    )
    return (
        f"{opinion.engine}: {fits} (residual {opinion.residual:.2g} nat,"
        f" {opinion.residual_to_noise:.1f} times the noise)."
    )
