"""The pair of scores that a batch or frame compares, and how to select another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from rounddiag.batch import Batch
from rounddiag.batch.batch import require_batch
from rounddiag.errors import BatchError, FrameError
from rounddiag.schema import LENGTH_UNIT, Pair

if TYPE_CHECKING:
    import pandas as pd


_KEY, _TOKEN = "pair", "token"
# Entries of `meta` that hold for the standard pair only.
_STANDARD_ONLY = ("checks", "not_measurable", "old_log_probs_source")


@runtime_checkable
class ScoredAgain(Protocol):
    """What was found by scoring a batch again: a `rounddiag.Proof`."""

    @property
    def batch(self) -> Batch:
        """The samples that were scored, with one more score for each."""

    @property
    def frame(self) -> pd.DataFrame:
        """A row per hypothesis and engine."""

    @property
    def noise_limit(self) -> float:
        """The largest residual that counts as noise, in multiples of the noise."""

    @property
    def pair(self) -> tuple[str, str]:
        """The scores to compare: the best hypothesis, and the engine."""


@runtime_checkable
class AskedModel(Protocol):
    """What a model answered about places of a batch: what `rounddiag.ask` returns."""

    @property
    def alternatives(self) -> pd.DataFrame:
        """A row per place and likely token, of `schema.ALTERNATIVES`."""

    @property
    def tiles(self) -> pd.DataFrame:
        """A row per tile of a picture, of `schema.TILES`."""

    @property
    def statements(self) -> Sequence[tuple[int, int, str]]:
        """What is said: sample, round and sentence."""

    def require_batch(self) -> Batch:
        """Return the batch; an error if it was not passed."""

    def fit(self, batch: Batch) -> AskedModel:
        """Return it with the numbers of a batch; an error if it is of another."""


def require_answer(value: object) -> AskedModel:
    """Return what `rounddiag.ask` has answered, or raise a FrameError."""
    if isinstance(value, AskedModel):
        return value
    raise FrameError.build(
        key="answer",
        expected="an Answer",
        found=f"a {type(value).__name__}",
        advice="Pass what `rounddiag.ask(batch, model)` returns.",
    )


def select_scores(batch: Batch, a: str, b: str) -> Batch:
    """Return a batch whose two log-probs are these scores."""
    require_batch(batch)
    wanted, known = Pair(a, b), pair_of(batch)
    if wanted.is_standard or wanted == known:
        return batch
    if not known.is_standard:
        raise BatchError.build(
            expected="a batch of the pair 'old', 'rollout', to choose `a` and `b`",
            found=f"one of the pair {known.a!r}, {known.b!r}",
            advice="Choose them of the batch that it was made from.",
        )
    meta = {name: v for name, v in batch.meta.items() if name not in _STANDARD_ONLY}
    meta[_KEY] = [a, b]
    old, rollout = batch.log_probs(a), batch.log_probs(b)
    return replace(batch, old_log_probs=old, rollout_log_probs=rollout, meta=meta)


def has_pair(batch: Batch) -> bool:
    """Return whether a batch has the log-probs of both engines."""
    return batch.old_log_probs is not None and batch.rollout_log_probs is not None


def pair_of(data: Batch | pd.DataFrame) -> Pair:
    """Return the scores that a batch, or a frame built from one, compares."""
    if isinstance(data, Batch):
        entry, token = data.meta.get(_KEY), data.token_noun
    else:
        entry, token = data.attrs.get(_KEY), data.attrs.get(_TOKEN, LENGTH_UNIT)
    match entry:
        case [str(a), str(b)]:
            return Pair(a, b, token)
        case _:
            return Pair(token=token)


def check_pair(frame: pd.DataFrame, a: str, b: str) -> None:
    """Raise a FrameError if a frame was built for another pair than this one.

    The standard pair, which is the default, accepts every frame.
    """
    wanted, known = Pair(a, b), pair_of(frame)
    if not wanted.is_standard and wanted != known:
        raise FrameError.build(
            expected="a Batch, to choose `a` and `b`",
            found=f"a frame of the pair {known.a!r}, {known.b!r}",
            advice="Choose them in `rounddiag.token_frame(batch, a=..., b=...)`.",
        )


def tag_pair(frame: pd.DataFrame, source: Batch | pd.DataFrame) -> pd.DataFrame:
    """Record the pair of the source in `attrs`, unless it is the standard one."""
    return tag_as(frame, pair_of(source))


def tag_as(frame: pd.DataFrame, pair: Pair) -> pd.DataFrame:
    """Record a pair in the `attrs` of a frame, where it is not the standard one."""
    if not pair.is_standard:
        frame.attrs[_KEY] = [pair.a, pair.b]
    if pair.token != LENGTH_UNIT:
        frame.attrs[_TOKEN] = pair.token
    return frame
