"""Tokenizers of any kind: one function from ids to text, and their special tokens."""

from __future__ import annotations

from functools import lru_cache
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from rounddiag.errors import BatchError, LoadError

if TYPE_CHECKING:
    from collections.abc import Callable

    Decode: TypeAlias = Callable[[list[int]], str]

_KINDS = (
    "Pass the path of a `tokenizer.json`, a transformers tokenizer or its name, or a"
    " callable that turns a list of ids into text."
)


def special_tokens(tokenizer: object | None) -> dict[int, str]:
    """Return the special tokens of a tokenizer: what its template writes, and pads.

    Parameters
    ----------
    tokenizer : path-like, str, tokenizer or callable, optional
        As `rounddiag.text.pieces` takes it.

    Returns
    -------
    dict of int to str
        Token id to text; empty without a tokenizer, and for a callable, which does not
        tell.

    Raises
    ------
    LoadError
        If the path is no `tokenizer.json`, or the name cannot be found.

    Examples
    --------
    >>> found = special_tokens("sample_data/tokenizer.json")
    >>> sorted(found.values())[:2]
    ['<|endoftext|>', '<|im_end|>']
    """
    inner = resolved(tokenizer)
    if hasattr(inner, "get_added_tokens_decoder"):
        added = inner.get_added_tokens_decoder()
    else:  # the slow tokenizers of transformers
        added = getattr(inner, "added_tokens_decoder", {})
    return {
        int(token_id): token.content
        for token_id, token in sorted(added.items())
        if getattr(token, "special", False)
    }


def decoder(tokenizer: object | None) -> Decode | None:
    """Return the function from ids to text, special tokens kept; None without one.

    Raises
    ------
    LoadError
        If the path is no `tokenizer.json`, or the name cannot be found.
    BatchError
        If it is no tokenizer.
    """
    inner: Any = resolved(tokenizer)
    if inner is None:
        return None
    if hasattr(inner, "decode"):
        return _checked(lambda ids: inner.decode(ids, skip_special_tokens=False))
    if callable(inner):
        return _checked(inner)
    raise BatchError.build(
        key="tokenizer",
        expected="something that turns ids into text",
        found=type(inner).__name__,
        advice=_KINDS,
    )


def resolved(tokenizer: object | None) -> Any:  # noqa: ANN401 two libraries, or a callable
    """Return what decodes: read from a file, found by its name, or as it is."""
    if isinstance(tokenizer, str) and _is_name(tokenizer):
        tokenizer = _from_name(tokenizer)
    elif isinstance(tokenizer, (str, PathLike)):
        path = Path(fspath(tokenizer))
        file = path / "tokenizer.json" if path.is_dir() else path
        stamp = file.stat().st_mtime_ns if file.is_file() else None
        tokenizer = _from_file(file, stamp)
    # A processor holds its tokenizer, and a fast one the one that does the work.
    inner = getattr(tokenizer, "tokenizer", tokenizer)
    return getattr(inner, "backend_tokenizer", inner)


def _is_name(text: str) -> bool:
    """Whether it is like `organisation/model`, and nothing of that name lies here."""
    is_path = text.startswith((".", "~", "/")) or text.endswith(".json")
    return not is_path and text.count("/") <= 1 and not Path(text).exists()


@lru_cache(maxsize=2)
def _from_name(name: str) -> object:
    """Ask transformers, which may fetch it from the network: a name was given."""
    try:
        from transformers import AutoTokenizer
    except ImportError as error:
        raise _unreadable(
            name, "no such file, and no `transformers` to find a name with"
        ) from error
    try:
        return AutoTokenizer.from_pretrained(name, trust_remote_code=False)
    except Exception as error:  # it raises of many kinds: no network, no such model
        raise _unreadable(
            name, f"no such file, and no such name ({_first_line(error)})"
        ) from error


@lru_cache(maxsize=2)
def _from_file(path: Path, stamp: int | None) -> object:
    """Read a `tokenizer.json`; `stamp` makes a changed file be read again."""
    from tokenizers import Tokenizer

    if stamp is None:
        raise _unreadable(path, "no such file")
    try:
        return Tokenizer.from_file(fspath(path))
    except Exception as error:  # the library raises plain Exception
        found = f"a file that `tokenizers` cannot read ({_first_line(error)})"
        raise _unreadable(path, found) from error


def _unreadable(file: object, found: str) -> LoadError:
    return LoadError.build(
        file=file, expected="a `tokenizer.json`", found=found, advice=_KINDS
    )


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def _valid(text: str) -> str:
    """Join the halves of characters; one that is alone is no character."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def _checked(decode: Callable[[list[int]], object]) -> Decode:
    def checked(ids: list[int]) -> str:
        text = decode(ids)
        if isinstance(text, str):
            return _valid(text)
        raise BatchError.build(
            key="tokenizer",
            expected="text for a list of ids",
            found=type(text).__name__,
            advice=_KINDS,
        )

    return checked
