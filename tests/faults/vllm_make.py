"""Makes the batches whose sampler is vLLM: `vllm/*.npz`.

    python -m tests.faults.vllm_make dense      or moe, vision: one kind, to the cache
    python -m tests.faults.vllm_make dense --quantized    its weights in 8 bits
    python -m tests.faults.vllm_make --choose   chooses batches of all kinds

Runs in the environment of `tests/interop/vllm`. Faults are those that vLLM and its
inputs can have: it samples with the fault, and transformers scores in float32 what the
batch says was read. Nothing is fitted on these batches: they measure.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice, zip_longest
from typing import Any
from zlib import crc32

import numpy as np
import torch
from PIL import Image

from sample_data.synthetic.chat import IM_END, IM_START, IMAGE, VISION_END, VISION_START
from tests.faults import engine, fixed
from tests.faults.cases import Case
from tests.faults.checkpoints import save_adapter, save_weights
from tests.faults.episodes import draw_episodes
from tests.faults.heads import tempered
from tests.faults.models import load_agent
from tests.faults.pools import as_rows
from tests.faults.rows import OPTIONAL, Rows
from tests.faults.severity import BANDS, severity_of
from tests.faults.store import CACHE
from tests.faults.vllm_bench import EIGHT_BIT, FOLDER, HIDDEN
from tests.faults.vllm_sampler import (
    How,
    Request,
    Sampler,
    quantize,
    request,
)

KINDS = ("dense", "moe", "vision")
SIZES = {"dense": (24, 16, 32), "moe": (24, 16, 32), "vision": (16, 12, 20)}
A_SEVERITY, HEALTHY, NUM_HIDDEN, NUM_EIGHT_BIT = 20, 40, 8, 1
A_FILE = 12  # batches
SCALES = (1.0, 1.1, 1.5, 2.0, 0.0)  # of an adapter; 1 is sound, 0 is without
KNOWN = {
    "older_weights": "stale_weights",
    "weights_in_flight": "mixed_weights",
    "kept_prefixes": "stale_in_flight",
    "adapter": "lora_mismatch",
    "system_prompt": "begins_twice",
    "truncated_prompt": "without_task",
    "first_dropped": "first_picture_lost",
    "later_dropped": "window_1",
    "all_dropped": "blank_pictures",
    "window_3": "window_2",
    "reversed": "wrong_pictures",
    "swapped": "wrong_pictures",
    "stuck": "wrong_pictures",
    "smaller": "expanded_twice",
    "larger": "expanded_twice",
    "raw_temperature": "temperature",
}
"""The fault of `truth` that leaves the same values: what one batch cannot tell apart
is the same for both."""


@dataclass(frozen=True)
class Trial:
    """One batch to make: the fault, its cause, and what the two engines do."""

    fault: str
    cause: str
    knob: str
    how: How = field(default_factory=How)
    head: engine.Head = engine.log_softmax
    net: Any = None
    """The scoring model, where it is not the agent's."""
    after: Callable[[], None] = lambda: None
    meta: dict[str, Any] = field(default_factory=dict)


def meta_of(kind: str, how: How) -> dict[str, Any]:
    """Return what a file says of the run: what was asked for, not what went wrong."""
    mode = "raw_logprobs" if how.is_raw else "processed_logprobs"
    found: dict[str, Any] = {
        "sampling": {"dtype": "bfloat16", "engine": "vllm", "logprobs_mode": mode}
    }
    if kind == "moe":
        found["model"] = {"model_type": "qwen3_moe"}
    return found


class Bench:
    """One kind of agent with its engine, and the trials that it can do."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.agent = load_agent(f"{kind}-vllm-0")
        self.folder = CACHE / "vllm" / kind
        self.nets = {
            lag: save_weights(self.agent, weights, self.folder / f"older-{lag}")
            for lag, weights in self.agent.older.items()
        }
        last = self.folder / "model"
        self.net = save_weights(self.agent, self.agent.net.state_dict(), last)
        self.half = type(self.net).from_pretrained(last, dtype=torch.bfloat16).eval()
        self.sampler = Sampler(last)

    def run(self, trial: Trial) -> Rows:
        """Sample and score the batch of a trial."""
        number = crc32(f"{trial.fault}.{trial.knob}".encode()) % 10_000
        sizes = SIZES[self.kind]
        count = sizes[number % len(sizes)]
        episodes = draw_episodes(self.agent, count, number)
        self.sampler.sample(episodes, trial.how)
        trial.after()
        contexts = [engine.context(row, one) for row, one in enumerate(episodes)]
        lengths = [len(one.ids) for one in episodes]
        net = trial.net or self.net
        scores = engine.score(net, contexts, lengths, head=trial.head)
        return replace(as_rows(episodes, contexts, scores), places=[])

    def trials(self) -> Iterator[Trial]:
        """Yield sound batches and faults."""
        yield from self._healthy()
        if self.kind == "vision":
            yield from _pictures()
        yield from _prompts()
        if self.kind != "moe":  # vLLM cannot reload a mixture's experts
            yield from self._weights()
        yield from _slight()
        # The same arithmetic for every kind of agent.
        yield from islice(_parameters(), 0, None, 1 if self.kind == "dense" else 2)

    def _healthy(self) -> Iterator[Trial]:
        sound = partial(Trial, "healthy", "healthy")
        for number in range(6):
            yield sound(f"bf16-{number}")
        yield sound("both-bf16", net=self.half)
        yield sound("both-bf16-again", net=self.half)
        yield sound("alone", How(is_alone=True))
        for value in (0.7, 1.3):
            how = How({"temperature": value})
            yield sound(f"temperature-{value}", how, head=tempered(value))
        if self.kind != "moe":
            for lag, net in self.nets.items():
                how = How(before=self._once(0, lag))
                yield sound(f"young-{lag}", how, net=net, after=self._restore)

    def _once(self, when: int, lag: int, *, is_kept: bool = False) -> Any:
        """Return what loads older weights before a round; 0 is the newest."""
        name = f"older-{lag}" if lag else "model"

        def load(round_: int) -> None:
            if round_ == when:
                self.sampler.load(self.folder / name, is_cache_kept=is_kept)

        return load

    def _restore(self) -> None:
        self.sampler.load(self.folder / "model")

    def _weights(self) -> Iterator[Trial]:
        for lag in self.nets:
            yield Trial(
                "older_weights",
                "stale_weights",
                f"{lag}",
                How(before=self._once(0, lag)),
                after=self._restore,
            )
            for when in (1, 2):
                yield Trial(
                    "weights_in_flight",
                    "mixed_weights",
                    f"{lag}-{when}",
                    How(before=self._flown(lag, when)),
                    after=self._restore,
                )
                yield Trial(
                    "kept_prefixes",
                    "stale_cache",
                    f"{lag}-{when}",
                    How(before=self._flown(lag, when, is_kept=True)),
                    after=self._restore,
                )

    def _flown(self, lag: int, when: int, *, is_kept: bool = False) -> Any:
        """Begin with older weights; take the newest before a later round."""
        older, newest = self._once(0, lag), self._once(when, 0, is_kept=is_kept)

        def load(round_: int) -> None:
            older(round_)
            newest(round_)

        return load


def _parameters() -> Iterator[Trial]:
    """Sampling parameters of which the trainer knows nothing; or only one of both."""
    for value in (0.97, 0.9, 0.8, 0.6, 0.3):
        how = How({"temperature": value})
        yield Trial("temperature", "temperature", f"{value}", how)
    for value in (0.9, 0.6):
        # The trainer divides by the temperature, and vLLM's log-probs are raw.
        how = How({"temperature": value}, is_raw=True)
        yield Trial(
            "raw_temperature", "temperature", f"{value}", how, head=tempered(value)
        )
    truncations: dict[str, tuple[float, ...]] = {
        "top_p": (0.98, 0.9, 0.7),
        "top_k": (20, 4, 2),
        "min_p": (0.02, 0.1, 0.3),
    }
    for name, values in truncations.items():
        for value in values:
            how = How({name: value})
            yield Trial(name, "truncated_sampling", f"{value}", how)
        how = How({name: values[1]}, is_raw=True)
        yield Trial(f"raw_{name}", HIDDEN, f"{values[1]}", how)
    penalties: dict[str, tuple[float, ...]] = {
        "repetition_penalty": (1.02, 1.1, 1.3),
        "presence_penalty": (0.05, 0.3, 1.0),
        "frequency_penalty": (0.05, 0.3),
    }
    for name, values in penalties.items():
        for value in values:
            yield Trial(name, "logit_processor", f"{value}", How({name: value}))
    how = How({"repetition_penalty": 1.1}, is_raw=True)
    yield Trial("raw_repetition_penalty", HIDDEN, "1.1", how)


def _slight() -> Iterator[Trial]:
    """Parameters so close to none that the mismatch is hardly more than the noise."""
    for name, cause, values in (
        ("temperature", "temperature", (0.975, 0.985)),
        ("top_p", "truncated_sampling", (0.97, 0.985)),
        ("min_p", "truncated_sampling", (0.005, 0.01)),
        ("repetition_penalty", "logit_processor", (1.007, 1.015)),
        ("presence_penalty", "logit_processor", (0.1, 0.2)),
    ):
        for value in values:
            yield Trial(name, cause, f"{value}", How({name: value}))


def _prompts() -> Iterator[Trial]:
    """Another prompt in vLLM than in the file."""
    for count in (1, 4, 16):
        yield Trial(
            "system_prompt",
            "prompt_mismatch",
            f"{count}",
            How(read=partial(with_system, count)),
        )
    for count in (3, 6):
        yield Trial(
            "truncated_prompt",
            "prompt_mismatch",
            f"{count}",
            How(read=partial(without_task, count)),
        )


def with_system(
    count: int, row: int, ids: list[int], shown: list[Image.Image]
) -> Request:
    """Put a system message of so many tokens before the prompt."""
    return request(row, [IM_START, *range(100, 100 + count), IM_END, *ids], shown)


def without_task(
    count: int, row: int, ids: list[int], shown: list[Image.Image]
) -> Request:
    """Lose the last tokens of the task."""
    end = ids.index(IM_END)
    return request(row, ids[: end - count] + ids[end:], shown)


def _pictures() -> Iterator[Trial]:
    """Other pictures in vLLM than in the file."""
    edits: list[tuple[str, str, str, Any]] = [
        ("first_dropped", "dropped_image", "blank", partial(blank, 0, 1)),
        ("later_dropped", "dropped_image", "blank", partial(blank, 1, 8)),
        ("all_dropped", "dropped_image", "blank", partial(blank, 0, 8)),
        ("window_1", "image_window", "removed", partial(window, 1)),
        ("window_2", "image_window", "removed", partial(window, 2)),
        ("window_3", "image_window", "removed", partial(window, 3)),
        ("reversed", "wrong_image", "all", backwards),
        ("swapped", "wrong_image", "two", swapped),
        ("stuck", "wrong_image", "first", stuck),
        ("smaller", "image_expansion", "84x56", partial(resized, 84 * 56)),
        ("smaller", "image_expansion", "56x56", partial(resized, 56 * 56)),
        ("larger", "image_expansion", "168x112", partial(resized, 168 * 112)),
        ("larger", "image_expansion", "224x168", partial(resized, 224 * 168)),
    ]
    for fault, cause, knob, edit in edits:
        yield Trial(fault, cause, knob, How(read=edit))


def blank(
    first: int, last: int, row: int, ids: list[int], shown: list[Image.Image]
) -> Request:
    """Show white in place of some screenshots."""
    kept = [
        one.point(lambda _: 255) if first <= i < last else one
        for i, one in enumerate(shown)
    ]
    return request(row, ids, kept)


def window(count: int, row: int, ids: list[int], shown: list[Image.Image]) -> Request:
    """Remove all screenshots but the last ones, with their tokens."""
    number, kept = 0, []
    for one in ids:
        number += one == VISION_START
        is_vision = one in (IMAGE, VISION_START, VISION_END)
        if not is_vision or number > len(shown) - count:
            kept.append(one)
    return request(row, kept, shown[-count:])


def backwards(row: int, ids: list[int], shown: list[Image.Image]) -> Request:
    """Show the newest screenshot first."""
    return request(row, ids, shown[::-1])


def swapped(row: int, ids: list[int], shown: list[Image.Image]) -> Request:
    """Exchange the first two screenshots."""
    return request(row, ids, [*shown[:2][::-1], *shown[2:]])


def stuck(row: int, ids: list[int], shown: list[Image.Image]) -> Request:
    """Show the first screenshot again and again."""
    return request(row, ids, shown[:1] * len(shown))


def resized(pixels: int, row: int, ids: list[int], shown: list[Image.Image]) -> Request:
    """Let vLLM's processor have other limits, and so other numbers of tokens."""
    size = {"shortest_edge": pixels, "longest_edge": pixels}
    return {**request(row, ids, shown), "mm_processor_kwargs": {"size": size}}


def adapters(kind: str) -> None:
    """Make the batches with an adapter: vLLM's LoRA applies it, and scales it."""
    bench = Bench.__new__(Bench)
    bench.kind, bench.agent = kind, load_agent(f"{kind}-vllm-0")
    bench.folder = CACHE / "vllm" / kind
    before, after = bench.agent.older[60], bench.agent.net.state_dict()
    save_weights(bench.agent, before, bench.folder / "base")
    trials = []
    for scale in SCALES:
        folder = bench.folder / f"adapter-{scale}"
        merged = save_adapter(before, after, scale, folder)
        net = engine.precise(bench.agent.net, torch.float32)
        net.load_state_dict(merged)
        how = How(adapter=folder if scale else None)
        cause = "healthy" if scale == 1 else "lora_mismatch"
        fault = "healthy" if scale == 1 else "adapter"
        trials.append(Trial(fault, cause, f"adapter-{scale}", how, net=net))
    bench.sampler = Sampler(
        bench.folder / "base", enable_lora=True, max_lora_rank=8, max_loras=1
    )
    make(bench, trials)


def quantized(kind: str) -> None:
    """Make the batch of weights and activations in int8; on a CPU vLLM has no fp8."""
    bench = Bench.__new__(Bench)
    bench.kind, bench.agent = kind, load_agent(f"{kind}-vllm-0")
    bench.folder = CACHE / "vllm" / kind
    weights, folder = bench.agent.net.state_dict(), bench.folder / "int8"
    net = save_weights(bench.agent, weights, folder)
    quantize(folder)
    bench.sampler = Sampler(folder)
    make(bench, [Trial(EIGHT_BIT, EIGHT_BIT, "int8", net=net)])


def make(bench: Bench, trials: Iterable[Trial]) -> None:
    """Make what the cache does not have."""
    for trial in trials:
        path = bench.folder / "rows" / f"{trial.fault}.{trial.knob}.npz"
        if path.exists():
            continue
        start = time.perf_counter()
        rows = bench.run(trial)
        rows.save(path)
        (path.with_suffix(".txt")).write_text(
            f"{trial.cause}\n{int(trial.how.is_raw)}\n"
        )
        seconds = time.perf_counter() - start
        print(
            f"{bench.kind} {path.stem}: {len(rows)} rows,"
            f" {rows.mean_abs_diff():.4f} nat, {seconds:.1f} s",
            flush=True,
        )


def read(kind: str) -> list[Case]:
    """Return every batch of a kind in the cache, with its severity by outcome."""
    folder = CACHE / "vllm" / kind / "rows"
    level = np.mean(
        [Rows.load(path).mean_abs_diff() for path in folder.glob("healthy.bf16-*.npz")]
    )
    found = []
    for path in sorted(folder.glob("*.npz")):
        rows = Rows.load(path)
        cause, is_raw = path.with_suffix(".txt").read_text().split()
        ratio = rows.mean_abs_diff() / float(level)
        if cause in ("healthy", HIDDEN, EIGHT_BIT):
            severity: str | None = cause
        else:
            severity = severity_of(ratio)
        if severity is None:
            continue  # between the bands
        rng = np.random.default_rng([*f"vllm {kind} {path.stem}".encode()])
        columns = {name for name in OPTIONAL if rng.random() < 0.5} - {"places"}
        found.append(
            Case(
                f"{kind}-vllm-0/{known_name(path.stem)}",
                "vllm",
                (cause,),
                severity,
                rows,
                frozenset(columns),
                ratio,
                meta=meta_of(kind, How(is_raw=is_raw == "1")),
            )
        )
    return found


def known_name(label: str) -> str:
    """Put the name that `truth` has for a fault before its own."""
    fault, _, knob = label.partition(".")
    return f"{KNOWN[fault]}.{fault}={knob}" if fault in KNOWN else f"{fault}.{knob}"


def choose() -> list[Case]:
    """Choose one batch of each cause in turn, until there are enough of a severity.

    What `rd.diagnose` says has no part in it.
    """
    every = [case for kind in KINDS for case in read(kind)]
    wanted = dict.fromkeys(BANDS, A_SEVERITY)
    wanted |= {"healthy": HEALTHY, HIDDEN: NUM_HIDDEN, EIGHT_BIT: NUM_EIGHT_BIT}
    chosen = []
    for severity, count in wanted.items():
        groups: dict[tuple[str, ...], list[Case]] = defaultdict(list)
        there = [case for case in every if case.severity == severity]
        for case in sorted(there, key=lambda case: crc32(case.name.encode())):
            groups[case.causes].append(case)
        turns = zip_longest(*groups.values())
        order = [case for turn in turns for case in turn if case is not None]
        print(f"{severity}: {min(count, len(order))} of {len(order)}")
        chosen += order[:count]
    return chosen


def main(arguments: Sequence[str] | None = None) -> int:
    """Make one kind, or choose."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", nargs="?", choices=KINDS)
    parser.add_argument("--adapters", action="store_true", help="those with LoRA")
    parser.add_argument("--quantized", action="store_true", help="those in 8 bits")
    parser.add_argument("--choose", action="store_true", help="write the files")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    if options.choose:
        FOLDER.mkdir(exist_ok=True)
        for path in FOLDER.glob("*.npz"):
            path.unlink()
        chosen = choose()
        for first in range(0, len(chosen), A_FILE):
            part = [fixed.small(case) for case in chosen[first : first + A_FILE]]
            fixed.save(part, FOLDER / f"batches_{first // A_FILE}.npz")
    elif options.adapters:
        adapters(options.kind)
    elif options.quantized:
        quantized(options.kind)
    else:
        bench = Bench(options.kind)
        make(bench, bench.trials())
    return 0


if __name__ == "__main__":
    sys.exit(main())
