"""Older checkpoints: of all samples, of some, or one for each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rounddiag.errors import BatchError
from rounddiag.proof.engines.local import LocalEngine
from rounddiag.proof.hypotheses.hypothesis import Hypothesis

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rounddiag._typing import Array
    from rounddiag.proof.judge import Sheet
    from rounddiag.proof.scorer import Scorer


def weight_hypotheses(
    scorer: Scorer, checkpoints: Mapping[Any, str] | None
) -> list[Hypothesis]:
    """Load checkpoints beside the engine; return a hypothesis for each."""
    if not checkpoints:
        return []
    if not isinstance(scorer.engine, LocalEngine):
        raise BatchError.build(
            key="checkpoints",
            expected="a model in this process, to load other weights beside it",
            found=f"the engine {scorer.engine.name}",
            advice="Pass the folder of the checkpoint as the engine.",
        )
    found = []
    for label, folder in checkpoints.items():
        name = f"weights_{label}"
        scorer.weights[name] = scorer.engine.beside(
            str(folder), dtype=scorer.engine.dtype
        )
        found.append(weight_hypothesis(str(label)))
    return found


def weight_hypothesis(label: str) -> Hypothesis:
    """Return the hypothesis that an engine had the weights of a label."""
    name = f"weights_{label}"
    return Hypothesis(
        name=name,
        cause="stale_weights",
        says=f"the weights of {label}",
        weights=name,
    )


def weights_by_sample(
    scorer: Scorer,
    sheet: Sheet,
    engine: str,
    samples: Sequence[int],
    known: Sequence[Hypothesis],
) -> tuple[Hypothesis, Array] | None:
    """Return the hypothesis that each sample has the weights that fit it best."""
    if len(known) < 2:  # noqa: PLR2004 a choice
        return None
    columns = {one.name: scorer.column((one,), samples) for one in known}
    columns["base"] = sheet.base
    far = {name: np.abs(sheet.residual(engine, v)) for name, v in columns.items()}
    found = sheet.base.copy()
    chosen: dict[str, int] = {}
    for sample in samples:
        mine = sheet.sample == sample
        left = {
            name: float(np.nansum(values[mine].clip(max=10)))
            for name, values in far.items()
        }
        best = min(left, key=lambda name: left[name])
        chosen[best] = chosen.get(best, 0) + 1
        found[mine] = columns[best][mine]
    if len(chosen) < 2:  # noqa: PLR2004 one of the plain hypotheses says it
        return None
    says = {one.name: one.says for one in known} | {"base": "the weights given"}
    parts = [f"{says[name]} in {number}" for name, number in chosen.items()]
    one = Hypothesis(
        name="weights_by_sample",
        cause="stale_weights",
        says=f"older weights, which differ by sample ({', '.join(parts)})",
    )
    return one, found
