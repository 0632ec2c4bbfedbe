"""A recipe pasted into a function of a framework, at the place that it names."""

from __future__ import annotations

import ast
import inspect
import textwrap
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


def paste(
    function: Callable[..., Any], after: str, recipe: str, **names: object
) -> Callable[..., Any]:
    """Return the function with the recipe's lines after the statement named.

    Parameters
    ----------
    function : callable
        Its source is taken from the installed package.
    after : str
        How the statement begins; exactly one may begin so.
    recipe : str
    **names : object
        Names of its module to replace, such as functions that need a GPU.
    """
    source = textwrap.dedent(inspect.getsource(inspect.unwrap(function)))
    places = [
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.stmt)
        and (ast.get_source_segment(source, node) or "").startswith(after)
    ]
    assert len(places) == 1, (after, len(places))
    (place,) = places
    lines = source.splitlines(keepends=True)
    pasted = textwrap.indent(recipe, " " * place.col_offset)
    assert place.end_lineno is not None
    code = "".join([*lines[: place.end_lineno], pasted, *lines[place.end_lineno :]])
    scope = {**inspect.unwrap(function).__globals__, **names}
    exec(compile(code, function.__name__, "exec"), scope)  # noqa: S102 our own page
    found: Callable[..., Any] = scope[function.__name__]
    return found
