"""The address of a place, as people exchange it: `step 40 / task-08/1 / r3 / t17`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NoReturn

from rounddiag.batch.batch import Batch
from rounddiag.errors import BatchError
from rounddiag.wording import pluralize

_DIGITS = r"\d{1,18}"  # of a number that fits into 64 bits
_PARTS = re.compile(
    rf"(?:step (?P<step>{_DIGITS}) / )?(?P<sample>.+?)"
    rf"(?: / r(?P<round>{_DIGITS})(?: / t(?P<token>{_DIGITS}))?)?",
    re.DOTALL,
)
_NUMBER = re.compile(rf"(?:sample )?({_DIGITS})")


@dataclass(frozen=True, kw_only=True)
class Address:
    """A sample, a round of it, or a token of that round.

    Attributes
    ----------
    step: The training step, where it is known.
    sample: Its id; `sample 12` where it has none that is its own.
    round, token: As in a token frame; None for all of them.

    Examples
    --------
    >>> import rounddiag as rd
    >>> batch = rd.load("sample_data/image_window.parquet")
    >>> address = Address.of(batch, 33, 3, 7)
    >>> str(address)
    'step 1584 / task-08/1 / r3 / t7'
    >>> Address.parse(str(address)).locate(batch)
    (33, 3, 7)
    """

    sample: str
    round: int | None = None
    token: int | None = None
    step: int | None = None

    @classmethod
    def of(
        cls,
        batch: Batch,
        sample: int,
        round: int | None = None,  # noqa: A002 the word of the frames
        token: int | None = None,
    ) -> Address:
        """Return the address of a place in a batch."""
        ids = batch.sample_ids or ()
        is_own = sample < len(ids) and ids.count(ids[sample]) == 1
        name = ids[sample] if is_own else f"sample {sample}"
        return cls(sample=name, round=round, token=token, step=batch.step)

    @classmethod
    def parse(cls, text: object) -> Address:
        """Read what `str` wrote; a sample may be named by its number alone."""
        parts = _PARTS.fullmatch(text.strip()) if isinstance(text, str) else None
        if parts is None:
            raise BatchError.build(
                key="address",
                expected="a place such as `step 40 / task-08/1 / r3 / t17`",
                found=f"{text!r:.80}",
                advice="Step, round and token can be left out.",
            )
        numbers = {
            name: None if parts[name] is None else int(parts[name])
            for name in ("round", "token", "step")
        }
        return cls(sample=parts["sample"], **numbers)

    def __str__(self) -> str:
        step = [] if self.step is None else [f"step {self.step}"]
        places = [
            f"{letter}{number}"
            for letter, number in (("r", self.round), ("t", self.token))
            if number is not None
        ]
        return " / ".join([*step, self.sample, *places])

    def locate(self, batch: Batch) -> tuple[int, int | None, int | None]:
        """Return sample, round and token, as numbers that a batch has."""
        if None not in (self.step, batch.step) and self.step != batch.step:
            self._fail(f"step {batch.step}", f"step {self.step}")
        number = _NUMBER.fullmatch(self.sample)
        is_id = self.sample in (batch.sample_ids or ())
        sample = batch.sample_number(
            int(number[1]) if number and not is_id else self.sample
        )
        rounds = batch.rounds
        own = rounds.sample == sample
        sizes = dict(
            zip(
                rounds.round[own].tolist(), rounds.num_tokens[own].tolist(), strict=True
            )
        )
        if self.round is None:
            return sample, None, None
        if self.round not in sizes:
            last = max(sizes, default=-1)
            self._fail(f"a round of {self.sample}, up to {last}", f"r{self.round}")
        num = sizes[self.round]
        if self.token is not None and self.token >= num:
            self._fail(f"one of {pluralize(num, 'token')}, from t0", f"t{self.token}")
        return sample, self.round, self.token

    def _fail(self, expected: str, named: str) -> NoReturn:
        raise BatchError.build(
            key="address",
            expected=expected,
            found=named,
            advice=f"Correct `{self}`; `rounddiag.round_frame(batch)` lists places.",
        )
