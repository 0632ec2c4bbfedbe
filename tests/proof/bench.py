"""Every hypothesis injected on either side of real token ids, and what `prove` says.

    python -m tests.proof.bench vision|dense|moe[/N] [NAME ...]

`vision` is the agent of the sample data, `dense` and `moe` are agents of `tests.faults`
(`python -m tests.faults.make dense-tune-0 moe-tune-0` trains them). The training engine
runs in float32 and the sampling one in bfloat16; each hypothesis changes one of them:
in all tokens (gross), in every other sample (half), or from the second round on (late);
numbers such as a temperature have three sizes. Then pairs of faults, healthy batches,
and faults that no hypothesis has. One line a case, then the table of what was taken for
what, and the rates. With `/N` only every N-th case is proved.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

import rounddiag as rd
from rounddiag.proof.engines.opening import open_engine, open_low_precision
from rounddiag.proof.experiment import prove_with
from rounddiag.proof.hypotheses import all_registered
from rounddiag.proof.hypotheses.hypothesis import Hypothesis
from rounddiag.proof.hypotheses.processor import Processor
from rounddiag.proof.hypotheses.sampling import (
    FrequencyPenalty,
    MinP,
    OutputPenalty,
    PresencePenalty,
    RepetitionPenalty,
    Temperature,
    TopK,
    TopP,
    bias_of,
)
from rounddiag.proof.scorer import Scorer
from rounddiag.proof.weights import weight_hypotheses

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rounddiag.batch import Batch
    from rounddiag.proof import Proof

NUM_SAMPLES = 16
VISIBLE, CLEAR = 1.7, 3.0  # mean |diff| over that of the healthy pair
PARTS = ("gross", "half", "late")
SIDES = ("old", "rollout")
SIZES: dict[str, tuple[str, Sequence[Processor]]] = {
    "temperature": ("temperature", [Temperature(v) for v in (0.7, 0.9, 1.05)]),
    "top-p": ("truncated_sampling", [TopP(v) for v in (0.8, 0.9, 0.97)]),
    "top-k": ("truncated_sampling", [TopK(v) for v in (2, 4, 10)]),
    "min-p": ("truncated_sampling", [MinP(v) for v in (0.2, 0.1, 0.03)]),
    "repetition penalty": (
        "logit_processor",
        [RepetitionPenalty(v) for v in (1.5, 1.2, 1.05)],
    ),
    "repetition penalty of output": (
        "logit_processor",
        [OutputPenalty(v) for v in (1.5, 1.2, 1.05)],
    ),
    "presence penalty": (
        "logit_processor",
        [PresencePenalty(v) for v in (1.0, 0.4, 0.1)],
    ),
    "frequency penalty": (
        "logit_processor",
        [FrequencyPenalty(v) for v in (0.8, 0.3, 0.1)],
    ),
}
OF_SAMPLER = {"truncated_sampling", "logit_processor", "temperature"}


@dataclass(frozen=True)
class Case:
    """A batch, and what was done to it: pairs of a cause and a side."""

    name: str
    kind: str
    batch: Batch
    truth: tuple[tuple[str, str], ...] = ()
    ratio: float = 0.0


def text_batch(seed: int, tokenizer: Any) -> Batch:
    """Return trajectories of the teacher of `tests.faults`, written as text."""
    from tests.faults.pages import teach_text

    rng = np.random.default_rng(seed)
    rows = [teach_text(rng, tokenizer) for _ in range(NUM_SAMPLES)]
    starts = [mask.index(1) for _, mask in rows]
    response = [
        torch.tensor(ids[at:]) for (ids, _), at in zip(rows, starts, strict=True)
    ]
    zeros = [torch.zeros(len(one)) for one in response]
    return rd.Batch.from_rows(
        response_ids=response,
        response_mask=[
            torch.tensor(mask[at:]) for (_, mask), at in zip(rows, starts, strict=True)
        ],
        old_log_probs=zeros,
        rollout_log_probs=zeros,
        prompt_ids=[
            torch.tensor(ids[:at]) for (ids, _), at in zip(rows, starts, strict=True)
        ],
    )


def open_bench(kind: str, folder: Path) -> tuple[Scorer, list[Hypothesis]]:
    """Return a scorer of the kind's batch, and the hypotheses of older weights."""
    if kind == "vision":
        batch = rd.load("sample_data/healthy.parquet")[:NUM_SAMPLES]
        opened = open_engine("sample_data/model")
        older = {"1544": "sample_data/older_model"}
    else:
        from tests.faults.models import load_agent

        agent = load_agent(f"{kind}-tune-0")
        agent.net.save_pretrained(folder / "model")
        older = {}
        for lag, weights in agent.older.items():
            agent.net.load_state_dict(weights)
            agent.net.save_pretrained(folder / f"lag{lag}")
            older[f"lag{lag}"] = str(folder / f"lag{lag}")
        batch = text_batch(7, agent.tokenizer)
        opened = open_engine(str(folder / "model"))
    scorer = Scorer(batch, opened, open_low_precision(opened))
    return scorer, weight_hypotheses(scorer, older)


def column(
    scorer: Scorer, chain: tuple[Hypothesis, ...], *, low_precision: bool
) -> torch.Tensor | None:
    """Return the log-probs of all samples under hypotheses; None if none has any."""
    batch = scorer.batch
    found = torch.zeros(len(batch.require_ids()))
    applied = False
    for sample in range(batch.num_samples):
        one = scorer.samples[sample]
        values = scorer.scores(chain, sample, low_precision=low_precision)
        plain = scorer.scores((), sample, low_precision=low_precision)
        assert plain is not None
        applied |= values is not None
        values = plain if values is None else values
        values = np.where(np.isnan(values), plain, values)
        at = one.targets - one.start + int(batch.offsets[sample])
        found[torch.from_numpy(at)] = torch.from_numpy(values).float()
    # A sampler never draws what it leaves out.
    found = found.where(found > -torch.inf, torch.nan)
    return found if applied or not chain else None


def only(
    batch: Batch, part: str, broken: torch.Tensor, sound: torch.Tensor
) -> torch.Tensor:
    """Return a column that is broken in a part of the batch."""
    if part == "gross":
        return broken
    row = torch.repeat_interleave(torch.arange(batch.num_samples), batch.lengths)
    inside = row % 2 == 0
    if part == "late":
        rounds = batch.rounds
        inside = torch.zeros(len(sound), dtype=torch.bool)
        seen: Counter[int] = Counter()
        starts, sizes = rounds.start.tolist(), rounds.num_tokens.tolist()
        for sample, at, size in zip(rounds.sample.tolist(), starts, sizes, strict=True):
            inside[at : at + size] = seen[sample] > 0
            seen[sample] += 1
    return torch.where(inside, broken, sound)


def both(batch: Batch, values: dict[str, torch.Tensor]) -> Batch:
    """Return the batch with these two columns."""
    return replace(
        batch, old_log_probs=values["old"], rollout_log_probs=values["rollout"]
    )


def mismatch(batch: Batch) -> float:
    """Return the mean |diff|, of at most 5 nats a token."""
    mask = batch.response_mask != 0
    diff = (batch.log_probs("old") - batch.log_probs("rollout"))[mask].abs()
    return float(diff[diff.isfinite()].clamp(max=5).mean())


def injected(
    scorer: Scorer, sound: dict[str, torch.Tensor], older: Sequence[Hypothesis]
) -> Iterator[Case]:
    """Yield each hypothesis on either side, in three parts or sizes."""
    level = mismatch(both(scorer.batch, sound))
    jobs: list[tuple[Hypothesis, str, str, str]] = []
    named = (*all_registered(), *older)
    known = [one for one in named if not scorer.lacks(one)]
    for number, one in enumerate(known):
        jobs += [(one, side, "gross", "gross") for side in SIDES]
        jobs += [
            (one, SIDES[(number + index) % 2], part, part)
            for index, part in enumerate(PARTS[1:])
        ]
    for name, (cause, processors) in SIZES.items():
        sides = SIDES if name == "temperature" else SIDES[1:]
        for processor in processors:
            one = Hypothesis(name=name, cause=cause, says=name, processor=processor)
            size = f"{processor.value:g}"
            jobs += [(one, side, "gross", size) for side in sides]
    for one, side, part, size in jobs:
        broken = column(
            scorer, (one,), low_precision=side == "rollout" and not one.weights
        )
        if broken is None:
            continue
        values = {**sound, side: only(scorer.batch, part, broken, sound[side])}
        batch = both(scorer.batch, values)
        ratio = mismatch(batch) / level
        if ratio >= VISIBLE:
            cause = one.cause_in_rounds if part == "late" else ""
            truth = ((cause or one.cause, side),)
            yield Case(f"{one.name} {size}", "injected", batch, truth, ratio)
    yield from moved(scorer, sound, level)


def moved(
    scorer: Scorer, sound: dict[str, torch.Tensor], level: float
) -> Iterator[Case]:
    """Yield columns that were shifted, filled, exchanged, biased."""
    batch = scorer.batch
    offsets = batch.offsets.tolist()
    for side in SIDES:
        values = sound[side]
        shifted = values.clone()
        for start, stop in pairwise(offsets):
            shifted[start : stop - 1] = values[start + 1 : stop]
        filled = torch.where(torch.arange(len(values)) % 3 == 0, 0.0, values)
        common = int(batch.require_ids()[batch.response_mask != 0].mode().values)
        one = Hypothesis(
            name="bias",
            cause="logit_processor",
            says="",
            processor=bias_of(common)(2.0),
        )
        biased = column(scorer, (one,), low_precision=side == "rollout")
        assert biased is not None
        for name, cause, broken in (
            ("shifted", "shifted_log_probs", shifted),
            ("filled", "filled_log_probs", filled),
            ("bias", "logit_processor", biased),
        ):
            changed = both(batch, {**sound, side: broken})
            yield Case(
                name, "injected", changed, ((cause, side),), mismatch(changed) / level
            )


def pairs(
    scorer: Scorer, sound: dict[str, torch.Tensor], older: Sequence[Hypothesis]
) -> Iterator[Case]:
    """Yield two faults at once: on both sides, or both on one."""
    rng = np.random.default_rng(0)
    level = mismatch(both(scorer.batch, sound))
    edits = [one for one in (*all_registered(), *older) if not scorer.lacks(one)]
    free = [
        Hypothesis(name=name, cause=cause, says=name, processor=processors[1])
        for name, (cause, processors) in SIZES.items()
    ]
    number = 0
    for _ in range(60):
        first = edits[rng.integers(len(edits))]
        second = free[rng.integers(len(free))]
        third = edits[rng.integers(len(edits))]
        together = bool(rng.integers(2))
        if together:
            broken = column(scorer, (first, second), low_precision=True)
            alone = [
                column(scorer, (each,), low_precision=True) for each in (first, second)
            ]
            if broken is None or any(one is None for one in alone):
                continue
            singles = [{**sound, "rollout": one} for one in alone if one is not None]
            values = {**sound, "rollout": broken}
            truth = ((first.cause, "rollout"), (second.cause, "rollout"))
        else:
            old = column(scorer, (first,), low_precision=False)
            rollout = column(scorer, (third,), low_precision=True)
            if old is None or rollout is None or first.cause == third.cause:
                continue
            singles = [{**sound, "old": old}, {**sound, "rollout": rollout}]
            values = {"old": old, "rollout": rollout}
            truth = ((first.cause, "old"), (third.cause, "rollout"))
            second = third
        if min(mismatch(both(scorer.batch, one)) for one in singles) < CLEAR * level:
            continue
        number += 1
        if number > 15:
            return
        name = f"{first.name} + {second.name}"
        yield Case(name, "pair", both(scorer.batch, values), truth, CLEAR)


def healthy(scorer: Scorer, sound: dict[str, torch.Tensor]) -> Iterator[Case]:
    """Yield sound pairs of other samples, with more noise or less."""
    rng = np.random.default_rng(1)
    generator = torch.Generator().manual_seed(0)
    for number in range(34):
        noisy = dict(sound)
        for side, values in sound.items():
            draw = torch.randn(values.shape, generator=generator)
            size = float(rng.choice([0.0, 0.0, 0.005, 0.02, 0.05]))
            noisy[side] = (values + size * draw * (values < -0.05)).clamp(max=0)
        yield Case(f"healthy {number}", "healthy", both(scorer.batch, noisy))


def outside(scorer: Scorer, sound: dict[str, torch.Tensor]) -> Iterator[Case]:
    """Yield faults that no hypothesis has."""
    generator = torch.Generator().manual_seed(0)
    net = scorer.engine.model  # type: ignore[attr-defined]
    layers = getattr(net.model, "language_model", net.model).layers
    for size in (0.1, 0.3, 1.0):
        for side in SIDES:
            draw = torch.randn(sound[side].shape, generator=generator)
            values = {**sound, side: (sound[side] + size * draw).clamp(max=0)}
            yield Case(f"noise {size} {side}", "outside", both(scorer.batch, values))
    changes: list[tuple[str, Any, Any]] = []
    for layer in range(len(layers)):
        attention = layers[layer].self_attn
        changes += [
            (
                f"heads of layer {layer}",
                attention.q_proj,
                lambda w: w.roll(len(w) // 4, 0),
            ),
            (f"keys of layer {layer}", attention.k_proj, lambda w: 0.7 * w),
            (f"values of layer {layer}", attention.v_proj, lambda w: 1.2 * w),
            (f"output of layer {layer}", attention.o_proj, lambda w: 0 * w),
        ]
        norm = layers[layer].post_attention_layernorm
        changes.append((f"norm of layer {layer}", norm, lambda w: 1.1 * w))
    for name, module, change in changes:
        with changed_weight(module, change):
            other = Scorer(scorer.batch, scorer.engine)
            scorer.engine.forget()  # type: ignore[attr-defined]
            broken = column(other, (), low_precision=False)
        scorer.engine.forget()  # type: ignore[attr-defined]
        assert broken is not None
        yield Case(name, "outside", both(scorer.batch, {**sound, "old": broken}))
    for name, edit in (("other prompt", replace_prompt), ("one token", replace_one)):
        changed = edit(scorer.batch)
        broken = column(Scorer(changed, scorer.engine), (), low_precision=False)
        assert broken is not None
        yield Case(name, "outside", both(scorer.batch, {**sound, "old": broken}))


@contextmanager
def changed_weight(module: Any, change: Any) -> Iterator[None]:
    """Change a weight for a while."""
    kept = module.weight.data.clone()
    try:
        module.weight.data = change(kept)
        yield
    finally:
        module.weight.data = kept


def replace_prompt(batch: Batch) -> Batch:
    """Return the batch with other words at the end of each prompt."""
    assert batch.prompt_ids is not None
    assert batch.prompt_offsets is not None
    ids = batch.prompt_ids.clone()
    for stop in batch.prompt_offsets.tolist()[1:]:
        ids[stop - 9 : stop - 5] = ids[stop - 9 : stop - 5].flip(0)
    return replace(batch, prompt_ids=ids)


def replace_one(batch: Batch) -> Batch:
    """Return the batch with another token in the prompt."""
    assert batch.prompt_ids is not None
    assert batch.prompt_offsets is not None
    ids = batch.prompt_ids.clone()
    for stop in batch.prompt_offsets.tolist()[1:]:
        ids[stop - 7] = 40
    return replace(batch, prompt_ids=ids)


def grade(proof: Proof, case: Case) -> str:
    """Return how good an answer is."""
    if not case.truth:
        return "false proof" if proof.verdict == "proved" else "right"
    told = {(cause, one.engine) for one in proof.conclusions for cause in one.causes}
    if case.kind == "pair":
        if set(case.truth) <= told:
            return "right"
        return "one of two" if set(case.truth) & told else proof.verdict
    ((cause, side),) = case.truth
    if proof.verdict != "proved":
        return proof.verdict
    if proof.side != side:
        return "wrong side"
    return "right" if proof.causes == (cause,) else "wrong cause"


def main() -> int:
    """Print a line for each case, the table, and the rates."""
    os.environ["TQDM_DISABLE"] = "1"
    torch.set_num_threads(1)
    kind, _, every = sys.argv[1].partition("/")
    with tempfile.TemporaryDirectory() as folder:
        scorer, older = open_bench(kind, Path(folder))
        plain = {
            side: column(scorer, (), low_precision=side == "rollout") for side in SIDES
        }
        sound = {side: one for side, one in plain.items() if one is not None}
        counts: Counter[tuple[str, str]] = Counter()
        table: dict[str, Counter[str]] = {}
        for make in (injected, pairs, healthy, outside):
            rest = () if make in {healthy, outside} else (older,)
            cases = make(scorer, sound, *rest)
            for case in islice(cases, 0, None, int(every or 1)):
                if sys.argv[2:] and not any(word in case.name for word in sys.argv[2:]):
                    continue
                judge_case(scorer, older, case, counts, table)
    print("\ntaken for:")
    for name, taken in sorted(table.items()):
        print(f"{name:40} {', '.join(f'{k} x{v}' for k, v in taken.most_common())}")
    print()
    for (kind, answer), number in sorted(counts.items()):
        total = sum(n for (one, _), n in counts.items() if one == kind)
        print(f"{kind:18} {answer:18} {number:4} of {total} {number / total:6.1%}")
    return 0


def judge_case(
    scorer: Scorer,
    older: Sequence[Hypothesis],
    case: Case,
    counts: Counter[tuple[str, str]],
    table: dict[str, Counter[str]],
) -> None:
    """Prove one case with the passes that all cases share."""
    order: Any = None
    if case.kind == "healthy":
        rng = np.random.default_rng(int(case.name.split()[1]))
        order = rng.permutation(NUM_SAMPLES)[:8].tolist()
    proof = prove_with(
        scorer.about(case.batch),
        all_registered(),
        older,
        samples=order,
        begin=time.perf_counter(),
        budget_s=600,
    )
    answer = grade(proof, case)
    kind = case.kind
    if kind == "injected":
        kind += " clear" if case.ratio >= CLEAR else " visible"
    counts[kind, answer] += 1
    says = "; ".join(
        f"{one.engine}: {' + '.join(one.says)}" for one in proof.conclusions
    )
    if case.kind == "injected":
        names = [o.name for one in proof.conclusions for o in one.opinions]
        taken = " + ".join(names) if proof.verdict == "proved" else proof.verdict
        table.setdefault(case.name.rpartition(" ")[0] or case.name, Counter())[
            taken
        ] += 1
    truth = ", ".join(" ".join(one) for one in case.truth)
    print(
        f"{answer:17} {kind:16} {case.name} [{truth}] x{case.ratio:.1f}:"
        f" {proof.verdict} {says} ({proof.seconds:.1f} s)",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
