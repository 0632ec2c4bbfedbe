"""Structured output: log-probs over what a grammar allows, drawn here from one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import rounddiag as rd
from rounddiag.checks.grammar import recorded_grammar

NUM_ROWS, SIZE, VOCABULARY = 24, 60, 200


def sample(part_allowed: float, part_forced: float, seed: int = 0) -> rd.Batch:
    """Draw tokens of what a grammar allows, and score them with and without it.

    As vLLM 0.32.0 (CPU) does under `raw_logprobs`: logits of what is not allowed are
    -inf before the log-softmax, so that a token that is alone is exactly 0.
    """
    rng = np.random.default_rng(seed)
    number = NUM_ROWS * SIZE
    logits = 3 * rng.standard_normal((number, VOCABULARY))
    allowed = rng.random((number, VOCABULARY)) < part_allowed
    alone = rng.random(number) < part_forced
    allowed[alone] = False
    allowed[np.arange(number), rng.integers(0, VOCABULARY, number)] = True
    masked = np.where(allowed, logits, -np.inf)
    tokens = (masked + rng.gumbel(size=masked.shape)).argmax(-1)
    noise = 0.01 * rng.standard_normal(number)

    def score(values: Any) -> Any:
        top = values.max(-1, keepdims=True)
        total = np.log(np.exp(values - top).sum(-1)) + top[:, 0]
        return np.take_along_axis(values, tokens[:, None], -1)[:, 0] - total

    def rows(values: Any) -> list[torch.Tensor]:
        return list(torch.from_numpy(values).float().split(SIZE))

    return rd.Batch.from_rows(
        response_ids=list(torch.from_numpy(tokens).split(SIZE)),
        response_mask=[torch.ones(SIZE, dtype=torch.int64)] * NUM_ROWS,
        rollout_log_probs=rows(score(masked)),
        old_log_probs=rows(np.minimum(score(logits) + noise, 0)),
    )


def with_sampling(batch: rd.Batch, **sampling: Any) -> rd.Batch:
    return replace(batch, meta={**batch.meta, "sampling": sampling})


def says(batch: rd.Batch) -> tuple[list[str], set[str], str]:
    diagnosis = rd.diagnose(batch)
    causes = [finding.cause for finding in diagnosis]
    possible = {str(row) for finding in diagnosis for row in finding.candidates}
    return causes, possible, str(diagnosis)


@pytest.mark.parametrize("part_allowed", [0.02, 0.5])
def test_without_a_record_it_is_possible_and_never_named(part_allowed: float) -> None:
    batch = sample(part_allowed, part_forced=0.16)
    causes, possible, text = says(batch)
    assert "structured_output" not in causes
    assert "structured_output" in possible
    old, rollout = (batch.log_probs(name).numpy() for name in ("old", "rollout"))
    unsure = old < -np.log(2)
    part = float((rollout[unsure] == 0).mean())
    assert 0.1 < part < 0.3  # the oracle: what was planted
    assert "exactly 0 in rollout" in text


@pytest.mark.parametrize("part_allowed", [0.02, 0.5])
def test_a_record_names_it(part_allowed: float) -> None:
    schema = {"structured_outputs": {"json": {"type": "object"}}}
    batch = with_sampling(sample(part_allowed, part_forced=0.16), **schema)
    causes, _, text = says(batch)
    assert causes[0] == "structured_output"
    assert "filled_log_probs" not in causes
    assert "records `structured_outputs`" in text


def test_truncation_is_not_taken_for_a_grammar() -> None:
    """The likeliest ids that have 0.9 of the mass: one that is alone is likely."""
    rng = np.random.default_rng(1)
    number = NUM_ROWS * SIZE
    values = np.sort(3 * rng.standard_normal((number, VOCABULARY)))[:, ::-1]
    chance = np.exp(values - values.max(-1, keepdims=True))
    chance /= chance.sum(-1, keepdims=True)
    kept = chance.cumsum(-1) - chance < 0.9
    inside = np.where(kept, chance, 0)
    inside /= inside.sum(-1, keepdims=True)
    drawn = np.log(np.maximum(inside, 1e-300)) + rng.gumbel(size=inside.shape)
    at = np.arange(number), drawn.argmax(-1)

    def rows(probabilities: Any) -> list[torch.Tensor]:
        return list(torch.from_numpy(np.log(probabilities[at])).float().split(SIZE))

    batch = rd.Batch.from_rows(
        response_ids=list(torch.from_numpy(at[1]).split(SIZE)),
        response_mask=[torch.ones(SIZE, dtype=torch.int64)] * NUM_ROWS,
        rollout_log_probs=rows(inside),
        old_log_probs=rows(chance),
    )
    causes, possible, _ = says(batch)
    assert causes[0] == "truncated_sampling"
    assert "structured_output" not in possible
    # A record does not name what the numbers do not show.
    recorded = with_sampling(batch, structured_outputs={"regex": ".*"})
    assert says(recorded)[0][0] == "truncated_sampling"


@pytest.mark.parametrize(
    ("sampling", "name"),
    [
        ({"structured_outputs": {"choice": ["a"]}}, "structured_outputs"),
        ({"guided_json": {"type": "object"}}, "guided_json"),
        ({"grammar": "root ::= x"}, "grammar"),
        ({"choice": ["left", "right"]}, "choice"),
        ({"response_format": {"type": "json_schema"}}, "response_format"),
        ({"response_format": {"type": "text"}}, ""),
        ({"structured_outputs": None}, ""),
        ({"temperature": 1.0, "tool_choice": "auto"}, ""),
    ],
)
def test_what_records_a_grammar(sampling: dict[str, Any], name: str) -> None:
    batch = with_sampling(sample(0.5, 0.1), **sampling)
    assert recorded_grammar(batch) == name
    facts = replace(batch, meta={"facts": sampling})
    assert recorded_grammar(facts) == name
