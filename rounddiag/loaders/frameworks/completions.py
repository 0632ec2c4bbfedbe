"""Prompts and completions apart, each padded, as TRL holds them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rounddiag.loaders.fields.padding import end_of
from rounddiag.loaders.fields.row_reader import RowReader

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor


def without_padding(
    held: Mapping[str, Any], source: object, names: Mapping[str, str]
) -> dict[str, list[Tensor]]:
    """Return TRL's fields under verl's names, unpadded.

    The model wrote what `completion_mask` marks, except where `tool_mask` is 0: there
    is the output of tools.

    Parameters
    ----------
    held : mapping of str to rows
    source : path-like
        Named in messages.
    names : mapping of str to str
        What is per token of the completion, where it is there, and its name in verl.

    Raises
    ------
    LoadError
        If the fields are missing or do not fit.
    """
    completions = RowReader(held, source, "completion_ids", most_lacking=0)
    real = completions.required("completion_mask")
    tools = completions.field("tool_mask")
    written = (
        real if tools is None else [a * b for a, b in zip(real, tools, strict=True)]
    )
    found = {ours: completions.field(theirs) for theirs, ours in names.items()}
    parts = {"responses": completions.tokens, "response_mask": written, **found}
    sizes = [end_of(row) for row in real]
    return {
        **_prompts(held, source),
        **{
            name: [row[:size] for row, size in zip(rows, sizes, strict=True)]
            for name, rows in parts.items()
            if rows is not None
        },
    }


def _prompts(held: Mapping[str, Any], source: object) -> dict[str, list[Tensor]]:
    if "prompt_ids" not in tuple(held):
        return {}
    prompts = RowReader(held, source, "prompt_ids", most_lacking=0)
    pairs = zip(prompts.tokens, prompts.required("prompt_mask"), strict=True)
    return {"prompts": [row[mask != 0] for row, mask in pairs]}
