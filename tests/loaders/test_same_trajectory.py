"""One trajectory as ATIF, as a verifiers trace and as our Parquet: the same numbers."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
import torch

import rounddiag as rd
from tests.loaders.verifiers_writer import node
from tests.proof.test_prove import make_batch, score, without_system

if TYPE_CHECKING:
    from pathlib import Path

# Samples of two rounds: what was read before each, what was written, its log-probs.
Calls = list[tuple[list[int], list[int], list[float]]]


def served() -> rd.Batch:
    """A batch of what was sampled: round 1 without the system prompt."""
    batch = make_batch(without_system)
    later = torch.arange(batch.num_positions) % 68 >= 38
    sound = make_batch(lambda ids, _: score(ids, [])).log_probs("old")
    values = torch.where(later, batch.log_probs("old"), sound).float()
    return replace(batch, rollout_log_probs=values, old_log_probs=None)


def calls_of(batch: rd.Batch) -> list[Calls]:
    prompts = batch.prompt_ids.reshape(len(batch), -1).tolist()
    samples: list[Calls] = [[] for _ in prompts]
    rounds = batch.rounds
    for sample, start, size in zip(
        rounds.sample.tolist(),
        rounds.start.tolist(),
        rounds.num_tokens.tolist(),
        strict=True,
    ):
        begin, stop = int(batch.offsets[sample]), start + size
        ids = batch.require_ids()
        prompt = [*prompts[sample], *ids[begin:start].tolist()]
        values = batch.log_probs("rollout")[start:stop].tolist()
        samples[sample].append((prompt, ids[start:stop].tolist(), values))
    return samples


def write_atif(samples: list[Calls], folder: Path) -> str:
    """Each sample is a trial of a Harbor job."""
    for number, calls in enumerate(samples):
        steps: list[dict[str, Any]] = [{"source": "user", "message": "Go."}]
        for prompt, written, log_probs in calls:
            metrics = {
                "prompt_token_ids": prompt,
                "completion_token_ids": written,
                "logprobs": log_probs,
            }
            steps.append({"source": "agent", "message": "a", "metrics": metrics})
        record = {
            "schema_version": "ATIF-v1.7",
            "session_id": f"t{number}",
            "agent": {"name": "test", "version": "1"},
            "steps": steps,
        }
        trial = folder / f"trial-{number}" / "agent"
        trial.mkdir(parents=True)
        (trial / "trajectory.json").write_text(json.dumps(record))
    return str(folder)


def write_trace(samples: list[Calls], folder: Path) -> str:
    """Each sample is an episode with a trace of one branch."""
    lines = []
    for number, calls in enumerate(samples):
        nodes: list[dict[str, Any]] = []
        known = 0
        for prompt, written, log_probs in calls:
            before = prompt[known:]
            ids = [*before, *written]
            mask = [False] * len(before) + [True] * len(written)
            nodes.append(node(len(nodes) - 1 if nodes else None, ids, mask, *log_probs))
            known = len(prompt) + len(written)
        trace = {"id": f"t{number}", "nodes": nodes}
        lines.append({"id": f"e{number}", "env": {"id": "x"}, "traces": [trace]})
    file = folder / "traces.jsonl"
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return str(file)


@pytest.mark.parametrize("write", [write_atif, write_trace])
def test_a_trajectory_of_another_format_gives_the_same_numbers(
    write: Any, tmp_path: Path
) -> None:
    batch = served()
    rd.save(batch, tmp_path / "ours.parquet")
    (tmp_path / "other").mkdir()
    left = rd.load(tmp_path / "ours.parquet")
    right = rd.load(write(calls_of(batch), tmp_path / "other"))
    assert right.lacks("old") == left.lacks("old")
    scored = [rd.rescore(one, score) for one in (left, right)]
    frames = [
        rd.token_frame(one, ["token_id", "rollout_log_prob", "old_log_prob"])
        for one in scored
    ]
    assert len(frames[0]) == batch.num_tokens
    pd.testing.assert_frame_equal(frames[0], frames[1], check_exact=True)
    means = [rd.round_summary(one)["mean"].to_numpy() for one in scored]
    np.testing.assert_array_equal(means[0], means[1])
    proofs = [rd.prove(one, score) for one in scored]
    assert [(p.verdict, p.side, p.cause) for p in proofs] == [
        ("proved", "the only engine", "prompt_mismatch")
    ] * 2


def test_calls_without_log_probs_are_ids_alone(tmp_path: Path) -> None:
    samples: list[Calls] = [
        [(prompt, written, []) for prompt, written, _ in calls]
        for calls in calls_of(served())
    ]
    batch = rd.load(write_atif(samples, tmp_path / "job"))
    assert batch.lacks("rollout") == (
        "This batch has no log-probs: `rd.rescore(batch, MODEL)` adds one engine's."
    )
