"""Errors that rounddiag raises for invalid input."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from difflib import get_close_matches
from functools import wraps
from importlib import import_module
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from rounddiag.wording import printable

if TYPE_CHECKING:
    from typing_extensions import Self

P = ParamSpec("P")
Returned = TypeVar("Returned")


class RounddiagError(ValueError):
    """Base of every error that rounddiag raises on purpose.

    Control characters in the message, which may name what a file holds, are escaped.

    Parameters
    ----------
    message : str
    *code : str
        Lines of Python that do what it advises, shown below it.

    Examples
    --------
    >>> raise RounddiagError.build(
    ...     expected="2 rows", found="3", advice="Drop one.", key="rewards"
    ... )
    Traceback (most recent call last):
    ...
    rounddiag.errors.RounddiagError: `rewards`: expected 2 rows; found 3. Drop one.
    """

    def __init__(self, message: str, *code: str) -> None:
        super().__init__(*map(printable, (message, *code)))

    def __str__(self) -> str:
        """Return the message, and the lines of code below it."""
        return "\n".join(self.args)

    @classmethod
    def build(
        cls,
        *,
        expected: str,
        found: str,
        advice: str,
        file: object = None,
        key: str | None = None,
        code: Iterable[str] = (),
    ) -> Self:
        """Build an error in the project's sentence shape: expected, found, advice."""
        where = [str(file)] if file is not None else []
        where += [f"`{key}`"] if key is not None else []
        if not found.endswith(".."):  # it may quote a sentence of another error
            found = found.removesuffix(".")
        sentence = f"expected {expected}; found {found}. {advice}"
        return cls(": ".join([*where, sentence]), *code)


def nearest(name: object, known: Iterable[str], otherwise: str) -> str:
    """Suggest the known name that is most similar, or return `otherwise`.

    Examples
    --------
    >>> nearest("K_3", ["abs_diff", "k3"], "Name one of these.")
    "Did you mean 'k3'?"
    >>> nearest("reward", ["abs_diff", "k3"], "Name one of these.")
    'Name one of these.'
    """
    close = get_close_matches(str(name).lower(), known, n=1)
    return f"Did you mean {close[0]!r}?" if close else otherwise


class BatchError(RounddiagError):
    """The tensors of a batch do not fit together."""


class MissingError(BatchError):
    """A batch lacks a field that is needed; the message says why.

    Parameters
    ----------
    message : str
    field : str
    """

    def __init__(self, message: str, field: str) -> None:
        super().__init__(message)
        self.field = field


class FrameError(RounddiagError):
    """A frame lacks a column, or an option names something it does not have."""


class LoadError(RounddiagError):
    """A file cannot be read as a batch."""


class OutputError(RounddiagError, OSError):
    """A file cannot be written, or would replace what is not to be lost."""


def require_one_of(
    name: object,
    known: Iterable[str],
    *,
    key: str,
    advice: str,
    error: type[RounddiagError] = FrameError,
) -> None:
    """Raise an error that lists the known names unless `name` is one of them.

    It suggests the most similar name; without one it gives the advice.

    Examples
    --------
    >>> require_one_of("b", ["a"], key="x", advice="Leave it out.")
    Traceback (most recent call last):
    ...
    rounddiag.errors.FrameError: `x`: expected one of ['a']; found 'b'. Leave it out.
    """
    if name not in (names := list(known)):
        raise error.build(
            key=key,
            expected=f"one of {names}",
            found=repr(name),
            advice=nearest(name, names, advice),
        )


def refuse(
    argument: str, advice: str
) -> Callable[[Callable[P, Returned]], Callable[P, Returned]]:
    """Raise an error that says what to use for an argument that 0.3.0 removed.

    Examples
    --------
    >>> @refuse("by", "Pass a part.")
    ... def count(rows): ...
    >>> count([], by="rank")
    Traceback (most recent call last):
    ...
    rounddiag.errors.FrameError: `by`: expected no such argument, which 0.3.0 removed; \
found 'rank'. Pass a part.
    """

    def decorate(function: Callable[P, Returned]) -> Callable[P, Returned]:
        @wraps(function)
        def checked(*args: P.args, **options: P.kwargs) -> Returned:
            if argument in options:
                raise FrameError.build(
                    key=argument,
                    expected="no such argument, which 0.3.0 removed",
                    found=f"{options[argument]!r:.80}",
                    advice=advice,
                )
            return function(*args, **options)

        return checked

    return decorate


def import_extra(module: str, extra: str, purpose: str) -> Any:  # noqa: ANN401 a module
    """Import a module of a package that an extra of rounddiag installs.

    Examples
    --------
    >>> import_extra("no_such_package", "ray", "for work")
    Traceback (most recent call last):
    ...
    rounddiag.errors.RounddiagError: expected the package no_such_package, for work;\
 found none. Run `pip install 'rounddiag[ray]'`.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise RounddiagError.build(
            expected=f"the package {module.partition('.')[0]}, {purpose}",
            found="none",
            advice=f"Run `pip install 'rounddiag[{extra}]'`.",
        ) from error
