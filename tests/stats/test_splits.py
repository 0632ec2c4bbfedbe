"""Parts of tokens: by their rounds, or by a column of a batch or a frame."""

from __future__ import annotations

import numpy as np
import pandas as pd

from rounddiag.core.measured import Measured
from rounddiag.stats.grouping import Split, split_by, split_first, split_rounds
from tests.batches import hand_batch

TOKENS = pd.DataFrame({"round": [0, 1, 2, 3, 4], "diff": 0.5})


def part_labels(split: Split) -> list[object]:
    """What each token's part is called."""
    frame = pd.DataFrame(index=range(len(split.codes)))
    split.insert_into(frame, split.codes.astype(int))
    labels: list[object] = frame[split.name].tolist()
    return labels


def test_first_rounds_are_apart_from_later_ones() -> None:
    assert part_labels(split_first(TOKENS)) == [False, True, True, True, True]


def test_rounds_go_together_as_they_double() -> None:
    assert part_labels(split_rounds(TOKENS)) == ["0", "1", "2 to 3", "2 to 3", "4 to 7"]


def test_a_column_of_rounds_is_repeated_for_their_tokens() -> None:
    columns = {
        "sample": np.array([0, 1]),
        "round": np.array([1, 0]),
        "engine": np.array(["x", "y"], dtype=object),
    }
    batch = hand_batch(round_columns=columns)
    split = split_by(Measured.of(batch), "engine")
    # Tokens of the rounds: 2, 1 | 3, 1 | 1; what is missing comes last.
    assert split.codes.tolist() == [2, 2, 0, 1, 1, 1, 2, 2]
    assert part_labels(split)[2:6] == ["x", "y", "y", "y"]
    assert str(part_labels(split)[0]) == "nan"


def test_a_column_of_a_frame_is_taken_as_it_is() -> None:
    frame = TOKENS.assign(rank=[2, 1, 1, 2, 3])
    assert part_labels(split_by(Measured.of(frame), "rank")) == [2, 1, 1, 2, 3]


def test_no_tokens_have_no_parts() -> None:
    assert part_labels(split_rounds(TOKENS[:0])) == []
    nothing = hand_batch()[:0]
    assert part_labels(split_by(Measured.of(nothing), "num_rounds")) == []
