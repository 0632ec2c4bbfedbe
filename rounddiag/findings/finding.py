"""A finding: one cause, with its evidence, its places and what to do next."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import pandas as pd

from rounddiag._typing import Array
from rounddiag.batch.address import Address
from rounddiag.core.columns import sample_clusters
from rounddiag.errors import BatchError
from rounddiag.findings.causes import (
    CAUSES,
    NO_CAUSE,
    Candidate,
    describe_families,
    group_families,
)
from rounddiag.findings.measure import Measure
from rounddiag.findings.permutation import CONTENT
from rounddiag.findings.view import View
from rounddiag.schema import TOKENS
from rounddiag.stats.cells import cell_means
from rounddiag.wording import capitalize, percent, printable

FindingKind: TypeAlias = Literal["fact", "reversal", "place", "level"]
Severity: TypeAlias = Literal["bug", "update", "note"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Evidence:
    """The result of a detector: tokens, how the cause was shown, and its numbers.

    Attributes
    ----------
    tokens: bool array. The tokens of the view that are concerned.
    shown: The fact, or what was undone and what it leaves, as a sentence.
    effect: A reversal: takes a `View` and returns the part of its `diff` that it
        undoes.
    where: Places that the detector knows: `samples`, `fact` (the clause), ...
    next_step: By default what `CAUSES` says.
    candidates: Other causes that the same numbers reproduce.
    cause: The name of the detector by default.
    severity: Whether the mismatch is at fault; or training is, with sound log-probs; or
        neither.
    adds_mismatch: False for facts that are no mismatch of their own, such as padding
        rows.
    """

    tokens: Array
    shown: str
    effect: Callable[[View], Array] | None = None
    measures: tuple[Measure, ...] = ()
    where: Mapping[str, Any] = field(default_factory=dict)
    next_step: str = ""
    candidates: tuple[str, ...] = ()
    cause: str = ""
    severity: Severity = "bug"
    adds_mismatch: bool = True


@dataclass(frozen=True, kw_only=True, eq=False)
class Finding:
    """A fact, a reversal, a place or a level that noise does not explain.

    Attributes
    ----------
    kind: How it was found. A fact is decided by values, ids, masks or columns; a
        reversal undoes a change, and the mismatch falls to the noise of this batch. A
        place is where tokens differ more than equally likely ones; a level is of all
        tokens.
    cause: What reproduces the numbers, of a fact or a reversal; else `unknown`.
    share: The part of the sum of |diff| that it explains.
    where: Onset, samples, rounds, roles and column values that it follows.
    location: What differs, and where, as one clause of a sentence.
    shown: How the cause was shown: "Undone with a lag of 1, 0.31 nat become 0.003.";
        empty without a cause.
    candidates: Causes that are possible, of each of their `families` in turn.
    p: Of a place: the probability of such a place by chance; None if it was not tested.
    severity: An update has sound log-probs; training is at fault. A note is neither.
    checkpoint, source: The model and the file that the batch names; empty if none.
    """

    kind: FindingKind
    cause: str
    share: float
    evidence: tuple[Measure, ...]
    where: Mapping[str, Any]
    location: str
    shown: str = ""
    candidates: tuple[Candidate, ...] = ()
    p: float | None = None
    next_step: str = ""
    severity: Severity = "bug"
    num_tokens: int
    checkpoint: str = ""
    source: str = ""
    view: View = field(repr=False)
    indices: Array = field(repr=False)
    undone: Array | None = field(default=None, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the tokens of the batch, which its file has."""
        return {**self.__dict__, "view": None, "undone": None}

    @property
    def name(self) -> str:
        """Its cause in words for a table."""
        return "not known" if self.cause == NO_CAUSE else self.cause.replace("_", " ")

    @property
    def is_bug(self) -> bool:
        """Whether it says that a part of the mismatch is no noise."""
        if self.kind == "place":
            return self.p is not None
        return self.kind != "level" and self.severity == "bug"

    @property
    def part_impossible(self) -> float:
        """The part of all tokens at which it has values that no model gives."""
        return float(self.where.get("part_impossible", 0.0))

    @property
    def samples(self) -> Array:
        """The samples in which these tokens are."""
        return np.asarray(self.where["samples"])

    @property
    def address(self) -> str:
        """The token to look at first, as `rounddiag show` takes it; empty without."""
        if self.view is None:  # it comes from another process
            return ""
        if not len(self.indices):
            return ""
        view = self.view
        worst = view.worst(self.indices)
        place = (
            int(numbers[worst]) for numbers in (view.sample, view.round, view.token)
        )
        return str(Address.of(view.batch, *place))

    @property
    def explanation(self) -> str:
        """How it was shown, or where it is; a sentence."""
        return self.shown or f"{capitalize(self.location)}."

    @property
    def families(self) -> dict[str, str]:
        """The families of its candidates, in their order; each with its clue.

        Names of `rounddiag.findings.FAMILIES`, at most three.
        """
        return group_families(self.candidates)

    @property
    def prove_call(self) -> str:
        """The call that tests its candidates; empty if there is none.

        `batch` is yours to put in, and so is the model where the batch does not name
        it: the checkpoint of this step, or the address of a server that has it.
        """
        names = self._hypotheses
        if not names:
            return ""
        first = repr(self.checkpoint) if self.checkpoint else "model"
        return f"rd.prove(batch, {first}, hypotheses={names})"

    @property
    def prove_command(self) -> str:
        """The command that tests them; empty without a file, or a hypothesis.

        `MODEL` is yours to put in where the batch does not name it.
        """
        names = self._hypotheses
        if not names or not self.source or not Path(self.source).is_file():
            return ""
        model = shlex.quote(self.checkpoint or "MODEL")
        # As it is named from here: a notebook that is shared says nothing of a machine.
        near = shlex.quote(os.path.relpath(self.source))
        return f"rounddiag prove {near} --model {model} --hypotheses {','.join(names)}"

    @property
    def _hypotheses(self) -> list[str]:
        """What a proof tests: the cause that is named, and families."""
        is_named = self.cause in CAUSES and CAUSES[self.cause].hypotheses
        named = [self.cause] if is_named else []
        provable = [row for row in self.candidates if row.hypotheses]
        return [*named, *group_families(provable)]

    def tokens(self) -> pd.DataFrame:
        """Return its tokens: `sample, round, token, diff` and the two log-probs.

        Of a fitted reversal also `undone`, the part of `diff` that it undoes. What
        comes after it, with numbers "temperature undone", is of `diff - undone`.
        """
        view, index = _view(self), self.indices
        columns = {
            "sample": view.sample,
            "round": view.round,
            "token": view.token,
            "diff": view.diff,
            "position": view.position,
            "token_id": view.token_id,
            "rollout_log_prob": view.log_prob_b,
            "old_log_prob": view.log_prob_a,
        }
        dtypes = {name: TOKENS[name].dtype for name in columns}
        frame = pd.DataFrame({name: v[index] for name, v in columns.items()})
        frame = frame.astype(dtypes)
        if self.undone is not None:
            frame["undone"] = self.undone
        frame.attrs["is_thinned"] = view.is_thinned
        return frame

    def __repr__(self) -> str:
        numbers = "; ".join(map(str, self.evidence))
        possible = ", ".join(describe_families(self.candidates))
        call = self.prove_command or self.prove_call
        lines = (
            f"{self.kind}: {self.name} ({percent(self.share)} of the sum of |diff|)",
            f"  {self.explanation}",
            *([f"  possible: {possible}"] if possible else []),
            f"  evidence: {numbers}",
            f"  next: {self.next_step}",
            *([f"  prove: {call}"] if call else []),
        )
        return "\n".join(map(printable, lines))


def _view(finding: Finding) -> View:
    """Return the tokens of its batch; an error if it comes from another process."""
    if finding.view is None:
        raise BatchError.build(
            expected="a finding with the tokens of its batch",
            found="one from another process, which left them in the file",
            advice="Diagnose the file here: `rounddiag.diagnose(path)`.",
        )
    return finding.view


Axis: TypeAlias = Literal["round", "sample", "step", "log_prob"]

# Columns of a place whose means run along positions.
_BY_STEP = frozenset(
    {"decoding_step", "context_length", "last_of_longest", "since_image"}
    | {"after_image", "own_start"}
)
_BY_ROUND = frozenset({"round", "last_round", "images_seen"})
_STEPS = 48
# Points of a scatter plot; more are thinned evenly, those of the finding last.
_MAX_POINTS = 4_000


@dataclass(frozen=True)
class Exhibit:
    """The data of a finding's figure.

    Attributes
    ----------
    frame: `x`, `y` and `inside` (whether the finding has it); `num_tokens` behind a
        mean. `y` is mean |diff| in nats, or diff for `log_prob`. Over rounds and steps
        it has the columns of `stats.cells.cell_means` too, with the interval of each
        mean.
    onset: Where on the axis it begins.
    """

    axis: Axis
    frame: pd.DataFrame
    onset: float | None = None


def exhibit(finding: Finding) -> Exhibit:
    """Return the numbers that show a finding best."""
    view = _view(finding)
    inside = np.zeros(len(view), dtype=bool)
    inside[finding.indices] = True
    onset = finding.where.get("rounds_from")
    place = finding.where.get("place")
    columns = {condition.column for condition in place.conditions} if place else set()
    if onset is not None or columns & _BY_ROUND:
        return Exhibit("round", _by_unit(view, view.round, inside), onset)
    if columns & _BY_STEP:
        return Exhibit("step", _by_step(view, inside))
    is_part = len(finding.samples) < view.num_samples
    if is_part and not columns & CONTENT:
        inside = np.isin(view.sample, finding.samples)
        return Exhibit("sample", _by_unit(view, view.sample, inside)[_PLAIN])
    return Exhibit("log_prob", _cloud(view, inside))


_PLAIN = ["x", "y", "inside", "num_tokens"]  # without intervals: a sample has none


def _by_unit(view: View, unit: Array, inside: Array) -> pd.DataFrame:
    """Return the mean of each unit; the finding has those that are mostly its own."""
    means = _means(view, unit, np.ones(len(view), dtype=bool))
    own = np.bincount(unit, weights=inside)[means["x"]]
    return means.assign(inside=own > means["num_tokens"] / 2)


def _by_step(view: View, inside: Array) -> pd.DataFrame:
    mine = np.isin(view.sample, np.unique(view.sample[inside]))
    edges = np.unique(np.quantile(view.position, np.linspace(0, 1, _STEPS + 1)))
    code = np.clip(
        np.searchsorted(edges, view.position, "right") - 1, 0, len(edges) - 1
    )
    parts = []
    for flag in (True, False):
        chosen = mine == flag
        if chosen.any():
            means = _means(view, code, chosen)
            parts.append(means.assign(x=edges[means["x"]], inside=flag))
    return pd.concat(parts, ignore_index=True)


def _means(view: View, place: Array, chosen: Array) -> pd.DataFrame:
    values, at, sample = (x[chosen] for x in (view.abs_diff, place, view.sample))
    means = cell_means(values, at, sample, sample_clusters(view.batch))
    return means.rename(columns={"cell": "x"}).assign(y=means["mean"])


def _cloud(view: View, inside: Array) -> pd.DataFrame:
    every = max(1, -(-len(view) // _MAX_POINTS))
    index = np.arange(0, len(view), every)
    mine = np.flatnonzero(inside)
    mine = mine[:: max(1, -(-len(mine) // _MAX_POINTS))]
    index = np.r_[index[~inside[index]], mine]
    return pd.DataFrame(
        {
            "x": view.log_prob_b[index],
            "y": view.diff[index],
            "inside": inside[index],
            "num_tokens": 1,
        }
    )
