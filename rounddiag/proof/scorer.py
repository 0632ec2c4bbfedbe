"""Passes of samples under hypotheses, run once each; the table of their scores."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, TypeAlias

import numpy as np

from rounddiag._typing import Array
from rounddiag.batch import Batch
from rounddiag.batch.chains import split_chains
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
from rounddiag.proof.hypotheses.sampling import Temperature
from rounddiag.proof.scores import (
    ScoreTable,
    Stops,
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
_USUAL_NOISE = 0.01  # nats of logits
_BY_CHANCE = 0.05  # of any row of the batch

Chain: TypeAlias = Sequence[Hypothesis]
"""Hypotheses that hold together; none is the model as it is."""


class StoppedError(Exception):
    """A score is asked for that is not known, and scoring has stopped."""

    def __init__(self) -> None:
        super().__init__("no time was left")


def require_seconds(budget_s: object) -> None:
    """Raise a BatchError unless a budget is a number of seconds."""
    if not isinstance(budget_s, int | float) or not budget_s >= 0:  # NaN neither
        raise BatchError.build(
            key="budget_s",
            expected="a number of seconds of at least 0",
            found=f"{budget_s!r:.80}",
            advice="Pass how long it may take, such as `budget_s=60`.",
        )


@dataclass(eq=False)
class Clock:
    """When a pass may begin.

    Attributes
    ----------
    deadline: Of `time.perf_counter`: no pass begins later.
    is_stopped: Whether no further pass is run: what is known can still be judged.
    spent, num_read: Seconds and tokens of all passes so far.
    """

    deadline: float = float("inf")
    is_stopped: bool = False
    spent: float = 0.0
    num_read: int = 0

    @property
    def seconds_per_token(self) -> float:
        """The speed of the passes so far."""
        return self.spent / max(self.num_read, 1)

    def go_on(self, num_tokens: int = 0) -> None:
        """Raise a StoppedError where no pass may begin, or it would end too late."""
        late = max(num_tokens * self.seconds_per_token - LATE_S, 0)
        if self.is_stopped or time.perf_counter() + late > self.deadline:
            self.is_stopped = True
            raise StoppedError

    @contextmanager
    def run_pass(self, num_tokens: int) -> Iterator[None]:
        """Take the time of a pass, if it may begin."""
        self.go_on(num_tokens)
        begin = time.perf_counter()
        yield
        self.spent += time.perf_counter() - begin
        self.num_read += num_tokens


@dataclass(eq=False)
class Scorer:
    """Scores samples of a batch, and remembers what it has.

    Attributes
    ----------
    batch: What is scored: one sample per chain of contexts.
    low_precision: The same model in the short dtype of training, for the floor of the
        noise.
    weights: The same model with other weights, by the names that hypotheses have.
    families: Hypotheses about these weights whose number is fitted.
    seconds: Spent on each hypothesis, by name.
    unscored: Samples that cannot be scored, and why.
    temperature: By which logits are divided where no hypothesis has another.
    """

    batch: Batch
    engine: Engine
    low_precision: Engine | None = None
    weights: dict[str, Engine] = field(default_factory=dict)
    families: list[Family] = field(default_factory=list)
    clock: Clock = field(default_factory=Clock)
    seconds: dict[str, float] = field(default_factory=dict)
    unscored: dict[int, str] = field(default_factory=dict)
    temperature: float = 1.0
    _scores: dict[tuple[object, ...], Array | None] = field(default_factory=dict)
    _spread: dict[int, Array] = field(default_factory=dict)
    _answers: dict[tuple[object, ...], Array] = field(default_factory=dict)
    _readouts: dict[tuple[object, ...], list[Readout]] = field(default_factory=dict)
    _requests: dict[tuple[object, ...], Sequence[Request] | None] = field(
        default_factory=dict
    )

    def __post_init__(self) -> None:
        own = self.engine
        chat, count = getattr(own, "chat", None), getattr(own, "count_tokens", None)
        self.samples = Samples(split_chains(self.batch), own.prepare, chat, count)
        self.batch = self.samples.batch

    def about(self, batch: Batch) -> Scorer:
        """Return a scorer of the same ids with other columns that knows as much."""
        return replace(self, batch=batch)

    def at_temperature(self, value: float) -> Scorer:
        """Return a scorer that divides logits, of the same passes."""
        joined = self.samples.chains.joined
        return replace(self, batch=joined, temperature=value, _scores={})

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
    def has_pictures(self) -> bool:
        """Whether the batch has pictures."""
        return self.batch.images is not None and any(map(len, self.batch.images))

    @property
    def scored_samples(self) -> list[int]:
        """The samples whose plain inputs were scored."""
        every = range(len(self.samples))
        return [sample for sample in every if _plain(sample) in self._scores]

    def base(self, sample: int, *, low_precision: bool = False) -> Array:
        """Return the log-probs of plain inputs."""
        scores = self.scores((), sample, low_precision=low_precision)
        assert scores is not None  # noqa: S101 no hypothesis, nothing to apply
        return scores

    def scores(
        self,
        chain: Chain,
        sample: int,
        stop: int | None = None,
        *,
        low_precision: bool = False,
    ) -> Array | None:
        """Return the log-probs of a sample under hypotheses that hold together.

        None where one of them cannot be applied to this sample. NaN from `stop` on, but
        of passes of plain inputs, which are whole.
        """
        stop = None if all(each.is_free for each in chain) else stop
        key = (tuple(map(_key, chain)), sample, low_precision, stop)
        if key not in self._scores:
            begin = time.perf_counter()
            self._scores[key] = self._score(
                chain, sample, stop, low_precision=low_precision
            )
            name = " + ".join(hypothesis.name for hypothesis in chain) or "base"
            spent = time.perf_counter() - begin
            self.seconds[name] = self.seconds.get(name, 0.0) + spent
        return self._scores[key]

    def _score(
        self, chain: Chain, sample: int, stop: int | None, *, low_precision: bool
    ) -> Array | None:
        requests = self.requests(chain, sample, stop)
        if requests is None:
            return None
        engine = self._engine(chain, low_precision=low_precision)
        if "logits" in engine.abilities:
            passes = tuple(_key(each)[:2] for each in chain if not each.is_free)
            processors = [each.processor for each in chain if each.processor]
            key = (passes, sample, low_precision, stop)
            readouts = self._readouts.get(key) or [
                self._read(engine, request) for request in requests
            ]
            if processors or not passes:
                self._readouts[key] = readouts
            if self.temperature != 1 and all(each.rank != 1 for each in processors):
                processors.append(Temperature(self.temperature))
            log_probs = [readout.log_probs(processors) for readout in readouts]
        else:
            log_probs = [self._ask(engine, request) for request in requests]
        return collect_scores(self.samples[sample], requests, log_probs)

    def _engine(self, chain: Chain, *, low_precision: bool) -> Engine:
        named = [each.weights for each in chain if each.weights]
        if named:
            return self.weights[named[-1]]
        # Engines with weights in 8 bits compute the rest in the short dtype.
        is_low = low_precision or any("weights" in each.needs for each in chain)
        return (is_low and self.low_precision) or self.engine

    def _ask(self, engine: Engine, request: Request) -> Array:
        """Return what an engine answers; the same is never asked twice."""
        given = (request.ids, request.is_scored)
        key = (
            *(each.numpy().tobytes() for each in given),
            *(request.pictures, request.places, request.setting),
        )
        if key not in self._answers:
            with self.clock.run_pass(len(request.ids)):
                (values,) = engine.score([request], self.samples)
            self._answers[key] = check_log_probs(values, engine.name)
        return self._answers[key]

    def _read(self, engine: Any, request: Request) -> Readout:  # noqa: ANN401 one that gives logits
        reader: Any = self.weights.get(request.weights, engine)
        # Only engines that have other weights beside them take a third.
        others = [self.weights[request.cached_weights]] if request.num_cached else []
        with self.clock.run_pass(len(request.ids)):
            readout: Readout = reader.read(request, self.samples, *others)
        return readout

    def size_of(self, hypothesis: Hypothesis, stops: Stops) -> tuple[int, int]:
        """Return how many passes score a hypothesis, and of how many tokens."""
        if hypothesis.is_free or self.lacks(hypothesis):
            return 0, 0
        try:
            passes = [
                len(request.ids)
                for each in stops.items()
                for request in self.requests((hypothesis,), *each) or ()
            ]
        except RounddiagError:
            return 0, 0
        return len(passes), sum(passes)

    def requests(
        self, chain: Chain, sample: int, stop: int | None = None
    ) -> Sequence[Request] | None:
        """Return the passes that score a sample; None if one has no place in it.

        They end at the last token that is wanted.
        """
        key = (*(each.edit for each in chain), sample, stop)
        if key not in self._requests:
            edited = self._edit(chain, self.samples[sample])
            cut = [cut_request(each, self.samples, stop) for each in edited or ()]
            self._requests[key] = edited and [each for each in cut if each is not None]
        return self._requests[key]

    def _edit(self, chain: Chain, trajectory: Trajectory) -> Sequence[Request] | None:
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
        return requests

    def spread(self, sample: int) -> Array:
        """Return how much noise of the logits moves each log-prob of a sample."""
        if sample not in self._spread:
            base = self.base(sample)
            readouts = self._readouts.get(_plain(sample))
            # Where logits are not known: all of the rest on few tokens.
            rest = 1.3 * -np.expm1(np.minimum(base, 0))
            self._spread[sample] = readouts[0].spread() if readouts else rest
        return self._spread[sample]

    def forget_logits(self) -> None:
        """Free what the logits of passes follow from; their scores and spreads stay."""
        for sample in self.scored_samples:
            self.spread(sample)
        self._readouts.clear()

    def column(
        self, chain: Chain, stops: Stops, *, low_precision: bool = False
    ) -> Array:
        """Return the log-probs of samples end to end; NaN where it does not apply."""
        parts = []
        for sample, stop in stops.items():
            scores = self.scores(chain, sample, stop, low_precision=low_precision)
            inside = self._inside(sample, stop)
            whole = np.full(len(inside), np.nan) if scores is None else scores
            parts.append(whole[inside])
        return np.concatenate(parts)

    def _inside(self, sample: int, stop: int | None) -> Array:
        targets = self.samples[sample].targets
        return targets < np.inf if stop is None else targets < stop

    def table(self, stops: Stops) -> ScoreTable:
        """Return the scores of plain inputs beside those of the batch."""
        inside = [self._inside(*each) for each in stops.items()]

        def join(read: Callable[[int], Array]) -> Array:
            return np.concatenate([*map(read, stops)])[np.concatenate(inside)]

        base, spread = join(self.base), join(self.spread)
        at = join(lambda sample: self.samples[sample].flat_targets(self.batch).numpy())
        table = ScoreTable(
            engines={
                name: self.batch.log_probs(name).cpu()[at].double().numpy()
                for name in self.engines
            },
            base=base,
            low_precision=base + _other_noise(spread)
            if self.low_precision is None
            else join(partial(self.base, low_precision=True)),
            spread=spread,
            sample=np.repeat([*stops], [each.sum() for each in inside]),
            round=join(lambda sample: self.samples[sample].target_rounds),
            at=at,
            stops=stops,
            usual=None if self.reference is None else self.reference.usual(at),
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


def _other_noise(spread: Array) -> Array:
    """Return a typical noise of bf16 engines, for a scorer with one dtype only."""
    rng = np.random.default_rng(0)
    return rng.standard_t(3, len(spread)) * _USUAL_NOISE * spread


def _key(hypothesis: Hypothesis) -> tuple[object, ...]:
    return hypothesis.name, hypothesis.weights, hypothesis.processor


def _plain(sample: int) -> tuple[object, ...]:
    """Return the key of plain inputs."""
    return (), sample, False, None
