"""A small batch as verl's fields, to be changed by hand."""

from __future__ import annotations

import re
from typing import Any

import pytest

from rounddiag import Batch
from rounddiag.errors import LoadError
from rounddiag.loaders.field_batch import batch_from_fields
from tests.loaders.verl_writer import small_batch

SAME = "Save every field for the same samples and tokens."


def built(**changes: Any) -> Batch:
    """The batch of `small_batch` with other fields; None leaves one out."""
    fields = {**small_batch(), **changes}
    return batch_from_fields(
        {name: value for name, value in fields.items() if value is not None},
        source="step_7.pkl",
    )


def refuses(message: str, **changes: Any) -> None:
    """Expect a LoadError of exactly this message."""
    with pytest.raises(LoadError, match=f"^{re.escape(f'step_7.pkl: {message}')}$"):
        built(**changes)
