"""What checks found: one entry a contract, and the table of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import field as entry
from typing import TYPE_CHECKING, Literal, TypeAlias, overload

from rounddiag.batch.html import table

if TYPE_CHECKING:
    import pandas as pd

Status: TypeAlias = Literal["passed", "failed", "not testable"]
# The order in which they are shown, and a sign that needs no colour.
_SIGNS: dict[Status, str] = {
    "failed": "\N{BALLOT X}",
    "passed": "\N{CHECK MARK}",
    "not testable": "\N{EN DASH}",
}


@dataclass(frozen=True, kw_only=True)
class Check:
    """What came of one contract.

    Attributes
    ----------
    name : str
        What must hold, in words.
    status : {"passed", "failed", "not testable"}
    detail : str
        How many places break it and where the first are; or what is missing. Empty
        where it holds. One line, and safe to print; not to show as HTML.
    field : str
        The field that was looked at; of a contract that is not testable, the one that
        would be needed.
    samples : tuple of int
        The samples that break it; empty where it is about the whole batch.
    """

    name: str
    status: Status
    detail: str = ""
    field: str
    samples: tuple[int, ...] = entry(default=(), repr=False)


@dataclass(frozen=True, repr=False)
class Checks(Sequence[Check]):
    """The checks of one batch, in a fixed order.

    Attributes
    ----------
    checks : tuple of Check

    Examples
    --------
    >>> Checks((Check(name="no row is there twice", status="passed", field="rows"),))
    Checks(failed=0, passed=1, not_testable=0)
    passed: no row is there twice
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
        return self._with("failed")

    @property
    def passed(self) -> tuple[Check, ...]:
        """The contracts that hold."""
        return self._with("passed")

    @property
    def not_testable(self) -> tuple[Check, ...]:
        """The contracts for which the batch lacks a field."""
        return self._with("not testable")

    def as_frame(self) -> pd.DataFrame:
        """Return one row a contract: `name, status, detail, field, samples`."""
        import pandas as pd

        names = list(Check.__dataclass_fields__)
        columns = {name: [getattr(one, name) for one in self] for name in names}
        return pd.DataFrame(columns)

    def as_plain(self) -> list[dict[str, str]]:
        """Return `name`, `status` and `detail` of each, for `Batch.meta["checks"]`."""
        return [
            {"name": one.name, "status": one.status, "detail": one.detail}
            for one in self
        ]

    def _with(self, status: Status) -> tuple[Check, ...]:
        return tuple(one for one in self if one.status == status)

    def _failed_first(self) -> list[Check]:
        return [one for status in _SIGNS for one in self._with(status)]

    def __repr__(self) -> str:
        num = Counter(one.status for one in self)
        counts = [f"{status.replace(' ', '_')}={num[status]}" for status in _SIGNS]
        lines = [f"Checks({', '.join(counts)})"]
        for one in self._failed_first():
            detail = f": {one.detail}" if one.detail else ""
            lines.append(f"{one.status}: {one.name}{detail}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return table(
            (f"{_SIGNS[one.status]} {one.status}", one.name, one.detail)
            for one in self._failed_first()
        )
