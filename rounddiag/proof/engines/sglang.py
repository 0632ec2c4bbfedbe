"""Scores with a running SGLang: input log-probs of exact ids."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rounddiag.proof.engines.http import Host, StatusError
from rounddiag.proof.engines.pictures import collapse, encode
from rounddiag.proof.engines.server import ServerEngine

if TYPE_CHECKING:
    from rounddiag._typing import Array
    from rounddiag.proof.trajectory import Request, Samples


@dataclass(eq=False)
class SglangEngine(ServerEngine):
    """An SGLang server, through `/generate`."""

    adapter: str | None = None

    @classmethod
    def open(cls, host: Host) -> SglangEngine:
        """Ask a server for its model."""
        facts = _facts(host)
        model = str(facts.get("model_path", "its model"))
        return cls(host, model, _version(host))

    @property
    def name(self) -> str:
        """As it is printed."""
        version = f" {self.version}" if self.version else ""
        return f"SGLang{version} at {self.host.name}"

    def read_version(self) -> str:
        """Ask for the version of the server's program."""
        return _version(self.host)

    def beside(self, model: str) -> SglangEngine:
        """Return an engine of an adapter that the server has."""
        return replace(self, adapter=model, _weights=set(), _probe=None)

    def ask(self, request: Request, samples: Samples) -> Array:
        """Return a log-prob for each id of a request; NaN where there is none."""
        self.require_text(request)
        body: dict[str, Any] = {
            "input_ids": collapse(request, samples),
            "sampling_params": {"max_new_tokens": 0, "temperature": 0},
            "return_logprob": True,
            "logprob_start_len": 0,
            "return_prompt_token_ids": True,
        }
        if request.pictures:
            body["image_data"] = [encode(one, samples) for one in request.pictures]
        if self.adapter is not None:
            body["lora_path"] = self.adapter
        with suppress(StatusError):  # it is refused while other requests run
            self.host.post("/flush_cache", {})
        answer = self.host.post("/generate", body)
        return self._read(answer, request, samples)

    def _read(self, answer: Any, request: Request, samples: Samples) -> Array:  # noqa: ANN401 JSON
        facts = answer.get("meta_info") if isinstance(answer, dict) else None
        entries = (facts or {}).get("input_token_logprobs")
        if not isinstance(facts, dict) or not isinstance(entries, list):
            self.refuse(
                "`meta_info.input_token_logprobs` in the answer",
                "none",
                "Start the server without speculative decoding.",
            )
        self.note_weights(facts.get("weight_version"))
        self.check_cache(facts.get("cached_tokens"))
        ids = request.ids.numpy()
        read = np.array([int(entry[1]) for entry in entries])
        if read.shape == ids.shape and request.pictures:
            # Pictures have ids of their own there, made of their hashes.
            first = request.pictures[0]
            one = samples[first.sample]
            is_image = ids == int(one.ids[one.spans[first.index][0]])
            read = np.where(is_image, ids, read)
        self.check_ids(ids, read, request)
        values = [np.nan if entry[0] is None else entry[0] for entry in entries]
        return np.array(values, dtype=np.float64)


def _facts(host: Host) -> dict[str, Any]:
    try:
        found = host.get("/model_info")
    except StatusError:  # before 0.5.4
        found = host.get("/get_model_info")
    return found if isinstance(found, dict) else {}


def _version(host: Host) -> str:
    for path in ("/server_info", "/get_server_info"):
        with suppress(StatusError):
            found = host.get(path)
            if isinstance(found, dict):
                return str(found.get("version", ""))
    return ""
