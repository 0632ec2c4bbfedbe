"""The rounds of samples that a summary adds up, from a batch or a token frame."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rounddiag.core import rounds_of_tokens
from rounddiag.core.frames import round_frame_and_diffs
from rounddiag.core.measures import prob_diffs, prob_diffs_of
from rounddiag.core.pairs import check_pair
from rounddiag.errors import FrameError
from rounddiag.stats.by import numbered
from rounddiag.stats.given import need_frame
from rounddiag.stats.parts import parts_of_rounds

if TYPE_CHECKING:
    import pandas as pd

    from rounddiag.batch import Batch
    from rounddiag.stats.splits import Split

    Array = np.ndarray[Any, Any]


@dataclass(frozen=True, kw_only=True)
class Runs:
    """Rounds of samples, in the order of their tokens.

    Attributes
    ----------
    rounds : DataFrame
        One row each, with the columns of `schema.ROUNDS`.
    tokens : dict of str to ndarray, shape (num_tokens,)
        `diff`, and `prob_diff` where it is known.
    names : ndarray, shape (num_rounds,), optional
        The group that a round's sample is in.
    split : Split, optional
        Which part each round is of.
    """

    rounds: pd.DataFrame
    tokens: dict[str, Array]
    names: Array | None
    split: Split | None

    @property
    def codes(self) -> Array:
        """The number of the part that each round is of; 0 where there are no parts."""
        if self.split is None:
            return np.zeros(len(self.rounds), dtype=np.int64)
        return self.split.codes

    def named(self, code: int) -> dict[str, Any]:
        """Return what a part is called under its name; nothing without parts."""
        return {} if self.split is None else self.split.named(code)

    def aligned(self, *, last: bool) -> Array:
        """Return the index of each round; counted from the end, the last one is -1."""
        index = self.rounds["round"].to_numpy()
        if not last:
            return index
        sample = np.unique(self.rounds["sample"].to_numpy(), return_inverse=True)[1]
        num_rounds = np.zeros(len(index), dtype=index.dtype)
        np.maximum.at(num_rounds, sample, index + 1)
        from_end: Array = index - num_rounds[sample]
        return from_end

    def clusters(self, cluster: str | None) -> Array:
        """Return what each round's sample goes together with, counted from 0.

        Raises
        ------
        FrameError
            If groups are asked for and there are none, or something else is.
        """
        if cluster not in (None, "sample", "group"):
            raise FrameError.build(
                key="cluster",
                expected='"sample" or "group"',
                found=repr(cluster),
                advice="Leave it out for groups where there are groups.",
            )
        if cluster == "group" and self.names is None:
            raise FrameError.build(
                key="cluster",
                expected="groups, to draw whole groups",
                found="neither `group_ids` nor a column `group_id`",
                advice='Pass cluster="sample".',
            )
        samples = self.rounds["sample"].to_numpy()
        names = samples if self.names is None or cluster == "sample" else self.names
        return numbered("group_id", names)[0]


def runs_of_batch(batch: Batch, *, by: str | None) -> Runs:
    """Take the rounds of a batch."""
    rounds, diff = round_frame_and_diffs(batch)
    names = None if batch.group_ids is None else np.asarray(batch.group_ids)
    return Runs(
        rounds=rounds,
        tokens={"diff": diff, "prob_diff": prob_diffs(batch)},
        names=None if names is None else names[rounds["sample"]],
        split=parts_of_rounds(batch, rounds, by),
    )


def runs_of_frame(tokens: pd.DataFrame, *, a: str, b: str, by: str | None) -> Runs:
    """Take the rounds of a token frame, which has one pair of scores."""
    need_frame(tokens)
    check_pair(tokens, a, b)
    rounds = rounds_of_tokens(tokens)
    num = rounds["num_tokens"].to_numpy()
    begins = np.cumsum(num) - num
    probs = prob_diffs_of(tokens)
    more = {} if probs is None else {"prob_diff": probs}
    return Runs(
        rounds=rounds,
        tokens={"diff": tokens["diff"].to_numpy(), **more},
        names=tokens["group_id"].to_numpy()[begins] if "group_id" in tokens else None,
        split=parts_of_rounds(tokens, rounds, by),
    )
