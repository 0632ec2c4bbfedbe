"""What a sampler does to logits, worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from rounddiag.proof.engines import engine
from rounddiag.proof.engines.engine import Readout
from rounddiag.proof.hypotheses.processor import Processor, Seen
from rounddiag.proof.hypotheses.sampling import (
    FITTED,
    LOG_SOFTMAX_BFLOAT16,
    FrequencyPenalty,
    MinP,
    OutputPenalty,
    PresencePenalty,
    RepetitionPenalty,
    Temperature,
    TopK,
    TopP,
    bias_of,
    chosen_log_probs,
    order_families,
)

# Probabilities 0.4, 0.3, 0.2, 0.1.
LOGITS = torch.tensor([0.4, 0.3, 0.2, 0.1]).log()
# Ids 3, 0 in the prompt; 1, 1 written; then the token that is scored.
SEEN = Seen(torch.tensor([3, 0, 1, 1, 2]), torch.tensor([4]), torch.tensor([2]), 4)


def probability(token: int, *processors: Processor) -> float:
    log_probs = chosen_log_probs(LOGITS[None], torch.tensor([token]), SEEN, processors)
    return math.exp(float(log_probs[0]))


@pytest.mark.parametrize(
    ("processor", "token", "expected"),
    [
        (Temperature(0.5), 0, 0.16 / 0.30),
        (TopK(2), 0, 0.4 / 0.7),
        (TopP(0.65), 1, 0.3 / 0.7),
        (TopP(0.71), 2, 0.2 / 0.9),
        (MinP(0.5), 2, 0.2 / 0.9),
        # -0.9163 between -0.91796875 and -0.9140625, the next numbers of bfloat16.
        (LOG_SOFTMAX_BFLOAT16, 0, math.exp(-0.91796875)),
        # What is clearly below the border was not kept, also where it was drawn.
        (TopK(2), 2, 0.0),
        (TopP(0.65), 3, 0.0),
        (MinP(0.9), 1, 0.0),
        # e^-1 off ids that the round has; twice off the one that it has twice.
        (PresencePenalty(1.0), 0, 0.4 / (0.7 + 0.3 / math.e)),
        (FrequencyPenalty(1.0), 0, 0.4 / (0.7 + 0.3 / math.e**2)),
        (bias_of(3)(math.log(2)), 3, 0.2 / 1.1),
        # Negative logits are multiplied: p becomes p squared.
        (RepetitionPenalty(2.0), 2, 0.2 / (0.2 + 0.16 + 0.09 + 0.01)),
        (OutputPenalty(2.0), 2, 0.2 / (0.7 + 0.09)),
    ],
)
def test_probabilities(processor: Processor, token: int, expected: float) -> None:
    assert probability(token, processor) == pytest.approx(expected, rel=1e-5)


def test_sglang_takes_top_p_of_all_tokens_and_vllm_of_what_top_k_left() -> None:
    """Of the likeliest two, the first has 4/7 in vLLM's order, more than 0.5."""
    assert probability(0, TopK(2), TopP(0.5)) == pytest.approx(1.0)
    after_top_p = order_families([FITTED[1].at(0.5)])
    assert [family.name for family in after_top_p] == ["top_k_last", "min_p_last"]
    after_top_k = order_families([FITTED[2].at(2)])
    assert [family.name for family in after_top_k] == ["top_p_first"]
    assert order_families([FITTED[0].at(0.7)]) == ()
    for chain in (
        (TopP(0.5), after_top_p[0].make(2)),
        (TopK(2), after_top_k[0].make(0.5)),
    ):
        assert probability(0, *chain) == pytest.approx(4 / 7)


def test_penalties_come_before_the_temperature_and_truncation_last() -> None:
    """With ids 3, 0, 1 squared: 0.16, 0.09, 0.2, 0.01; at 0.5: squares of these."""
    chain = (TopK(2), Temperature(0.5), RepetitionPenalty(2.0))
    assert probability(2, *chain) == pytest.approx(0.04 / (0.04 + 0.0256), rel=1e-5)


def test_a_drawn_token_within_one_step_of_bfloat16_takes_the_place_of_the_last() -> (
    None
):
    """Logits 8 and 7.95 are one number of bfloat16; 7.5 is another."""
    logits = torch.tensor([[9.0, 8.0, 7.95, 7.5]])
    chances = logits.exp()[0]
    for token, expected in (
        (2, float(chances[2] / (chances[0] + chances[2]))),
        (3, 0.0),
    ):
        log_probs = chosen_log_probs(logits, torch.tensor([token]), SEEN, [TopK(2)])
        assert math.exp(float(log_probs[0])) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("processor", "near"),
    [
        (Temperature(0.5), 1e-4),
        (Temperature(1.7), 1e-4),
        (RepetitionPenalty(1.2), 1e-4),
        (OutputPenalty(1.2), 1e-4),
        (PresencePenalty(0.5), 1e-4),
        (FrequencyPenalty(-0.5), 1e-4),
        (bias_of(111)(2.0), 1e-4),
        (TopK(200), 1e-5),
        (MinP(0.05), 1e-5),
        (TopP(0.7), 0.02),  # the border lies in a bin of several tokens
        (LOG_SOFTMAX_BFLOAT16, 1 / 8),  # one step of bfloat16 at 16 to 32 nats
    ],
)
def test_kept_logits_give_what_all_logits_give(
    processor: Processor, near: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """20,000 ids: those of the sample, the 256 likeliest and bins are kept."""
    generator = torch.Generator().manual_seed(0)
    weight = 0.5 * torch.randn(64, 20_000, generator=generator)
    hidden = torch.randn(150, 64, generator=generator)
    ids = torch.randint(100, 20_000, (200,), generator=generator)
    ids[60::9] = 111
    at = torch.arange(50, 200)
    ids[at[::2]] = (hidden @ weight).argmax(-1)[::2]
    seen = Seen(ids, at, torch.where(at < 125, 50, 125), 20_000)

    def readout() -> Readout:
        return Readout(hidden, lambda rows: rows @ weight, ids[at], seen)

    values = readout().log_probs([processor])
    monkeypatch.setattr(engine, "_WHOLE", 20_000)
    wanted = readout().log_probs([processor])
    assert (np.isneginf(values) == np.isneginf(wanted)).all()
    finite = np.isfinite(wanted)
    assert np.abs(values[finite] - wanted[finite]).max() <= near
