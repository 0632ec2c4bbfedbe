"""`rescore`: the ids of a batch scored again, as the engine it lacks or one more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor
from tqdm.auto import tqdm

from rounddiag.batch import Batch
from rounddiag.batch.batch import require_batch
from rounddiag.errors import BatchError
from rounddiag.proof.engines.opening import open_engine
from rounddiag.proof.hypotheses import Hypothesis, all_registered, select_hypotheses
from rounddiag.proof.scorer import Scorer
from rounddiag.proof.trajectory import to_flat

RESCORED = "rescored"


def rescore(
    batch: Batch,
    engine: Any,  # noqa: ANN401 a name, an address or a function
    change: str | None = None,
    *,
    samples: Sequence[int] | None = None,
    device: str = "auto",
    trust_remote_code: bool = False,
) -> Batch:
    """Score the tokens of a batch again, with another engine.

    A batch with the log-probs of one engine gets the second here, and everything that
    compares two works. The verdict is then of the engine that served, as far as the
    model is that of the step: `prove` says so, or `scorer_differs`.

    Parameters
    ----------
    batch : Batch
        With token ids; pictures as the processor got them, for a model that sees.
    engine : str, path-like, LocalEngine or callable
        As of `prove`: pictures go to a server only if its address is passed here.
    change : str, optional
        The name of a hypothesis: what is read or computed otherwise.
    samples : sequence of int, optional
        By default all.
    device : str
        Of a model in this process; `auto` is a GPU if there is one.
    trust_remote_code : bool
        Whether code of the model's repository may run.

    Returns
    -------
    Batch
        These samples. Where an engine is missing, this one stands for it, and
        `meta["rescored"]` names which; the training engine comes first. Else there is
        one more score named `rescored`, or as the hypothesis. NaN at tokens that the
        engine did not score, such as observations.
    """
    require_batch(batch)
    batch.require_ids()
    chain = () if change is None else (_require(change),)
    small = batch if samples is None else batch[list(samples)]
    scorer = open_scorer(
        small, engine, device=device, trust_remote_code=trust_remote_code
    )
    return rescore_with(scorer, chain)


def open_scorer(
    batch: Batch,
    engine: Any,  # noqa: ANN401 a name, an address or a function
    *,
    device: str = "auto",
    trust_remote_code: bool = False,
) -> Scorer:
    """Open an engine for a batch, as of `rescore`; `prove` takes the result too.

    It remembers what it has scored.
    """
    opened = open_engine(engine, device=device, trust_remote_code=trust_remote_code)
    return Scorer(batch, opened)


def rescore_with(scorer: Scorer, chain: Sequence[Hypothesis] = ()) -> Batch:
    """Score all samples with a scorer that is open, which remembers the scores."""
    for hypothesis in chain:
        _require_ability(scorer, hypothesis)
    small, scored = scorer.samples.chains.joined, []
    for sample in tqdm(range(len(scorer.samples)), unit="sample", leave=False, delay=1):
        each = scorer.samples[sample]
        if len(each.targets):
            values = scorer.scores(chain, sample)
            # Where the change has no place, the sample is as it is.
            scored.append((each, scorer.base(sample) if values is None else values))
            scorer.forget_logits()
    flat = scorer.samples.chains.to_joined(to_flat(scorer.batch, scored))
    missing = [engine for engine in ("old", "rollout") if small.lacks(engine)]
    if chain or not missing:
        name = chain[0].name if chain else RESCORED
        return replace(small, scores={**small.scores, name: flat})
    return _with_engine(small, missing[0], flat, scorer.engine.name)


def _with_engine(batch: Batch, name: str, flat: Tensor, scorer: str) -> Batch:
    source = {f"{name}_log_probs_source": f"scored again with {scorer}"}
    meta = {**batch.meta, RESCORED: name, **source}
    if name == "old":
        return replace(batch, old_log_probs=flat, meta=meta)
    return replace(batch, rollout_log_probs=flat, meta=meta)


def _require(name: str) -> Hypothesis:
    matches = [
        hypothesis
        for hypothesis in select_hypotheses(all_registered(), [name])
        if hypothesis.name == name
    ]
    if not matches:
        raise BatchError.build(
            key="change",
            expected="the name of one hypothesis",
            found=f"the cause {name!r}",
            advice="Name one of its hypotheses: see `Proof.frame`.",
        )
    return matches[0]


def _require_ability(scorer: Scorer, hypothesis: Hypothesis) -> None:
    why = scorer.lacks(hypothesis)
    if why:
        raise BatchError.build(
            key="change",
            expected=f"an engine and a batch for {hypothesis.name!r}",
            found=f"one that {why}",
            advice="Choose another engine or change.",
        )
