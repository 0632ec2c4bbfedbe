"""The sample model behind the stand-in of vLLM: it samples, and faults can be planted.

Text, ids, pictures and adapters arrive as at a real server; transformers computes. What
is configured is what an engineer configures: dtype, template, processor, caches.
"""

from __future__ import annotations

import base64
import io
import threading
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from PIL import Image

from rounddiag.proof.engines.adapters import Adapter
from rounddiag.proof.engines.local import LocalEngine
from tests.proof.fake_server import FakeServer

MODEL = "sample_data/model"
EOS = 2


@dataclass
class ModelServer(FakeServer):
    """A stand-in with a model of transformers.

    Attributes
    ----------
    engine: The model, in the server's dtype.
    """

    engine: LocalEngine = None  # type: ignore[assignment]
    adapter: Adapter | None = None
    generator: torch.Generator = field(
        default_factory=lambda: torch.Generator().manual_seed(0)
    )
    lock: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, path: str, body: Any) -> tuple[int, Any]:
        """Return status and answer."""
        if body is None:
            return super().answer(path, body)
        with self.lock, torch.inference_mode():
            if path == "/v1/chat/completions":
                return 200, self._chat(body)
            if path == "/v1/completions":
                return 200, self._complete(body["prompt"], [], body, body)
            if path == "/inference/v1/generate":
                urls = [part["url"] for part in body.get("content_parts", [])]
                settings = body["sampling_params"]
                if "trace_decode_token_ids" in settings:
                    return 400, {"error": "Trace replay is disabled"}
                return 200, self._complete(body["token_ids"], urls, settings, body)
        return 404, {}

    def _chat(self, body: Any) -> Any:
        urls: list[str] = []
        messages = []
        for message in body["messages"]:
            content = message["content"]
            if not isinstance(content, str):
                urls += [
                    part["image_url"]["url"]
                    for part in content
                    if part["type"] == "image_url"
                ]
                content = [
                    {"type": "image"} if part["type"] == "image_url" else part
                    for part in content
                ]
            messages.append({**message, "content": content})
        text = self.engine.chat.write(messages, opens_reply=True)  # type: ignore[union-attr]
        ids = self.engine.chat.encode(text)  # type: ignore[union-attr, arg-type]
        read, _ = self._read(ids, urls)
        return {"prompt_token_ids": read, "choices": [{}]}

    def _read(self, ids: list[int], urls: list[str]) -> tuple[list[int], Any]:
        """Return the ids with expanded pictures, and what the processor gives."""
        if not urls:
            return list(ids), {}
        pictures = [
            Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2]))).convert(
                "RGB"
            )
            for url in urls
        ]
        pixels = self.engine.processor(images=pictures, return_tensors="pt")
        sizes = iter((pixels["image_grid_thw"].prod(-1) // 4).tolist())
        token = self.engine.eyes.image_token
        expanded: list[int] = []
        for one in ids:
            expanded += [one] * (next(sizes) if one == token else 1)
        return expanded, dict(pixels)

    def _complete(
        self, ids: list[int], urls: list[str], settings: Any, body: Any
    ) -> Any:
        read, pixels = self._read(ids, urls)
        with self.adapter.on(self.engine.model) if self.adapter else nullcontext():
            logits, cache, position = self._prefill(read, pixels)
            answer: dict[str, Any] = {"prompt_token_ids": read}
            choice: dict[str, Any] = {"prompt_token_ids": read}
            if settings.get("prompt_logprobs") is not None:
                values = logits.float().log_softmax(-1)
                entries = [None] + [
                    {str(token): {"logprob": float(values[at, token])}}
                    for at, token in enumerate(read[1:])
                ]
                answer["prompt_logprobs"] = choice["prompt_logprobs"] = entries
            written, log_probs = self._decode(logits[-1], cache, position, settings)
        choice["token_ids"] = written
        if "prompt" in body:
            choice["logprobs"] = {"token_logprobs": log_probs}
        else:
            content = [{"logprob": value} for value in log_probs]
            choice["logprobs"] = {"content": content}
        return answer | {"choices": [choice]}

    def _prefill(self, read: list[int], pixels: Any) -> tuple[Any, Any, int]:
        model, ids = self.engine.model, torch.tensor([read])
        types = (ids == self.engine.eyes.image_token).int()
        arguments = dict(pixels)
        if pixels:
            arguments["pixel_values"] = pixels["pixel_values"].to(model.dtype)
            arguments["mm_token_type_ids"] = types
        positions, _ = model.base_model.get_rope_index(
            input_ids=ids,
            mm_token_type_ids=types,
            image_grid_thw=pixels.get("image_grid_thw"),
            attention_mask=None,
        )
        found = model(
            input_ids=ids, position_ids=positions, use_cache=True, **arguments
        )
        return found.logits[0], found.past_key_values, int(positions.max()) + 1

    def _decode(
        self, logits: Any, cache: Any, position: int, settings: Any
    ) -> tuple[list[int], list[float]]:
        written: list[int] = []
        log_probs: list[float] = []
        temperature = settings.get("temperature", 1)
        while True:
            values = logits.float().log_softmax(-1)
            if temperature:
                chances = (logits.float() / temperature).softmax(-1)
                token = int(torch.multinomial(chances, 1, generator=self.generator))
            else:
                token = int(values.argmax())
            written.append(token)
            log_probs.append(float(values[token]))
            if token == EOS or len(written) == settings["max_tokens"]:
                return written, log_probs
            found = self.engine.model(
                input_ids=torch.tensor([[token]]),
                position_ids=torch.full((3, 1, 1), position),
                cache=cache,
                use_cache=True,
            )
            logits, position = found.logits[0, -1], position + 1
