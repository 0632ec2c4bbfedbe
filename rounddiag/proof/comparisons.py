"""The lines of a preflight: each compares two things, and passes, fails, or cannot."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple, TypeAlias

import numpy as np

from rounddiag._typing import Array
from rounddiag.errors import RounddiagError
from rounddiag.proof.delivery import Delivery, probe
from rounddiag.proof.engines.dialects import Continuation, Sampling
from rounddiag.proof.flight import (
    SAME_ENGINE,
    Flight,
    Line,
    SampledPair,
    describe_limit,
    untested,
)
from rounddiag.proof.hypotheses.sampling import FITTED
from rounddiag.proof.playing import ROUND_TOKENS, as_batch, play
from rounddiag.proof.scorer import Scorer
from rounddiag.proof.scores import clip_log_probs
from rounddiag.proof.trainer import join_inputs, score_alone, trainer_inputs
from rounddiag.proof.trajectory import to_flat
from rounddiag.wording import percent


def compare_log_probs(flight: Flight) -> Line:
    """Compare the server's log-probs with those of the model in the trainer's place."""
    pair = SampledPair.of_batch(flight.batch, "old")
    size = np.abs(pair.diff)
    by_round = [size[pair.round == number].mean() for number in np.unique(pair.round)]
    rounds = ", ".join(f"{mean:.2g}" for mean in by_round)
    k3 = float(np.mean(np.expm1(pair.diff) - pair.diff))
    beyond = float(np.mean(size > np.log(2)))
    return flight.judge(
        "log-probs",
        pair.rollout,
        pair.diff,
        kind=flight.kind,
        where=pair.place(flight.batch),
        compared="what the server sampled against the model",
        more=f" (rounds: {rounds}), k3 {k3:.2g}, max {size.max():.2g},"
        f" {percent(beyond)} beyond a factor of 2",
    )


def compare_prefill(flight: Flight) -> Line:
    """Compare what the server decoded with its own prefill of the same tokens."""
    scores = [
        (flight.served.samples[sample], flight.served.base(sample))
        for sample in range(flight.batch.num_samples)
    ]
    prefill = to_flat(flight.batch, scores)
    known = {**flight.batch.scores, "prefill": prefill}
    flight.batch = replace(flight.batch, scores=known)
    pair = SampledPair.of_batch(flight.batch, "prefill")
    note = flight.server.dialect.cache_note
    return flight.judge(
        "prefill",
        pair.rollout,
        pair.diff,
        kind=SAME_ENGINE,
        where=pair.place(flight.batch),
        compared="the server's `prompt_logprobs` against what it decoded",
        more=f"; {note}: a stale one shows in `cache`" if note else "",
    )


def compare_cache(flight: Flight) -> Line:
    """Compare a request without a cache to the same with one, and after an update."""
    cached = 0
    pairs: list[tuple[str, Continuation, Continuation]] = []
    for played in flight.played:
        salt = secrets.token_hex(8)
        cold = probe(flight.server, played, None)
        prefix = Sampling(num_tokens=1, temperature=0.0, salt=salt)
        flight.server.sample(played.rounds[0].context, played.rounds[0].shots, prefix)
        for _ in ("with a prefix in the cache", "again"):
            warm = probe(flight.server, played, salt)
            cached += warm.num_cached
            pairs.append((played.episode.name, cold, warm))
    if isinstance(flight.delivery, Delivery):
        names = [f"{played.episode.name}, after the update" for played in flight.played]
        probes = zip(names, flight.delivery.probes, strict=True)
        pairs += [(name, cold, warm) for name, (cold, warm) in probes]
    return _judge_probes(
        flight,
        "cache",
        pairs,
        compared="the same request with the prefix in the cache, and salted",
        more=f"; {cached} tokens came from it" if cached else "",
    )


def compare_batch(flight: Flight) -> Line:
    """Compare a request alone with the same beside others."""
    alone = [probe(flight.server, played, None) for played in flight.played]
    number = 2  # of each task at the same time
    beside = [played for played in flight.played for _ in range(number)]
    with ThreadPoolExecutor(len(beside)) as pool:
        asked = [pool.submit(probe, flight.server, each, None) for each in beside]
        written = [future.result() for future in asked]
    pairs = [
        (played.episode.name, alone[at // number], written[at])
        for at, played in enumerate(beside)
    ]
    compared = f"a request alone and beside {len(beside) - 1} others"
    return _judge_probes(flight, "batch", pairs, compared)


def _judge_probes(
    flight: Flight,
    check: str,
    pairs: Sequence[tuple[str, Continuation, Continuation]],
    compared: str,
    more: str = "",
) -> Line:
    """Judge greedy continuations of the same context, up to where they part."""
    cut = []
    for name, first, second in pairs:
        size = min(len(first.ids), len(second.ids))
        apart = np.flatnonzero(first.ids[:size] != second.ids[:size])
        size = min(size, int(apart[0]) + 1) if len(apart) else size
        cut.append((name, first.log_probs[:size], second.log_probs[:size]))
    return _judge_pairs(flight, check, cut, compared, more)


def _judge_pairs(
    flight: Flight,
    check: str,
    pairs: Sequence[tuple[str, Array, Array]],
    compared: str,
    more: str = "",
) -> Line:
    diffs = [second - first for _, first, second in pairs]
    means = [float(np.abs(diff).mean()) for diff in diffs]
    worst = int(np.argmax(means))
    return flight.judge(
        check,
        np.concatenate([first for _, first, _ in pairs]),
        np.concatenate(diffs),
        kind=SAME_ENGINE,
        where=f"{pairs[worst][0]}: mean |diff| {means[worst]:.2g} nat",
        compared=compared,
        more=more,
    )


class _SettingScores(NamedTuple):
    """Log-probs that were sampled with a setting, and what they agree with.

    Attributes
    ----------
    mode: `raw`, the model's; `processed`, what the setting leaves; `either` or
        `neither` of them.
    rollout, raw_diff: The server's log-probs, and the model's minus them.
    says: The setting and its mode, with what both leave.
    """

    mode: str
    rollout: Array
    raw_diff: Array
    says: str


def compare_sampling(flight: Flight) -> Line:
    """Say whether log-probs are those of the model, or of what the sampler left.

    Those of the model are sound for a trainer that scores its logits as they are;
    processed ones for one that divides them too. At temperature 1 and top-p 1 both are
    the same.
    """
    run = flight.sampling
    declared = str(run.get("logprobs_mode", "raw"))
    expected = "processed" if declared.startswith("processed") else "raw"
    scores = {name: _score_setting(flight, name) for name in _SETTINGS}
    said = "; ".join(score.says for score in scores.values())
    if all(score.mode == "either" for score in scores.values()):
        return untested("sampling", f"too few tokens tell: {said}")
    wrong = {
        name: score.mode
        for name, score in scores.items()
        if score.mode not in (expected, "either")
        and (score.mode == "neither" or run.get(name) != 1)
    }
    rollout = np.concatenate([score.rollout for score in scores.values()])
    raw_diff = np.concatenate([score.raw_diff for score in scores.values()])
    advice = next((_ADVICE[mode] for mode in _ADVICE if mode in wrong.values()), "")
    if advice:
        advice = "; " + advice.format(declared=declared)
    elif any(score.mode not in (expected, "either") for score in scores.values()):
        advice = "; the run samples at 1, where both are the same"
    return Line(
        check="sampling",
        result="fails" if wrong else "passes",
        value=float(np.abs(raw_diff).mean()),
        limit=flight.noise.limit(rollout, flight.kind).value,
        where=", ".join(f"{name} {getattr(_SETTINGS[name], name)}" for name in wrong),
        why=f"log-probs of {said}{advice}",
    )


def _score_setting(flight: Flight, name: str) -> _SettingScores:
    how = _SETTINGS[name]
    first = [
        replace(each, observations=each.observations[:1]) for each in flight.episodes
    ]
    played = play(flight.server, flight.engine, first, how)
    batch = as_batch(played, flight.engine, flight.server, how)
    scorer = Scorer(batch, flight.engine)
    every = dict.fromkeys(range(len(batch)))
    family = next(family for family in FITTED if family.name == name)
    change = family.at(getattr(how, name))
    rollout = SampledPair.of_batch(batch, "rollout").rollout
    raw, processed = (
        clip_log_probs(scorer.column(chain, every)) - rollout
        for chain in ((), (change,))
    )
    limit = flight.noise.limit(rollout, flight.kind).value
    sizes = {
        "raw": float(np.abs(raw).mean()),
        "processed": float(np.abs(processed).mean()),
    }
    mode = min(sizes, key=lambda key: sizes[key])
    if sizes[mode] > limit:
        mode = "neither"
    elif max(sizes.values()) <= limit:
        mode = "either"
    says = (
        f"{change.says}: {mode} (raw leaves {sizes['raw']:.2g} nat, processed"
        f" {sizes['processed']:.2g})"
    )
    return _SettingScores(mode, rollout, raw, says)


_ADVICE = {
    "processed": "a trainer that scores the model's logits as they are agrees at"
    " temperature 1 and top-p 1 only: divide its logits by the temperature and keep"
    " top-p at 1, or start the server with --logprobs-mode raw_logprobs; `episodes`, a"
    " file of the run that says how it samples, has this line follow it",
    "raw": "the file of the episodes says {declared}: start the server with the"
    " --logprobs-mode of that run",
    "neither": "neither fits: something else differs, see log-probs",
}
_SETTINGS = {
    "temperature": Sampling(num_tokens=ROUND_TOKENS, temperature=0.7),
    "top_p": Sampling(num_tokens=ROUND_TOKENS, top_p=0.9),
}


def compare_packed(flight: Flight) -> Line:
    """Compare the trainer's scores of a sample alone with those in a pack of two."""
    if flight.packs is None:
        why = "needs `scorer=`, a function (ids, images, positions) -> log-probs"
        return untested("packed", why)
    names = [played.episode.name for played in flight.played]
    inputs = [trainer_inputs(flight.scorer, at) for at in range(len(names))]
    alone = [score_alone(flight.packs, each) for each in inputs]
    pairs = []
    for first, second in pairwise(range(len(names))):
        pack = join_inputs(inputs[first], inputs[second])
        values = score_alone(flight.packs, pack)[len(inputs[first].ids) :]
        at = flight.scorer.samples[second].targets
        name = f"{names[second]} behind {names[first]}"
        pairs.append((name, alone[second][at], values[at]))
    if not pairs:
        return untested("packed", "needs two episodes")
    compared = "the trainer's scores of a sample alone and behind another in one row"
    return _judge_pairs(flight, "packed", pairs, compared)


def compare_weights(flight: Flight) -> Line:
    """Compare how a known change moves the server with how it moves the model."""
    delivery = flight.delivery
    if isinstance(delivery, str):
        return untested("weights", delivery)
    before, given = delivery.server_before, delivery.server_with
    both = delivery.model_with, delivery.model_language
    target = both[bool(delivery.leaves_tower)]
    limit = flight.noise.limit(delivery.model_with, flight.kind)
    own = flight.noise.limit(before, SAME_ENGINE).value
    changes = [target - delivery.model_before, given - before]
    changes += [delivery.server_after - before, given - target]
    *sizes, left = (float(np.abs(values).mean()) for values in changes)

    def is_near(served: Array, model: Array) -> bool:
        return float(np.abs(served - model).mean()) <= limit.value

    said = f"the adapter moves the model by {sizes[0]:.2g} nat,"
    said += f" the server by {sizes[1]:.2g}"
    if left > limit.value:
        if sizes[1] <= own:
            said += ": the update did not arrive"
        elif is_near(given, both[1]) and not is_near(*both):
            said += f", and {left:.2g} are left: pictures that it saw before are still"
            said += " those of the older vision tower"
        else:
            said += f", and {left:.2g} are left: it has other weights"
    elif flight.scorer.has_pictures and is_near(*both):
        said += "; the vision tower has no part in it"
    elif delivery.leaves_tower:
        said += "; it leaves the part of the vision tower out"
    if any(is_near(delivery.server_after, each) for each in both):
        said += "; after the next sync it has this adapter: one update late"
    elif sizes[2] > own:
        said += f"; it did not go back: {sizes[2]:.2g} nat are left"
    fails = left > limit.value or sizes[2] > own
    return Line(
        check="weights",
        result="fails" if fails else "passes",
        value=left,
        limit=limit.value,
        where="with the adapter" if left > limit.value else "back" if fails else "",
        why=f"{said}; {describe_limit(limit)}",
    )


_Compare: TypeAlias = Callable[[Flight], Line]
COMPARISONS: dict[str, _Compare] = {
    "log-probs": compare_log_probs,
    "prefill": compare_prefill,
    "batch": compare_batch,
    "sampling": compare_sampling,
    "packed": compare_packed,
    "weights": compare_weights,
    "cache": compare_cache,  # after an update, too
}


def compare(name: str, flight: Flight) -> Line:
    """Return the line of a check; an error of the server says why it has none."""
    try:
        return COMPARISONS[name](flight)
    except RounddiagError as error:
        return untested(name, f"{error!s:.300}")
