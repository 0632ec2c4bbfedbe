"""The worst tokens, rounds and samples, with what the page shows of each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rounddiag.figures.reading import NO_TEXT
from rounddiag.schema import TOKENS
from rounddiag.stats import worst_cells, worst_samples, worst_tokens
from rounddiag.text import pieces

if TYPE_CHECKING:
    import pandas as pd

    from rounddiag.batch import Batch


def worst_of(batch: Batch, tokens: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Find the worst of some tokens of a batch, the worst first.

    Parameters
    ----------
    batch : Batch
    tokens : DataFrame
        A token frame of it, or a part of that.

    Returns
    -------
    dict of DataFrame
        `tokens`, with the `piece` of each, `rounds` and `samples`.
    """
    return {
        "tokens": with_pieces(batch, worst_tokens(tokens)),
        "rounds": worst_cells(tokens),
        "samples": _with_names(batch, worst_samples(tokens)),
    }


def with_pieces(batch: Batch, worst: pd.DataFrame) -> pd.DataFrame:
    """Add the text of each token, as `piece`, to a frame with their places."""
    if batch.is_redacted:
        return worst.assign(piece=NO_TEXT)
    sample, index, token = (worst[key].to_numpy() for key in TOKENS.keys)
    first = np.searchsorted(batch.rounds.sample.cpu().numpy(), sample)
    places = batch.rounds.start.cpu().numpy()[first + index] + token
    ids = batch.response_ids.cpu().numpy()[places]
    texts = pieces(ids, batch.tokenizer, starts=range(len(ids)))
    return worst.assign(piece=texts)


def _with_names(batch: Batch, worst: pd.DataFrame) -> pd.DataFrame:
    if batch.sample_ids is None:
        return worst
    return worst.assign(sample_id=[batch.sample_ids[i] for i in worst["sample"]])
