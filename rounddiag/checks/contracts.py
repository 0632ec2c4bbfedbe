"""Contracts of a batch, the results of checking them, and places in messages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from dataclasses import field as entry
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias, overload

import torch
from torch import Tensor

from rounddiag._typing import Array
from rounddiag.batch import Batch
from rounddiag.batch.html import table
from rounddiag.errors import MissingError
from rounddiag.wording import join_names, pluralize, printable

if TYPE_CHECKING:
    import pandas as pd


Status: TypeAlias = Literal["passed", "failed", "not testable"]
_Kind: TypeAlias = Literal["bug", "update", "note"]
# In display order, each with a sign, since colour alone is not enough.
_SIGNS: dict[Status, str] = {
    "failed": "\N{BALLOT X}",
    "passed": "\N{CHECK MARK}",
    "not testable": "\N{EN DASH}",
}


@dataclass(frozen=True, kw_only=True)
class Check:
    """The result of one contract.

    Attributes
    ----------
    name: What must hold, in words.
    detail: How many places break it and the first few of them, or what is missing;
        empty if it holds. One line and safe to print, but not escaped for HTML.
    field: The field that was checked, or the one that is missing.
    samples: The samples that break it; empty if it concerns the whole batch.
    effect: What a failure does to training or to the numbers, as a clause.
    kind: What a failure means: a bug in the log-probs, the ids or the mask; log-probs
        that are sound and an update that is not; or something worth knowing.
    cause: The cause that a failure shows, a name of `rounddiag.findings.CAUSES`, or
        empty.
    refutes: The cause that it rules out where it holds, or empty.
    advice: What to do about a failure.
    tokens: The tokens that break it, as indices of the flat fields, where they are
        known.
    is_missing: Whether it is not testable because the batch lacks the field, and not
        because of what the field holds.
    is_exact: Whether some of the tokens break it by one exact value.
    """

    name: str
    status: Status
    detail: str = ""
    field: str
    samples: tuple[int, ...] = entry(default=(), repr=False)
    effect: str = entry(default="", repr=False)
    kind: _Kind = entry(default="note", repr=False)
    cause: str = entry(default="", repr=False)
    refutes: str = entry(default="", repr=False)
    advice: str = entry(default="", repr=False)
    tokens: Array | None = entry(default=None, repr=False, compare=False)
    is_missing: bool = entry(default=False, repr=False)
    is_exact: bool = entry(default=False, repr=False)


@dataclass(frozen=True, repr=False)
class Checks(Sequence[Check]):
    """The checks of one batch, in a fixed order.

    Examples
    --------
    >>> Checks((Check(name="no duplicate rows", status="passed", field="rows"),))
    Checks(failed=0, passed=1, not_testable=0)
    passed: no duplicate rows
    """

    checks: tuple[Check, ...]

    @overload
    def __getitem__(self, index: int) -> Check: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Check, ...]: ...
    def __getitem__(self, index: int | slice) -> Check | tuple[Check, ...]:
        return self.checks[index]

    def __len__(self) -> int:
        return len(self.checks)

    @property
    def failed(self) -> tuple[Check, ...]:
        """The contracts that the batch breaks."""
        return self._with_status("failed")

    @property
    def passed(self) -> tuple[Check, ...]:
        """The contracts that hold."""
        return self._with_status("passed")

    @property
    def not_testable(self) -> tuple[Check, ...]:
        """The contracts for which a field is missing, or says nothing."""
        return self._with_status("not testable")

    @property
    def refuted(self) -> frozenset[str]:
        """The causes that this batch cannot have."""
        return frozenset(result.refutes for result in self.passed) - {""}

    def as_frame(self) -> pd.DataFrame:
        """Return one row per contract, with most fields of `Check`."""
        import pandas as pd

        names = ["name", "status", "kind", "cause", "detail", "field", "samples"]
        columns = {name: [getattr(result, name) for result in self] for name in names}
        return pd.DataFrame(columns)

    def _with_status(self, status: Status) -> tuple[Check, ...]:
        return tuple(result for result in self if result.status == status)

    def _failed_first(self) -> list[Check]:
        return [result for status in _SIGNS for result in self._with_status(status)]

    def __repr__(self) -> str:
        num = Counter(result.status for result in self)
        counts = [f"{status.replace(' ', '_')}={num[status]}" for status in _SIGNS]
        lines = [f"Checks({', '.join(counts)})"]
        for result in self._failed_first():
            detail = f": {result.detail}" if result.detail else ""
            lines.append(f"{result.status}: {result.name}{detail}")
        return "\n".join(map(printable, lines))

    def _repr_html_(self) -> str:
        return table(
            (f"{_SIGNS[result.status]} {result.status}", result.name, result.detail)
            for result in self._failed_first()
        )


# A file must open even if a check fails in a new way, for example on numbers that torch
# cannot compare.
_UNFORESEEN = (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError)


class UntestableError(Exception):
    """A contract needs a field that the batch lacks, or that says nothing about it.

    Parameters
    ----------
    field : str
    needs : str, optional
        What is missing, if it is not the field as a whole.
    why : str, optional
        Why a field that is there does not do.
    """

    def __init__(self, *, field: str, needs: str = "", why: str = "") -> None:
        super().__init__(why or f"needs {needs or f'`{field}`'}")
        self.field = field
        self.is_missing = not why


@dataclass(frozen=True)
class Fault:
    """A violation of a contract: a description, the samples, and known tokens.

    `is_exact`: whether some of the tokens have one exact value that shows it.
    """

    detail: str
    samples: tuple[int, ...] = ()
    tokens: Tensor | None = entry(default=None, compare=False)
    is_exact: bool = False


@dataclass(frozen=True)
class Contract:
    """An invariant of every valid batch.

    Attributes
    ----------
    name: What must hold, in words.
    field: The field that is checked.
    find: Returns the fault, or None; raises UntestableError.
    effect, kind, cause, refutes, advice: As in `Check`.
    """

    name: str
    field: str
    find: Callable[[Batch], Fault | None]
    effect: str
    kind: _Kind = "note"
    cause: str = ""
    refutes: str = ""
    advice: str = ""

    def check(self, batch: Batch) -> Check:
        """Check whether it holds for a batch."""
        try:
            fault = self.find(batch)
        except UntestableError as why:
            return self._untestable(str(why), why.field, is_missing=why.is_missing)
        except MissingError as why:
            return self._untestable(str(why), why.field, is_missing=True)
        except _UNFORESEEN as error:
            reason = f"{type(error).__name__}: {error!s:.80}"
            text = f"the check itself fails: {reason}"
            return self._untestable(text, self.field, is_missing=False)
        if fault is None:
            return self._result("passed")
        tokens = None if fault.tokens is None else fault.tokens.cpu().numpy()
        detail = printable(fault.detail)
        return replace(
            self._result("failed", detail),
            samples=fault.samples,
            tokens=tokens,
            is_exact=fault.is_exact,
        )

    def _untestable(self, why: str, field: str, *, is_missing: bool) -> Check:
        result = self._result("not testable", printable(why))
        return replace(result, field=field, is_missing=is_missing)

    def _result(self, status: Status, detail: str = "") -> Check:
        shared = {name: getattr(self, name) for name in _SHARED}
        return Check(status=status, detail=detail, **shared)


_SHARED = [part.name for part in fields(Contract) if part.name != "find"]


def merge_faults(faults: Iterable[Fault | None]) -> Fault | None:
    """Merge faults into one; None if there are none."""
    present = [fault for fault in faults if fault is not None]
    if not present:
        return None
    samples = sorted({sample for fault in present for sample in fault.samples})
    known = [fault.tokens for fault in present if fault.tokens is not None]
    tokens = torch.cat(known).unique() if len(known) == len(present) else None
    detail = "; ".join(fault.detail for fault in present)
    is_exact = any(fault.is_exact for fault in present)
    return Fault(detail, tuple(samples), tokens, is_exact)


LEVEL = 1 / 200  # chance of a claim in a sound batch
_MAX_NAMED = 3  # places and samples in a sentence
# Positions per block: intermediate results stay in cache, and torch uses one thread,
# which is faster when other work occupies the cores.
_BLOCK = 1 << 15


class TokenPlace(NamedTuple):
    """One token; its round is the one it is in, or the last one before it."""

    sample: int
    round: int
    position: int

    def __str__(self) -> str:
        return f"sample {self.sample} round {self.round} position {self.position}"


def locate_token(batch: Batch, index: int) -> TokenPlace:
    """Return the place of the token with this index in the flat tensors."""
    sample = int(torch.searchsorted(batch.offsets, index, right=True)) - 1
    mine = batch.rounds.start[batch.rounds.sample == sample]
    number = max(int((mine <= index).sum()) - 1, 0)
    return TokenPlace(sample, number, index - int(batch.offsets[sample]))


def find_samples(batch: Batch, indices: Tensor) -> Tensor:
    """Return the sample of each index in the flat tensors."""
    return torch.searchsorted(batch.offsets, indices, right=True) - 1


def fault_at(
    batch: Batch, indices: Tensor, fault_text: str, *, is_exact: bool = False
) -> Fault | None:
    """Return the fault of the tokens that break a contract; None if there are none."""
    if len(indices) == 0:
        return None
    samples = find_samples(batch, indices).unique().tolist()
    listed = indices[: _MAX_NAMED + 1].tolist()
    first = [str(locate_token(batch, index)) for index in listed]
    places = join_names(first, len(indices), most=_MAX_NAMED)
    detail = (
        f"{pluralize(len(indices), 'token')} {fault_text}, in"
        f" {pluralize(len(samples), 'sample')}: {places}"
    )
    return Fault(detail, tuple(samples), indices, is_exact)


def fault_in(samples: Sequence[int], fault_text: str) -> Fault | None:
    """Return the fault of the samples that break a contract; None if there are none."""
    if not samples:
        return None
    first = join_names(samples, most=_MAX_NAMED)
    word = "sample" if len(samples) == 1 else "samples"
    return Fault(
        f"{pluralize(len(samples), 'sample')} {fault_text}: {word} {first}",
        tuple(samples),
    )


def require_tokens(batch: Batch) -> None:
    """Raise UntestableError if the batch has no generated token."""
    if len(batch.rounds) == 0:
        why = "the batch has no generated token"
        raise UntestableError(field="response_mask", why=why)


def generated_where(
    batch: Batch, condition: Callable[..., Tensor], *fields: Tensor
) -> Tensor:
    """Return the indices of the generated tokens for which a condition holds."""
    require_tokens(batch)
    indices = list(blocks_where(batch.response_mask, condition, *fields))
    return torch.cat(indices) if indices else batch.offsets.new_empty(0)


def blocks_where(
    mask: Tensor, condition: Callable[..., Tensor], *fields: Tensor
) -> Iterator[Tensor]:
    """Yield the indices where the mask is 1 and a condition holds, block by block."""
    size = _BLOCK if mask.device.type == "cpu" else max(len(mask), 1)
    for begin in range(0, len(mask), size):
        part = slice(begin, begin + size)
        flags = condition(*(values[part] for values in fields))
        if flags.any() and (flags := flags & (mask[part] != 0)).any():
            yield flags.nonzero()[:, 0] + begin
