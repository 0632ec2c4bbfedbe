"""The tokenizer and chat template of a model: what they make of an earlier round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from rounddiag.proof.template import Template

_BEFORE, _WRITTEN, _AFTER = "\ue000", "\ue001", "\ue002"  # in no text


@dataclass(frozen=True, eq=False)
class Chat:
    """Writes rounds again, as an engine does that is sent messages.

    Attributes
    ----------
    tokenizer: As `AutoTokenizer.from_pretrained` gives it.
    """

    tokenizer: Any

    @classmethod
    def open(cls, name: str, *, trust_remote_code: bool) -> Chat | None:
        """Load the tokenizer of a model; None if it has none."""
        import transformers

        try:
            tokenizer = transformers.AutoTokenizer.from_pretrained(
                name,
                trust_remote_code=trust_remote_code,
                local_files_only=Path(name).is_dir(),
            )
        except (ImportError, OSError, ValueError, KeyError, TypeError, AttributeError):
            return None
        return cls(tokenizer)

    def retokenise(self, ids: list[int]) -> list[int]:
        """Return the ids of the text of these ids."""
        text = self.tokenizer.decode(ids, skip_special_tokens=False)
        return self.encode(text)

    def render(self, ids: list[int]) -> list[int] | None:
        """Return the ids of a round once it is history; None without a template.

        Special tokens at its end stay as they are.
        """
        special = set(self.tokenizer.all_special_ids)
        end = len(ids)
        while end and ids[end - 1] in special:
            end -= 1
        text = self.tokenizer.decode(ids[:end], skip_special_tokens=False)
        frame, rendered = self._history(_WRITTEN), self._history(text)
        if frame is None or rendered is None or frame.count(_WRITTEN) != 1:
            return None
        before, after = frame.split(_WRITTEN)
        if len(rendered) < len(before + after):
            return None
        if not (rendered.startswith(before) and rendered.endswith(after)):
            return None
        return (
            self.encode(rendered[len(before) : len(rendered) - len(after)]) + ids[end:]
        )

    def open_user_message(self) -> list[int] | None:
        """Return the ids before the text of a first message of the user.

        A template may begin with a system prompt of its own.
        """
        whole = self.write([{"role": "user", "content": _BEFORE}])
        return None if whole is None else self.encode(whole.split(_BEFORE)[0])

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text: special tokens are those that it has."""
        return list(self.tokenizer.encode(text, add_special_tokens=False))

    def _history(self, text: str) -> str | None:
        messages = [
            {"role": "user", "content": _BEFORE},
            {"role": "assistant", "content": text},
            {"role": "user", "content": _AFTER},
        ]
        whole = self.write(messages)
        if whole is None or whole.count(_BEFORE) != 1 or whole.count(_AFTER) != 1:
            return None
        return whole.split(_BEFORE)[1].split(_AFTER)[0]

    def write(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        opens_reply: bool = False,
    ) -> str | None:
        """Return the text of messages; None where there is no template for them.

        With `opens_reply` it ends where the model begins to write.
        """
        if not getattr(self.tokenizer, "chat_template", None):
            return None
        return self._template.render(messages, tools=tools, opens_reply=opens_reply)

    @cached_property
    def _template(self) -> Template:
        return Template(self.tokenizer)
