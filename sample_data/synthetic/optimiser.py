"""Muon for the matrices, AdamW for the rest.

Half the steps of AdamW alone, for this model. torch has a Muon too; it works in
bfloat16, which takes several times as long on a CPU.
"""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

QUINTIC = (3.4445, -4.7750, 2.0315)  # Newton-Schulz, after Keller Jordan's Muon
DECAY = 0.01


class Muon(torch.optim.Optimizer):
    """Momentum whose matrix is made orthogonal before each step."""

    def __init__(self, matrices: Iterable[Tensor], lr: float) -> None:
        super().__init__(matrices, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Do one step."""
        del closure
        lr = self.param_groups[0]["lr"]
        for matrix in self.param_groups[0]["params"]:
            grad = matrix.grad.flatten(1)
            momentum = self.state[matrix].setdefault("m", torch.zeros_like(grad))
            momentum.lerp_(grad, 0.05)
            update = orthogonal(grad.lerp(momentum, 0.95)).view_as(matrix)
            size = 0.2 * max(grad.shape) ** 0.5
            matrix.mul_(1 - lr * DECAY).add_(update, alpha=-lr * size)


def orthogonal(matrix: Tensor) -> Tensor:
    """Bring the singular values of a matrix near 1."""
    if matrix.shape[0] > matrix.shape[1]:
        return orthogonal(matrix.T).T
    a, b, c = QUINTIC
    matrix = matrix / (matrix.norm() + 1e-7)
    for _ in range(5):
        square = matrix @ matrix.T
        matrix = a * matrix + (b * square + c * square @ square) @ matrix
    return matrix


def optimisers(model: nn.Module, lr: float) -> list[torch.optim.Optimizer]:
    """Return the two optimisers; the embeddings of tokens belong to the second."""
    matrices: list[Tensor] = []
    rest: list[Tensor] = []
    for name, value in model.named_parameters():
        is_matrix = value.ndim > 1 and "embed_tokens" not in name
        (matrices if is_matrix else rest).append(value)
    return [
        Muon(matrices, 1.5 * lr),
        torch.optim.AdamW(rest, lr, betas=(0.9, 0.98), weight_decay=DECAY),
    ]
