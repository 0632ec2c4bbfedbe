"""`bad_worker`: whole samples differ: by a column, in a block, or scattered."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from rounddiag.findings.causes import list_alternatives
from rounddiag.findings.finding import Evidence, Measure
from rounddiag.findings.pattern import strong_patterns
from rounddiag.findings.pattern_candidates import CACHES, VERSIONS
from rounddiag.findings.registry import register

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rounddiag.findings.pattern_candidates import Pattern
    from rounddiag.findings.view import View

# Columns that name who computed a sample.
WORKERS = re.compile(
    r"rank|replica|worker|engine|server|node|host|gpu|device|shard|dp|micro_batch|"
    r"actor|instance",
    re.IGNORECASE,
)
PACKS = re.compile(r"pack|cu_seqlen", re.IGNORECASE)
CUT = re.compile(r"status|finish|trunc|stop_reason", re.IGNORECASE)


@register("bad_worker")
def bad_worker(view: View) -> Iterator[Evidence]:
    """Find samples that differ as a whole."""
    for pattern in strong_patterns(view, "column"):
        yield from _by_column(view, pattern)
    for pattern in strong_patterns(view, "period"):
        yield _periodic(view, pattern)
    for pattern in strong_patterns(view, "block", "groups", "rows"):
        yield _rows(view, pattern)


def _measures(view: View, pattern: Pattern) -> tuple[Measure, ...]:
    tokens = pattern.tokens
    return (
        Measure(
            name="mean |diff| there", value=float(view.abs[tokens].mean()), unit="nat"
        ),
        Measure(
            name="mean |diff| elsewhere",
            value=float(view.abs[~tokens].mean()),
            unit="nat",
        ),
        Measure(name="ratio for equally likely tokens", value=pattern.ratio),
        Measure(name="t, clustered by sample", value=pattern.t),
    )


def _by_column(view: View, pattern: Pattern) -> Iterator[Evidence]:
    name, value = str(pattern.where["column"]), pattern.where["value"]
    tokens = pattern.tokens
    samples = np.unique(view.sample[tokens])
    fact = (
        f"{int(tokens.sum())} tokens in {len(samples)} samples with `{name}` = {value} "
        f"differ {pattern.ratio:.3g} times as much as equally likely others"
    )
    others: tuple[str, ...] = ()
    if VERSIONS.search(name):
        cause, other = "stale_weights", "mixed_weights"
        if _is_mixed(view, name):
            cause, other = other, cause
        others = ("stale_cache", other)
        meaning = "consistent with older weights there"
        step = "Score with the checkpoint of that version."
    elif PACKS.search(name):
        cause, meaning = "packing_leak", "consistent with rows of a pack that leak"
        step = "Score these rows alone and in their pack; compare cu_seqlens."
    elif CACHES.search(name):
        cause, meaning = "stale_cache", "consistent with a cache of older weights"
        step = "Reset the prefix cache after each weight update, and score again."
    elif CUT.search(name):
        cause, meaning = "truncated_round", "the truncated samples differ"
        step = "Compare how each engine handles the token at the length limit."
    elif WORKERS.search(name):
        cause, meaning = "bad_worker", "consistent with one worker that differs"
        step = f"Compare weights and versions of {name} {value} with the others."
    else:
        return
    yield Evidence(
        cause=cause,
        alternatives=list_alternatives(*others),
        score=float(min(0.65 + abs(pattern.gap) / 5, 0.95)),
        gain=pattern.worth,
        tokens=tokens,
        where={"column": name, "value": value, "samples": samples},
        measures=_measures(view, pattern),
        explanation=f"{fact}: {meaning}.",
        next_step=step,
    )


def _is_mixed(view: View, name: str) -> bool:
    """Return whether a column changes within at least one sample in ten."""
    values = view.facts.round_columns.get(name)
    if values is None:
        return False
    sample = view.batch.rounds.sample.cpu().numpy()
    changes = (sample[1:] == sample[:-1]) & (values[1:] != values[:-1])
    num_mixed = len(np.unique(sample[1:][changes]))
    return num_mixed >= 0.1 * len(np.unique(sample))


def _periodic(view: View, pattern: Pattern) -> Evidence:
    period = pattern.where["period"]
    tokens = pattern.tokens
    leaks = "all_but" in pattern.where
    shape = (
        f"all samples but the first of every {period}"
        if leaks
        else f"every {period}th sample from sample {pattern.where['phase']} on"
    )
    return Evidence(
        cause="packing_leak" if leaks else "bad_worker",
        alternatives=list_alternatives(
            "bad_worker" if leaks else "packing_leak", "decode_path"
        ),
        score=float(min(0.6 + abs(pattern.gap) / 5, 0.95)),
        gain=pattern.worth,
        tokens=tokens,
        where={"samples": np.unique(view.sample[tokens]), "period": period},
        measures=_measures(view, pattern),
        explanation=f"|diff| is {pattern.ratio:.3g} times as large in {shape}.",
        next_step=(
            f"Score samples 0 to {period - 1} alone and in one pack. Different: rows "
            "leak into each other (cu_seqlens, position ids)."
            if leaks
            else "Record the rank of each sample: samples dealt in turns share one."
        ),
    )


def _rows(view: View, pattern: Pattern) -> Evidence:
    tokens = pattern.tokens
    samples = np.asarray(pattern.where["samples"])
    has_images = view.has_images
    shape = {
        "block": f"samples {samples.min()} to {samples.max()}, a block of neighbours",
        "groups": f"{len(samples)} samples that make whole groups",
        "rows": f"{len(samples)} samples scattered over the batch",
    }[pattern.family]
    others: tuple[str, ...]
    if pattern.family == "block":
        cause, others = "bad_worker", ("decode_path", "packing_leak")
    elif pattern.family == "groups":
        cause, others = "decode_path", ("bad_worker", "wrong_image")
    elif has_images:
        cause, others = "wrong_image", ("bad_worker", "swapped_rows", "decode_path")
    else:
        cause, others = "bad_worker", ("swapped_rows", "decode_path", "packing_leak")
    steps = {
        "bad_worker": "Record rank and replica of each sample, and compare the weights "
        "of the one that these samples share.",
        "decode_path": "Score 16 of these rows with the sampler by prefill "
        "(prompt_logprobs). If that agrees with old, its decode path is wrong.",
        "wrong_image": "Score these rows with their own images again, and with "
        "those of their neighbours.",
    }
    return Evidence(
        cause=cause,
        score=float(min(0.55 + abs(pattern.gap) / 5, 0.9)),
        gain=pattern.worth,
        tokens=tokens,
        where={"samples": samples},
        measures=_measures(view, pattern),
        explanation=(
            f"|diff| is {pattern.ratio:.3g} times as large in {shape}, in all of their "
            "rounds."
        ),
        alternatives=list_alternatives(*others),
        next_step=steps[cause],
    )
