"""`input_ids` beside prompts and responses: a Batch keeps the parts only."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from rounddiag.checks.words import listed
from rounddiag.loaders.fields.padding import real_positions

if TYPE_CHECKING:
    from torch import Tensor

    from rounddiag.loaders.fields.field_reader import FieldReader


def compared(reader: FieldReader) -> dict[str, str]:
    """Say, for `meta`, whether `input_ids` are prompt and response end to end.

    The model ran on `input_ids`: where they are something else, the responses are not
    what the log-probabilities are of. Padding may differ.
    """
    whole, prompts = reader.rows("input_ids"), reader.prompts
    if whole is None or prompts is None:
        return {}
    fields = (whole, prompts, reader.responses)
    if len({len(field.lengths) for field in fields}) > 1:
        return {"input_ids": "it has another number of rows"}
    rows = zip(*(field.rows() for field in fields), strict=True)
    found = {
        sample: (ids, prompt, response)
        for sample, (ids, prompt, response) in enumerate(rows)
        if not torch.equal(ids, torch.cat([prompt, response]))
    }
    real = real_positions(reader) if found else None
    told = [
        f"sample {sample} {what}"
        for sample, parts in found.items()
        if (what := _difference(*parts, None if real is None else real[sample]))
    ]
    return {"input_ids": listed(told, len(told)) or "equal"}


def _difference(
    ids: Tensor, prompt: Tensor, response: Tensor, real: Tensor | None
) -> str:
    joined = torch.cat([prompt, response])
    if ids.shape != joined.shape:
        return f"has {len(ids)} of them for {len(joined)} tokens"
    differ = ids != joined if real is None else (ids != joined) & real
    if not differ.any():
        return ""
    at = int(differ.nonzero()[0])
    return f"has {int(ids[at])}, not {int(joined[at])}, at position {at - len(prompt)}"
