"""The sample model behind the stand-in of vLLM: it samples, and faults can be planted.

Text, ids, pictures and adapters arrive as at a real server; transformers computes. What
is configured is what an engineer configures: dtype, template, processor, cache, chunks
of prefill, mode of log-probs.
"""

from __future__ import annotations

import base64
import io
import sys
import threading
from contextlib import nullcontext
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from PIL import Image
from safetensors.torch import load_file
from transformers.modeling_outputs import BaseModelOutputWithPooling

from rounddiag.proof.chat import Chat
from rounddiag.proof.engines.adapters import Adapter, open_adapter
from rounddiag.proof.engines.local import LocalEngine
from tests.proof.fake_server import FakeServer

MODEL = "sample_data/model"
EOS = 2
SYNC = """\
import json, sys, urllib.request
body = json.dumps({"folder": sys.argv[2]}).encode()
urllib.request.urlopen(urllib.request.Request(sys.argv[1] + "/load_adapter", body))
"""


def _dump(tool: Any) -> Any:
    """Return a tool as vLLM 0.32 gives it to the template."""
    own = tool["function"]
    names = ("name", "description", "parameters")
    dumped = {name: own.get(name) for name in names}
    return {"type": tool["type"], "function": dumped}


@dataclass
class ModelServer(FakeServer):
    """A stand-in with a model of transformers.

    Attributes
    ----------
    engine: The model, in the server's dtype.
    chat: Its template, where it is not the model's.
    processor: Its image processor, where it is not the model's.
    chunk: Tokens of prefill at a time; 0 for all.
    has_cache: Whether it keeps the keys and values of earlier prompts, by salt.
    mode: Which log-probs it returns: `raw` or `processed`.
    lost: So many ids of each prompt it loses, behind the last picture.
    blind: What it makes of pictures: `no_tokens` removes them with their tokens,
        `no_pixels` shows black ones.
    updates: What it does with an adapter: `arrive`, `never`, or one `late`.
    keeps_cache: Whether the cache stays as it is when an adapter arrives.
    keeps_pictures: Whether encoded pictures stay, as where its folder is overwritten.
    tower: Whether an adapter's part of the vision tower is `taken`, left `out`, or the
        adapter `refused`.
    """

    engine: LocalEngine = None  # type: ignore[assignment]
    chat: Chat | None = None
    processor: Any = None
    chunk: int = 0
    has_cache: bool = False
    mode: str = "raw"
    lost: int = 0
    blind: str = ""
    updates: str = "arrive"
    keeps_cache: bool = False
    keeps_pictures: bool = False
    tower: str = "taken"
    adapter: Adapter | None = None
    waiting: Adapter | None = None
    caches: dict[str, list[Any]] = field(default_factory=dict)
    seen: dict[str, Any] = field(default_factory=dict)
    encoded: dict[bytes, Any] = field(default_factory=dict)
    generator: torch.Generator = field(
        default_factory=lambda: torch.Generator().manual_seed(0)
    )
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def sync(self) -> str:
        """The command that has it load the adapter in a folder."""
        code = SYNC.replace("\n", "; ").removesuffix("; ")
        return f"{sys.executable} -c '{code}' {self.url}"

    def answer(self, path: str, body: Any) -> tuple[int, Any]:
        """Return status and answer."""
        asked = {
            "/v1/chat/completions": lambda body: (200, self._read_messages(body)),
            "/v1/completions": lambda body: (
                200,
                self._complete(body["prompt"], [], body, body),
            ),
            "/inference/v1/generate": lambda body: (200, self._generate_text(body)),
            "/load_adapter": self._load,
        }
        if body is None or path not in asked:
            return super().answer(path, body)
        if "trace_decode_token_ids" in body.get("sampling_params", {}):
            return 400, {"error": "Trace replay is disabled"}
        with self.lock, torch.inference_mode():
            return asked[path](body)

    def _generate_text(self, body: Any) -> Any:
        urls = [part["url"] for part in body.get("content_parts", [])]
        return self._complete(body["token_ids"], urls, body["sampling_params"], body)

    def _load(self, body: Any) -> tuple[int, Any]:
        given = open_adapter(body["folder"], self.engine.model)
        names = load_file(f"{body['folder']}/adapter_model.safetensors")
        if self.tower == "refused" and any("vis" in name for name in names):
            return 400, {"error": "unexpected modules"}
        if self.tower == "out":
            named = self.engine.model.named_modules()
            tower = {layer for name, layer in named if "vis" in name}
            language = tuple(each for each in given.layers if each not in tower)
            given = replace(given, layers=language)
        if self.updates == "arrive":
            self.adapter = given
        elif self.updates == "late":
            self.adapter, self.waiting = self.waiting, given
        if not self.keeps_cache:
            self.caches.clear()
        if not self.keeps_pictures:
            self.encoded.clear()
        return 200, None

    def _read_messages(self, body: Any) -> Any:
        urls: list[str] = []
        messages = []
        for message in body["messages"]:
            content = message["content"]
            if not isinstance(content, str):
                shown = [part for part in content if part["type"] == "image_url"]
                urls += [part["image_url"]["url"] for part in shown]
                content = [
                    {"type": "image"} if part in shown else part for part in content
                ]
            messages.append({**message, "content": content})
        chat = self.chat or self.engine.chat
        assert chat is not None
        tools = [_dump(tool) for tool in body.get("tools", ())]
        text = chat.write(messages, tools=tools, opens_reply=True)
        assert text is not None
        read, _ = self._read(chat.encode(text), urls)
        return {"prompt_token_ids": read, "choices": [{}]}

    def _read(self, ids: list[int], urls: list[str]) -> tuple[list[int], Any]:
        """Return the ids with expanded pictures, and what the processor gives."""
        token = self.engine.eyes.image_token
        at = 2 + max((i for i, each in enumerate(ids) if each == token), default=1)
        ids = [*ids[:at], *ids[at + self.lost :]]
        if not urls:
            return ids, {}
        if self.blind == "no_tokens":
            return [each for each in ids if each != token], {}
        shown = [self._see(url) for url in urls]
        pixels = {name: torch.cat([each[name] for each in shown]) for name in shown[0]}
        sizes = iter((pixels["image_grid_thw"].prod(-1) // 4).tolist())
        expanded: list[int] = []
        for each in ids:
            expanded += [each] * (next(sizes) if each == token else 1)
        return expanded, pixels

    def _see(self, url: str) -> Any:
        """Return what the processor makes of a picture, once for each."""
        if url not in self.seen:
            data = io.BytesIO(base64.b64decode(url.partition(",")[2]))
            picture = Image.open(data).convert("RGB")
            if self.blind == "no_pixels":
                picture = Image.new("RGB", picture.size)
            processor = self.processor or self.engine.processor
            found = processor(images=[picture], return_tensors="pt")
            self.seen[url] = dict(found)
        return self.seen[url]

    def _complete(
        self, ids: list[int], urls: list[str], settings: Any, body: Any
    ) -> Any:
        read, pixels = self._read(ids, urls)
        scores = settings.get("prompt_logprobs") is not None
        salt = None if scores or not self.has_cache else body.get("cache_salt", "")
        with self.adapter.on() if self.adapter else nullcontext():
            logits, cache, position, cached = self._prefill(read, pixels, salt)
            usage = {"prompt_tokens_details": {"cached_tokens": cached}}
            answer: dict[str, Any] = {"prompt_token_ids": read, "usage": usage}
            if scores:
                values = logits.float().log_softmax(-1)
                answer["prompt_logprobs"] = [None] + [
                    {str(token): {"logprob": float(values[at, token])}}
                    for at, token in enumerate(read[1:])
                ]
            written, log_probs = self._decode(logits[-1], cache, position, settings)
        choice: dict[str, Any] = {"token_ids": written}
        if "prompt" in body:
            choice["logprobs"] = {"token_logprobs": log_probs}
        else:
            content = [{"logprob": value} for value in log_probs]
            choice["logprobs"] = {"content": content}
        return answer | {"choices": [choice]}

    def _prefill(
        self, read: list[int], pixels: Any, salt: str | None
    ) -> tuple[Any, Any, int, int]:
        """Return logits, cache, next position, and how much was cached."""
        ids = torch.tensor([read])
        positions = self._positions(ids, pixels)
        cache, begin = self._find(read, pixels, salt)
        cached, logits = begin, []
        while begin < len(read):
            stop = self._end(read, begin)
            inside = self._arguments(ids, pixels, begin, stop)
            found = self.engine.model(
                input_ids=ids[:, begin:stop],
                position_ids=positions[..., begin:stop],
                cache=cache,
                use_cache=True,
                **inside,
            )
            logits.append(found.logits[0])
            cache, begin = found.past_key_values, stop
        if salt is not None:
            kept = self.caches.setdefault(salt, [])
            kept.append((read, pixels.get("pixel_values"), deepcopy(cache)))
        return torch.cat(logits), cache, int(positions.max()) + 1, cached

    def _end(self, read: list[int], begin: int) -> int:
        """Return where the chunk ends that begins at a token.

        It reaches over the picture that it would cut: real engines keep the features of
        such a picture, and transformers takes whole ones only.
        """
        token = self.engine.eyes.image_token
        stop = min(begin + (self.chunk or len(read)), len(read))
        while stop < len(read) and read[stop - 1] == read[stop] == token:
            stop += 1
        return stop

    def _positions(self, ids: Any, pixels: Any) -> Any:
        model = self.engine.model
        if not self.engine.eyes.has_grids:
            return torch.arange(ids.shape[1])[None]
        positions, _ = model.base_model.get_rope_index(
            input_ids=ids,
            mm_token_type_ids=(ids == self.engine.eyes.image_token).int(),
            image_grid_thw=pixels.get("image_grid_thw"),
            attention_mask=None,
        )
        return positions

    def _find(self, read: list[int], pixels: Any, salt: str | None) -> tuple[Any, int]:
        """Return keys and values of the longest prompt that this one begins with."""
        best, size = None, 0
        for ids, shown, cache in self.caches.get(salt, []) if salt is not None else []:
            same = min(len(ids), len(read) - 1)
            rows = 0 if shown is None else len(shown)
            is_prefix = ids[:same] == read[:same] and (
                rows == 0 or torch.equal(shown, pixels["pixel_values"][:rows])
            )
            if is_prefix and same > size:
                best, size = cache, same
        if best is None:
            return None, 0
        cache = deepcopy(best)
        if size < cache.get_seq_length():
            cache.crop(size - cache.get_seq_length())
        return cache, size

    def _arguments(self, ids: Any, pixels: Any, begin: int, stop: int) -> Any:
        """Return the pixels of the pictures between two tokens."""
        is_image = ids[0] == self.engine.eyes.image_token
        if not pixels or not bool(is_image[begin:stop].any()):
            return {}
        grids = pixels["image_grid_thw"]
        sizes, rows = grids.prod(-1) // 4, grids.prod(-1)
        before = int((sizes.cumsum(0) <= int(is_image[:begin].sum())).sum())
        last = int((sizes.cumsum(0) <= int(is_image[:stop].sum())).sum())
        first = int(rows[:before].sum())
        number = int(rows[before:last].sum())
        values = pixels["pixel_values"][first : first + number]
        values = values.to(self.engine.model.dtype).split(rows[before:last].tolist())
        shown = zip(values, grids[before:last], strict=True)
        features = tuple(self._encode(*each) for each in shown)
        encoded = BaseModelOutputWithPooling(pooler_output=features)
        return {
            "mm_encoder_outputs": {"image": encoded},
            "image_grid_thw": grids[before:last],
            "mm_token_type_ids": is_image[None, begin:stop].int(),
        }

    def _encode(self, patches: Any, grid: Any) -> Any:
        """Return the features of a picture, once for each until an adapter arrives."""
        key = patches.float().numpy().tobytes() + grid.numpy().tobytes()
        if key not in self.encoded:
            found = self.engine.model.get_image_features(
                pixel_values=patches, image_grid_thw=grid[None], return_dict=True
            )
            self.encoded[key] = found.pooler_output[0]
        return self.encoded[key]

    def _decode(
        self, logits: Any, cache: Any, position: int, settings: Any
    ) -> tuple[list[int], list[float]]:
        written: list[int] = []
        log_probs: list[float] = []
        rows = 3 if self.engine.eyes.has_grids else 1
        while True:
            token, log_prob = self._draw(logits.float(), settings)
            written.append(token)
            log_probs.append(log_prob)
            if token == EOS or len(written) == settings["max_tokens"]:
                return written, log_probs
            found = self.engine.model(
                input_ids=torch.tensor([[token]]),
                position_ids=torch.full((rows, 1, 1), position).squeeze(
                    0 if rows == 1 else ()
                ),
                cache=cache,
                use_cache=True,
            )
            logits, position = found.logits[0, -1], position + 1

    def _draw(self, logits: Any, settings: Any) -> tuple[int, float]:
        temperature = settings.get("temperature", 1)
        processed = logits / temperature if temperature else logits
        order = processed.sort(descending=True)
        chances = order.values.softmax(-1)
        gone = chances.cumsum(-1) - chances > settings.get("top_p", 1)
        processed = processed.scatter(
            0, order.indices, order.values.masked_fill(gone, -torch.inf)
        )
        if temperature:
            chances = processed.softmax(-1)
            token = int(torch.multinomial(chances, 1, generator=self.generator))
        else:
            token = int(logits.argmax())
        values = logits if self.mode == "raw" else processed
        return token, float(values.log_softmax(-1)[token])
