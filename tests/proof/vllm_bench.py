"""What `prove` says to the batches whose sampler is vLLM (`tests.faults.vllm_bench`).

    python -m tests.proof.vllm_bench [dense|moe|vision[/N] ...]

With `/N` every N-th batch of an agent. Sampler and scorer share no code. The agents are
trained first, where the cache of `tests.faults` lacks them (minutes). A batch has its
pages drawn again from its ids, because the files have no screenshots.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

import torch

import rounddiag as rd
from rounddiag.proof.engines.opening import open_engine
from sample_data.synthetic.chat import PROCESSOR
from tests.faults import engine
from tests.faults.checkpoints import save_adapter
from tests.faults.episodes import draw_episodes
from tests.faults.models import load_agent
from tests.faults.vllm_bench import load

if TYPE_CHECKING:
    from rounddiag.proof import Proof
    from tests.faults.cases import Case
    from tests.faults.models import Agent

# Faults that no hypothesis has: a system prompt that the file does not tell.
UNKNOWN = ("begins_twice",)
SEVERITIES = ("just_visible", "clear", "gross")


class Bench:
    """An agent as folders, and the engines of transformers that open them."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.agent: Agent = load_agent(f"{kind}-vllm-0")
        self.folder = folder
        self.save(self.agent.net.state_dict(), "model")
        for lag, weights in self.agent.older.items():
            self.save(weights, f"older-{lag}")
        if kind == "dense":
            before, after = self.agent.older[60], self.agent.net.state_dict()
            save_adapter(before, after, 1.0, folder / "adapter")

    def save(self, weights: Any, name: str) -> None:
        """Write a folder as vLLM had it, without its video processor."""
        net = engine.precise(self.agent.net, torch.bfloat16, weights)
        net.save_pretrained(self.folder / name)
        if self.agent.kind == "vision":
            PROCESSOR.save_pretrained(self.folder / name)

    def prove(self, case: Case) -> Proof:
        """Prove a case with the checkpoint of its trainer."""
        knob = case.name.rpartition("=")[2].rpartition(".")[2]
        name, adapters = "model", None
        if knob.startswith("young-"):
            name = f"older-{knob.removeprefix('young-')}"
        elif "adapter" in case.name:
            name, adapters = "older-60", {"policy": str(self.folder / "adapter")}
        others = {
            f"lag {lag}": str(self.folder / f"older-{lag}")
            for lag in self.agent.older
            if f"older-{lag}" != name
        }
        return rd.prove(
            self.batch(case),
            open_engine(str(self.folder / name)),
            checkpoints=None if adapters else others,
            adapters=adapters,
        )

    def batch(self, case: Case) -> rd.Batch:
        """Return the batch with tokenizer and, for an agent that sees, pictures."""
        rows = case.rows
        if self.agent.kind == "vision":
            rows = replace(rows, shots=self.shots(case))
        columns = case.columns | {"images", "tokenizer"}
        return replace(case, rows=rows, columns=columns).batch()

    def shots(self, case: Case) -> list[list[bytes]]:
        """Play the episodes of a case again; return their screenshots."""
        rows = case.rows
        prompts = [prompt.tolist() for prompt in rows.prompt]
        for seed in possible_seeds(case):
            if draw_episodes(self.agent, 1, seed)[0].ids != prompts[0]:
                continue
            episodes = draw_episodes(self.agent, len(rows), seed)
            if [one.ids for one in episodes] == prompts:
                break
        found = []
        for one, prompt, ids, mask in zip(
            episodes, rows.prompt, rows.ids, rows.mask, strict=True
        ):
            assert one.ids == prompt.tolist(), "not the pages of this batch"
            for token in ids[mask != 0].tolist():
                one.write(token, 0.0)
            assert one.ids == [*prompt.tolist(), *ids.tolist()]
            found.append(one.shots)
        return found


def possible_seeds(case: Case) -> list[int]:
    """Return the numbers that may have drawn the pages: of the label, or counted."""
    label = case.name.partition("/")[2]
    return [crc32(label.encode()) % 10_000, *range(1000, 1100)]


def grade(proof: Proof, case: Case) -> str:
    """Return how good an answer is."""
    if case.severity not in SEVERITIES:
        return "false proof" if proof.verdict == "proved" else "right"
    side = "old" if "raw_temperature" in case.name else "rollout"
    if proof.verdict != "proved":
        return proof.verdict
    if proof.side != side:
        return "wrong side"
    return "right" if proof.causes == case.causes else "wrong cause"


def main() -> int:
    """Print a line for each batch, then the rates."""
    os.environ["TQDM_DISABLE"] = "1"
    torch.set_num_threads(1)
    cases = load()
    counts: Counter[tuple[str, str]] = Counter()
    for word in sys.argv[1:] or ("dense", "moe", "vision"):
        kind, _, every = word.partition("/")
        with tempfile.TemporaryDirectory() as folder:
            bench = Bench(kind, Path(folder))
            mine = [case for case in cases if case.name.startswith(kind)]
            for case in mine[:: int(every or 1)]:
                judge_case(bench, case, counts)
    print()
    for (part, answer), number in sorted(counts.items()):
        total = sum(n for (one, _), n in counts.items() if one == part)
        print(f"{part:24} {answer:18} {number:4} of {total} {number / total:6.1%}")
    return 0


def judge_case(bench: Bench, case: Case, counts: Counter[tuple[str, str]]) -> None:
    """Prove one case, and print what is said."""
    begin = time.perf_counter()
    proof = bench.prove(case)
    answer = grade(proof, case)
    is_known = not any(name in case.name for name in UNKNOWN)
    part: Any = case.severity if is_known else f"{case.severity} (no hypothesis)"
    counts[part, answer] += 1
    says = "; ".join(
        f"{one.engine}: {' + '.join(one.says)}, {one.opinions[-1].where}"
        for one in proof.conclusions
    )
    print(
        f"{answer:17} {case.severity:12} {case.name} [{' '.join(case.causes)}]"
        f" x{case.ratio:.1f}: {proof.verdict} {says or proof.next_step}"
        f" ({time.perf_counter() - begin:.1f} s)",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
