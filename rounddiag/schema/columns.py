"""What a column and a table are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rounddiag.errors import FrameError

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, kw_only=True)
class Column:
    """What a column is called, holds, and means.

    Attributes
    ----------
    name : str
        Name in every frame.
    dtype : str
        Dtype of a frame built by this package.
    unit : str
        Unit of the values; empty where there is none.
    meaning : str
        One line for axes, hover texts and tables.
    """

    name: str
    dtype: str
    unit: str = ""
    meaning: str

    @property
    def label(self) -> str:
        """Meaning with its unit, for an axis.

        Examples
        --------
        >>> nat("diff", "old - rollout log-prob").label
        'old - rollout log-prob [nat]'
        """
        return f"{self.meaning} [{self.unit}]" if self.unit else self.meaning


@dataclass(frozen=True, kw_only=True)
class Table:
    """A kind of frame: one row per what, and the columns it may have.

    Attributes
    ----------
    one_row_per : str
        What a row stands for.
    built_by : str
        Name of the public function that builds it.
    keys : tuple of str
        Columns that together name a row.
    columns : tuple of Column
        In the order of a frame.
    """

    one_row_per: str
    built_by: str
    keys: tuple[str, ...]
    columns: tuple[Column, ...]

    def __getitem__(self, name: str) -> Column:
        return next(column for column in self.columns if column.name == name)

    def require(self, found: Iterable[str], *names: str) -> None:
        """Raise unless all `names` are among the columns that were found.

        Raises
        ------
        FrameError
            Naming what is missing and which function makes it.
        """
        present = [str(name) for name in found]
        missing = [name for name in names if name not in present]
        if missing:
            raise FrameError.build(
                expected=f"a frame with one row per {self.one_row_per} and the columns"
                f" {list(names)}",
                found=f"{present}, without {missing}",
                advice=f"Build it with `rounddiag.{self.built_by}(batch)`.",
            )


def nat(name: str, meaning: str, dtype: str = "float32") -> Column:
    """Describe a column in nats."""
    return Column(name=name, dtype=dtype, unit="nat", meaning=meaning)


def count(name: str, meaning: str, dtype: str = "int64") -> Column:
    """Describe a column of counts."""
    return Column(name=name, dtype=dtype, meaning=meaning)


def number(name: str, meaning: str) -> Column:
    """Describe a column of numbers without a unit, or with that of another column."""
    return Column(name=name, dtype="float64", meaning=meaning)
