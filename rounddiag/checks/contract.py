"""A contract of a batch, and what a check of it can come to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rounddiag.checks.report import Check
from rounddiag.checks.words import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from rounddiag.batch import Batch

# A file that is odd in a new way, with numbers of a kind that torch cannot compare say,
# has to open all the same.
_UNFORESEEN = (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError)


class UntestableError(Exception):
    """A batch lacks what a contract is about.

    Parameters
    ----------
    field : str
        The field that would be needed.
    why : str, optional
        Where more is to be said than that it is missing.
    """

    def __init__(self, *, field: str, why: str = "") -> None:
        super().__init__(why or f"needs `{field}`")
        self.field = field


@dataclass(frozen=True)
class Fault:
    """How a batch breaks a contract: in words, and in which samples."""

    detail: str
    samples: tuple[int, ...] = ()


@dataclass(frozen=True)
class Contract:
    """Something that holds for every sound batch.

    Attributes
    ----------
    name : str
        What must hold, in words.
    field : str
        The field that is looked at.
    find : callable
        Gives what breaks it, or None; raises UntestableError.
    """

    name: str
    field: str
    find: Callable[[Batch], Fault | None]

    def check(self, batch: Batch) -> Check:
        """Say whether it holds for a batch."""
        try:
            fault = self.find(batch)
        except UntestableError as why:
            return self._untestable(str(why), why.field)
        except _UNFORESEEN as error:
            what = f"{type(error).__name__}: {error!s:.80}"
            return self._untestable(f"the check itself fails: {what}", self.field)
        return Check(
            name=self.name,
            status="failed" if fault else "passed",
            detail=printable(fault.detail) if fault else "",
            field=self.field,
            samples=fault.samples if fault else (),
        )

    def _untestable(self, why: str, field: str) -> Check:
        detail = printable(why)
        return Check(name=self.name, status="not testable", detail=detail, field=field)


def joined(faults: Iterable[Fault | None]) -> Fault | None:
    """Make one fault of those that there are, if any."""
    found = [fault for fault in faults if fault is not None]
    if not found:
        return None
    samples = sorted({sample for fault in found for sample in fault.samples})
    return Fault("; ".join(fault.detail for fault in found), tuple(samples))
