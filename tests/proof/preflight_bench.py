"""What a preflight says of 11 faults and of 16 sound configurations of the stand-in.

    python -m tests.proof.preflight_bench [faults|sound] [NAME ...]

One line each: which checks fail, and the seconds. A fault is found if its own check
fails; a sound configuration passes if none does.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import (
    Qwen2VLImageProcessorPil,
)

import rounddiag as rd
from rounddiag.proof.chat import Chat
from rounddiag.proof.engines.local import LocalEngine
from tests.proof.fake_server import serving
from tests.proof.model_server import MODEL, ModelServer

DROPS_THOUGHTS = (
    "{{ message.content }}",
    "{{ message.content.split('</think>')[-1] if message.role == 'assistant'"
    " else message.content }}",
)
BOS = "<|endoftext|>"
LARGER = Qwen2VLImageProcessorPil(min_pixels=9408, max_pixels=4 * 9408)


def with_template(change: Callable[[str], str]) -> Chat:
    """Return the chat of the sample model with another template."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(MODEL)
    changed = change(tokenizer.chat_template)
    assert changed != tokenizer.chat_template
    tokenizer.chat_template = changed
    return Chat(tokenizer)


@dataclass
class Case:
    """A configuration of the server, and of the trainer where that differs.

    Attributes
    ----------
    check: The one that has to fail; empty for a sound configuration.
    """

    server: Callable[[], Mapping[str, Any]]
    check: str = ""
    dtype: str = "bfloat16"
    folder: Callable[[Path], str] = lambda _: MODEL
    chat: Callable[[], Chat] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


FAULTS = {
    "image dropped": Case(lambda: {"blind": "no_tokens"}, "images"),
    "pixels dropped": Case(lambda: {"blind": "no_pixels"}, "images"),
    "other max_pixels": Case(lambda: {"processor": LARGER}, "images"),
    "thoughts dropped": Case(
        lambda: {"chat": with_template(lambda text: text.replace(*DROPS_THOUGHTS))},
        "ids",
    ),
    "processed log-probs": Case(lambda: {"mode": "processed"}, "sampling"),
    "older adapter": Case(lambda: {"updates": "late"}, "weights"),
    "update never delivered": Case(lambda: {"updates": "never"}, "weights"),
    "pictures of the older tower": Case(lambda: {"keeps_pictures": True}, "weights"),
    "cache kept over an update": Case(
        lambda: {"has_cache": True, "keeps_cache": True}, "cache"
    ),
    "bos twice": Case(
        lambda: {"chat": with_template(lambda text: BOS + BOS + text)},
        "ids",
        chat=lambda: with_template(lambda text: BOS + text),
    ),
    "3 prompt tokens lost": Case(lambda: {"lost": 3}, "ids"),
}


def sized(fewest: int, most: int) -> Callable[[Path], str]:
    """Return what copies the sample model, with other limits of its processor."""

    def copy(folder: Path) -> str:
        model = folder / "model"
        shutil.copytree(MODEL, model)
        file = model / "processor_config.json"
        text = file.read_text()
        text = text.replace('"longest_edge": 9408', f'"longest_edge": {most}')
        text = text.replace('"shortest_edge": 9408', f'"shortest_edge": {fewest}')
        file.write_text(text)
        return str(model)

    return copy


def text_model(folder: Path) -> str:
    """Write a text model of random weights with the sample model's tokenizer."""
    torch.manual_seed(0)
    config = transformers.Qwen2Config(
        vocab_size=608,
        hidden_size=128,  # heads of 32: vLLM on a CPU takes no smaller ones
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=2048,
        initializer_range=0.2,
        bos_token_id=0,
        eos_token_id=2,
        dtype="bfloat16",
    )
    model = transformers.Qwen2ForCausalLM(config)
    path = folder / "text"
    model.to(torch.bfloat16).save_pretrained(path)
    transformers.AutoTokenizer.from_pretrained(MODEL).save_pretrained(path)
    return str(path)


SOUND = {
    "bfloat16": Case(dict),
    "float32": Case(dict, dtype="float32"),
    "float16": Case(dict, dtype="float16"),
    "bfloat16, cache": Case(lambda: {"has_cache": True}),
    "float32, cache": Case(lambda: {"has_cache": True}, dtype="float32"),
    "bfloat16, chunks": Case(lambda: {"chunk": 64}),
    "float32, chunks": Case(lambda: {"chunk": 100}, dtype="float32"),
    "bfloat16, cache and chunks": Case(lambda: {"has_cache": True, "chunk": 64}),
    "small pictures": Case(dict, folder=sized(784, 3136)),
    "pictures of many sizes": Case(dict, folder=sized(784, 37632)),
    "large pictures, cache": Case(
        lambda: {"has_cache": True}, folder=sized(50176, 100352)
    ),
    "adapters of the language model": Case(lambda: {"tower": "out"}),
    "no adapter of the tower": Case(lambda: {"tower": "refused"}),
    "other pictures": Case(dict, options={"seed": 1}),
    "text": Case(dict, folder=text_model),
    "text, cache and chunks": Case(
        lambda: {"has_cache": True, "chunk": 64}, folder=text_model
    ),
}


def fly(case: Case, folder: Path) -> rd.Preflight:
    """Return the preflight of a case; the change of weights is tested in all."""
    name = case.folder(folder)
    sampler = LocalEngine.open(name, dtype=case.dtype)
    trainer = LocalEngine.open(name)
    if case.chat is not None:
        vars(trainer)["chat"] = case.chat()
    with serving(ModelServer(engine=sampler, **case.server())) as server:
        return rd.preflight(trainer, server.url, after=server.sync, **case.options)


def main() -> int:
    """Print a line for each case, and the numbers of right answers."""
    os.environ["TQDM_DISABLE"] = "1"
    torch.set_num_threads(1)
    words = sys.argv[1:]
    wrong = 0
    for row, cases in (("faults", FAULTS), ("sound", SOUND)):
        if words and row not in words and not set(words) & set(cases):
            continue
        names = [name for name in cases if name in words] or list(cases)
        right = 0
        for name in names:
            case, begin = cases[name], time.process_time()
            with tempfile.TemporaryDirectory() as folder:
                result = fly(case, Path(folder))
            found = case.check in result.failed if case.check else result.passed
            right += found
            mark, said = "-X"[not found], ", ".join(result.failed) or "passes"
            rows = result.frame.to_dict("records")
            mine = [row for row in rows if row["check"] == case.check]
            text = f"{mine[0]['where']}: {mine[0]['why']}" if mine else ""
            spent = time.process_time() - begin
            print(
                f"{mark} {name}: {said} [{text}]"
                f" ({result.seconds:.0f} s, {spent:.0f} s of CPU)",
                flush=True,
            )
            if not found:
                print(result, flush=True)
        print(f"{row}: {right} of {len(names)} right", flush=True)
        wrong += len(names) - right
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
