"""Structured output by `choice`, drawn from the sample model in float64."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import rounddiag as rd
from rounddiag.checks.grammar import recorded_choices
from rounddiag.proof.engines import engine as engines
from rounddiag.proof.engines.engine import Readout
from rounddiag.proof.engines.local import LocalEngine
from rounddiag.proof.hypotheses.choices import choice_mask
from rounddiag.proof.hypotheses.processor import Processor, Seen
from rounddiag.proof.samples import interleave
from tests.proof.test_prove import say

MODEL, END = "sample_data/model", "<|im_end|>"
CHOICES = ["scroll down", "scroll", "click the blue button", "clear", "type: 12"]
TURN = "<|im_start|>user\nStep {}.<|im_end|>\n<|im_start|>assistant\n"
NUM_SAMPLES, NUM_ROUNDS = 5, 2


@pytest.fixture(scope="module")
def local() -> LocalEngine:
    return LocalEngine.open(MODEL, dtype="float32")


@pytest.fixture(scope="module")
def written(local: LocalEngine) -> rd.Batch:
    """Let the model write choices: `rollout` is masked as vLLM 0.32 does, `old` not.

    The oracle knows texts only: an id may follow if the text with it begins a choice,
    and the end of a turn if the text is one.
    """
    assert local.chat is not None
    tokenizer, model = local.chat.tokenizer, local.model.double()
    rng, end = np.random.default_rng(0), tokenizer.convert_tokens_to_ids(END)
    texts = [tokenizer.decode([each]) for each in range(len(tokenizer))]

    def may_follow(text: str, token: int) -> bool:
        if token == end:
            return text in CHOICES
        if token in tokenizer.all_special_ids or not texts[token]:
            return False
        return any(each.startswith(text + texts[token]) for each in CHOICES)

    rows: dict[str, list[Any]] = {name: [] for name in ("ids", "mask", "old", "new")}
    prompts = []
    for sample in range(NUM_SAMPLES):
        ids = tokenizer.encode(TURN.format(sample))
        prompts.append(torch.tensor(ids))
        mask, old, new = [], [], []
        for number in range(NUM_ROUNDS):
            text, token = "", -1
            while token != end:
                with torch.inference_mode():
                    logits = model(input_ids=torch.tensor([ids])).logits[0, -1]
                allowed = [may_follow(text, each) for each in range(len(texts))]
                inside = torch.zeros_like(logits, dtype=torch.bool)
                inside[: len(texts)] = torch.tensor(allowed)
                masked = logits.masked_fill(~inside, -torch.inf).log_softmax(-1)
                token = int(rng.choice(len(logits), p=masked.exp().numpy()))
                new.append(float(masked[token]))
                old.append(float(logits.log_softmax(-1)[token]))
                ids, text = [*ids, token], text + texts[token]
                mask.append(1)
            if number < NUM_ROUNDS - 1:
                more = tokenizer.encode("\n" + TURN.format(number))
                ids += more
                for column in (mask, old, new):
                    column.extend([0] * len(more))
        for name, values in zip(
            rows, (ids[len(prompts[-1]) :], mask, old, new), strict=True
        ):
            rows[name].append(torch.tensor(values))
    model.float()
    return rd.Batch.from_rows(
        prompt_ids=prompts,
        response_ids=rows["ids"],
        response_mask=rows["mask"],
        old_log_probs=[each.float() for each in rows["old"]],
        rollout_log_probs=[each.float() for each in rows["new"]],
    )


def with_record(batch: rd.Batch, **sampling: Any) -> rd.Batch:
    return replace(batch, meta={**batch.meta, "sampling": sampling})


def swap(batch: rd.Batch) -> rd.Batch:
    old, rollout = batch.both_log_probs()
    return replace(batch, old_log_probs=rollout, rollout_log_probs=old)


@pytest.mark.parametrize("side", ["rollout", "old"])
def test_a_choice_list_is_proved(
    written: rd.Batch, local: LocalEngine, side: str
) -> None:
    batch = with_record(written, structured_outputs={"choice": CHOICES})
    proof = rd.prove(
        batch if side == "rollout" else swap(batch), local, hypotheses=["sampling"]
    )
    assert say(proof) == ("proved", side, "structured_output")
    assert proof.conclusions[0].opinions[0].where == "all"
    left = proof.batch.log_probs("structured_output") - proof.batch.log_probs(side)
    assert float(left[proof.batch.response_mask != 0].abs().max()) < 1e-4
    assert written.log_probs("old").min() < -10  # where the model would not write it


def test_what_is_recorded_is_not_what_happened(
    written: rd.Batch, local: LocalEngine
) -> None:
    """Choices are drawn, and yet both engines have the log-probs of all ids."""
    batch = with_record(written, choice=CHOICES)
    sound = replace(batch, rollout_log_probs=batch.log_probs("old"))
    assert rd.prove(sound, local).verdict == "nothing_to_prove"
    halved = replace(sound, rollout_log_probs=batch.log_probs("old") / 2)
    proof = rd.prove(halved, local, hypotheses=["structured_output"])
    assert "structured_output" in {*proof.frame["hypothesis"]}
    assert proof.causes == ()


def test_a_schema_is_not_masked(written: rd.Batch, local: LocalEngine) -> None:
    for sampling in ({"guided_json": {"type": "object"}}, {}):
        batch = with_record(written, **sampling)
        proof = rd.prove(batch, local, hypotheses=["structured_output"])
        assert proof.verdict == "none_of_these"
        why = proof.not_tested.get("structured_output", "")
        assert why.startswith("`guided_json` is recorded") == bool(sampling)


def test_samples_of_few_tokens_are_scored_after_the_others() -> None:
    """An answer such as "yes" has two or three tokens."""
    sizes = [2, 5, 3, 4, 0]
    batch = rd.Batch.from_rows(
        response_ids=[torch.ones(max(size, 1), dtype=torch.int64) for size in sizes],
        response_mask=[torch.ones(size).long() for size in sizes[:4]]
        + [torch.zeros(1).long()],
        old_log_probs=[torch.full((max(size, 1),), -float(size)) for size in sizes],
        rollout_log_probs=[torch.zeros(max(size, 1)) for size in sizes],
    )
    assert interleave(batch) == [1, 3, 0, 2]


TOKENS = {0: b"a", 1: b"ab", 2: b"b", 3: b"c", 4: b"\xc3", 5: b"\xa9"}


@pytest.mark.parametrize(
    ("round_ids", "allowed"),
    [
        # "ab" and "abc": one id or two, then the end or more, then the end.
        ([1, 3, 9], [{0, 1, 4}, {3, 9}, {9}]),
        ([0, 2, 9], [{0, 1, 4}, {2}, {3, 9}]),
        ([4, 5], [{0, 1, 4}, {5}]),  # the bytes of one character; cut before its end
        ([1, 2], [None, None]),  # no choice begins so: it was not written under one
        ([1, 9, 3], [None, None, None]),
    ],
)
def test_what_may_follow(round_ids: list[int], allowed: list[set[int] | None]) -> None:
    mask = choice_mask([b"ab", b"abc", "é".encode()], TOKENS, [9])
    ids = torch.tensor([7, 7, *round_ids])
    at = torch.arange(2, len(ids))
    seen = Seen(ids, at, torch.full_like(at, 2), 10)
    masked = mask(torch.zeros(len(at), 10), seen, 0.0)
    for row, expected in zip(masked, allowed, strict=True):
        kept = {*row.isfinite().nonzero()[:, 0].tolist()}
        assert kept == ({*range(10)} if expected is None else expected)


def test_allowed_ids_are_kept_of_a_large_vocabulary(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of 20,000 ids those allowed are the least likely: neither drawn nor near it."""
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(64, 20_000, generator=generator)
    hidden = torch.randn(4, 64, generator=generator)
    low = (hidden @ weight).argsort(-1)[:, :3]
    tokens = {int(each): bytes([97 + n]) for n, each in enumerate(low.flatten())}
    own = [bytes([97 + 3 * row]) for row in range(4)]
    choices = [
        b"".join(own),
        *(b"".join(own[:row]) + bytes([98 + 3 * row]) for row in range(4)),
    ]
    ids = torch.cat([torch.tensor([11]), low[:, 0]])
    at = torch.arange(1, 5)
    seen = Seen(ids, at, torch.ones_like(at), 20_000)
    mask = choice_mask(choices, tokens, [])
    chosen = (hidden @ weight).double().gather(-1, low[:, :2])
    wanted = chosen.log_softmax(-1)[:, 0].numpy()
    for size in (engines._WHOLE, 20_000):
        monkeypatch.setattr(engines, "_WHOLE", size)
        readout = Readout(hidden, lambda rows: rows @ weight, ids[1:], seen)
        values = readout.log_probs([Processor(mask, 0.0, -1, (*tokens,))])
        assert np.abs(values - wanted).max() < 1e-5


@pytest.mark.parametrize(
    ("sampling", "texts"),
    [
        ({"structured_outputs": {"choice": ["a", "b"]}}, ("a", "b")),
        ({"structured_outputs.choice": ["a"]}, ("a",)),
        ({"guided_choice": ["a", "b"]}, ("a", "b")),
        ({"structured_outputs": {"choice": None, "regex": "a|b"}}, ()),
        ({"guided_regex": ["a"]}, ()),
        ({"choice": "a"}, ()),
    ],
)
def test_what_records_choices(sampling: dict[str, Any], texts: tuple[str, ...]) -> None:
    batch = rd.Batch.from_rows(
        response_ids=[torch.tensor([1])], response_mask=[torch.tensor([1])]
    )
    assert recorded_choices(with_record(batch, **sampling)) == texts
    # As a Recorder with `facts={"sampling": ...}` has it.
    facts = replace(batch, meta={"facts": {"sampling": sampling}})
    assert recorded_choices(facts) == texts
