"""Contexts of messages: what entered each, as turns, and its place in their pieces.

A context of texts is compared message by message. A message or picture that the context
before has is not written again: the context refers to its pieces. A picture is one
piece, which is empty and stands after the text of its turn.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from rounddiag._typing import Array
from rounddiag.batch.messages import new_in
from rounddiag.batch.sequence_difference import appends, ranges_of
from rounddiag.batch.step_table import Said
from rounddiag.batch.turns import GENERATED, split_text
from rounddiag.text.json_text import JsonError, parse_json
from rounddiag.vision import Screenshot
from rounddiag.wording import encodable

_CALL = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)
_NUMBER = re.compile(r"\b\d[\d.eE+-]*")
_HISTORY = "history"  # the role of a reply that is in a context and in no row


@dataclass
class _Turn:
    """A turn of a trajectory.

    Attributes
    ----------
    at: Its first piece.
    shots: Its pictures.
    round: The first round that is written after it.
    """

    role: str
    text: str
    at: int
    shots: list[Screenshot]
    round: int

    @property
    def pieces(self) -> list[str]:
        return split_text(self.text)


class _Placed(NamedTuple):
    """A message of a context, and where it stands.

    Attributes
    ----------
    text: The pieces of its text.
    pictures: The hash and the piece of each picture.
    others: The same of pictures that are in no message and were shown with it.
    """

    said: Said
    text: range
    pictures: tuple[tuple[bytes, int], ...] = ()
    others: tuple[tuple[bytes, int], ...] = ()

    @property
    def places(self) -> list[int]:
        """All its pieces, in order."""
        shown = (*self.pictures, *self.others)
        return [*self.text, *(piece for _, piece in shown)]


class TextTrajectory:
    """The turns of a trajectory whose contexts are messages.

    Attributes
    ----------
    rewritten: Of each context that does not append to the one before: its round, the
        piece at which what entered it begins, and its pieces.
    rewritten_calls: Tool calls with other arguments in a later context: the round that
        wrote each, its text, and that of the context.

    Examples
    --------
    >>> trajectory = TextTrajectory()
    >>> trajectory.read([Said("user", "Go.")], [])
    >>> trajectory.write(Said("assistant", "stop()"))
    >>> trajectory.read([Said("user", "You stopped.")], [])
    >>> trajectory.rewritten
    [(1, 4, array([4, 5, 6]))]
    """

    def __init__(self) -> None:
        self.rewritten: list[tuple[int, int, Array]] = []
        self.rewritten_calls: list[tuple[int, str, str]] = []
        self._turns: list[_Turn] = []
        self._size = 0  # in pieces
        self._num_prompt = 0
        self._round = 0
        self._before: list[_Placed] = []  # the context before, and what was written

    def read(self, said: Sequence[Said], pictures: Sequence[Screenshot]) -> None:
        """Add what entered the context of the next round.

        Parameters
        ----------
        said : sequence of Said
            The messages of the context.
        pictures : sequence of Screenshot
            Its pictures that are in no message. Where the messages append to those
            before, the pictures before stay.
        """
        replies = [message.text for message in said if message.role == GENERATED]
        if self._before and replies:
            pairs = _rewritten_calls(self._before[-1].said.text, replies[-1])
            self.rewritten_calls += [(self._round - 1, *pair) for pair in pairs]
        start, first_turn = self._size, len(self._turns)
        before = [piece for message in self._before for piece in message.places]
        context = self._go_on(said) or self._match(said, pictures)
        others = self._others()
        new = [shot for shot in pictures if shot.digest() not in others]
        if new:
            if len(self._turns) == first_turn:
                context.append(self._enter(Said("user", ""), ()))
            context[-1] = self._show_beside(context[-1], new)
        index = [piece for message in context for piece in message.places]
        if self._round and index != [*before, *range(start, self._size)]:
            self.rewritten.append((self._round, start, np.array(index)))
        self._before = context

    def write(self, said: Said) -> None:
        """Add what the model wrote."""
        if not self._round:
            self._num_prompt = self._size
        self._round += 1
        placed = self._enter(said, (), GENERATED)
        if said.shots:
            shown = self._enter(said._replace(text=""), range(len(said.shots)))
            placed = placed._replace(pictures=shown.pictures)
        self._before.append(placed)

    def turns(self, *, with_pieces: bool) -> list[tuple[Any, ...]]:
        """Return the turns for `Batch.from_turns`.

        Parameters
        ----------
        with_pieces : bool
            Whether a picture has a piece of its own.
        """
        if not with_pieces:
            return [(turn.role, turn.text, turn.shots) for turn in self._turns]
        return [
            (
                turn.role,
                turn.text,
                self._placed(turn),
                [*turn.pieces, *[""] * len(turn.shots)],
            )
            for turn in self._turns
        ]

    def contexts(self, sample: int) -> list[tuple[int, int, int, Array]]:
        """Return the rewritten contexts for `Contexts.build`."""
        return [
            (
                sample,
                round_,
                start - self._num_prompt,
                ranges_of(index) - self._num_prompt,
            )
            for round_, start, index in self.rewritten
        ]

    def _placed(self, turn: _Turn) -> list[Screenshot]:
        first = turn.at + len(turn.pieces) - self._num_prompt
        return [
            replace(shot, position=first + number, round=turn.round)
            for number, shot in enumerate(turn.shots)
        ]

    def _go_on(self, said: Sequence[Said]) -> list[_Placed] | None:
        """Return the context of one text that goes on from all that was written."""
        if not self._before or len(said) != 1:
            return None
        (message,) = said
        known = [digest for placed in self._before for digest, _ in placed.pictures]
        written = "".join(placed.said.text for placed in self._before)
        if not message.text.startswith(written) or not appends(known, message.digests):
            return None
        new = range(len(known), len(message.digests))
        rest = message._replace(text=message.text[len(written) :])
        entered = [self._enter(rest, new)] if rest.text or new else []
        return [*self._before, *entered]

    def _match(
        self, said: Sequence[Said], others: Sequence[Screenshot]
    ) -> list[_Placed]:
        """Return the context; messages and pictures that are known are not entered."""
        keys = [message.said.key for message in self._before]
        prompt = [message.key for message in said]
        entered, differs = new_in(keys, prompt) if keys else ([*range(len(said))], True)
        pairs = zip(said, self._before, strict=False)
        is_append = not differs and all(
            message.digests == tuple(digest for digest, _ in before.pictures)
            for message, before in pairs
        )
        places = _places(keys, prompt, {*entered}) if differs else [*range(len(keys))]
        places += [None] * (len(prompt) - len(places))
        known = {} if is_append else self._pictures()
        context = []
        for message, place in zip(said, places, strict=True):
            if place is None:
                context.append(self._enter_new(message, known))
            elif is_append:
                context.append(self._before[place])
            else:
                context.append(self._show_again(message, self._before[place], known))
        return context if is_append else self._with_others(context, others)

    def _with_others(
        self, context: Sequence[_Placed], others: Sequence[Screenshot]
    ) -> list[_Placed]:
        """Show, after all messages, the known ones of pictures that are in none."""
        known = self._others()
        shown = [(shot.digest(), known.get(shot.digest())) for shot in others]
        own = tuple((digest, piece) for digest, piece in shown if piece is not None)
        *first, last = [message._replace(others=()) for message in context] or [
            self._enter(Said("user", ""), ())
        ]
        return [*first, last._replace(others=own)]

    def _pictures(self) -> dict[bytes, int]:
        """Return the pieces of the pictures of the messages before, by their hash."""
        return dict(picture for message in self._before for picture in message.pictures)

    def _others(self) -> dict[bytes, int]:
        """Return the same of the pictures before that are in no message."""
        return dict(other for message in self._before for other in message.others)

    def _enter_new(self, message: Said, known: Mapping[bytes, int]) -> _Placed:
        new = [i for i, digest in enumerate(message.digests) if digest not in known]
        placed = self._enter(message, new)
        return placed._replace(
            pictures=_in_order(message.digests, known, new, placed.pictures)
        )

    def _show_again(
        self, message: Said, before: _Placed, known: Mapping[bytes, int]
    ) -> _Placed:
        """Return a message whose text is known; its pictures may be others."""
        known = {**known, **dict(before.pictures)}
        new = [i for i, digest in enumerate(message.digests) if digest not in known]
        fresh = self._enter(message._replace(text=""), new).pictures if new else ()
        return before._replace(pictures=_in_order(message.digests, known, new, fresh))

    def _enter(self, said: Said, new: Sequence[int], role: str = "") -> _Placed:
        # Turns of `assistant` are rounds, so that replies in a context have another.
        role = role or (_HISTORY if said.role == GENERATED else said.role)
        shots = [said.shots[i] for i in new]
        turn = _Turn(role, encodable(said.text), self._size, shots, self._round)
        self._turns.append(turn)
        first = self._size + len(turn.pieces)
        text = range(self._size, first)
        self._size = first + len(new)
        digests = [said.digests[i] for i in new]
        pictures = zip(digests, range(first, self._size), strict=True)
        return _Placed(said, text, tuple(pictures))

    def _show_beside(self, message: _Placed, shots: Sequence[Screenshot]) -> _Placed:
        """Add pictures that are in no message to the last turn."""
        self._turns[-1].shots += shots
        pieces = range(self._size, self._size + len(shots))
        self._size = pieces.stop
        others = zip((shot.digest() for shot in shots), pieces, strict=True)
        return message._replace(others=(*message.others, *others))


def _rewritten_calls(written: str, read: str) -> list[tuple[str, str]]:
    """Return the calls of a reply that have other arguments as history.

    vLLM 0.32 parses the arguments of earlier calls, in the prompt and in the caller's
    list: 1.50 becomes 1.5, and what is no JSON object becomes `{}`.
    """
    own, others = (
        [call.strip() for call in _CALL.findall(text)] for text in (written, read)
    )
    pairs = zip(own, others, strict=True) if len(own) == len(others) else ()
    return [pair for pair in pairs if _is_rewritten(*pair)]


def _is_rewritten(written: str, read: str) -> bool:
    try:
        wrote, reads = (
            parse_json(text, dict).get("arguments") for text in (written, read)
        )
    except JsonError:
        return False
    if not isinstance(wrote, dict):
        return reads == {}
    numbers = {tuple(sorted(_NUMBER.findall(text))) for text in (written, read)}
    return wrote == reads and len(numbers) > 1


def _in_order(
    digests: Sequence[bytes],
    known: Mapping[bytes, int],
    new: Sequence[int],
    fresh: Sequence[tuple[bytes, int]],
) -> tuple[tuple[bytes, int], ...]:
    """Return the pictures of a message in its order: known ones, and those entered."""
    entered = dict(zip(new, fresh, strict=True))
    return tuple(
        entered[number] if number in entered else (digest, known[digest])
        for number, digest in enumerate(digests)
    )


def _places(
    known: Sequence[tuple[str, str]],
    prompt: Sequence[tuple[str, str]],
    entered: set[int],
) -> list[int | None]:
    """Return which known message each message of a prompt is; None if it entered.

    Equal messages are taken in their order; one more than are known enters as well.

    Examples
    --------
    >>> go, done, stop = (("user", text) for text in ("Go.", "Done.", "Stop."))
    >>> _places([go, done, done], [done, done, stop, go, go], {2})
    [1, 2, None, 0, None]
    """
    unused: dict[tuple[str, str], list[int]] = {}
    for number, message in enumerate(known):
        unused.setdefault(message, []).append(number)
    places: list[int | None] = []
    last = -1
    for number, message in enumerate(prompt):
        left = unused.get(message, []) if number not in entered else []
        if not left:
            places.append(None)
            continue
        later = bisect_right(left, last)
        last = left.pop(later if later < len(left) else 0)
        places.append(last)
    return places
