"""The base: the weights, and the temperature, that reproduce a sound engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from rounddiag.batch import Batch
from rounddiag.checks.provable import recorded_sampling
from rounddiag.findings import diagnose
from rounddiag.proof.engines.local import LocalEngine
from rounddiag.proof.gate import Gate, Reference
from rounddiag.proof.hypotheses.hypothesis import Hypothesis
from rounddiag.proof.samples import MAX_SAMPLES, interleave
from rounddiag.proof.scorer import Scorer
from rounddiag.proof.trajectory import to_flat
from rounddiag.proof.weights import WEIGHTS, weight_hypotheses_of

_SIZES = (2, 5)  # samples: more only where the first do not decide
_GIVEN = "the model given"


@dataclass(frozen=True, eq=False)
class Base:
    """A scorer whose weights are a sound engine's, if any are.

    Attributes
    ----------
    others: About the weights that are not the base.
    order: Samples, in the order in which they are scored.
    checkpoint: About the weights that are the base, where these are not the given ones.
    """

    scorer: Scorer
    gate: Gate
    others: Sequence[Hypothesis]
    order: Sequence[int]
    checkpoint: Hypothesis | None = None


def find_base(
    scorer: Scorer, order: Sequence[int], others: Sequence[Hypothesis]
) -> Base:
    """Try the given weights, then each checkpoint; the first that passes is the base.

    Where none does, they are tried with logits divided by the recorded temperature, as
    verl's trainer and `processed_logprobs` of vLLM have them.

    Parameters
    ----------
    scorer : Scorer
    order : sequence of int
        Samples, in the order in which they are scored. With one engine the largest
        differences from the scorer come first.
    others : sequence of Hypothesis
        About other weights.
    """
    plain = _find_base(scorer, order, others)
    value = _recorded_temperature(scorer)
    if plain.gate.passes or value == 1:
        return plain
    tempered = _find_base(scorer.at_temperature(value), order, others)
    if not tempered.gate.passes:
        return plain
    note = f"Base: logits divided by the recorded temperature, {value:g}."
    note = " ".join(filter(None, [note, tempered.gate.note]))
    return replace(tempered, gate=replace(tempered.gate, note=note))


def _recorded_temperature(scorer: Scorer) -> float:
    """Return the temperature that the batch records of its sampler; 1 if it does not.

    Only an engine that gives logits can divide them.
    """
    value = recorded_sampling(scorer.batch).get("temperature")
    if "logits" not in scorer.engine.abilities or not isinstance(value, int | float):
        return 1.0
    return float(value) if 0 < value < np.inf else 1.0


def _find_base(
    scorer: Scorer, order: Sequence[int], others: Sequence[Hypothesis]
) -> Base:
    if len(scorer.engines) == 1:
        pair = _pair_of_one(scorer, order[:MAX_SAMPLES])
        scorer.reference = _places_of_one(pair, order[:MAX_SAMPLES])
        order = list(dict.fromkeys([*interleave(pair), *order]))
    gate = _try(scorer, order, ())
    if gate.passes:
        return Base(scorer, gate, others, order)
    tried: dict[str, Gate] = {}
    for hypothesis in others:
        if hypothesis.weights and hypothesis.cause == "stale_weights":
            tried[hypothesis.weights] = _try(scorer, order, (hypothesis,))
    passed = [name for name, result in tried.items() if result.passes]
    if not passed:
        note = ""
        if tried:
            best = min(fit.residual for result in tried.values() for fit in result.fits)
            note = f"No checkpoint passes either: the best leaves {best:.2g} nat."
        return Base(scorer, replace(gate, note=note), others, order)
    name = min(passed, key=lambda each: tried[each].fits[0].ratio)
    label = next(hypothesis.says for hypothesis in others if hypothesis.weights == name)
    worst, best_fit = gate.fits[0], tried[name].fits[0]
    note = (
        f"Base: {label}, which leave {best_fit.residual:.2g} nat of {best_fit.engine};"
        f" {_GIVEN} leaves {worst.residual:.2g} nat of {worst.engine}."
    )
    base = weight_hypotheses_of(name.removeprefix(WEIGHTS))
    rest = [
        hypothesis
        for hypothesis in others
        if hypothesis.name not in {each.name for each in base}
    ]
    given, *_ = weight_hypotheses_of(_GIVEN)
    return Base(
        _exchange(scorer, name, given.weights),
        replace(tried[name], note=note),
        [given, *rest],
        order,
        base[0],
    )


def _pair_of_one(scorer: Scorer, samples: Sequence[int]) -> Batch:
    (name,) = scorer.engines
    batch = scorer.batch
    known = [(scorer.samples[each], scorer.base(each)) for each in samples]
    base = to_flat(batch, known)
    return replace(batch, old_log_probs=batch.log_probs(name), rollout_log_probs=base)


def _places_of_one(pair: Batch, samples: Sequence[int]) -> Reference | None:
    """Return the tokens outside the places at which one engine differs from the base.

    There is no second engine to compare it with, and the scorer's own noise is what is
    usual.
    """
    small = pair[list(samples)]
    inner = Reference.of_batch(small, diagnose(small))
    if inner is None:
        return None
    borders = pair.offsets.tolist()
    flat = np.concatenate([np.arange(borders[i], borders[i + 1]) for i in samples])
    is_outside = np.zeros(pair.num_positions, dtype=bool)
    is_outside[flat] = inner.is_outside
    base = pair.log_probs("rollout").double().numpy()
    return Reference(is_outside, inner.edges[:0], np.zeros(1), base)


def _try(scorer: Scorer, order: Sequence[int], chain: tuple[Hypothesis, ...]) -> Gate:
    outside = _with_tokens_outside(scorer, order) or order
    for size in _SIZES:
        samples = dict.fromkeys(outside[:size])
        table = scorer.table(samples)
        if chain:
            table = table.rebase(scorer.column(chain, samples))
        gate = Gate.of_table(table)
        if gate.is_decided or size >= len(outside):
            break
    return gate


def _with_tokens_outside(scorer: Scorer, order: Sequence[int]) -> list[int]:
    if scorer.reference is None:
        return []
    before = np.append(0, np.cumsum(scorer.reference.is_outside))
    number = np.diff(before[scorer.batch.offsets.cpu().numpy()])
    return [sample for sample in order if number[sample]]


def _exchange(scorer: Scorer, name: str, given: str) -> Scorer:
    """Return a scorer with other weights as its own, and its own beside them."""
    weights = {each: loaded for each, loaded in scorer.weights.items() if each != name}
    weights[given] = scorer.engine
    engine, low = scorer.weights[name], scorer.low_precision
    if isinstance(engine, LocalEngine) and isinstance(low, LocalEngine):
        low = low.beside(engine.name, dtype=low.dtype)
    return Scorer(
        scorer.samples.chains.joined,
        engine,
        low,
        weights=weights,
        families=scorer.families,
        clock=scorer.clock,
        unscored=scorer.unscored,
        temperature=scorer.temperature,
    )
