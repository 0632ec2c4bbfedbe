"""What a model has answered about a sample, as the page shows it."""

from __future__ import annotations

from typing import Any

import numpy as np

from rounddiag.core.scores import AskedModel
from rounddiag.schema import LISTED

_OF_TOKENS = ["text", "rank", "prob", "is_sampled"]
_OF_TILES = ["x0", "y0", "x1", "y1", "drop", "is_divided"]


def answer_payload(answer: AskedModel, sample: int) -> dict[str, Any]:
    """Return the likely tokens of each place, and the tiles of each round.

    `most` is the end of the scale of tiles, the same for all rounds of the answer.
    """
    tiles, rows = answer.tiles, answer.alternatives
    rows = rows.assign(
        prob=np.exp(rows["log_prob"]), listed=rows["rank"].between(1, LISTED)
    )
    places = rows[rows["sample"] == sample].groupby(
        ["round", "token", "hypothesis"], sort=False
    )
    maps = tiles[tiles["sample"] == sample].groupby(["round", "picture"])
    return {
        "most": tiles["drop"].abs().max(),
        "places": [
            {
                **dict(zip(("round", "token", "hypothesis"), place, strict=True)),
                "mass": own.loc[own["listed"], "prob"].sum(),
                **own[_OF_TOKENS].to_dict("list"),
            }
            for place, own in places
        ],
        "maps": [
            {
                "round": number,
                "picture": picture,
                "tiles": own[_OF_TILES].to_dict("records"),
            }
            for (number, picture), own in maps
        ],
    }
