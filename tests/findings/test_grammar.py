"""Structured output: log-probs over what a grammar allows, drawn here from one."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import rounddiag as rd
from rounddiag.checks.grammar import recorded_choices, recorded_grammar
from rounddiag.findings.detectors.grammar import measure_forced
from rounddiag.findings.view import View

NUM_ROWS, SIZE, VOCABULARY = 24, 60, 200
# vLLM 0.32.0 (CPU, bfloat16) against transformers 5.24.0 in float32, on the sample
# agent: `tests/interop/vllm_structured.py` makes such answers.
REAL = json.loads(Path("tests/findings/vllm-0.32.0_structured.json").read_text())


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


def real(kind: str) -> rd.Batch:
    """Return recorded answers of a real vLLM, one round each."""

    def rows(name: str) -> list[torch.Tensor]:
        return [torch.tensor(row[name]) for row in REAL[kind]]

    ids = rows("ids")
    return rd.Batch.from_rows(
        response_ids=ids,
        response_mask=[torch.ones_like(row) for row in ids],
        rollout_log_probs=rows("rollout"),
        old_log_probs=rows("old"),
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


@pytest.mark.parametrize("kind", ["choice", "schema", "grammar", "half"])
def test_answers_of_a_real_engine(kind: str) -> None:
    """A list, a schema, an EBNF; and a list in every second answer."""
    batch = real(kind)
    causes, possible, text = says(batch)
    assert {*causes} <= {"unknown"}  # no fill, mask, truncation or temperature
    assert {"structured_output", "truncated_sampling"} <= possible
    assert "structured output: part of tokens less than half likely in old" in text
    first = rd.diagnose(batch)[0].candidates[0]
    assert str(first) == "structured_output"
    checks = {row.name: row.status for row in rd.check(batch)}
    assert checks["no value fills the log-probs"] == "not testable"
    assert checks["the mask covers only what the model wrote"] == "not testable"
    recorded = with_sampling(batch, structured_outputs={"choice": ["a", "b"]})
    assert says(recorded)[0] == ["structured_output"]


def test_its_numbers_are_those_of_the_tokens() -> None:
    batch = real("choice")
    shares, mean, lower = rd.diagnose(batch)[0].candidates[0].evidence[:3]
    old, rollout = (
        batch.log_probs(name).double().numpy() for name in ("old", "rollout")
    )
    unsure = old < -np.log(2)
    forced = unsure & (rollout == 0)
    far = ~forced & (np.abs(old - rollout) > np.log(2))
    assert shares.value == pytest.approx(forced.sum() / unsure.sum())
    assert mean.value == pytest.approx(old[forced].mean())
    assert lower.value == (old < rollout)[far].all() == 1


@pytest.mark.parametrize("kind", ["sound", "top_p"])
def test_other_answers_of_a_real_engine_are_not_structured(kind: str) -> None:
    batch = with_sampling(real(kind), structured_outputs={"choice": ["a", "b"]})
    causes, possible, text = says(batch)
    assert "structured_output" not in {*causes, *possible}
    assert "grammar" not in text


def test_sound_rounds_before_structured_ones_are_not_of_another_token() -> None:
    """As of a schema in last rounds only: unlikely tokens are higher in `rollout`."""
    first, last = sample(1.0, 0.0), sample(0.02, 0.05, seed=1)
    gap = [torch.zeros(1)] * NUM_ROWS

    def join(name: str) -> list[torch.Tensor]:
        parts = [getattr(each, name).split(SIZE) for each in (first, last)]
        return [torch.cat(row) for row in zip(parts[0], gap, parts[1], strict=True)]

    batch = rd.Batch.from_rows(
        response_ids=[row.long() for row in join("response_ids")],
        response_mask=join("response_mask"),
        rollout_log_probs=join("rollout_log_probs"),
        old_log_probs=join("old_log_probs"),
    )
    place = rd.diagnose(batch)[0]
    assert place.location.endswith("from round 1 on")
    assert str(place.candidates[0]) == "structured_output"


def test_a_place_without_forced_tokens_is_measured_beside_those_of_the_batch() -> None:
    """As the first tokens of answers by a choice list; a place above 0 is none."""
    view = View.from_batch(real("choice"))
    forced = (view.log_prob_b == 0) & (view.log_prob_a < -np.log(2))
    far = ~forced & (view.abs_diff > np.log(2))
    share, mean, lower = measure_forced(view, far)
    assert share.name.endswith("exactly 0 in rollout, in the whole batch")
    assert share.value == pytest.approx(
        forced.sum() / (view.log_prob_a < -np.log(2)).sum()
    )
    assert mean.value == pytest.approx(view.log_prob_a[forced].mean())
    assert lower.value == 1
    assert measure_forced(view, ~far & ~forced) == ()


def test_log_probs_near_zero_have_the_steps_of_their_logits() -> None:
    """Which lie on the grid of float16, and say nothing of a short dtype."""
    batch = with_sampling(sample(0.5, 0.16), structured_outputs={"regex": "a"})
    generator = torch.Generator().manual_seed(0)
    logits = 20 + torch.rand(batch.num_positions, 2, generator=generator)
    logits[:, 1] -= 6
    near = logits[:, 0] - logits.logsumexp(-1)  # as trainers compute it
    old, rollout = (batch.log_probs(name).clone() for name in ("old", "rollout"))
    sure = torch.arange(len(old)) % 2 == 0
    old[sure], rollout[sure] = near[sure], near[sure] - 1e-4
    causes, _, _ = says(replace(batch, old_log_probs=old, rollout_log_probs=rollout))
    assert causes == ["structured_output"]


def test_zeros_beside_sound_tokens_are_fills_and_may_be_forced() -> None:
    batch = real("sound")
    rollout = batch.log_probs("rollout").clone()
    rollout[(batch.log_probs("old") < -0.7).nonzero()[::4, 0]] = 0
    filled = replace(batch, rollout_log_probs=rollout)
    causes, possible, text = says(filled)
    assert causes[0] == "filled_log_probs"
    assert "structured_output" in possible
    num = int(((rollout == 0) & (batch.log_probs("old") < -np.log(2))).sum())
    assert f"here {num} tokens that are less than half likely in old" in text


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
        ({"tool_choice": "required"}, "tool_choice"),
        ({"structured_outputs": {"json": None, "disable_any_whitespace": True}}, ""),
        ({"guided_decoding_backend": "xgrammar"}, ""),
        ({"vllm_structured_outputs_regex": "a+"}, "vllm_structured_outputs_regex"),
        ({"structural_tag": "{}"}, ""),
        ({"extra_body": {"guided_regex": "a+"}}, "guided_regex"),
        (
            {"sampling_params": {"structured_outputs": {"regex": "a"}}},
            "structured_outputs",
        ),
    ],
)
def test_what_records_a_grammar(sampling: dict[str, Any], name: str) -> None:
    batch = with_sampling(sample(0.5, 0.1), **sampling)
    assert recorded_grammar(batch) == name
    facts = replace(batch, meta={"facts": sampling})
    assert recorded_grammar(facts) == name


@pytest.mark.parametrize(
    ("name", "values", "found", "choices"),
    [
        ("structured_outputs", [None, {"choice": ["a", "b"]}], True, ("a", "b")),
        ("structured_outputs", ["", '{"choice": ["a"]}'], True, ("a",)),
        ("structured_outputs", [{"choice": ["a"]}, {"choice": ["b"]}], True, ()),
        ("response_format", [{"type": "text"}, float("nan")], False, ()),
        ("sampling_params", [{"guided_json": {"type": "object"}}, {}], True, ()),
        # A column of a task, such as the answer to a question.
        ("choice", ["left", "right"], False, ()),
    ],
)
@pytest.mark.parametrize("table", ["sample_columns", "round_columns"])
def test_columns_record_a_grammar(
    table: str, name: str, values: list[Any], found: bool, choices: tuple[str, ...]
) -> None:
    column = np.empty(2, dtype=object)
    column[:] = values
    keys = {"sample": np.arange(2), "round": np.zeros(2, dtype=int)}
    columns = {name: column} | (keys if table == "round_columns" else {})
    batch = rd.Batch.from_rows(
        response_ids=[torch.tensor([1])] * 2,
        response_mask=[torch.tensor([1])] * 2,
        **{table: columns},
    )
    assert bool(recorded_grammar(batch)) == found
    assert recorded_choices(batch) == choices
