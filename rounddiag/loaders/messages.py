"""Names and kinds of values in the messages of loaders."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from rounddiag.wording import join_names

if TYPE_CHECKING:
    from collections.abc import Iterable


_KINDS = (
    (type(None), "nothing"),
    (int | float, "a number"),
    (str, "text"),
    (bytes, "bytes"),
    (list | tuple, "a list"),
    (torch.Tensor, "a single tensor"),
    (np.ndarray, "a single numpy array"),
)


def kind_of(value: object) -> str:
    """Describe the kind of a value, for a message.

    Examples
    --------
    >>> kind_of(None), kind_of([5]), kind_of({5})
    ('nothing', 'a list', 'a value of type set')
    """
    names = [name for kind, name in _KINDS if isinstance(value, kind)]
    return names[0] if names else f"a value of type {type(value).__name__}"


def format_names(names: Iterable[object]) -> str:
    """Return at most 12 names of fields for a message, each cut to 40 characters.

    Examples
    --------
    >>> format_names(["step", "reward"]), format_names([])
    ('step, reward', 'nothing')
    """
    short = [f"{name!s:.40}" for name in names]
    return join_names(short, len(short), most=12) or "nothing"
