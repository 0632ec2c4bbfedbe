"""8-bit weights, other experts, kept caches: against models changed by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

import rounddiag as rd
from rounddiag.proof.engines.local import LocalEngine
from rounddiag.proof.engines.settings import EightBit
from rounddiag.proof.scorer import Scorer
from rounddiag.proof.weights import weight_hypotheses_of
from tests.proof import test_local
from tests.proof.test_adapters import load, scored
from tests.proof.test_local import SIZE, log_probs, make_batch
from tests.proof.test_prove import say

folder = test_local.folder  # the same fixture


@pytest.mark.parametrize(
    ("change", "values", "expected"),
    [
        # A scale of 1: 0.3 lies between 0.28125 and 0.3125, which e4m3 has.
        (
            EightBit("float8", "row", "none"),
            [[448.0, 0.3, 17.2]],
            [[448.0, 0.3125, 18.0]],
        ),
        (
            EightBit("int8", "row", "none"),
            [[127.0, 1.4], [254.0, 3.2]],
            [[127.0, 1.0], [254.0, 4.0]],
        ),
        (
            EightBit("int8", "tensor", "none"),
            [[127.0, 1.4], [254.0, 3.2]],
            [[128.0, 2.0], [254.0, 4.0]],
        ),
    ],
)
def test_values_are_rounded_with_the_scale_of_the_largest(
    change: EightBit, values: list[list[float]], expected: list[list[float]]
) -> None:
    assert change.round(torch.tensor(values), change.weights).tolist() == expected


def test_eight_bit_weights_are_those_of_a_model_changed_by_hand(folder: str) -> None:
    batch = make_batch(folder)
    engine = LocalEngine.open(folder, dtype="float32")
    before = [weight.clone() for weight in engine.model.parameters()]
    rescored = rd.rescore(batch, engine, "fp8_weights", samples=[0])
    net = load(folder)
    for name, weight in net.named_parameters():
        if weight.ndim == 2 and "layers" in name:
            scale = weight.data.abs().amax(1, keepdim=True) / 448
            weight.data = (weight.data / scale).to(torch.float8_e4m3fn).float() * scale
    truth = scored(batch, net, net).log_probs("old")[:50]
    assert float((rescored.scores["fp8_weights"] - truth).abs().max()) < 1e-4
    assert float((rescored.log_probs("old") - truth).abs().max()) > 0.01
    after = engine.model.parameters()
    assert all(map(torch.equal, before, after)), "the weights come back"


def test_a_sampler_with_eight_bit_weights_is_proved(folder: str) -> None:
    batch = make_batch(folder)
    engine = LocalEngine.open(folder, dtype="bfloat16")
    low_precision = rd.rescore(batch, engine, "fp8_by_row").scores["fp8_by_row"]
    proof = rd.prove(replace(batch, rollout_log_probs=low_precision), folder)
    assert say(proof) == ("proved", "rollout", "low_precision")
    assert proof.conclusions[0].says == (
        "weights in 8-bit floats by output, inputs by token",
    )


@pytest.fixture(scope="module")
def mixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    config = transformers.Qwen3MoeConfig(
        vocab_size=SIZE,
        hidden_size=32,
        intermediate_size=64,
        moe_intermediate_size=32,
        num_experts=6,
        num_experts_per_tok=3,
        norm_topk_prob=True,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        initializer_range=0.3,
    )
    path = tmp_path_factory.mktemp("mixture")
    transformers.Qwen3MoeForCausalLM(config).save_pretrained(path)
    return path


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("one_expert_fewer", {"num_experts_per_tok": 2}),
        ("one_expert_more", {"num_experts_per_tok": 4}),
        ("experts_not_normalised", {"norm_topk_prob": False}),
    ],
)
def test_other_experts_are_proved(
    mixture: Path, name: str, changed: dict[str, Any]
) -> None:
    net = transformers.AutoModelForCausalLM.from_pretrained(
        mixture, dtype=torch.float32, **changed
    )
    batch = scored(make_batch(str(mixture)), net, load(str(mixture)))
    rescored = rd.rescore(batch, str(mixture), name, samples=[0]).scores[name]
    assert float((rescored - batch.log_probs("old")[:50]).abs().max()) < 1e-4
    proof = rd.prove(batch, str(mixture))
    assert say(proof) == ("proved", "old", "moe_routing")


def test_experts_are_rounded_too(mixture: Path) -> None:
    batch = make_batch(str(mixture))
    engine = LocalEngine.open(str(mixture), dtype="float32")
    rescored = rd.rescore(batch, engine, "fp8_weights", samples=[0])
    for weight in engine.model.parameters():
        if weight.ndim == 3 or (
            weight.ndim == 2 and weight.shape != (SIZE, 32) and len(weight) != 6
        ):
            weight.data = EightBit("float8", "row", "none").round(weight.data, "row")
    truth = scored(batch, engine.model, engine.model).log_probs("old")[:50]
    assert float((rescored.scores["fp8_weights"] - truth).abs().max()) < 1e-4


def test_a_dense_model_has_no_experts(folder: str) -> None:
    scorer = Scorer(make_batch(folder), LocalEngine.open(folder))
    (hypothesis,) = [each for each in _registered() if each.name == "one_expert_more"]
    assert scorer.lacks(hypothesis) == "needs a mixture of experts"


def _registered() -> tuple[Any, ...]:
    from rounddiag.proof.hypotheses import all_registered

    return all_registered()


@pytest.fixture(scope="module")
def older(folder: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The same model with other weights in its last layer and its embeddings."""
    net = load(folder)
    torch.manual_seed(1)
    for weight in net.model.layers.parameters():
        weight.data += 0.05 * torch.randn_like(weight)
    path = tmp_path_factory.mktemp("older")
    net.save_pretrained(path)
    return str(path)


def go_on(older: Any, newer: Any, ids: torch.Tensor, cached: int) -> torch.Tensor:
    """Fill a cache with one model, go on with another; log-probs behind the cache."""
    with torch.inference_mode():
        cache = older(input_ids=ids[None, :cached], use_cache=True).cache
        logits = newer(input_ids=ids[None, cached:], cache=cache).logits[0, :-1]
    rest = ids[cached + 1 :, None]
    own: torch.Tensor = logits.log_softmax(-1).gather(1, rest)[:, 0]
    return own


def test_a_kept_cache_is_what_two_models_compute_one_after_the_other(
    folder: str, older: str
) -> None:
    scorer = Scorer(make_batch(folder), LocalEngine.open(folder, dtype="float32"))
    scorer.weights["weights_old"] = scorer.engine.beside(older)  # type: ignore[attr-defined]
    trajectory = scorer.samples[0]
    scores = scorer.scores(weight_hypotheses_of("old")[1:], 0)
    truth = go_on(load(older), load(folder), trajectory.ids, 9)
    assert scores is not None
    assert float((torch.from_numpy(scores) - truth).abs().max()) < 1e-4
    plain = scorer.scores((), 0)
    assert plain is not None
    assert abs(scores - plain).max() > 0.01


def test_rounds_of_older_weights_are_told_from_their_kept_cache(
    folder: str, older: str
) -> None:
    """Two rounds of 30; the second begins at 45 of 75, and 32 are two whole blocks."""
    nets = load(older), load(folder)
    whole = make_batch(folder)
    rows = []
    for sample in range(8):
        prompt = whole.prompt_ids[sample * 10 :][:10]  # type: ignore[index]
        response = whole.require_ids()[sample * 50 :][:50]
        rows.append(torch.cat([prompt, response, response[:15]]))
    mask = torch.tensor([1] * 25 + [0] * 10 + [1] * 30)
    truth = [log_probs(nets[1], row)[10:] for row in rows]
    first = [log_probs(nets[0], row)[10:35] for row in rows]
    after = {
        "mixed_weights": [row[35:] for row in truth],
        "stale_cache": [go_on(*nets, row, 32)[12:] for row in rows],
    }
    for cause, last in after.items():
        sampled = [
            torch.cat([a, torch.zeros(10), b]) for a, b in zip(first, last, strict=True)
        ]
        batch = rd.Batch.from_rows(
            response_ids=[row[10:] for row in rows],
            response_mask=[mask] * 8,
            old_log_probs=truth,
            rollout_log_probs=sampled,
            prompt_ids=[row[:10] for row in rows],
        )
        proof = rd.prove(batch, folder, checkpoints={"step 1": older})
        assert say(proof) == ("proved", "rollout", cause)
        assert "the weights of step 1" in proof.conclusions[0].says[0]
        assert ("in blocks of" in proof.conclusions[0].says[0]) == (
            cause == "stale_cache"
        )
