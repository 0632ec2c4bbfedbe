"""Functions that take a Batch raise an error that says so."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

import rounddiag as rd
from rounddiag.errors import BatchError

CALLS: dict[str, Callable[[Any], object]] = {
    "attach": lambda data: rd.attach(data, "ref", {}),
    "check": rd.check,
    "export_rescore": lambda data: rd.export_rescore(data, "folder"),
    "reconcile": lambda data: rd.reconcile(data, {}),
    "round_frame": rd.round_frame,
    "sample_frame": rd.sample_frame,
    "save": lambda data: rd.save(data, "saved.parquet"),
    "token_frame": rd.token_frame,
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize(("data", "kind"), [("step_40.parquet", "str"), (3, "int")])
def test_what_is_no_batch_is_an_error(name: str, data: object, kind: str) -> None:
    message = (
        f"expected a Batch; found a {kind}. Open a file with `rounddiag.load(path)`"
        " first."
    )
    with pytest.raises(BatchError, match=f"^{re.escape(message)}$"):
        CALLS[name](data)
