"""Rows of a TrainingInputBatch of SkyRL: prompts, responses, and columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from torch import Tensor

    from rounddiag.loaders.frameworks.skyrl_input import TrainingInput

# Fields of the response, and their names in verl.
RESPONSE = {
    "loss_mask": "loss_mask",
    "rollout_logprobs": "rollout_log_probs",
    "action_log_probs": "old_log_probs",
    "base_action_log_probs": "ref_log_probs",
    "advantages": "advantages",
    "rewards": "rm_scores",
}
_BOUNDARIES = "_boundaries"


def divided(given: TrainingInput) -> dict[str, list[Tensor]]:
    """Return the fields under verl's names, one row a sample.

    Sequences are padded on the left; fields of the response are those of the last
    columns, and `response_mask` says which of them are the response: the last ones, or
    the first in SkyRL 0.1.

    Raises
    ------
    LoadError
        If shapes do not fit together, or the loss looks at a padding row.
    """
    named = {key: name for key, name in RESPONSE.items() if key in given.tensors}
    before = _check_shapes(given, named)
    _check_padding(given)
    spans = [_span(row) for row in given.read("response_mask")]
    tokens, real = given.read("sequences"), given.read("attention_mask") != 0
    starts = [before + span.start for span in spans]
    parts = {"responses": tokens[:, before:]}
    parts |= {name: given.read(key) for key, name in named.items()}
    return {
        "prompts": [
            row[:start][keep[:start]]
            for row, keep, start in zip(tokens, real, starts, strict=True)
        ],
        **{
            name: [row[span] for row, span in zip(rows, spans, strict=True)]
            for name, rows in parts.items()
        },
    }


def _check_shapes(given: TrainingInput, named: Iterable[str]) -> int:
    """Return how many columns of a sequence stand before those of the response."""
    whole, window = (
        given.tensors[name].shape for name in ("sequences", "response_mask")
    )
    expected = {"attention_mask": whole, **dict.fromkeys(named, window)}
    for name, shape in expected.items():
        if given.tensors[name].shape != shape:
            raise given.misfit(
                key=name,
                expected=f"shape {shape}",
                found=f"shape {given.tensors[name].shape}",
            )
    match whole, window:
        case (num_rows, width), (same, columns) if (
            num_rows == same and columns <= width
        ):
            return width - columns
    raise given.misfit(
        key="response_mask",
        expected=f"the last columns of shape {whole}",
        found=f"shape {window}",
    )


def _check_padding(given: TrainingInput) -> None:
    num_kept = given.num_rows - given.num_padding
    if given.tensors["loss_mask"].rows(num_kept, given.num_rows).read().any():
        raise given.misfit(
            key="loss_mask",
            expected="0 in the rows that pad the batch",
            found="other values",
        )


def _span(marked: Tensor) -> slice:
    """Return where the response is; at the end where it is empty."""
    places = marked.nonzero()
    if not len(places):
        return slice(len(marked), len(marked))
    return slice(int(places[0]), int(places[-1]) + 1)


def columns(given: TrainingInput) -> dict[str, Sequence[object]]:
    """Return what there is one value of a row, without padding rows."""
    num_kept = given.num_rows - given.num_padding
    found: dict[str, Sequence[object]] = {
        name: given.read(name).tolist() for name in single(given)
    }
    for name, value in given.metadata.items():
        if isinstance(value, list) and name.endswith(_BOUNDARIES):
            found[name.removesuffix(_BOUNDARIES)] = _numbers(value, num_kept)
        elif isinstance(value, list) and len(value) == given.num_rows:
            found[name] = value[:num_kept]
    return found


def single(given: TrainingInput) -> list[str]:
    """Return the names of the fields of one value a row."""
    shape = (given.num_rows,)
    return [name for name, tensor in given.tensors.items() if tensor.shape == shape]


def _numbers(boundaries: list[object], num_rows: int) -> list[int | None]:
    """Return a number a row: boundaries of (0, 2) and (2, 3) give 0, 0, 1."""
    numbers: list[int | None] = []
    for index, pair in enumerate(boundaries):
        match pair:
            case (int(start), int(stop)) if len(numbers) <= start <= stop <= num_rows:
                numbers += [None] * (start - len(numbers)) + [index] * (stop - start)
    return numbers + [None] * (num_rows - len(numbers))
