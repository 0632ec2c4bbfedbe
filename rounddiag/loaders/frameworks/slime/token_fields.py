"""What slime's samples have one value a token of, under verl's names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rounddiag.loaders.frameworks.slime.rows import RowReader

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

    from rounddiag.loaders.source import Source

_REQUIRED = {
    "loss_masks": "response_mask",
    "rollout_log_probs": "rollout_log_probs",
    "log_probs": "old_log_probs",
}
_OPTIONAL = {
    "ref_log_probs": "ref_log_probs",
    "teacher_log_probs": "teacher_log_probs",
    "entropy": "entropy",
    "advantages": "advantages",
}
USED = {"tokens", "response_lengths", *_REQUIRED, *_OPTIONAL}


def token_fields(
    samples: Sequence[Mapping[str, Any]], source: Source
) -> dict[str, list[Tensor]]:
    """Return prompts, responses, mask and log-probabilities, a row a sample.

    Parameters
    ----------
    samples : sequence of mapping
        `tokens` are prompt and response; all else is of the response.
    source : Source

    Raises
    ------
    LoadError
        If a sample lacks one of them, or has more or fewer values than tokens.
    """
    reader = RowReader(samples, source)
    pairs = [reader.divided(i, "response_lengths") for i in range(len(samples))]
    fields = {
        "prompts": [row for row, _ in pairs],
        "responses": [row for _, row in pairs],
    }
    sizes = [len(row) for row in fields["responses"]]
    for key, name in {**_REQUIRED, **_OPTIONAL}.items():
        if key in _REQUIRED or any(sample.get(key) is not None for sample in samples):
            fields[name] = [
                reader.per_token(number, key, size) for number, size in enumerate(sizes)
            ]
    return fields
