"""The texts of a batch's tokens, in place of a tokenizer that must not be trusted."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from rounddiag.text.tokenizers import (
    FRAGMENT,
    pieces,
    resolve_tokenizer,
    special_tokens,
)

_MAX_BYTES = 1000  # of a token; no model has a longer one
_BYTE = re.compile(r"<0x([0-9A-F]{2})>")  # a single-byte token, as in Llama


@dataclass(frozen=True)
class TokenTable:
    r"""Decodes the tokens of one batch by looking up the bytes of each.

    It takes the place of a tokenizer wherever `rounddiag.text.pieces` takes one.

    Parameters
    ----------
    tokens : mapping of int to bytes
        The UTF-8 bytes of each token; a token may hold a part of a character.
    special : mapping of int to str
        The special tokens of the tokenizer.

    Examples
    --------
    >>> table = TokenTable({7: b"caf\xc3", 8: b"\xa9"}, {})
    >>> table.decode([7, 8]), pieces([7, 8], table)
    ('café', ['café', ''])
    """

    tokens: Mapping[int, bytes]
    special: Mapping[int, str]

    @classmethod
    def from_tokenizer(cls, tokenizer: object, token_ids: Iterable[int]) -> TokenTable:
        """Look up the text of each of these ids once, and keep its first 1000 bytes."""
        ids = sorted({token_id for token_id in token_ids if token_id >= 0})
        texts = pieces(ids, tokenizer, starts=range(len(ids)))  # one by one
        inner = resolve_tokenizer(tokenizer)
        tokens = {
            token_id: _cut(_token_bytes(inner, token_id, text))
            for token_id, text in zip(ids, texts, strict=True)
            if text != f"⟨{token_id}⟩"
        }
        special = special_tokens(tokenizer).items()
        return cls(tokens, {i: _cut(text.encode()).decode() for i, text in special})

    @classmethod
    def from_json(cls, text: str) -> TokenTable:
        """Read what `to_json` wrote."""
        tokens, special = json.loads(text)
        return cls(
            {int(key): value.encode("latin-1") for key, value in tokens.items()},
            {int(key): value.encode().decode() for key, value in special.items()},
        )

    def to_json(self) -> str:
        """Return the table as JSON."""
        tokens = {key: value.decode("latin-1") for key, value in self.tokens.items()}
        return json.dumps([tokens, dict(self.special)])

    def decode(
        self,
        token_ids: Sequence[int],
        skip_special_tokens: bool = False,  # noqa: FBT001, FBT002 as in tokenizers
    ) -> str:
        """Return the text of some ids; an id that the table lacks has none."""
        hidden = self.special if skip_special_tokens else {}
        parts = [self.tokens.get(i, b"") for i in token_ids if i not in hidden]
        return b"".join(parts).decode("utf-8", "replace")

    @property
    def added_tokens_decoder(self) -> dict[int, Any]:
        """The special tokens, as a tokenizer of transformers lists them."""
        return {
            token_id: SimpleNamespace(content=text, special=True)
            for token_id, text in self.special.items()
        }


def _token_bytes(tokenizer: Any, token_id: int, text: str) -> bytes:  # noqa: ANN401 of two libraries
    """Return the bytes of a token, also those of an incomplete character."""
    if FRAGMENT in text:
        name = getattr(tokenizer, "id_to_token", None) or getattr(
            tokenizer, "convert_ids_to_tokens", None
        )
        token = name(token_id) if name is not None else None
        if isinstance(token, str):
            if single := _BYTE.fullmatch(token):
                return bytes.fromhex(single[1])
            if token and all(character in _BYTE_LEVEL for character in token):
                return bytes(_BYTE_LEVEL[character] for character in token)
    return text.encode()


def _cut(text: bytes) -> bytes:
    """Return the first bytes of a text, up to the end of a character."""
    if len(text) <= _MAX_BYTES:
        return text
    return text[:_MAX_BYTES].decode(errors="ignore").encode()


def _byte_level() -> dict[str, int]:
    """Return the byte of each character of byte-level BPE, as in GPT-2 and Qwen."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(0x100) if byte not in plain]
    characters = {chr(byte): byte for byte in plain}
    return characters | {chr(0x100 + n): byte for n, byte in enumerate(others)}


_BYTE_LEVEL = _byte_level()
