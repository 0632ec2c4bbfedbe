"""Older weights of samples, of rounds, of a cache; adapters that are off or scaled."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from rounddiag._typing import Array
from rounddiag.errors import BatchError
from rounddiag.proof.engines import Engine
from rounddiag.proof.engines.adapters import Adapter, open_adapter
from rounddiag.proof.engines.local import LocalEngine
from rounddiag.proof.hypotheses.hypothesis import Edit, Family, Hypothesis
from rounddiag.proof.scorer import Scorer
from rounddiag.proof.scores import ScoreTable
from rounddiag.proof.trajectory import Request, Samples, Trajectory

WEIGHTS = "weights_"  # the names of hypotheses about checkpoints begin so
_FACTORS = (0.25, 0.5, 0.75, 1.25, 1.5, 2.0, 4.0)  # of an adapter's strength
# Tokens of a block: a cache keeps whole ones. SGLang has pages of 1, vLLM 16 on a GPU.
# Without a cache the context is read again with the new weights.
BLOCKS = (0, 1, 16, 32, 64, 128)


def weight_hypotheses(
    scorer: Scorer, checkpoints: Mapping[Any, str] | None
) -> list[Hypothesis]:
    """Load checkpoints beside the engine; return a hypothesis for each."""
    if not checkpoints:
        return []
    model = _require_local(scorer.engine, "checkpoints")
    hypotheses = []
    for label, folder in checkpoints.items():
        name = f"{WEIGHTS}{label}"
        older = model.beside(str(folder), dtype=model.dtype)
        scorer.weights[name] = older
        hypotheses += weight_hypotheses_of(str(label))
        if scorer.has_pictures:
            # vLLM 0.32 keeps encoded pictures by the name of the adapter alone.
            name = f"pictures_of_{label}"
            scorer.weights[name] = model.with_eyes_of(older)
            says = f"pictures of the vision tower of {label}, under the newer weights"
            hypotheses.append(
                Hypothesis(name=name, cause="stale_cache", says=says, weights=name)
            )
    return hypotheses


def weight_hypotheses_of(label: str) -> list[Hypothesis]:
    """Return that an engine had the weights of a label, or a cache that they filled."""
    name = f"{WEIGHTS}{label}"
    plain = Hypothesis(
        name=name,
        cause="stale_weights",
        cause_in_rounds="mixed_weights",
        says=f"the weights of {label}",
        weights=name,
    )
    return [plain, _cached_prompt(name, label)]


def adapter_hypotheses(
    scorer: Scorer, adapters: Mapping[Any, str] | None
) -> list[Hypothesis]:
    """Add the first adapter to the engine; return hypotheses about it, and others."""
    if not adapters:
        return []
    plain = _require_local(scorer.engine, "adapters")
    opened = {
        str(label): open_adapter(str(folder), plain.model)
        for label, folder in adapters.items()
    }
    (label, mine), *others = opened.items()
    scorer.engine = plain.adapted(mine)
    if isinstance(scorer.low_precision, LocalEngine):
        low = scorer.low_precision
        scorer.low_precision = low.adapted(
            open_adapter(str(adapters[next(iter(adapters))]), low.model)
        )
    changed: list[tuple[str, str, Adapter | None]] = [
        ("adapter_off", f"without the adapter {label}", None)
    ]
    if (scale := mine.scale) != 1:
        says = f"the adapter {label} {1 / scale:.3g} times as strong"
        says += ": its lora_alpha / r was left out"
        changed.append(("adapter_unscaled", says, mine.times(1 / scale)))
    changed += [
        (f"adapter_{name}", f"the adapter {name}", adapter) for name, adapter in others
    ]

    def strengthen(factor: float) -> str:
        name = f"adapter_times_{factor:.6g}"
        scorer.weights.setdefault(name, plain.adapted(mine.times(factor)))
        return name

    scorer.families.append(
        Family(
            "adapter_strength",
            f"the adapter {label} {{}} times as strong",
            strengthen,
            _FACTORS,
            cause="lora_mismatch",
            kind="weights",
            is_continuous=True,
        )
    )
    for name, _, adapter in changed:
        scorer.weights[name] = plain.adapted(adapter)
    return [
        Hypothesis(name=name, cause="lora_mismatch", says=says, weights=name)
        for name, says, _ in changed
    ]


def _require_local(engine: Engine, key: str) -> LocalEngine:
    if isinstance(engine, LocalEngine):
        return engine
    raise BatchError.build(
        key=key,
        expected="a model in this process, whose weights can be others",
        found=f"the engine {engine.name}",
        advice="Pass the folder of the checkpoint as the engine.",
    )


def weights_by_sample(
    scorer: Scorer,
    table: ScoreTable,
    engine: str,
    known: Sequence[Hypothesis],
) -> Iterator[tuple[Hypothesis, Array, None]]:
    """Yield the hypothesis that each sample has the weights that fit it best."""
    if len(known) < 2:  # noqa: PLR2004 a choice
        return
    columns = {each.name: scorer.column((each,), table.stops) for each in known}
    columns["base"] = table.base
    far = {name: np.abs(table.residual(engine, v)) for name, v in columns.items()}
    mixed = table.base.copy()
    chosen: dict[str, int] = {}
    for sample in table.stops:
        mine = table.sample == sample
        left = {
            name: float(np.nansum(values[mine].clip(max=10)))
            for name, values in far.items()
        }
        best = min(left, key=lambda name: left[name])
        chosen[best] = chosen.get(best, 0) + 1
        mixed[mine] = columns[best][mine]
    if len(chosen) < 2:  # noqa: PLR2004 one of the plain hypotheses says it
        return
    says = {hypothesis.name: hypothesis.says for hypothesis in known}
    says["base"] = "the weights given"
    parts = [f"{says[name]} in {number}" for name, number in chosen.items()]
    hypothesis = Hypothesis(
        name="weights_by_sample",
        cause="stale_weights",
        says=f"older weights, which differ by sample ({', '.join(parts)})",
    )
    yield hypothesis, mixed, None


def _cached_prompt(weights: str, label: str) -> Hypothesis:
    def edit(trajectory: Trajectory, _: Samples) -> Request | None:
        cached = trajectory.start - 1  # the last token of a prompt is always computed
        if cached < 1:
            return None
        return replace(
            Request.of_sample(trajectory), num_cached=cached, cached_weights=weights
        )

    return Hypothesis(
        name=f"cached_prompt_of_{label}",
        cause="stale_cache",
        says=f"the prompt from a cache that the weights of {label} filled",
        edit=edit,
    )


def _kept_rounds(weights: str, number: int, block: int) -> Edit:
    """Let older weights write some rounds, and new ones go on, from their cache."""

    def edit(trajectory: Trajectory, _: Samples) -> Request | list[Request] | None:
        base = Request.of_sample(trajectory)
        if len(trajectory.rounds) <= number:
            return replace(base, weights=weights)
        border = trajectory.rounds[number][0]
        # What is drawn last is not read before the next round.
        last = trajectory.rounds[number - 1][1] - 1
        cached = last // block * block if block else 0
        if block and not cached:
            return None
        before = base.score_only(0, border)
        after = base.score_only(border, len(trajectory.ids))
        return [
            replace(before, weights=weights),
            replace(after, num_cached=cached, cached_weights=weights),
        ]

    return edit


def kept_rounds(places: Iterable[tuple[Hypothesis, str]]) -> Iterator[Hypothesis]:
    """Yield what may follow where rounds before one are those of older weights."""
    for hypothesis, where in places:
        match = re.fullmatch(r"before round (\d+)", where)
        if not hypothesis.weights or match is None:
            continue
        number = int(match[1])
        for block in BLOCKS:
            says = f"{hypothesis.says} before round {number}"
            if block:
                says += ", and their cache from then on"
            if block > 1:
                says += f" in blocks of {block}"
            yield Hypothesis(
                name=f"{hypothesis.name}_before_{number}_kept_{block}",
                cause="stale_cache" if block else "mixed_weights",
                says=says,
                edit=_kept_rounds(hypothesis.weights, number, block),
                is_whole=True,
            )
