"""`diagnose`: noise or a bug, where, what reproduces it, and what to do next."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from os import PathLike
from typing import Protocol, TypeVar, overload, runtime_checkable

import numpy as np

from rounddiag.batch import Batch
from rounddiag.checks import Checks, check
from rounddiag.checks.log_probs import FINITE, MEASURABLE
from rounddiag.checks.provable import checkpoint_of
from rounddiag.checks.rounds import KNOWN
from rounddiag.core.divergence import FACTOR_2
from rounddiag.core.groups import describe_row_weights
from rounddiag.errors import BatchError
from rounddiag.findings.causes import CAUSES, NEXT_STEP
from rounddiag.findings.consequence import describe_consequence
from rounddiag.findings.diagnosis import Diagnosis
from rounddiag.findings.equal_tokens import are_identical, find_unread
from rounddiag.findings.explanation import Explained, explain, explain_updates
from rounddiag.findings.finding import Finding
from rounddiag.findings.kept import find_kept, keep_on
from rounddiag.findings.level import MIN_SAMPLES, Level
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
    write_sentences,
)
from rounddiag.findings.verdict import find_verdict
from rounddiag.findings.view import ROUNDING, View, lacks_engine
from rounddiag.stats.inputs import open_measured
from rounddiag.stats.staleness import describe_staleness
from rounddiag.wording import pluralize, with_minus

# Positions up to which every contract is checked; of a longer batch, the fast ones.
MAX_POSITIONS = 1_500_000
_D_co = TypeVar("_D_co", covariant=True)


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
    >>> diagnosis = rd.diagnose(batch)
    >>> known_diagnosis(batch) is diagnosis
    True
    """
    return find_kept(batch, (_kind_of_pair(a, b), a, b), healthy=None)


def _kind_of_pair(a: str, b: str) -> str | None:
    return "update" if {a, b} == {"current", "old"} else None


def _diagnose(
    batch: Batch, healthy: Batch | None, kind: str | None, a: str, b: str
) -> Diagnosis:
    result = _judge(batch, healthy, kind, a, b)
    return replace(
        result, sentences=write_sentences(result), advice=write_advice(result)
    )


def _judge(
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
        reason=_not_measurable(view, checks),
        is_thinned=view.is_thinned,
        caveat=_caveat(view, checks),
    )
    view.facts.memo["checks"] = checks
    view.facts.memo["stated_kind"] = kind if is_known else ""
    if result.reason:
        updates = tuple(_finding(cause, view) for cause in explain_updates(view))
        return replace(result, findings=updates)
    result = replace(result, mass=describe_mass(view))
    causes, left = explain(view, checks.refuted)
    findings = tuple(_finding(cause, view) for cause in causes)
    if not view.abs_diff.any():
        return _judge_equal(replace(result, findings=findings), view)
    verdict = find_verdict(level, view.usual, findings)
    if level.num_samples == 1 and not any(finding.is_bug for finding in findings):
        mean = f"a mean |diff| of {level.mean_abs_diff:.2g} nat"
        reason = f"one sample does not show whether {mean} is noise or a bug"
        return replace(result, reason=reason, findings=findings)
    rest = Level.from_view(left)
    parts = (
        describe_staleness(batch, a, b),
        describe_consequence(view, findings),
        describe_row_weights(batch),
    )
    return replace(
        result,
        verdict=verdict,
        findings=findings,
        rest=rest,
        consequence=" ".join(filter(None, parts)),
    )


def _judge_equal(result: Diagnosis, view: View) -> Diagnosis:
    """Return the diagnosis of a batch of which all finite tokens that were read agree.

    It is `identical` if all others agree too, and if no check says that it is wrong.
    """
    findings = result.findings
    others = tuple(
        finding for finding in findings if finding.cause != "identical_log_probs"
    )
    if are_identical(view.batch, view.a, view.b):
        is_wrong = any(
            finding.is_bug or finding.severity == "update" for finding in others
        )
        verdict = find_verdict(result.level, view.usual, others)
        return replace(result, verdict=verdict if is_wrong else "identical")
    unread = find_unread(view)
    if unread is not None:
        fact = Explained(
            kind="fact", evidence=unread, indices=np.empty(0, dtype=int), share=1.0
        )
        findings = (_finding(fact, view), *others)
    verdict = find_verdict(result.level, view.usual, findings)
    return replace(result, verdict=verdict, findings=findings)


def _caveat(view: View, checks: Checks) -> str:
    """State which tokens count: of a long batch a part, or without rounds all.

    Tokens without a log-prob are left out; a failed check counts them where it names
    them.
    """
    batch, caveat, read = view.batch, "", len(view) + view.num_nonfinite
    is_named = FINITE.name in [check.name for check in checks.failed]
    if view.is_thinned:
        total = int(batch.rounds.num_tokens.sum())
        caveat = f"Judged on {read:,} of {total:,} generated tokens. "
    elif 0 < view.num_nonfinite < read and not is_named:
        num = view.num_nonfinite
        caveat = f"{num:,} of {read:,} generated tokens have no finite log-prob. "
    if batch.meta.get("rounds") != "unknown":
        return caveat
    if str(batch.meta.get("mask_source")).startswith("attention_mask"):
        caveat += "The rounds are unknown, and observations count as generated tokens"
    else:
        caveat += "The rounds are unknown"
    return f'{caveat} (failed check "{KNOWN.name}"). '


def _finding(explained: Explained, view: View) -> Finding:
    evidence, cause = explained.evidence, explained.evidence.cause
    large = explained.indices[view.abs_diff[explained.indices] > FACTOR_2]
    differing = explained.indices[view.abs_diff[explained.indices] > 0]
    is_seen = evidence.adds_mismatch and len(differing) > 0
    where = {
        "samples": np.flatnonzero(
            view.samples_with(differing if is_seen else explained.indices)
        ),
        "num_large": len(large),
        **(
            {"large_samples": np.flatnonzero(view.samples_with(large))}
            if len(large)
            else {}
        ),
        **evidence.where,
    }
    source = view.batch.meta.get("source")
    step = CAUSES[cause].test if cause in CAUSES else NEXT_STEP
    return Finding(
        kind=explained.kind,
        cause=cause,
        share=explained.share,
        evidence=evidence.measures,
        where=where,
        location=describe_place(where, explained.indices, view),
        shown=evidence.shown,
        candidates=explained.candidates,
        p=explained.p,
        next_step=evidence.next_step or step,
        severity=evidence.severity,
        num_tokens=len(explained.indices),
        checkpoint=checkpoint_of(view.batch),
        source=source if isinstance(source, str) else "",
        view=view,
        indices=explained.indices,
        undone=explained.undone,
    )


def _not_measurable(view: View, checks: Checks) -> str:
    if missing := lacks_engine(view.batch, view.a, view.b):
        return missing.removesuffix(".")
    for failed in checks.failed:
        if failed.name == MEASURABLE.name:
            return failed.detail
    if len(view) == 0:
        if view.num_nonfinite:
            return (
                f"none of the {view.num_nonfinite} generated tokens has both log-probs"
            )
        return "the batch has no generated token"
    for values, name in ((view.log_prob_a, view.a), (view.log_prob_b, view.b)):
        if len(view) > 1 and (values == values[0]).all() and view.abs_diff.any():
            value = with_minus(f"{values[0] + 0:g}")  # not -0
            return f"every `{name}` log-prob is {value}: none was computed, or saved"
    return ""


def _measured_range(healthy: Batch, usual: Range, a: str, b: str) -> Range:
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
    high = max(level.high, ROUNDING)
    return replace(
        usual,
        usual=1.5 * high,
        limit=3 * high,
        kl=max(usual.kl, 9 * level.kl),  # it goes with the square of the diff
        source="the batch passed as `healthy`",
        basis=", from the batch passed as `healthy`",
        by_probability=relative_to(max(level.mean_abs_diff, ROUNDING), means.tolist()),
    )
