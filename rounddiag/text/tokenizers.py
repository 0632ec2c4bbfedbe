"""Tokenizers of any kind: one function from ids to text, and their special tokens."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from os import PathLike, fspath
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from rounddiag.errors import BatchError, LoadError

Decode: TypeAlias = Callable[[list[int]], str]


_ADVICE = (
    "Pass the path of a `tokenizer.json`, a transformers tokenizer or its name, or a"
    " callable that turns a list of ids into text."
)


def special_tokens(tokenizer: object | None) -> dict[int, str]:
    """Return the special tokens of a tokenizer, such as those of its chat template."""
    inner = resolve_tokenizer(tokenizer)
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
    """Return the function from ids to text, special tokens kept; None without one."""
    inner: Any = resolve_tokenizer(tokenizer)
    if inner is None:
        return None
    if hasattr(inner, "decode"):
        return _require_text(lambda ids: inner.decode(ids, skip_special_tokens=False))
    if callable(inner):
        return _require_text(inner)
    raise BatchError.build(
        key="tokenizer",
        expected="something that turns ids into text",
        found=type(inner).__name__,
        advice=_ADVICE,
    )


def resolve_tokenizer(tokenizer: object | None) -> Any:  # noqa: ANN401 two libraries, or a callable
    """Return the decoding object: from a file, by its name, or unchanged."""
    if isinstance(tokenizer, str) and _is_name(tokenizer):
        tokenizer = _from_name(tokenizer)
    elif isinstance(tokenizer, (str, PathLike)):
        path = Path(fspath(tokenizer))
        file = path / "tokenizer.json" if path.is_dir() else path
        stamp = file.stat().st_mtime_ns if file.is_file() else None
        tokenizer = _from_file(file, stamp)
    # A processor wraps a tokenizer, and a fast tokenizer wraps its backend.
    inner = getattr(tokenizer, "tokenizer", tokenizer)
    return getattr(inner, "backend_tokenizer", inner)


def _is_name(text: str) -> bool:
    """Return whether it looks like `organisation/model` and is not an existing path."""
    is_path = text.startswith((".", "~", "/")) or text.endswith(".json")
    return not is_path and text.count("/") <= 1 and not Path(text).exists()


@lru_cache(maxsize=2)
def _from_name(name: str) -> object:
    """Load a tokenizer by name; transformers may download it."""
    try:
        from transformers import AutoTokenizer
    except ImportError as error:
        raise _unreadable(
            name, "no such file, and no `transformers` to find a name with"
        ) from error
    try:
        return AutoTokenizer.from_pretrained(name, trust_remote_code=False)
    except Exception as error:  # many types: no network, no such model
        raise _unreadable(
            name, f"no such file, and no such name ({_first_line(error)})"
        ) from error


@lru_cache(maxsize=2)
def _from_file(path: Path, stamp: int | None) -> object:
    """Read a `tokenizer.json`; a changed `stamp` bypasses the cache."""
    from tokenizers import Tokenizer

    if stamp is None:
        raise _unreadable(path, "no such file")
    try:
        return Tokenizer.from_file(fspath(path))
    except Exception as error:  # the library raises plain Exception
        content = f"a file that `tokenizers` cannot read ({_first_line(error)})"
        raise _unreadable(path, content) from error
    except BaseException as error:
        if not _is_panic(error):
            raise
        raise _unreadable(path, f"one that fails ({_first_line(error)})") from error


def _is_panic(error: BaseException) -> bool:
    """Return whether a Rust library panicked, which is not an `Exception`."""
    return type(error).__name__ == "PanicException"


def _unreadable(file: object, content: str) -> LoadError:
    return LoadError.build(
        file=file, expected="a `tokenizer.json`", found=content, advice=_ADVICE
    )


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0]


def _repair_surrogates(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def _require_text(decode: Callable[[list[int]], object]) -> Decode:
    def decode_checked(ids: list[int]) -> str:
        try:
            text = decode(ids)
        except BaseException as error:
            if not (isinstance(error, Exception) or _is_panic(error)):
                raise
            content = f"{type(error).__name__} ({_first_line(error)})"
            raise _no_text_error(content) from error
        if isinstance(text, str):
            return _repair_surrogates(text)
        raise _no_text_error(type(text).__name__)

    return decode_checked


def _no_text_error(content: str) -> BatchError:
    return BatchError.build(
        key="tokenizer",
        expected="text for a list of ids",
        found=content,
        advice=_ADVICE,
    )


_SIGNS = {" ": "·", "\n": "↵", "\t": "⇥"}
# Joins the parts of one emoji; not printable by itself.
_JOINER = "\u200d"
_STRAY_JOINER = re.compile(
    "(?<![\u2100-\U0001ffff])\u200d|\u200d(?![\u2100-\U0001ffff])"
)


def visible(text: str) -> str:
    r"""Replace invisible characters by signs, for a one-line label.

    Spaces, line ends and tabs have signs. Control characters, zero-width characters and
    those that change the writing direction become escapes. A joiner inside an emoji
    stays.
    """
    escaped = _STRAY_JOINER.sub(r"\\u200d", text)
    return "".join(map(_visible_character, escaped))


def _visible_character(character: str) -> str:
    if character in _SIGNS:
        return _SIGNS[character]
    if character.isprintable() or character == _JOINER:
        return character
    return character.encode("unicode_escape").decode()


# Decoders write it for bytes of an incomplete character.
FRAGMENT = "\ufffd"
# A character has at most 4 bytes; a token may end one and begin the next.
_MAX_TOKENS_PER_CHARACTER = 8


def pieces(
    token_ids: Sequence[int] | np.ndarray[Any, Any],
    tokenizer: object | None = None,
    *,
    starts: Sequence[int] | np.ndarray[Any, Any] = (),
    visible_whitespace: bool = False,
) -> list[str]:
    """Return the text of each token; joined, the pieces are the whole text.

    - A character whose bytes are spread over several tokens is the piece of the first
      one; the others are empty. No other piece is empty.
    - An id without text (unknown to the tokenizer, negative, or any id without a
      tokenizer) is `⟨id⟩`.
    - Special tokens are kept.
    """
    ids = np.asarray(token_ids, dtype=np.int64)
    decode = decoder(tokenizer)
    unique, inverse = np.unique(ids, return_inverse=True)
    if decode is None:
        known = [f"⟨{token_id}⟩" for token_id in unique.tolist()]
    else:
        known = [_piece(decode, token_id) for token_id in unique.tolist()]
    pieces: list[str] = np.array(known, dtype=object)[inverse].tolist()
    if decode is not None:
        broken = np.array([FRAGMENT in piece for piece in known], dtype=bool)
        runs = _runs(np.flatnonzero(broken[inverse]), np.asarray(starts))
        _join_fragments(pieces, ids.tolist(), runs, decode)
    return _make_visible(pieces) if visible_whitespace else pieces


def _make_visible(texts: list[str]) -> list[str]:
    signs = {text: visible(text) for text in set(texts)}
    return [signs[text] for text in texts]


# `tokenizers` takes ids of 32 bits and raises for others.
_MAX_ID = 2**32 - 1


def _piece(decode: Decode, token_id: int) -> str:
    alone = decode([token_id]) if 0 <= token_id <= _MAX_ID else ""
    if not alone or FRAGMENT in alone:
        return alone or f"⟨{token_id}⟩"
    # Some decoders drop the space before the first word: the second one keeps it.
    twice = decode([token_id, token_id])
    return twice[len(alone) :] if twice.startswith(alone) else alone


def _runs(
    indices: np.ndarray[Any, Any], starts: np.ndarray[Any, Any]
) -> list[tuple[int, int]]:
    """Return runs of consecutive indices as (start, stop), split at the starts."""
    if len(indices) == 0:
        return []
    begins = np.diff(indices, prepend=-2) != 1
    begins |= np.isin(indices, starts)
    first = np.flatnonzero(begins)
    last = np.append(first[1:], len(indices)) - 1
    stops = indices[last] + 1
    return list(zip(indices[first].tolist(), stops.tolist(), strict=True))


def _join_fragments(
    texts: list[str], ids: list[int], runs: list[tuple[int, int]], decode: Decode
) -> None:
    """Replace consecutive fragments by complete characters, in place."""
    for begin, stop in runs:
        start = begin
        while start < stop:
            whole = _character(ids, start, stop, decode)
            if whole is None:  # no character begins here
                start += 1
                continue
            text, after = whole
            texts[start:after] = [text, *[""] * (after - start - 1)]
            start = after


def _character(
    ids: list[int], start: int, stop: int, decode: Decode
) -> tuple[str, int] | None:
    """Return the shortest run of fragments from `start` that is complete characters."""
    for after in range(start + 2, min(stop, start + _MAX_TOKENS_PER_CHARACTER) + 1):
        text = decode(ids[start:after])
        if FRAGMENT not in text:
            return text, after
    return None
