"""The weight of a token whose advantage is 0."""

from __future__ import annotations

import math

import pytest
import torch

from rounddiag.core.weights import token_weights
from tests.batches import padded


@pytest.mark.parametrize("ratio", [0.5, 1.0, 1.5])
def test_ppo_stops_no_gradient_of_a_token_without_an_advantage(ratio: float) -> None:
    current = torch.tensor([[-1.0 + math.log(ratio)]])
    batch = padded(
        *([[1]], [[-1.0]], [[-1.0]]),
        advantages=torch.zeros(1, 1),
        scores={"current": current},
    )
    assert token_weights(batch, "ppo_clip").tolist() == [pytest.approx(ratio)]
