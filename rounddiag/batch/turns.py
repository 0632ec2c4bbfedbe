"""Turns: what each role said, and the positions and pieces of a batch without ids."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from rounddiag.errors import BatchError
from rounddiag.vision import Screenshot
from rounddiag.wording import encodable

if TYPE_CHECKING:
    from rounddiag.batch.batch import Batch

GENERATED = "assistant"  # the role whose turns are rounds
# How GPT-2 splits text before its merges: words, numbers and signs with one space.
_PIECE = re.compile(r" ?[^\W\d_]+| ?\d+| ?(?:[^\w\s]|_)+|\s+(?!\S)|\s+")


class Turn(NamedTuple):
    """What one role said before another role went on.

    Attributes
    ----------
    role: Such as `system`, `user`, `tool`; the rounds are the turns of `assistant`.
    text: All of it, without the marks of a chat template.
    num_images: How many of the sample's screenshots it has.
    """

    role: str
    text: str
    num_images: int = 0


Turns: TypeAlias = tuple[tuple[Turn, ...], ...]  # of each sample


def split_text(text: str) -> list[str]:
    """Split a text into pieces; joined, they are the text. An empty text is one piece.

    Examples
    --------
    >>> split_text("click(100, 20)")
    ['click', '(', '100', ',', ' 20', ')']
    """
    return _PIECE.findall(text) or [text]


def as_turns(
    samples: Iterable[Iterable[Sequence[Any]]],
) -> tuple[tuple[Turn, ...], ...]:
    """Return turns of samples that are given as plain tuples.

    Examples
    --------
    >>> as_turns([[("user", "Go.")]])
    ((Turn(role='user', text='Go.', num_images=0),),)
    """
    return tuple(
        tuple(
            Turn(encodable(role), encodable(text), *num_images)
            for role, text, *num_images in turns
        )
        for turns in samples
    )


def from_turns(
    cls: type[Batch],
    /,
    samples: Iterable[Iterable[Sequence[Any]]],
    **others: Any,  # noqa: ANN401 the fields have many types
) -> Batch:
    """Build a batch from what each role said, without token ids.

    A loader of trajectories ends here: it makes the turns, and passes by keyword
    what else it knows. The turns before the first of `assistant` are the prompt;
    each turn of `assistant` is a round, numbered from 0, so that row `i` of
    `round_columns` belongs to the i-th such turn. Each position is a piece of text;
    joined, the pieces are the text.

    Parameters
    ----------
    samples : one iterable of turns per sample
        A turn is `(role, text)`, `(role, text, images)`, or `(role, text, images,
        tokens, log_probs)`: its screenshots, and where the sampler returned them
        the texts of its tokens, which joined are `text`, and their log-probs. A
        screenshot without a round and a position gets those of its turn.
    **others
        Fields per sample and for the batch, such as `rewards`, `group_ids`,
        `sample_ids`, `sample_columns`, `round_columns` and `meta`.

    Returns
    -------
    Batch
        With `turns`, `pieces`, `images` and, if there were any,
        `rollout_log_probs`. With ids, use `from_rows(turns=...)` instead, with
        each turn as `(role, text, num_images)`.

    Examples
    --------
    >>> import rounddiag as rd
    >>> batch = rd.Batch.from_turns(
    ...     [[("user", "Open the menu."), ("assistant", "click(3, 4)")]],
    ...     rewards=[1.0],
    ... )
    >>> batch
    Batch(num_samples=1, num_rounds=1, num_tokens=6)
    >>> batch.lacks("old", "rollout")
    "This batch has no log-probs: save both engines' with the token ids."
    """
    return cls.from_rows(**{**_fields_of_turns(samples), **others})


def _fields_of_turns(samples: Iterable[Iterable[Sequence[Any]]]) -> dict[str, Any]:
    rows = [_sample_fields(number, turns) for number, turns in enumerate(samples)]
    fields: dict[str, Any] = {name: [row[name] for row in rows] for name in _ROWS}
    has_images = any(map(len, fields["images"]))
    fields["images"] = tuple(map(tuple, fields["images"])) if has_images else None
    if not any(_touches(row) for row in rows):
        fields["round_ids"] = None  # the mask alone separates the rounds
    if all(np.isnan(row).all() for row in fields["rollout_log_probs"]):
        fields["rollout_log_probs"] = None
    return fields


_ROWS = (
    *("turns", "images", "response_mask", "pieces", "round_ids"),
    "rollout_log_probs",
)


def _sample_fields(number: int, turns: Iterable[Sequence[Any]]) -> dict[str, Any]:
    known, images, sizes, ends = [], [], [], [0]
    log_probs: list[float] = []
    num_rounds = 0
    has_begun = False
    for turn in turns:
        role, text, shots, tokens, scores = _parts(number, turn)
        position = None if not has_begun else len(ends) - 1
        images += [_placed(shot, num_rounds, position) for shot in shots]
        known.append(Turn(role, text, len(shots)))
        is_round = role == GENERATED
        has_begun |= is_round
        if not has_begun:
            continue
        pieces = tokens or split_text(text)
        num_rounds += is_round
        sizes.append((num_rounds if is_round else 0, len(pieces)))
        ends += [ends[-1] + end for end in accumulate(map(len, pieces))]
        log_probs += scores or [np.nan] * len(pieces)
    marks = np.repeat(*np.array(sizes, dtype=np.int64).reshape(-1, 2).T)
    return {
        "turns": known,
        "images": [
            replace(shot, round=None) if shot.round == num_rounds else shot
            for shot in images  # none follows the last
        ],
        "response_mask": (marks > 0).astype(np.uint8),
        "pieces": np.array(ends[1:], dtype=np.int32),
        "round_ids": np.maximum.accumulate(marks).astype(np.int32),
        "rollout_log_probs": np.array(log_probs, dtype=np.float32),
    }


def _parts(
    number: int, turn: Sequence[Any]
) -> tuple[str, str, Sequence[Screenshot], list[str], list[float]]:
    role, text, shots, given, scores, *_ = (*turn, (), (), ())
    text, tokens = encodable(text), [*map(encodable, given)]
    log_probs = [*map(float, scores)]
    if tokens and "".join(tokens) != text:
        raise _turn_error(number, f"the text {text!r:.40}", f"{''.join(tokens)!r:.40}")
    if log_probs and len(log_probs) != len(tokens):
        raise _turn_error(number, f"{len(tokens)} log-probs", str(len(log_probs)))
    return encodable(role), text, shots, tokens, log_probs


def _turn_error(sample: int, expected: str, given: str) -> BatchError:
    return BatchError.build(
        key="turns",
        expected=f"tokens of a turn of sample {sample} that have {expected}",
        found=given,
        advice="Give the tokens of the whole turn, or its text alone.",
    )


def _placed(shot: Screenshot, round_: int, position: int | None) -> Screenshot:
    """Place a screenshot before the next round, unless its own place is known."""
    if shot.round is not None or shot.position is not None:
        return shot
    return replace(shot, round=round_, position=position)


def _touches(row: dict[str, Any]) -> bool:
    """Return whether two rounds follow each other without an observation."""
    changes = np.diff(row["round_ids"]) != 0
    mask = row["response_mask"]
    return bool((changes & (mask[1:] == 1) & (mask[:-1] == 1)).any())


def prompt_pieces(batch: Batch, sample: int) -> list[str]:
    """Return the pieces of text of a sample's prompt, of a batch with turns.

    Where contexts were rewritten, a picture is an empty piece after the text of its
    turn.

    Examples
    --------
    >>> import rounddiag as rd
    >>> turns = [("user", "Go on."), ("assistant", "click(1, 2)")]
    >>> prompt_pieces(rd.Batch.from_turns([turns]), 0)
    ['Go', ' on', '.']
    """
    turns = (batch.turns or ((),) * len(batch))[sample]
    prompt = turns[: len(turns) - len(response_turns(turns))]
    has_pictures = batch.contexts is not None
    return [
        piece
        for turn in prompt
        for piece in (
            *split_text(turn.text),
            *([""] * turn.num_images if has_pictures else ()),
        )
    ]


def response_turns(turns: Sequence[Turn]) -> Sequence[Turn]:
    """Return the turns from the first that the model wrote.

    Examples
    --------
    >>> response_turns([Turn("user", "Go."), Turn("assistant", "click(1, 2)")])
    [Turn(role='assistant', text='click(1, 2)', num_images=0)]
    """
    roles = [turn.role for turn in turns]
    return turns[roles.index(GENERATED) if GENERATED in roles else len(roles) :]


def piece_texts(batch: Batch, sample: int) -> list[str]:
    """Return the piece of text of every position of a sample of a batch with pieces.

    Examples
    --------
    >>> import rounddiag as rd
    >>> turns = [("user", "Go."), ("assistant", "click(1, 2)"), ("tool", "done")]
    >>> piece_texts(rd.Batch.from_turns([turns]), 0)
    ['click', '(', '1', ',', ' 2', ')', 'done']
    """
    assert batch.turns is not None  # noqa: S101 pieces come with them
    assert batch.pieces is not None  # noqa: S101
    text = "".join(turn.text for turn in response_turns(batch.turns[sample]))
    begin = int(batch.offsets[sample])
    ends = batch.pieces[begin : begin + int(batch.lengths[sample])].tolist()
    return [text[start:stop] for start, stop in pairwise([0, *ends])]
