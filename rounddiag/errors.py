"""What rounddiag raises when its input is not what it must be."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Self


class RounddiagError(ValueError):
    """Base of every error that rounddiag raises on purpose.

    Examples
    --------
    >>> raise RounddiagError.build(
    ...     expected="2 rows", found="3", advice="Drop one.", key="rewards"
    ... )
    Traceback (most recent call last):
    ...
    rounddiag.errors.RounddiagError: `rewards`: expected 2 rows; found 3. Drop one.
    """

    @classmethod
    def build(
        cls,
        *,
        expected: str,
        found: str,
        advice: str,
        file: object = None,
        key: str | None = None,
    ) -> Self:
        """Put the facts of one failure into the one sentence shape of the project.

        Parameters
        ----------
        expected, found, advice : str
            What must hold, what was there instead, and what to do about it.
        file : path-like, optional
            The file that was read.
        key : str, optional
            The field or column that is wrong.

        Returns
        -------
        RounddiagError
            An error of this class, to be raised.
        """
        where = [str(file)] if file is not None else []
        where += [f"`{key}`"] if key is not None else []
        return cls(": ".join([*where, f"expected {expected}; found {found}. {advice}"]))


class BatchError(RounddiagError):
    """The tensors of a batch do not fit together."""


class FrameError(RounddiagError):
    """A frame lacks a column, or an option names something it does not have."""


class LoadError(RounddiagError):
    """A file cannot be read as a batch."""
