"""A finding: one cause, with its evidence, its places and what to do next."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from rounddiag.checks.provable import checkpoint_of
from rounddiag.core.columns import sample_clusters
from rounddiag.errors import warn_renamed
from rounddiag.findings.causes import PROVABLE
from rounddiag.stats.cells import cell_means
from rounddiag.wording import printable, with_minus

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pandas as pd

    from rounddiag._typing import Array
    from rounddiag.findings.causes import Alternative
    from rounddiag.findings.view import View


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
            interval = with_minus(f" ({self.low:.3g} to {self.high:.3g})")
        return f"{self.name} {with_minus(f'{self.value:.3g}')}{unit}{interval}"


@dataclass(frozen=True, kw_only=True, eq=False)
class Evidence:
    """The result of a detector: tokens or a fitted effect, and its numbers.

    Attributes
    ----------
    score : float
        Strength of the evidence, 0 to 1; calibrated to the probability of the cause.
    explanation : str
        What was found, in at most two sentences.
    tokens : bool array
        The tokens of the view that carry the mismatch.
    next_step : str
        By default, what tells the first cause from the others.
    effect : callable, optional
        Takes a `View` and returns the fitted part of its `diff`, which is removed
        instead of the tokens. It is called with this view, and with that of the whole
        batch if only a part of it was fitted.
    measures : tuple of Measure
    where : mapping of str to object
        Places that the detector knows: `rounds_from`, `samples`, `column`, `value`, ...
    alternatives : tuple of Alternative
    cause : str
        The name of the detector by default.
    adds_mismatch : bool
        False for faults that cause no mismatch of their own, such as padding rows.
    gain : float
        How much better than chance the pattern fits, in nats of log-likelihood;
        compares place patterns with one another.
    """

    score: float
    explanation: str
    tokens: Array
    next_step: str = ""
    effect: Callable[[View], Array] | None = None
    measures: tuple[Measure, ...] = ()
    where: Mapping[str, Any] = field(default_factory=dict)
    alternatives: tuple[Alternative, ...] = ()
    cause: str = ""
    adds_mismatch: bool = True
    gain: float = 0.0


@dataclass(frozen=True, kw_only=True, eq=False)
class Finding:
    """A place or a shape of the mismatch that noise does not explain.

    Attributes
    ----------
    causes : Series
        Probability of each named cause and of `unknown`, largest first; the sum is 1.
    is_certain : bool
        Whether noise is ruled out. The cause may be open nevertheless.
    share : float
        The part of the sum of |diff| that it explains.
    evidence : tuple of Measure
    where : mapping of str to object
        Onset, samples, rounds, roles and column values that it follows.
    explanation : str
    alternatives : tuple of Alternative
    next_step : str
    location : str
        What differs, and where, as one clause of a sentence.
    looks : mapping of str to str
        What the mismatch looks like, by measure: the ground of `causes` where no exact
        value or fitted effect names the cause.
    """

    causes: pd.Series[float]
    is_certain: bool
    share: float
    evidence: tuple[Measure, ...]
    where: Mapping[str, Any]
    explanation: str
    alternatives: tuple[Alternative, ...]
    next_step: str
    location: str = ""
    looks: Mapping[str, str] = field(default_factory=dict)
    view: View = field(repr=False)
    indices: Array = field(repr=False)

    @property
    def place(self) -> str:
        """`location`, by its former name."""
        warn_renamed("Finding.place", "`location`")
        return self.location

    @property
    def cause(self) -> str:
        """The most probable cause: a name of `rounddiag.findings.CAUSES`."""
        return str(self.causes.index[0])

    @property
    def confidence(self) -> float:
        """The probability of that cause."""
        return float(self.causes.iloc[0])

    @property
    def num_tokens(self) -> int:
        """Number of its tokens."""
        return len(self.indices)

    @property
    def samples(self) -> Array:
        """The samples in which these tokens are."""
        known = self.where.get("samples")
        if known is not None:
            return np.asarray(known)
        return np.unique(self.view.sample[self.indices])

    @property
    def prove_call(self) -> str:
        """The call that proves its cause; empty if no hypothesis is about it.

        `batch` is yours to put in, and so is the model where the batch does not name
        it: the checkpoint of this step, or the address of a server that has it.
        """
        causes = self._provable
        if not causes:
            return ""
        model = checkpoint_of(self.view.batch)
        first = repr(model) if model else "model"
        return f"rd.prove(batch, {first}, hypotheses={causes})"

    @property
    def prove_command(self) -> str:
        """The command that proves its cause; empty without a file, or a hypothesis.

        `MODEL` is yours to put in where the batch does not name it.
        """
        file = self.view.batch.meta.get("source")
        causes = self._provable
        if not causes or not isinstance(file, str) or not Path(file).is_file():
            return ""
        model = shlex.quote(checkpoint_of(self.view.batch) or "MODEL")
        # As it is named from here: a notebook that is shared says nothing of a machine.
        near = shlex.quote(os.path.relpath(file))
        return f"rounddiag prove {near} --model {model} --hypotheses {','.join(causes)}"

    @property
    def _provable(self) -> list[str]:
        """Its causes that a proof has hypotheses for, the likeliest first."""
        named = (self.cause, *(one.cause for one in self.alternatives))
        return [one for one in dict.fromkeys(named) if one in PROVABLE]

    def tokens(self) -> pd.DataFrame:
        """Return its tokens: `sample, round, token, diff` and the two log-probs."""
        import pandas as pd

        view, index = self.view, self.indices
        frame = pd.DataFrame(
            {
                "sample": view.sample[index].astype(np.int32),
                "round": view.round[index].astype(np.int32),
                "token": view.token[index].astype(np.int32),
                "diff": view.diff[index].astype(np.float32),
                "position": view.position[index].astype(np.int32),
                "token_id": view.token_id[index].astype(np.int32),
                "rollout_log_prob": view.log_prob_b[index].astype(np.float32),
                "old_log_prob": view.log_prob_a[index].astype(np.float32),
            }
        )
        frame.attrs["is_thinned"] = view.is_thinned
        return frame

    def __repr__(self) -> str:
        numbers = "; ".join(map(str, self.evidence))
        rank = f"confidence {self.confidence:.2f}, {self.share:.0%}"
        call = self.prove_command or self.prove_call
        lines = (
            f"{self.cause} ({rank} of the sum of |diff|)",
            f"  {self.explanation}",
            f"  evidence: {numbers}",
            f"  next: {self.next_step}",
            *([f"  prove: {call}"] if call else []),
        )
        return "\n".join(map(printable, lines))


Axis: TypeAlias = Literal["round", "sample", "step", "log_prob"]

_BY_ROUND = frozenset({"image_window", "context_masked", "dropped_image"})
_BY_SAMPLE = frozenset(
    {"bad_worker", "wrong_image", "swapped_rows", "packing_leak", "padding_rows"}
    | {"decode_path", "identical_log_probs"}
)
_BY_STEP = frozenset(
    {"mixed_weights", "stale_cache", "position_ids", "prompt_mismatch"}
    | {"model_mismatch", "truncated_round"}
)
_STEPS = 48
# Points of a scatter plot; more are thinned evenly, those of the finding last.
_MAX_POINTS = 4_000


@dataclass(frozen=True)
class Exhibit:
    """The data of a finding's figure.

    Attributes
    ----------
    axis : {"round", "sample", "step", "log_prob"}
    frame : DataFrame
        `x`, `y` and `inside` (whether the finding has it); `num_tokens` behind a mean.
        `y` is mean |diff| in nats, or diff for `log_prob`. Over rounds and steps it has
        the columns of `stats.cells.cell_means` too, with the interval of each mean.
    onset : float or None
        Where on the axis it begins.
    """

    axis: Axis
    frame: pd.DataFrame
    onset: float | None = None


def exhibit(finding: Finding) -> Exhibit:
    """Return the numbers that show a finding best."""
    view = finding.view
    inside = np.zeros(len(view), dtype=bool)
    inside[finding.indices] = True
    onset = finding.where.get("rounds_from")
    if finding.cause in _BY_ROUND or onset is not None:
        return Exhibit("round", _by_round(view, inside), onset)
    if finding.cause in _BY_SAMPLE:
        inside = np.isin(view.sample, finding.samples)
        return Exhibit("sample", _by_sample(view, inside))
    if finding.cause in _BY_STEP:
        return Exhibit("step", _by_step(view, inside))
    return Exhibit("log_prob", _cloud(view, inside))


def _by_round(view: View, inside: Array) -> pd.DataFrame:
    """Return the mean of each round; the finding has rounds that are mostly its own."""
    means = _means(view, view.round, np.ones(len(view), dtype=bool))
    own = np.bincount(view.round, weights=inside)[means["x"]]
    return means.assign(inside=own > means["num_tokens"] / 2)


def _by_sample(view: View, inside: Array) -> pd.DataFrame:
    import pandas as pd

    x, code = np.unique(view.sample, return_inverse=True)
    num = np.bincount(code)
    return pd.DataFrame(
        {
            "x": x,
            "y": np.bincount(code, weights=view.abs_diff) / num,
            "inside": np.bincount(code, weights=inside) > num / 2,
            "num_tokens": num,
        }
    )


def _by_step(view: View, inside: Array) -> pd.DataFrame:
    """Return means over stretches of the response, in its samples and the others."""
    import pandas as pd

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
    """Return the mean |diff| of the chosen tokens at each place, with its interval."""
    values, at, sample = (x[chosen] for x in (view.abs_diff, place, view.sample))
    means = cell_means(values, at, sample, sample_clusters(view.batch))
    return means.rename(columns={"cell": "x"}).assign(y=means["mean"])


def _cloud(view: View, inside: Array) -> pd.DataFrame:
    import pandas as pd

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
