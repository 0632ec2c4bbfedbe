"""`diagnose`: noise or a bug, where, what reproduces it, and what to do next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from html import escape
from os import PathLike
from typing import (
    Any,
    Protocol,
    TypeVar,
    overload,
    runtime_checkable,
)

import numpy as np
import pandas as pd

from rounddiag.batch import Batch
from rounddiag.checks import Checks, check
from rounddiag.checks.provable import checkpoint_of
from rounddiag.core.measured import Measured
from rounddiag.errors import BatchError
from rounddiag.findings.causes import CAUSES, NEXT_STEP
from rounddiag.findings.consequence import describe_consequence
from rounddiag.findings.equal_start import describe_equal_start
from rounddiag.findings.explanation import Explained, explain, explain_updates
from rounddiag.findings.finding import Finding
from rounddiag.findings.kept import find_kept, keep_on
from rounddiag.findings.level import MIN_SAMPLES, Level
from rounddiag.findings.onset import Onset
from rounddiag.findings.place import FACTOR_2
from rounddiag.findings.reference import (
    SHAPE,
    Range,
    code_probability,
    guess_kind,
    named_range,
    relative_to,
)
from rounddiag.findings.sentence import (
    describe_mass,
    describe_place,
    write_advice,
    write_headline,
)
from rounddiag.findings.verdict import Verdict, find_verdict
from rounddiag.findings.view import View, lacks_engine
from rounddiag.stats.inputs import open_measured
from rounddiag.wording import pluralize, printable

# Positions up to which every contract is checked; of a longer batch, the fast ones.
MAX_POSITIONS = 1_500_000
_LEAST = 1e-6  # nats: float32 rounds a log-prob to more
_D_co = TypeVar("_D_co", covariant=True)


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Diagnosis(Sequence[Finding]):
    """The verdict on a batch and its findings, the largest share first.

    Attributes
    ----------
    verdict : {"identical", "healthy", "noisy", "stale", "suspicious", "broken", \
"not_measurable"}
    level: Mean |diff| with its interval, KL, mean exp|diff|, probability difference,
        Pearson r.
    kind: The kind of run whose range was used.
    kind_is_assumed: Whether neither the caller nor the batch's `meta` named the kind.
    rest: The level of what no finding explains.
    checks: The contracts of `rounddiag.check` that were looked at, and those that the
        file does not allow to test.
    reason: Why the mismatch cannot be measured; empty otherwise.
    caveat: A warning about all numbers, such as that the rounds are unknown; empty if
        none.
    mass: That the mean of exp(old - rollout) is above 1, where it must be 1; else
        empty.
    equal_start: Where samples are bitwise equal up to a token and then differ; empty if
        none.
    consequence: What the mismatch does to the update; empty without advantages.
    """

    verdict: Verdict
    level: Level
    kind: str
    kind_is_assumed: bool
    reference: Range
    rest: Level
    findings: tuple[Finding, ...]
    checks: Checks
    reason: str = ""
    is_thinned: bool = field(default=False)
    caveat: str = ""
    equal_start: str = ""
    mass: str = ""
    consequence: str = ""

    @overload
    def __getitem__(self, index: int) -> Finding: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Finding, ...]: ...
    def __getitem__(self, index: int | slice) -> Finding | tuple[Finding, ...]:
        try:
            return self.findings[index]
        except IndexError:
            msg = (
                f"expected the number of one of {pluralize(len(self), 'finding')};"
                f" found {index}. The verdict is {self.verdict!r}:"
                " `diagnosis.text` has it."
            )
            raise IndexError(msg) from None

    def __len__(self) -> int:
        return len(self.findings)

    @property
    def text(self) -> str:
        """The headline, and below it the cause and how it was shown, or candidates."""
        return "\n".join(filter(None, (self.headline, self.advice)))

    @property
    def headline(self) -> str:
        """What differs and where, in one sentence or two."""
        text = f"{self.caveat}{write_headline(self)}"
        return f"{text} {self.equal_start}" if self.equal_start else text

    @property
    def advice(self) -> str:
        """The cause and how it was shown, or what is possible and what decides."""
        return " ".join(filter(None, (write_advice(self), self.consequence)))

    def at_limits(self, factor: float) -> Verdict:
        """Return the verdict that the batch would have with all limits multiplied.

        Examples
        --------
        >>> import rounddiag as rd
        >>> rd.diagnose(rd.load("sample_data/healthy.parquet")).at_limits(0.01)
        'suspicious'
        """
        if self.verdict in ("not_measurable", "identical"):
            return self.verdict
        return find_verdict(self.level, self.reference, self.findings, factor=factor)

    @property
    def updates(self) -> tuple[Finding, ...]:
        """The facts that make an update wrong, whatever the mismatch is."""
        return tuple(one for one in self if one.severity == "update")

    @property
    def onset(self) -> Onset | None:
        """The round from which on the batch differs, if a place has one."""
        places = [one for one in self if one.is_bug]
        return next(
            (one.where["onset"] for one in places if "onset" in one.where), None
        )

    @property
    def address(self) -> str:
        """The token to look at first, as `rounddiag show` takes it; empty without."""
        found = (one.address for one in self if one.kind != "level")
        return next(filter(None, found), "")

    @property
    def frame(self) -> pd.DataFrame:
        """One row per finding: `kind, cause, share, where, num_tokens, shown, ...`."""
        import pandas as pd

        rows: list[dict[str, Any]] = [
            {
                "kind": one.kind,
                "cause": one.cause,
                "share": one.share,
                "where": one.location,
                "num_tokens": one.num_tokens,
                "p": one.p,
                "shown": one.shown,
                "candidates": ", ".join(map(str, one.candidates)),
                "next_step": one.next_step,
            }
            for one in self
        ]
        names = ["kind", "cause", "share", "where", "num_tokens"]
        names += ["p", "shown", "candidates", "next_step"]
        return pd.DataFrame(rows, columns=names)

    def __repr__(self) -> str:
        lines = [f"{self.verdict}: {self.headline}", *self.advice.splitlines()]
        lines += [
            f"  {one.share:4.0%}  {one.kind:<8}  {one.name}: {one.location}"
            for one in self
        ]
        if self.address:
            lines.append(f"Look at: {self.address}")
        if self.prove_command not in self.advice:
            lines.append(f"Prove it: {self.prove_command}")
        return "\n".join(map(printable, lines))

    @property
    def prove_command(self) -> str:
        """The command that decides the first finding with a hypothesis, else empty."""
        first = self._first_provable
        return first.prove_command if first else ""

    @property
    def _first_provable(self) -> Finding | None:
        return next((one for one in self if one.prove_call), None)

    def _repr_html_(self) -> str:
        heads = ("kind", "cause", "share of sum |diff|", "where", "next")
        head = "".join(f"<th>{name}</th>" for name in heads)
        rows = "".join(
            "<tr>"
            f"<td>{one.kind}</td><td>{_cell(one.name)}</td>"
            f"<td>{one.share:.0%}</td><td>{_cell(one.location)}</td>"
            f"<td>{_cell(one.next_step)}</td></tr>"
            for one in self
        )
        table = f"<table><tr>{head}</tr>{rows}</table>" if self.findings else ""
        # JupyterLab would typeset `$...$` in names of the file.
        text = "<br>".join(map(_cell, self.text.splitlines()))
        head = f"<p><b>{self.verdict}</b>: {text}</p>"
        first = self._first_provable
        call = first.prove_call if first else ""
        proof = f"<p>Prove it: <code>{_cell(call)}</code></p>" if call else ""
        return f'<div class="mathjax_ignore">{head}{table}{proof}</div>'


def _cell(text: str) -> str:
    """Write text of a file for a page: column names and values are untrusted."""
    return escape(printable(text))


@runtime_checkable
class Diagnosable(Protocol[_D_co]):
    """What diagnoses itself: a `rounddiag.Run`."""

    def diagnose(self, *, kind: str | None = None) -> _D_co:
        """Return its diagnosis."""


@overload
def diagnose(
    batch: Batch | str | PathLike[str],
    *,
    healthy: Batch | None = None,
    kind: str | None = None,
    a: str = "old",
    b: str = "rollout",
) -> Diagnosis: ...
@overload
def diagnose(batch: Diagnosable[_D_co], *, kind: str | None = None) -> _D_co: ...
def diagnose(
    batch: Batch | str | PathLike[str] | Diagnosable[_D_co],
    *,
    healthy: Batch | None = None,
    kind: str | None = None,
    a: str = "old",
    b: str = "rollout",
) -> Diagnosis | _D_co:
    """Say whether a mismatch is noise or a bug, where, and what reproduces it.

    Parameters
    ----------
    batch : Batch, path-like or Run
        A path is read by `rounddiag.load`. A Run is diagnosed as `Run.diagnose` does.
    healthy : Batch, optional
        A batch of the same run that is known to be healthy. Its level of noise replaces
        the range of the kind.
    kind : str, optional
        A key of `rounddiag.findings.REFERENCE`, such as `dense`, `moe` or `vlm`;
        guessed from `batch.meta` by default; `update` for the pair `current`, `old`.
    a, b : str
        The scores to compare: `old`, `rollout`, or a name in `batch.scores`.

    Returns
    -------
    Diagnosis
        Prints as a short table. `.verdict`, `.text`, `.frame`; its items are `Finding`s
        with `kind`, `cause`, `share`, `where`, `shown`, `candidates` and `next_step`,
        the largest share first. Of a Run: a `RunDiagnosis`, a verdict per step.

    Examples
    --------
    >>> import rounddiag as rd
    >>> rd.diagnose(rd.load("sample_data/healthy.parquet")).verdict
    'healthy'
    """
    if isinstance(batch, Diagnosable):
        return batch.diagnose(kind=kind)
    batch = open_measured(batch).require_batch()
    kind = kind or _kind_of_pair(a, b)
    if kind is not None:
        named_range(kind)
    if healthy is not None:
        healthy = open_measured(healthy).require_batch()
    make = partial(_diagnose, batch, healthy, kind, a, b)
    return keep_on(batch, (kind, a, b), make, healthy)


def known_diagnosis(
    batch: Batch, a: str = "old", b: str = "rollout"
) -> Diagnosis | None:
    """Return what `diagnose` has found of a batch before; None if nobody asked.

    Examples
    --------
    >>> import rounddiag as rd
    >>> batch = rd.load("sample_data/healthy.parquet")
    >>> known_diagnosis(batch) is None
    True
    >>> found = rd.diagnose(batch)
    >>> known_diagnosis(batch) is found
    True
    """
    found: Diagnosis | None = find_kept(
        batch, (_kind_of_pair(a, b), a, b), healthy=None
    )
    return found


def _kind_of_pair(a: str, b: str) -> str | None:
    return "update" if {a, b} == {"current", "old"} else None


def _diagnose(
    batch: Batch, healthy: Batch | None, kind: str | None, a: str, b: str
) -> Diagnosis:
    kind, is_known = (kind, True) if kind is not None else guess_kind(batch)
    usual = named_range(kind)
    if healthy is not None:
        usual = _measured_range(healthy, usual, a, b)
    view = View.from_batch(batch, a, b, usual)
    level = Level.from_view(view)
    checks = check(batch, a=a, b=b, fast=batch.num_positions > MAX_POSITIONS)
    result = Diagnosis(
        verdict="not_measurable",
        level=level,
        kind=kind,
        kind_is_assumed=not is_known,
        reference=view.usual,
        rest=level,
        findings=(),
        checks=checks,
        reason=_not_measurable(view),
        is_thinned=view.is_thinned,
        caveat=_caveat(view),
    )
    view.facts.memo["checks"] = checks
    view.facts.memo["stated_kind"] = kind if is_known else ""
    if result.reason:
        updates = tuple(_finding(one, view) for one in explain_updates(view))
        return replace(result, findings=updates)
    start = describe_equal_start(batch, a, b)
    result = replace(result, equal_start=start, mass=describe_mass(view))
    explained, left = explain(view, checks.refuted)
    findings = tuple(_finding(one, view) for one in explained)
    if not view.abs_diff.any():
        return replace(result, verdict="identical", findings=findings)
    verdict = find_verdict(level, view.usual, findings)
    if level.num_samples == 1 and not any(one.is_bug for one in findings):
        mean = f"its mean |diff| is {level.mean_abs_diff:.2g} nat"
        reason = f"one sample cannot be compared with others; {mean}"
        return replace(result, reason=reason, findings=findings)
    rest = Level.from_view(left)
    consequence = describe_consequence(view, findings)
    return replace(
        result,
        verdict=verdict,
        findings=findings,
        rest=rest,
        consequence=consequence,
    )


def _caveat(view: View) -> str:
    """State which tokens count: of a long batch a part, or without rounds all."""
    batch = view.batch
    if view.is_thinned:
        read, total = len(view) + view.num_nonfinite, int(batch.rounds.num_tokens.sum())
        return f"Judged on {read:,} of {total:,} generated tokens: "
    if batch.meta.get("rounds") != "unknown":
        return ""
    if str(batch.meta.get("mask_source")).startswith("attention_mask"):
        return "The rounds are unknown, and observations count as generated tokens. "
    return "The rounds are unknown. "


def _finding(one: Explained, view: View) -> Finding:
    evidence, cause = one.evidence, one.evidence.cause
    large = one.indices[view.abs_diff[one.indices] > FACTOR_2]
    where = {
        "samples": np.unique(view.sample[one.indices]),
        "num_large": len(large),
        **({"large_samples": np.unique(view.sample[large])} if len(large) else {}),
        **evidence.where,
    }
    source = view.batch.meta.get("source")
    step = CAUSES[cause].decides if cause in CAUSES else NEXT_STEP
    location = describe_place(where, one.indices, view)
    return Finding(
        kind=one.kind,
        cause=cause,
        share=one.share,
        evidence=evidence.measures,
        where=where,
        location=location,
        explanation=evidence.shown or f"{location[:1].upper()}{location[1:]}.",
        shown=evidence.shown,
        candidates=one.candidates,
        p=one.p,
        next_step=evidence.next_step or step,
        severity=evidence.severity,
        num_tokens=len(one.indices),
        checkpoint=checkpoint_of(view.batch),
        source=source if isinstance(source, str) else "",
        view=view,
        indices=one.indices,
    )


def _not_measurable(view: View) -> str:
    """Return why there is nothing to compare; empty if there is something."""
    if missing := lacks_engine(view.batch, view.a, view.b):
        return missing.removesuffix(".")
    if len(view) == 0:
        if view.num_nonfinite:
            return (
                f"none of the {view.num_nonfinite} generated tokens has both log-probs"
            )
        return "the batch has no generated token"
    known = Measured.of(view.batch, view.a, view.b).require_batch().meta
    if "not_measurable" in known:
        return str(known["not_measurable"])
    for values, name in ((view.log_prob_a, view.a), (view.log_prob_b, view.b)):
        if len(view) > 1 and (values == values[0]).all() and view.abs_diff.any():
            return f"every `{name}` log-prob is {values[0]:g}"
    return ""


def _measured_range(healthy: Batch, usual: Range, a: str, b: str) -> Range:
    """Return the range measured on a healthy batch, by the probability of tokens."""
    view = View.from_batch(healthy, a, b, usual)
    level = Level.from_view(view)
    if level.num_samples < MIN_SAMPLES:
        raise BatchError.build(
            expected=f"a healthy batch of at least {MIN_SAMPLES} samples with"
            " generated tokens",
            found=pluralize(level.num_samples, "sample") if len(view) else "none",
            advice="Leave `healthy` out, or pass a larger batch.",
        )
    code = code_probability(view.log_prob_b)
    size = np.bincount(code, weights=view.abs_diff, minlength=len(SHAPE))
    num = np.bincount(code, minlength=len(SHAPE))
    # A bin without tokens: as far above the others as in the sound pair.
    missing = level.mean_abs_diff / float(num @ SHAPE / len(view)) * np.array(SHAPE)
    means = np.where(num > 0, size / np.maximum(num, 1), missing)
    high = max(level.high, _LEAST)
    return replace(
        usual,
        usual=1.5 * high,
        limit=3 * high,
        kl=max(usual.kl, 9 * level.kl),  # it goes with the square of the diff
        source="the batch passed as `healthy`",
        basis=", from the batch passed as `healthy`",
        by_probability=relative_to(max(level.mean_abs_diff, _LEAST), means.tolist()),
    )
