"""Text of generated tokens, and what each is for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rounddiag.core.totals import packed
from rounddiag.errors import FrameError
from rounddiag.text import pieces, special_tokens
from rounddiag.text.tagging import ROLES, roles

if TYPE_CHECKING:
    from typing import Any

    import pandas as pd

    from rounddiag.batch import Batch
    from rounddiag.text.tagging import Tagger

    Array = np.ndarray[Any, Any]


def token_texts(batch: Batch) -> list[str]:
    """Return the piece of text of every generated token, in order."""
    ids = packed(batch, batch.response_ids)
    return pieces(ids, batch.tokenizer, starts=_starts(batch))


def token_roles(batch: Batch, tagger: Tagger | None = None) -> pd.Categorical[str]:
    """Return what every generated token is for, in order.

    Parameters
    ----------
    batch : Batch
        With a tokenizer.
    tagger : callable, optional
        From the text of a round to stretches (start, stop, role) of it;
        `rounddiag.text.tag_actions` where left out.

    Returns
    -------
    Categorical
        Of `rounddiag.text.ROLES`, and of whatever else the tagger says.

    Raises
    ------
    FrameError
        If the batch has no tokenizer, or its token ids were left out of the file.
    """
    import pandas as pd

    need_ids(batch, "role")
    if batch.tokenizer is None:
        raise FrameError.build(
            key="role",
            expected="a batch with a tokenizer",
            found="a batch without one",
            advice="Pass `tokenizer=` to `rounddiag.load`.",
        )
    special = special_tokens(batch.tokenizer)
    found = roles(
        token_texts(batch),
        starts=_starts(batch),
        special=set(special.values()),
        tagger=tagger,
    )
    names = list(dict.fromkeys([*ROLES, *dict.fromkeys(found)]))
    place = {name: i for i, name in enumerate(names)}
    # From the names themselves pandas takes as long as all the rest.
    codes = np.fromiter(map(place.__getitem__, found), np.int64, len(found))
    return pd.Categorical.from_codes(codes, pd.Index(names))


def need_ids(batch: Batch, column: str) -> None:
    """Raise a FrameError where the token ids were left out of the batch's file."""
    if batch.is_redacted:
        raise FrameError.build(
            key=column,
            expected="a batch with its token ids",
            found="one that was saved with `redact=True`",
            advice="Load the file that it was made of.",
        )


def _starts(batch: Batch) -> Array:
    """Return where each round begins among the generated tokens."""
    num: Array = batch.rounds.num_tokens.cpu().numpy()
    return np.cumsum(num) - num
