"""A small HTTP server on loopback that answers as vLLM or SGLang does.

Its model is a function: the log-prob of an id depends on the sum of all ids before, and
on the colour of the pictures. One image token is expanded to as many as the picture has
blocks of 28 x 28 pixels.
"""

from __future__ import annotations

import base64
import io
import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeVar

import numpy as np
import torch
from PIL import Image

import rounddiag as rd
from rounddiag.vision.screenshots import EncodedScreenshot

OPEN, PAD, START, END = 1, 5, 3, 4
NUM_SAMPLES, PICTURES, BLOCK = 8, 2, 28
SYSTEM = [OPEN, 11, 12, 2]


def score(ids: Sequence[int], colors: Sequence[int] = ()) -> np.ndarray[Any, Any]:
    """Return log-probs; image tokens weigh as the colour of their picture."""
    weights = np.array(ids, dtype=np.int64)
    runs = np.flatnonzero(np.diff(np.r_[0, weights == PAD]) == 1)
    for begin, color in zip(runs, colors, strict=True):
        size = int(np.argmin(np.r_[weights[begin:] == PAD, False]))
        weights[begin : begin + size] = PAD + color
    before = np.cumsum(np.r_[0, weights[:-1]])
    found: np.ndarray[Any, Any] = -1.5 + np.sin(before * 12.9898 + np.array(ids)) * 1.2
    return found


def likeliest(
    ids: Sequence[int], colors: Sequence[int], number: int
) -> list[list[tuple[float, int]]]:
    """Return the likeliest of the first 100 ids at each place."""
    found = []
    for at in range(len(ids)):
        begun = [*ids[:at]]
        shown = colors[: int((np.diff(np.r_[0, np.array(begun) == PAD]) == 1).sum())]
        known = [(float(score([*begun, i], shown)[-1]), i) for i in range(6, 100)]
        found.append(sorted(known, reverse=True)[:number])
    return found if number else [[] for _ in ids]


def png(color: int, width: int = 56) -> bytes:
    """Return a picture of one colour."""
    buffer = io.BytesIO()
    Image.new("RGB", (width, BLOCK), (color,) * 3).save(buffer, format="PNG")
    return buffer.getvalue()


def make_batch(
    old: Callable[[list[int], list[int]], np.ndarray[Any, Any]] = score,
    *,
    pictures: bool,
) -> rd.Batch:
    """Return samples of two rounds, each after a picture; `old` scores one."""
    rng = np.random.default_rng(3)
    rows: dict[str, list[Any]] = {}
    shots = []
    for _ in range(NUM_SAMPLES):
        colors = rng.integers(6, 250, PICTURES).tolist() if pictures else []
        seen = [START, PAD, PAD, END] if pictures else []
        prompt = [*SYSTEM, OPEN, *seen, *rng.integers(20, 90, 5).tolist(), OPEN, 7]
        observation = [2, OPEN, *seen, *rng.integers(20, 90, 4).tolist(), OPEN, 7]
        first, second = (rng.integers(20, 90, 30).tolist() for _ in range(2))
        response = [*first, *observation, *second]
        whole = [*prompt, *response]
        noise = 0.002 * rng.standard_normal((2, len(response)))
        at = [6 - len(prompt), 30 + 3]
        shots.append(
            [
                EncodedScreenshot(data=png(color), round=i, position=at[i])
                for i, color in enumerate(colors)
            ]
        )
        sound = score(whole, colors)
        one = {
            "response_ids": response,
            "response_mask": [1] * 30 + [0] * len(observation) + [1] * 30,
            "prompt_ids": prompt,
            "old_log_probs": old(whole, colors)[len(prompt) :] + noise[0],
            "rollout_log_probs": sound[len(prompt) :] + noise[1],
        }
        for name, values in one.items():
            rows.setdefault(name, []).append(torch.tensor(values))
    return rd.Batch.from_rows(**rows, images=shots if pictures else None)


@dataclass
class FakeServer:
    """What the server was asked, and how it misbehaves."""

    kind: str = "vllm"
    url: str = ""
    version: str = "0.33.0"
    fault: str = ""
    decodes: bool = False
    drift: float = 0.0
    asked: list[tuple[str, Any]] = field(default_factory=list)
    raw: Callable[[], bytes] | None = None  # parts of an answer that never ends

    def answer(self, path: str, body: Any) -> tuple[int, Any]:
        """Return status and answer."""
        if self.fault == "500" and body is not None:
            return 500, {"error": "the engine died"}
        if self.fault == "slow" and body is not None:
            time.sleep(2)
        if self.kind == "vllm":
            return self._vllm(path, body)
        return self._sglang(path, body)

    def _vllm(self, path: str, body: Any) -> tuple[int, Any]:
        if path == "/version":
            return 200, {"version": self.version}
        if path == "/v1/models":
            return 200, {"data": [{"id": "agent", "max_model_len": 4096}]}
        if path == "/v1/completions":
            ids = body["prompt"]
            choice = self._prompt(ids, [], body.get("prompt_logprobs", 0))
            if "logprobs" in body:
                written, values = self._write(ids, [], body["max_tokens"])
                choice |= {"token_ids": written, "logprobs": {"token_logprobs": values}}
            answer = {
                "choices": [choice],
                "usage": {"prompt_tokens_details": {"cached_tokens": self._cached}},
            }
            return 200, answer
        if path == "/inference/v1/generate" and self.fault != "no scale-out":
            return self._generate(body)
        return 403, {"error": "Scale-out endpoints are disabled"}

    def _generate(self, body: Any) -> tuple[int, Any]:
        ids, colors = self._expand(
            body["token_ids"], [one["url"] for one in body.get("content_parts", [])]
        )
        settings = body["sampling_params"]
        forced = settings.get("trace_decode_token_ids")
        if forced is None and "logprobs" in settings:
            written, drawn = self._write(ids, colors, settings["max_tokens"])
            content = [{"logprob": value} for value in drawn]
            choice = {"token_ids": written, "logprobs": {"content": content}}
            return 200, self._prompt(ids, colors) | {"choices": [choice]}
        if forced is None:
            return 200, self._prompt(ids, colors, settings["prompt_logprobs"])
        if not self.decodes:
            return 400, {"error": "Trace replay is disabled"}
        values = score([*ids, *forced], colors)[len(ids) :] + self.drift
        content = [{"logprob": value} for value in values]
        choice = {"token_ids": forced, "logprobs": {"content": content}}
        return 200, {"choices": [choice]}

    def _write(
        self, ids: list[int], colors: list[int], number: int
    ) -> tuple[list[int], list[float]]:
        """Write 20, 21 and so on, with the log-probs of the model."""
        written = list(range(20, 20 + number))
        return written, score([*ids, *written], colors)[len(ids) :].tolist()

    def _prompt(
        self, ids: list[int], colors: list[int], number: int = 0
    ) -> dict[str, Any]:
        read = [*ids]
        if self.fault == "other ids":
            read[4] += 1
        values = score(read, colors)
        entries = [
            None if not at else {str(token): {"logprob": value, "rank": 40}}
            for at, (token, value) in enumerate(zip(read, values, strict=True))
        ]
        for entry, others in zip(entries, likeliest(read, colors, number), strict=True):
            for rank, (value, token) in enumerate(others, start=1):
                if entry is not None:
                    entry[str(token)] = {"logprob": value, "rank": rank}
        if self.fault == "nan":
            entries[-1] = {str(read[-1]): {"logprob": None}}
        versions = [{"start": 0, "end": 1, "version": self._weights}]
        return {
            "prompt_token_ids": read,
            "prompt_logprobs": entries,
            "weight_versions": versions,
        }

    def _sglang(self, path: str, body: Any) -> tuple[int, Any]:
        if path == "/model_info":
            return 200, {"model_path": "agent"}
        if path == "/server_info":
            return 200, {"version": self.version}
        if path == "/flush_cache":
            return 200, None
        if path != "/generate":
            return 404, {}
        ids, colors = self._expand(body["input_ids"], body.get("image_data", []))
        values = score(ids, colors)
        read = [700 if one == PAD else one for one in ids]
        if self.fault == "other ids":
            read[4] += 1
        entries = [[float(v), t, None] for v, t in zip(values, read, strict=True)]
        entries[0][0] = None
        number = body["sampling_params"]["max_new_tokens"]
        written, drawn = self._write(ids, colors, number)
        facts = {
            "output_token_logprobs": [
                [value, token, None]
                for token, value in zip(written, drawn, strict=True)
            ],
            "input_token_logprobs": entries,
            "input_top_logprobs": [
                [[value, token, None] for value, token in others] or None
                for others in likeliest(ids, colors, body.get("top_logprobs_num", 0))
                if self.fault != "no likeliest"
            ],
            "cached_tokens": self._cached,
            "weight_version": self._weights,
        }
        return 200, {"meta_info": facts}

    @property
    def _cached(self) -> int:
        return 16 if self.fault == "cached" else 0

    @property
    def _weights(self) -> str:
        return str(len(self.asked) > 4) if self.fault == "weights" else "7"

    def _expand(self, ids: list[int], urls: list[str]) -> tuple[list[int], list[int]]:
        pictures = [
            Image.open(io.BytesIO(base64.b64decode(one.partition(",")[2])))
            for one in urls
        ]
        sizes = iter([one.width * one.height // BLOCK**2 for one in pictures])
        assert ids.count(PAD) == len(pictures)
        if self.fault == "larger":
            sizes = iter([2 * size for size in sizes])
        found: list[int] = []
        for token in ids:
            found += [token] * (next(sizes) if token == PAD else 1)
        return found, [int(np.asarray(one)[0, 0, 0]) for one in pictures]


Fake = TypeVar("Fake", bound=FakeServer)


@contextmanager
def serve(**options: Any) -> Iterator[FakeServer]:
    """Run a server on a free port of this machine."""
    with serving(FakeServer(**options)) as fake:
        yield fake


@contextmanager
def serving(fake: Fake) -> Iterator[Fake]:
    """Run a server on a free port of this machine, with its address in `url`."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if fake.raw is None:
                self._send(*fake.answer(self.path, None))
                return
            self.send_response(200)
            self.end_headers()
            with suppress(OSError):
                while True:
                    self.wfile.write(fake.raw())

        def do_POST(self) -> None:
            size = int(self.headers["Content-Length"])
            body = json.loads(self.rfile.read(size))
            fake.asked.append((self.path, body))
            self._send(*fake.answer(self.path, body))

        def _send(self, status: int, answer: Any) -> None:
            is_raw = isinstance(answer, bytes)
            data = answer if is_raw else json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    fake.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield fake
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
