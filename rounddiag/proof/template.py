"""The chat template of a model, rendered in a child process with limits.

A template is a program of whoever wrote the model's folder: its loops may never end,
and its texts may fill the memory.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from functools import cached_property
from select import select
from typing import Any
from weakref import finalize

from rounddiag.errors import BatchError

Messages = Sequence[Mapping[str, Any]]

_SECONDS = 10.0  # for one text; templates of published models take milliseconds
_START = 60.0  # seconds, until a busy machine has imported transformers
_NUM_BYTES = 1 << 30  # of address space, beyond what the child has at the start
_MOST_BYTES = 1 << 24  # of a text: more than any model reads
# The child ends with its input. Where nobody is left to close it, its time is over.
_CODE = """\
import json, resource, sys
from transformers.utils.chat_template_utils import render_jinja_template
known = json.loads(sys.stdin.readline())
with open("/proc/self/statm") as status:
    used = int(status.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + known["num_bytes"],) * 2)
resource.setrlimit(resource.RLIMIT_CPU, (300, 300))
print("{}", flush=True)
for line in sys.stdin:
    try:
        asked = json.loads(line)
        found = render_jinja_template([asked.pop("messages")], **known["how"], **asked)
        text = found[0][0] if isinstance(found, tuple) else found[0]
        text = text if len(text) < known["most"] else None
    except Exception:  # a template raises what it likes
        text = None
    print(json.dumps(text), flush=True)
"""


class Template:
    """Renders messages, as the tokenizer of a model does.

    Parameters
    ----------
    tokenizer : object
        As `AutoTokenizer.from_pretrained` gives it, with a chat template.
    """

    def __init__(self, tokenizer: Any) -> None:  # noqa: ANN401 of transformers
        self._tokenizer = tokenizer
        self._is_over = False

    def render(
        self, messages: Messages, *, tools: Messages = (), opens_reply: bool = False
    ) -> str | None:
        """Return the text of messages; None where the template raises an error.

        With `opens_reply` it ends where the model begins to write.
        """
        asked = {
            "messages": messages,
            "tools": [*tools] or None,
            "add_generation_prompt": opens_reply,
        }
        if not self._is_over:
            try:
                child, begin = self._child, json.dumps(asked)
                child.stdin.write(f"{begin}\n".encode())  # type: ignore[union-attr]
                answer = _read_line(child, _SECONDS)
                text: str | None = json.loads(answer)
            except (OSError, ValueError):  # it has ended, or was ended
                self._is_over = True
            else:
                return text
        raise BatchError.build(
            key="chat_template",
            expected=f"one that ends within {_SECONDS:g} s and 1 GB",
            found="one that does not",
            advice="Hypotheses about it are left out.",
        )

    @cached_property
    def _child(self) -> subprocess.Popen[bytes]:
        how = {
            "chat_template": self._tokenizer.get_chat_template(),
            **self._tokenizer.special_tokens_map,
        }
        child = subprocess.Popen(  # noqa: S603 our own code
            [sys.executable, "-c", _CODE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "HF_HUB_OFFLINE": "1", "USE_TORCH": "0"},
            bufsize=0,
        )
        finalize(self, _end, child)
        known = {"how": how, "num_bytes": _NUM_BYTES, "most": _MOST_BYTES}
        child.stdin.write(f"{json.dumps(known)}\n".encode())  # type: ignore[union-attr]
        _read_line(child, _START)
        return child


def _read_line(child: subprocess.Popen[bytes], seconds: float) -> bytes:
    """Return a line of the child's output; an OSError if it does not come in time."""
    pipe, line, end = child.stdout, b"", time.monotonic() + seconds
    assert pipe is not None  # noqa: S101 for mypy
    while not line.endswith(b"\n"):
        is_ready = select([pipe], [], [], max(end - time.monotonic(), 0.0))[0]
        part = os.read(pipe.fileno(), 1 << 16) if is_ready else b""
        if not part or len(line) > 8 * _MOST_BYTES:  # escapes take 6 bytes and more
            _end(child)
            raise TimeoutError
        line += part
    return line


def _end(child: subprocess.Popen[bytes]) -> None:
    child.kill()
    child.communicate()
