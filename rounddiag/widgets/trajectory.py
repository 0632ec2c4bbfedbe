"""One sample for the page: its rounds, its tokens, and what stands between."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rounddiag.core import round_and_token_frames
from rounddiag.core.measures import MEASURES
from rounddiag.core.pairs import pair_of, paired
from rounddiag.figures.coloring import levels
from rounddiag.figures.reading import NO_TEXT
from rounddiag.figures.sources import check_sample
from rounddiag.text import roles
from rounddiag.widgets.context import Context
from rounddiag.widgets.facts import Facts, ranks_in_runs
from rounddiag.widgets.rounds import described

if TYPE_CHECKING:
    import pandas as pd

    from rounddiag.batch import Batch

    Array = np.ndarray[Any, Any]

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
    facts, one = facts or Facts(batch), paired(batch[sample], a, b)
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
