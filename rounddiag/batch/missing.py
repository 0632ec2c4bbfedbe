"""What a batch lacks, in one sentence: the same wherever it is needed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rounddiag.errors import MissingError

if TYPE_CHECKING:
    from rounddiag.batch.batch import Batch

_ENGINES = {"old": "training engine", "rollout": "sampler"}


_FIELDS = {"ids": "response_ids", "text": "response_ids"}


def missing_error(batch: Batch, *fields: str) -> MissingError:
    """Return the error of the first of some things that a batch lacks."""
    missing = next(field for field in fields if lacks(batch, field))
    engine = f"{missing}_log_probs" if missing in _ENGINES else missing
    return MissingError(lacks(batch, missing) or "", _FIELDS.get(missing, engine))


def lacks(batch: Batch, *fields: str) -> str | None:
    """Return why a batch lacks the first of some things that it lacks."""
    return next((why for field in fields if (why := _why(batch, field))), None)


def _why(batch: Batch, field: str) -> str | None:
    has_ids, has_pieces = batch.response_ids is not None, batch.pieces is not None
    if field in ("ids", "text"):
        is_there = has_ids or (field == "text" and has_pieces)
        return None if is_there else _no_ids(batch)
    if field == "tokenizer":
        why = "This batch has no tokenizer: pass `tokenizer=` to `rd.load`."
        return None if has_pieces or batch.tokenizer is not None else why
    if field in _ENGINES:
        is_there = getattr(batch, f"{field}_log_probs") is not None
        return None if is_there else _no_log_probs(batch)
    is_there = field in batch.scores or getattr(batch, field, None) is not None
    return None if is_there else f"This batch has no `{field}`."


def _no_ids(batch: Batch) -> str:
    if batch.is_redacted:
        return (
            "This batch was saved with `redact=True`, which leaves out token ids and"
            " text: load the original file."
        )
    if batch.pieces is None:
        return "This batch has no token ids: save those that the engine had."
    return (
        "This batch has text without token ids: save the ids that the engine had,"
        " since text cannot be turned back into them."
    )


def _no_log_probs(batch: Batch) -> str:
    known = [
        engine
        for name, engine in _ENGINES.items()
        if getattr(batch, f"{name}_log_probs") is not None
    ]
    has = f"the {known[0]}'s log-probs only" if known else "no log-probs"
    if batch.response_ids is None:
        return f"This batch has {has}: save both engines' with the token ids."
    adds = "the second" if known else "one engine's"
    return f"This batch has {has}: `rd.rescore(batch, MODEL)` adds {adds}."
