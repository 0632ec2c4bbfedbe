"""Whole samples that differ: by a column, in turns, in a block, or scattered."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from rounddiag.findings.finding import Evidence, contrast_measures
from rounddiag.findings.pattern import strong_patterns
from rounddiag.findings.pattern_candidates import CACHES, VERSIONS
from rounddiag.findings.registry import register

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rounddiag._typing import Array
    from rounddiag.findings.pattern_candidates import Pattern
    from rounddiag.findings.view import View

# Columns that name who computed a sample.
WORKERS = re.compile(
    r"rank|replica|worker|engine|server|node|host|gpu|device|shard|dp|micro_batch|"
    r"actor|instance",
    re.IGNORECASE,
)
PACKS = re.compile(r"pack|cu_seqlen", re.IGNORECASE)
_CUT = re.compile(r"status|finish|trunc|stop_reason", re.IGNORECASE)
# What a column of samples that differ stands for.
_COLUMNS = (
    (VERSIONS, "stale_weights"),
    (PACKS, "packing_leak"),
    (CACHES, "stale_cache"),
    (_CUT, "truncated_round"),
    (WORKERS, "bad_worker"),
)


@register("bad_worker")
def samples_that_differ(view: View) -> Iterator[Evidence]:
    """Find samples that differ as a whole."""
    for pattern in strong_patterns(view, "column"):
        name, value = str(pattern.where["column"]), pattern.where["value"]
        cause = next((cause for words, cause in _COLUMNS if words.search(name)), None)
        if cause is not None:
            shape = f"tokens with `{name}` = {value}"
            yield _evidence(view, pattern, cause, shape, column=name, value=value)
    for pattern in strong_patterns(view, "period"):
        yield _periodic(view, pattern)
    for pattern in strong_patterns(view, "block", "groups", "rows"):
        samples = np.asarray(pattern.where["samples"])
        shape = {
            "block": f"samples {samples.min()} to {samples.max()}, neighbours",
            "groups": f"{len(samples)} samples that make whole groups",
            "rows": f"{len(samples)} samples scattered over the batch",
        }[pattern.family]
        yield _evidence(view, pattern, _ROWS[pattern.family], shape, samples)


_ROWS = {"block": "bad_worker", "groups": "decode_path", "rows": "wrong_image"}


def _periodic(view: View, pattern: Pattern) -> Evidence:
    period, leaks = pattern.where["period"], "all_but" in pattern.where
    shape = f"every {period}th sample from sample {pattern.where.get('phase')} on"
    if leaks:
        shape = f"all samples but the first of every {period}"
    where: dict[str, object] = {"period": period, **({"all_but": 0} if leaks else {})}
    cause = "packing_leak" if leaks else "bad_worker"
    return _evidence(view, pattern, cause, shape, None, **where)


def _evidence(
    view: View,
    pattern: Pattern,
    cause: str,
    shape: str,
    samples: Array | None = None,
    **where: object,
) -> Evidence:
    tokens = pattern.tokens
    inside, outside = float(view.abs[tokens].mean()), float(view.abs[~tokens].mean())
    known = np.unique(view.sample[tokens]) if samples is None else samples
    return Evidence(
        cause=cause,
        score=1.0,
        gain=pattern.worth,
        tokens=tokens,
        where={**where, "samples": known},
        measures=contrast_measures(pattern, inside, outside),
        explanation=f"|diff| is {pattern.ratio:.3g} times as large in {shape}.",
    )
