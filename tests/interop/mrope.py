"""Compare recomputed position ids with those of Qwen2.5-VL's own `get_rope_index`.

Needs torch and transformers, as `tests/interop/requirements.txt` has them.
"""

from __future__ import annotations

import random
import sys
from typing import Any

import torch
from transformers import Qwen2_5_VLConfig
from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import Qwen2_5_VLModel

from rounddiag.checks.images import rope_positions

PICTURE, TEXT = 1, 0  # token types of transformers
# What tests/checks/test_images_mrope.py has as a literal.
LITERAL = (16, [(2, (1, 4, 6)), (10, (1, 4, 4))])


class Positions(Qwen2_5_VLModel):  # type: ignore[misc] # untyped
    """The model without its weights: position ids take the config alone."""

    def __init__(self) -> None:
        torch.nn.Module.__init__(self)
        self.config = Qwen2_5_VLConfig()


def of_transformers(length: int, pictures: list[Any]) -> torch.Tensor:
    """Return [3, length], as the model computes them."""
    kinds = torch.full((1, length), TEXT, dtype=torch.int32)
    for start, (t, height, width) in pictures:
        kinds[0, start : start + t * height * width // 4] = PICTURE
    positions: torch.Tensor
    positions, _ = Positions().get_rope_index(
        input_ids=torch.ones(1, length, dtype=torch.int64),
        mm_token_type_ids=kinds,
        image_grid_thw=torch.tensor([grid for _, grid in pictures]),
        attention_mask=torch.ones(1, length, dtype=torch.int64),
    )
    return positions[:, 0]


def drawn(rng: random.Random) -> tuple[int, list[Any]]:
    """Draw a text with up to 5 pictures, some at its very ends."""
    pictures, length = [], rng.randrange(3)
    for _ in range(rng.randint(1, 5)):
        grid = (1, 2 * rng.randint(1, 30), 2 * rng.randint(1, 30))
        pictures.append((length, grid))
        length += grid[1] * grid[2] // 4 + rng.randint(1, 40)
    return length - rng.randrange(2), pictures


def main() -> int:
    """Print how many texts were compared; 1 where any differs."""
    rng = random.Random(0)  # noqa: S311 no secret
    cases = [LITERAL, *(drawn(rng) for _ in range(500))]
    differ = [
        case
        for case in cases
        if not torch.equal(rope_positions(*case), of_transformers(*case))
    ]
    print(f"position ids of {len(cases)} texts: {len(differ)} differ {differ[:1]}")
    print(of_transformers(*LITERAL).tolist())
    return int(bool(differ))


if __name__ == "__main__":
    sys.exit(main())
