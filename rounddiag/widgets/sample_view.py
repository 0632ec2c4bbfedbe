"""One sample for the page: its rounds, its tokens, and what stands between."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from rounddiag.checks.contracts import UntestableError
from rounddiag.checks.images import image_token
from rounddiag.checks.tokens import known_sequence
from rounddiag.core import round_and_token_frames
from rounddiag.core.measures import MEASURES
from rounddiag.core.scores import pair_of, select_scores
from rounddiag.core.sums import diffs
from rounddiag.errors import FrameError
from rounddiag.figures._parts.data import check_sample
from rounddiag.figures._parts.token_colors import NOT_FINITE, levels
from rounddiag.figures.colored_text import NO_TEXT
from rounddiag.text import pieces, roles, special_tokens
from rounddiag.widgets.images import actions_of, last_seen

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd

    from rounddiag._typing import Array
    from rounddiag.batch import Batch

    Stretch = tuple[int, int]


class Facts:
    """Facts of a whole batch, each found when it is first asked for.

    Parameters
    ----------
    batch : Batch
    """

    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        self._sizes: dict[tuple[str, str], Array] = {}

    @cached_property
    def image_token(self) -> int | None:
        """The token id that stands for pictures; None where nothing tells."""
        if self._batch.is_redacted:
            return None
        try:
            return image_token(self._batch)
        except UntestableError:
            return None

    @cached_property
    def special(self) -> dict[int, str]:
        """The tokenizer's special tokens, id to text; none in a redacted batch."""
        return {} if self._batch.is_redacted else special_tokens(self._batch.tokenizer)

    def ranks(self, diff: Array, a: str, b: str) -> Array:
        """Rank tokens of the batch among all of them by their |diff|.

        Parameters
        ----------
        diff : ndarray of float32
            Diffs of the pair `a`, `b`.
        a, b : str

        Returns
        -------
        ndarray of int32
            1 is the largest; equals share the better rank; 0 where the diff is not
            finite.
        """
        sizes = self._sizes_of(a, b)
        found = len(sizes) + 1 - np.searchsorted(sizes, np.abs(diff), side="right")
        return np.where(np.isfinite(diff), found, 0).astype(np.int32)

    def _sizes_of(self, a: str, b: str) -> Array:
        """Return the finite |diff| of the batch, smallest first."""
        if (a, b) not in self._sizes:
            every = diffs(select_scores(self._batch, a, b))
            self._sizes[a, b] = np.sort(np.abs(every[np.isfinite(every)]))
        return self._sizes[a, b]


def ranks_in_runs(ranks: Array, counts: Array) -> Array:
    """Rank the tokens of each run among themselves, by their ranks among all.

    Parameters
    ----------
    ranks : ndarray of int32
        As `Facts.ranks` gives them; 0 stays 0.
    counts : ndarray of int
        How many tokens each run has.

    Examples
    --------
    >>> ranks_in_runs(np.array([7, 0, 3, 3, 9]), np.array([3, 2])).tolist()
    [2, 0, 1, 1, 2]
    """
    last = int(ranks.max(initial=0)) + 1
    run = np.repeat(np.arange(len(counts)), counts)
    keys = run * (last + 1) + np.where(ranks > 0, ranks, last)
    first = (np.cumsum(counts) - counts)[run]
    found = np.searchsorted(np.sort(keys), keys) - first + 1
    return np.where(ranks > 0, found, 0).astype(np.int32)


_NUM_SEEN = 8  # tokens at either end, where templates and tokenizers disagree


@dataclass(frozen=True, kw_only=True)
class Context:
    """Prompt and response of a sample.

    Attributes
    ----------
    ids : ndarray of int
        The tokens of both.
    num_before : int
        How many of them are the prompt's.
    is_image : ndarray of bool
        Which of them stand for a picture.
    batch : Batch
    """

    ids: Array
    num_before: int
    is_image: Array
    batch: Batch

    @classmethod
    def of(cls, batch: Batch, sample: int, facts: Facts) -> Context:
        """Take what is known of one sample."""
        num_before, ids = known_sequence(batch, sample)
        token = facts.image_token
        is_image = np.zeros(len(ids), dtype=bool) if token is None else ids == token
        return cls(ids=ids, num_before=num_before, is_image=is_image, batch=batch)

    def pieces(self, stretches: Sequence[Stretch]) -> list[list[str]]:
        """Return the text of stretches, given by positions in the response."""
        ends = np.cumsum([0, *(stop - start for start, stop in stretches)]).tolist()
        if self.batch.is_redacted:
            found = [NO_TEXT] * ends[-1]
        else:
            before = self.num_before
            parts = [
                self.ids[start + before : stop + before] for start, stop in stretches
            ]
            ids = np.concatenate([self.ids[:0], *parts])
            found = pieces(ids, self.batch.tokenizer, starts=ends[:-1])
        return [found[begin:end] for begin, end in pairwise(ends)]

    def gaps(self, starts: Array, counts: Array) -> list[dict[str, Any]]:
        """Describe what stands before, between and behind rounds.

        Parameters
        ----------
        starts, counts : ndarray of int, shape (num_rounds,)
            Position and number of tokens of each round of the sample.

        Returns
        -------
        list of dict
            `start` and `stop`, positions in the response, from the prompt's first
            token on; `before`, the round that follows, None behind the last one;
            `num_tokens`, `num_image_tokens`; `head` and `tail`, the first and the last
            8 pieces, where a short gap has none twice. Empty gaps are left out.
        """
        begins = [-self.num_before, *(starts + counts).tolist()]
        ends = [*starts.tolist(), len(self.ids) - self.num_before]
        known = [
            (start, stop, before if before < len(starts) else None)
            for before, (start, stop) in enumerate(zip(begins, ends, strict=True))
            if start < stop
        ]
        sides = [side for start, stop, _ in known for side in _sides(start, stop)]
        texts = self.pieces(sides)
        num_images = np.cumsum(np.r_[0, self.is_image])
        return [
            {
                "start": start,
                "stop": stop,
                "before": before,
                "num_tokens": stop - start,
                "num_image_tokens": int(
                    num_images[stop + self.num_before]
                    - num_images[start + self.num_before]
                ),
                "head": head,
                "tail": tail,
            }
            for (start, stop, before), head, tail in zip(
                known, texts[::2], texts[1::2], strict=True
            )
        ]


def _sides(start: int, stop: int) -> tuple[Stretch, Stretch]:
    """Return the two ends of a gap, which share no token."""
    middle = min(start + _NUM_SEEN, stop)
    return (start, middle), (max(middle, stop - _NUM_SEEN), stop)


_MEANS = ("mean_abs_diff", "mean_diff", "max_abs_diff", "k3")


def described(
    one: Batch, rounds: pd.DataFrame, tokens: Mapping[str, Any]
) -> list[dict[Any, Any]]:
    """Describe each round of a batch of one sample, as `trajectory_of` has them.

    Parameters
    ----------
    one : Batch
    rounds : DataFrame
        Its round frame.
    tokens : mapping of str to sequence, each of num_tokens values
        `piece` and `is_special` of its tokens.

    Returns
    -------
    list of dict
    """
    stops = rounds["num_tokens"].cumsum().to_numpy()
    strength = np.copysign(*(rounds[name].to_numpy() for name in _MEANS[:2]))
    level = levels(strength)
    level[level == NOT_FINITE] = 0
    found = rounds[["round", "start", "num_tokens", "num_nonfinite", *_MEANS]].assign(
        first=stops - rounds["num_tokens"],
        level=level,
        text_end=tokens["is_special"][stops - 1].astype(bool),
    )
    shots = () if one.images is None else one.images[0]
    seen = last_seen(shots, len(rounds))
    texts = [
        "".join(tokens["piece"][first:stop])
        for first, stop in zip(found["first"], stops, strict=True)
    ]
    actions = actions_of(texts, [None if i is None else shots[i] for i in seen])
    rows = found.to_dict("records")
    return [
        {**row, "action": action, "screenshot": shot}
        for row, action, shot in zip(rows, actions, seen, strict=True)
    ]


_TOKENS = ("position", "old_log_prob", "rollout_log_prob")


def trajectory_of(
    batch: Batch,
    sample: int,
    a: str = "old",
    b: str = "rollout",
    facts: Facts | None = None,
) -> dict[str, Any]:
    """Return everything that the page shows of one sample.

    Parameters
    ----------
    batch : Batch
    sample : int
    a, b : str
        The scores to compare.
    facts : Facts, optional
        Of the batch, kept from one sample to the next.

    Returns
    -------
    dict
        `sample, sample_id, group_id, reward, num_tokens, name_a, name_b`; `rounds`, a
        dictionary each; `gaps`, as `Context.gaps`; `tokens`, a list or an array each.
        `token_id`, `entropy` and `role` are left out where the batch cannot tell. Ranks
        are 1 for the largest |diff|, and 0 where it is not finite. A round's `level`
        has the strength of its mean |diff| and the sign of its mean diff; `text_end`
        says whether it ends with a special token, as a round that was not cut off does.

    Raises
    ------
    FrameError
        If there is no such sample.
    BatchError
        If the batch has no such score.

    Examples
    --------
    >>> import rounddiag as rd
    >>> found = trajectory_of(rd.load("sample_data/image_window.parquet"), sample=3)
    >>> found["rounds"][0]["action"]["label"], found["tokens"]["piece"][:3]
    ('click (278, 170)', ['<think>', 'I', ' see'])
    """
    check_sample(sample, batch.num_samples)
    facts, one = facts or Facts(batch), select_scores(batch[sample], a, b)
    rounds, frame = round_and_token_frames(one, _columns(one))
    counts = rounds["num_tokens"].to_numpy()
    tokens = _tokens(frame, facts)
    ranks = facts.ranks(tokens["diff"], a, b)
    tokens |= {"rank_in_batch": ranks, "rank_in_round": ranks_in_runs(ranks, counts)}
    if one.tokenizer is not None and not one.is_redacted:
        special = {*facts.special.values()}
        starts = np.cumsum(counts) - counts
        tokens["role"] = roles(tokens["piece"], starts=starts, special=special)
    context = Context.of(batch, sample, facts)
    return {
        "sample": sample,
        "sample_id": one.sample_ids and one.sample_ids[0],
        "group_id": one.group_ids and one.group_ids[0],
        "reward": None if one.rewards is None else float(one.rewards[0]),
        "num_tokens": len(frame),
        "name_a": pair_of(one).a,
        "name_b": pair_of(one).b,
        "rounds": described(one, rounds, tokens),
        "gaps": context.gaps(rounds["start"].to_numpy(), counts),
        "tokens": tokens,
    }


def _columns(batch: Batch) -> list[str]:
    """Name what the token frame can give beside its own columns."""
    lacking = {
        "entropy": batch.entropy is None,
        "text": batch.is_redacted,
        "token_id": batch.is_redacted,
    }
    return [*_TOKENS, *(name for name, lacks in lacking.items() if not lacks)]


def _tokens(frame: pd.DataFrame, facts: Facts) -> dict[str, Any]:
    """Return the tokens of one sample, by column."""
    diff = frame["diff"].to_numpy()
    ids = frame["token_id"].to_numpy() if "token_id" in frame else np.zeros(len(frame))
    found = {
        "piece": frame["text"].tolist() if "text" in frame else [NO_TEXT] * len(frame),
        "diff": diff,
        "a": frame["old_log_prob"].to_numpy(),
        "b": frame["rollout_log_prob"].to_numpy(),
        "k3": _k3(diff),
        "level": levels(diff),
        "is_special": np.isin(ids, [*facts.special]).astype(np.uint8),
    }
    for name in ("position", "round", "token_id", "entropy"):
        if name in frame:
            found[name] = frame[name].to_numpy()
    return found


def _k3(diff: Array) -> Array:
    with np.errstate(over="ignore"):  # beyond 88 nats it is no float32
        return MEASURES["k3"].values(diff).astype(np.float32)


def observation(
    batch: Batch, sample: int, start: int, stop: int, facts: Facts | None = None
) -> dict[str, Any]:
    r"""Return a stretch of a sample, token by token.

    Parameters
    ----------
    batch : Batch
    sample : int
    start, stop : int
        Positions in the response; negative in the prompt, whose last token is -1.
    facts : Facts, optional
        Of the batch, kept from one call to the next.

    Returns
    -------
    dict
        `pieces`, a list of str, and `is_image`, an array of uint8.

    Raises
    ------
    FrameError
        If there is no such sample or stretch.

    Examples
    --------
    >>> import rounddiag as rd
    >>> batch = rd.load("sample_data/image_window.parquet")
    >>> found = observation(batch, sample=0, start=-2, stop=0)
    >>> found["pieces"], found["is_image"].tolist()
    (['t', '\n'], [0, 0])
    """
    check_sample(sample, batch.num_samples)
    context = Context.of(batch, sample, facts or Facts(batch))
    low, high = -context.num_before, len(context.ids) - context.num_before
    if not low <= start <= stop <= high:
        raise FrameError.build(
            key="start, stop",
            expected=f"positions from {low} to {high}, the lower one first",
            found=f"{start}, {stop}",
            advice="Count from the response's start; the prompt is negative.",
        )
    (found,) = context.pieces([(start, stop)])
    is_image = context.is_image[start - low : stop - low]
    return {"pieces": found, "is_image": is_image.astype(np.uint8)}
