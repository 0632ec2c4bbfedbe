"""The scores of chosen samples under hypotheses, computed once each."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, TypeAlias

import numpy as np

from rounddiag._typing import Array
from rounddiag.batch import Batch
from rounddiag.batch.chains import ChainBatch, split_chains
from rounddiag.errors import BatchError, RounddiagError
from rounddiag.findings import Diagnosis, diagnose
from rounddiag.proof.engines import Engine, Readout
from rounddiag.proof.gate import Reference
from rounddiag.proof.hypotheses.hypothesis import (
    NEEDS,
    Family,
    Hypothesis,
    registered_names,
)
from rounddiag.proof.scores import (
    ScoreTable,
    check_log_probs,
    fit_scale,
    scale_residuals,
)
from rounddiag.proof.trajectory import (
    Request,
    Samples,
    Trajectory,
    collect_scores,
    cut_request,
    read_scores,
)

STANDARD = ("old", "rollout")
LATE_S = 10.0  # seconds after the deadline at which a pass may end
# Scores of other weights, and those of a scorer: no engines of this step.
_NO_ENGINES = {"current", "ref", "teacher", "base", "rescored"}


_Cell: TypeAlias = tuple[tuple[object, ...], int, bool, "int | None"]
"""Hypotheses that hold together, a sample, whether in low precision, its limit."""


class StoppedError(Exception):
    """A score is asked for that is not known, and scoring has stopped."""

    def __init__(self) -> None:
        super().__init__("no time was left")


@dataclass(eq=False)
class Scorer:
    """Scores samples of a batch, and remembers what it has.

    Attributes
    ----------
    batch: What is scored: one sample per chain of contexts.
    chains: Where these are in the batch that was given.
    low_precision: The same model in the short dtype of training, for the floor of the
        noise.
    deadline: Of `time.perf_counter`: no pass begins later.
    is_stopped: Whether no further pass is run: what is known can still be judged.
    limits: Where samples end, as indices in their ids: tokens from there on are left
        out.
    weights: The same model with other weights, by the names that hypotheses have.
    families: Hypotheses about these weights whose number is fitted.
    spent, num_read: Seconds and tokens of all passes so far.
    """

    batch: Batch
    engine: Engine
    low_precision: Engine | None = None
    deadline: float = float("inf")
    is_stopped: bool = False
    limits: dict[int, int] = field(default_factory=dict)
    weights: dict[str, Engine] = field(default_factory=dict)
    families: list[Family] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    spent: float = 0.0
    num_read: int = 0
    unscored: dict[int, str] = field(default_factory=dict)
    samples: Samples = field(init=False)
    chains: ChainBatch = field(init=False)
    _scores: dict[_Cell, Array | None] = field(default_factory=dict)
    _answers: dict[tuple[object, ...], Array] = field(default_factory=dict)
    _readouts: dict[tuple[Any, ...], Any] = field(default_factory=dict)
    _requests: dict[tuple[object, ...], Sequence[Request] | None] = field(
        default_factory=dict
    )
    _spread: dict[int, Array] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.chains = split_chains(self.batch)
        self.batch = self.chains.batch
        own = self.engine
        chat, count = getattr(own, "chat", None), getattr(own, "count_tokens", None)
        self.samples = Samples(self.chains, own.prepare, chat, count)

    @property
    def seconds_per_token(self) -> float:
        """The speed of the plain passes so far."""
        plain = [sample for chain, sample, *_ in self._scores if not chain]
        read = sum(len(self.samples[sample].ids) for sample in plain)
        return self.seconds.get("base", 0.0) / max(read, 1)

    def about(self, batch: Batch) -> Scorer:
        """Return a scorer of the same ids with other columns that knows as much."""
        return replace(self, batch=batch)

    @cached_property
    def engines(self) -> tuple[str, ...]:
        """The engines of the batch; a score that `rescore` or `prove` made is none."""
        made = _NO_ENGINES | {*registered_names()}
        others = [
            name
            for name in self.batch.scores
            if name not in made and "/" not in name and " + " not in name
        ]
        inside = self.batch.response_mask != 0
        return tuple(
            name
            for name in (*STANDARD, *others)
            if name != self.batch.meta.get("rescored")
            and not self.batch.lacks(name)
            and bool(self.batch.log_probs(name)[inside].isfinite().any())
        )

    @cached_property
    def diagnosis(self) -> Diagnosis | None:
        """The diagnosis of the batch; None unless it has two engines."""
        return diagnose(self.batch) if self.engines[:2] == STANDARD else None

    @cached_property
    def reference(self) -> Reference | None:
        """The tokens outside all places; None without two engines, or such tokens."""
        if self.diagnosis is None:
            return None
        return Reference.of_batch(self.batch, self.diagnosis)

    def can_score(self, sample: int) -> bool:
        """Return whether a sample has all that a pass needs; else remember why not."""
        if sample in self.unscored:
            return False
        try:
            trajectory = self.samples[sample]
        except BatchError as error:
            self.unscored[sample] = str(error)
            return False
        if not len(trajectory.targets):
            self.unscored[sample] = "no generated token has a context"
            return False
        return True

    def lacks(self, hypothesis: Hypothesis) -> str:
        """Return why a hypothesis cannot be scored here; empty if it can."""
        missing = sorted(hypothesis.needs - self.engine.abilities)
        if "pictures" in missing and self.has_pictures:
            return "needs a model that sees pictures"
        if missing:
            return f"needs {NEEDS[missing[0]]}"
        if "pictures" in hypothesis.needs and not self.has_pictures:
            return f"needs {NEEDS['pictures']}"
        return ""

    @property
    def scored_samples(self) -> list[int]:
        """The samples whose plain inputs were scored."""
        return sorted(
            sample for chain, sample, is_low, _ in self._scores if not (chain or is_low)
        )

    @property
    def has_pictures(self) -> bool:
        """Whether the batch has pictures."""
        return self.batch.images is not None and any(map(len, self.batch.images))

    def scores(
        self, chain: Sequence[Hypothesis], sample: int, *, low_precision: bool = False
    ) -> Array | None:
        """Return the log-probs of a sample under hypotheses that hold together.

        None where one of them cannot be applied to this sample.
        """
        key = (
            tuple(map(_key, chain)),
            sample,
            low_precision,
            self._limit(chain, sample),
        )
        if key not in self._scores:
            begin = time.perf_counter()
            self._scores[key] = self._score(chain, sample, low_precision=low_precision)
            name = " + ".join(hypothesis.name for hypothesis in chain) or "base"
            spent = time.perf_counter() - begin
            self.seconds[name] = self.seconds.get(name, 0.0) + spent
        return self._scores[key]

    def base(self, sample: int, *, low_precision: bool = False) -> Array:
        """Return the log-probs of plain inputs."""
        scores = self.scores((), sample, low_precision=low_precision)
        assert scores is not None  # noqa: S101 no hypothesis, nothing to apply
        return scores

    def _score(
        self, chain: Sequence[Hypothesis], sample: int, *, low_precision: bool
    ) -> Array | None:
        trajectory = self.samples[sample]
        requests = self.requests(chain, sample)
        if requests is None:
            return None
        engine = self._engine(chain, low_precision=low_precision)
        if "logits" not in engine.abilities:
            log_probs = [self._ask(engine, each) for each in requests]
            return collect_scores(trajectory, requests, log_probs)
        processors = [each.processor for each in chain if each.processor is not None]
        readouts = self._read(
            chain, sample, requests, engine, low_precision=low_precision
        )
        log_probs = [readout.log_probs(processors) for readout in readouts]
        return collect_scores(trajectory, requests, log_probs)

    def _ask(self, engine: Engine, request: Request) -> Array:
        """Return what an engine answers; the same is never asked twice."""
        given = (request.ids, request.is_scored)
        key = (
            *(each.numpy().tobytes() for each in given),
            *(request.pictures, request.places, request.setting),
        )
        if key not in self._answers:
            self.go_on()
            (values,) = engine.score([request], self.samples)
            self._answers[key] = check_log_probs(values, engine.name)
        return self._answers[key]

    def _limit(self, chain: Sequence[Hypothesis], sample: int) -> int | None:
        """Return where passes of a sample end: plain ones are whole."""
        is_plain = all(each.is_free for each in chain)
        return None if is_plain else self.limits.get(sample)

    def go_on(self, num_tokens: int = 0) -> None:
        """Raise a StoppedError where no pass may begin, or it would end too late."""
        needed = num_tokens * self.spent / max(self.num_read, 1)
        late = max(time.perf_counter(), time.perf_counter() + needed - LATE_S)
        if self.is_stopped or late > self.deadline:
            self.is_stopped = True
            raise StoppedError

    def _engine(self, chain: Sequence[Hypothesis], *, low_precision: bool) -> Engine:
        named = [each.weights for each in chain if each.weights]
        if named:
            return self.weights[named[-1]]
        # Engines with weights in 8 bits compute the rest in the short dtype.
        low_precision = low_precision or any("weights" in each.needs for each in chain)
        return (
            self.low_precision
            if low_precision and self.low_precision is not None
            else self.engine
        )

    def _read(
        self,
        chain: Sequence[Hypothesis],
        sample: int,
        requests: Sequence[Request],
        engine: Any,  # noqa: ANN401 one that gives logits
        *,
        low_precision: bool,
    ) -> list[Readout]:
        passes = tuple((each.name, each.weights) for each in chain if not each.is_free)
        key = (passes, sample, low_precision, self._limit(chain, sample))
        if key in self._readouts:
            return self._readouts[key]
        readouts = []
        for request in requests:
            self.go_on(len(request.ids))
            begin = time.perf_counter()
            reader: Any = self.weights.get(request.weights, engine)
            # Only engines that have other weights beside them take a third.
            others: list[Any] = []
            if request.num_cached:
                others = [self.weights[request.cached_weights]]
            readouts.append(reader.read(request, self.samples, *others))
            self.spent += time.perf_counter() - begin
            self.num_read += len(request.ids)
        if any(each.processor is not None for each in chain) or not passes:
            self._readouts[key] = readouts
        return readouts

    def size_of(
        self, hypothesis: Hypothesis, samples: Sequence[int]
    ) -> tuple[int, int]:
        """Return how many passes score a hypothesis, and of how many tokens."""
        if hypothesis.is_free or self.lacks(hypothesis):
            return 0, 0
        try:
            passes = [
                len(request.ids)
                for sample in samples
                for request in self.requests((hypothesis,), sample) or ()
            ]
        except RounddiagError:
            return 0, 0
        return len(passes), sum(passes)

    def requests(
        self, chain: Sequence[Hypothesis], sample: int
    ) -> Sequence[Request] | None:
        """Return the passes that score a sample; None if one has no place in it.

        They end at the last token that is wanted.
        """
        key = (*(each.edit for each in chain), sample, self._limit(chain, sample))
        if key not in self._requests:
            self._requests[key] = self._edit(chain, sample)
        return self._requests[key]

    def _edit(
        self, chain: Sequence[Hypothesis], sample: int
    ) -> Sequence[Request] | None:
        trajectory = self.samples[sample]
        requests: Sequence[Request] = [Request.of_sample(trajectory)]
        edited = False
        for each in chain:
            if each.edit is None:
                continue
            edits = each.edit(trajectory, self.samples)
            edits = [edits] if isinstance(edits, Request) else edits
            if not edits:
                return None
            if edited and len(edits) == 1 and len(edits[0].ids) == len(trajectory.ids):
                # The later change is of positions or of a setting: apply it to all.
                later = edits[0]
                edits = [
                    replace(
                        request,
                        places=later.places or request.places,
                        setting=later.setting or request.setting,
                        num_cached=later.num_cached or request.num_cached,
                        cached_weights=later.cached_weights or request.cached_weights,
                    )
                    for request in requests
                ]
            elif edited:
                return None
            requests, edited = edits, True
        limit = self._limit(chain, sample)
        cut = [cut_request(each, self.samples, limit) for each in requests]
        return [each for each in cut if each is not None]

    def spread(self, sample: int) -> Array:
        """Return how much noise of the logits moves each log-prob of a sample."""
        if sample not in self._spread:
            base = self.base(sample)
            readouts = self._readouts.get(((), sample, False, None))
            if readouts:
                self._spread[sample] = readouts[0].spread()
            else:  # all of the rest on few tokens
                self._spread[sample] = 1.3 * -np.expm1(np.minimum(base, 0))
        return self._spread[sample]

    def forget_logits(self) -> None:
        """Free what the logits of passes follow from; their scores and spreads stay."""
        for passes, sample, low_precision, _ in self._readouts:
            if not passes and not low_precision:
                self.spread(sample)
        self._readouts.clear()

    def column(
        self,
        chain: Sequence[Hypothesis],
        samples: Sequence[int],
        *,
        low_precision: bool = False,
    ) -> Array:
        """Return the log-probs of samples end to end; NaN where it does not apply."""
        parts = []
        for sample in samples:
            scores = self.scores(chain, sample, low_precision=low_precision)
            inside = self.is_inside(sample)
            parts.append(
                np.full(int(inside.sum()), np.nan) if scores is None else scores[inside]
            )
        return np.concatenate(parts)

    def is_inside(self, sample: int) -> Array:
        """Return which targets of a sample are before its limit."""
        trajectory = self.samples[sample]
        limit = self.limits.get(sample, len(trajectory.ids))
        return trajectory.targets < limit

    def table(self, samples: Sequence[int]) -> ScoreTable:
        """Return the scores of plain inputs beside those of the batch."""
        known = [self.samples[sample] for sample in samples]
        inside = np.concatenate([self.is_inside(sample) for sample in samples])

        def join(read: Callable[[Trajectory], Array]) -> Array:
            return np.concatenate([*map(read, known)])[inside]

        base = join(lambda trajectory: self.base(trajectory.sample))
        spread = join(lambda trajectory: self.spread(trajectory.sample))
        low_precision = base + _other_noise(spread)
        if self.low_precision is not None:
            low_precision = join(
                lambda trajectory: self.base(trajectory.sample, low_precision=True)
            )
        usual = None
        if (reference := self.reference) is not None:
            at = join(lambda trajectory: trajectory.flat_targets(self.batch).numpy())
            usual = reference.usual(at)
        table = ScoreTable(
            engines={
                name: join(partial(read_scores, self.batch, name))
                for name in self.engines
            },
            base=base,
            low_precision=low_precision,
            spread=spread,
            sample=join(
                lambda trajectory: np.full(len(trajectory.targets), trajectory.sample)
            ),
            round=join(lambda trajectory: trajectory.target_rounds),
            usual=usual,
        )
        return table if self.exact_noise is None else table.at_most(self.exact_noise)

    @cached_property
    def equal_rows(self) -> list[int]:
        """The samples in which both engines agree bit by bit, where others differ.

        Not those of so few tokens that one is likely to agree by chance: as likely as
        single tokens agree in the others.
        """
        if self.engines[:2] != STANDARD:
            return []
        old, rollout = self.batch.both_log_probs()
        inside = (self.batch.response_mask != 0).cpu().numpy()
        row = np.repeat(np.arange(len(self.samples)), self.batch.offsets.diff().cpu())
        equal = np.bincount(row[inside], (old == rollout).cpu().numpy()[inside])
        number = np.bincount(row[inside], minlength=len(equal))
        differ = equal < number
        if not differ.any():
            return []
        by_chance = float(equal[differ].sum() / number[differ].sum()) ** number
        rows = ~differ & (number > 0) & (by_chance < _BY_CHANCE / len(number))
        return np.flatnonzero(rows).tolist()

    @cached_property
    def exact_noise(self) -> float | None:
        """What the base leaves of an equal row: the noise of engines that have none.

        In nats of logits; None without such a row.
        """
        sample = next(filter(self.can_score, self.equal_rows), None)
        if sample is None:
            return None
        truth = read_scores(self.batch, STANDARD[0], self.samples[sample])
        residual = scale_residuals(self.base(sample) - truth, self.spread(sample))
        return float(fit_scale(residual))

    def token_ids(self, samples: Sequence[int]) -> Array:
        """Return the ids of the scored tokens of samples."""
        parts = []
        for sample in samples:
            trajectory = self.samples[sample]
            targets = trajectory.targets[self.is_inside(sample)]
            parts.append(trajectory.ids.numpy()[targets])
        return np.concatenate(parts)


_USUAL_NOISE = 0.01  # nats of logits
_BY_CHANCE = 0.05  # of any row of the batch


def _other_noise(spread: Array) -> Array:
    """Return a typical noise of bf16 engines, for a scorer with one dtype only."""
    rng = np.random.default_rng(0)
    return rng.standard_t(3, len(spread)) * _USUAL_NOISE * spread


def _key(hypothesis: Hypothesis) -> tuple[object, ...]:
    return hypothesis.name, hypothesis.weights, hypothesis.processor
