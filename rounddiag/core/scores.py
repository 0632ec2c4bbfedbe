"""The pair of scores that a batch or frame compares, and how to select another."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rounddiag.batch import Batch
from rounddiag.batch.batch import require_batch
from rounddiag.errors import BatchError, FrameError
from rounddiag.schema import Pair

if TYPE_CHECKING:
    import pandas as pd


_KEY = "pair"
# What a file says of the scores `old` and `rollout`, and of no others.
_OF_STANDARD = ("checks", "not_measurable", "old_log_probs_source")


def select_scores(batch: Batch, a: str, b: str) -> Batch:
    """Return a batch whose two log-probs are these scores.

    Parameters
    ----------
    batch : Batch
    a, b : str
        `old`, `rollout`, or names in `batch.scores`.

    Returns
    -------
    Batch
        The same one for the standard pair. Of another one, `old_log_probs` are those of
        `a` and `rollout_log_probs` those of `b`; `meta["pair"]` names them, and what
        was known of the standard pair only is left out of `meta`.

    Raises
    ------
    BatchError
        If it is no Batch, has no such score, or is one of another pair already.

    Examples
    --------
    >>> import rounddiag as rd
    >>> batch = rd.load("sample_data/image_window.parquet")
    >>> pair_of(select_scores(batch, "rollout", "old"))
    Pair(a='rollout', b='old')
    """
    require_batch(batch)
    asked, known = Pair(a, b), pair_of(batch)
    if asked.is_standard or asked == known:
        return batch
    if not known.is_standard:
        raise BatchError.build(
            expected="a batch of the pair 'old', 'rollout', to choose `a` and `b`",
            found=f"one of the pair {known.a!r}, {known.b!r}",
            advice="Choose them of the batch that it was made from.",
        )
    return replace(
        batch,
        old_log_probs=batch.log_probs(a),
        rollout_log_probs=batch.log_probs(b),
        meta={**_without_standard(batch), _KEY: [a, b]},
    )


def pair_of(data: Batch | pd.DataFrame) -> Pair:
    """Return the scores that a batch, or a frame made of one, compares.

    Examples
    --------
    >>> import pandas as pd
    >>> pair_of(pd.DataFrame({"diff": [0.5]}))
    Pair(a='old', b='rollout')
    """
    entry = (data.meta if isinstance(data, Batch) else data.attrs).get(_KEY)
    match entry:
        case [str(a), str(b)]:
            return Pair(a, b)
        case _:
            return Pair()


def check_pair(frame: pd.DataFrame, a: str, b: str) -> None:
    """Raise a FrameError where a frame was made for another pair than this one.

    Every frame is taken for the standard pair, as nobody asked for another.
    """
    asked, known = Pair(a, b), pair_of(frame)
    if not asked.is_standard and asked != known:
        raise FrameError.build(
            expected="a Batch, to choose `a` and `b`",
            found=f"a frame of the pair {known.a!r}, {known.b!r}",
            advice="Choose them in `rounddiag.token_frame(batch, a=..., b=...)`.",
        )


def tag_pair(frame: pd.DataFrame, source: Batch | pd.DataFrame) -> pd.DataFrame:
    """Note on a frame the pair of its source, where it is not the standard one."""
    return tag_as(frame, pair_of(source))


def tag_as(frame: pd.DataFrame, pair: Pair) -> pd.DataFrame:
    """Note a pair on a frame, where it is not the standard one."""
    if not pair.is_standard:
        frame.attrs[_KEY] = [pair.a, pair.b]
    return frame


def _without_standard(batch: Batch) -> dict[str, Any]:
    found = {name: v for name, v in batch.meta.items() if name not in _OF_STANDARD}
    facts = found.get("capture")
    if isinstance(facts, dict) and "rounds" in facts:
        found["capture"] = {**facts, "rounds": []}
    return found
