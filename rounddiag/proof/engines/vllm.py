"""Scores with a running vLLM: prompt log-probs of exact ids, and forced decoding."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rounddiag.proof.engines.http import Host, StatusError
from rounddiag.proof.engines.pictures import collapse, encode
from rounddiag.proof.engines.server import ServerEngine

if TYPE_CHECKING:
    from rounddiag._typing import Array
    from rounddiag.proof.hypotheses.hypothesis import Need
    from rounddiag.proof.trajectory import Request, Samples

_MINUS_INFINITY = -9999.0  # as JSON has it
_PROBE = [1, 2, 1, 2, 1, 2]
_GENERATE, _COMPLETIONS = "/inference/v1/generate", "/v1/completions"


@dataclass(eq=False)
class VllmEngine(ServerEngine):
    """A vLLM server.

    Text goes to `/v1/completions`, which every server has; pictures go to
    `/inference/v1/generate`, which needs `--enable-scale-out`. With
    `--enable-trace-replay` the server also decodes given tokens.
    """

    can_decode: bool = False

    @classmethod
    def open(cls, host: Host) -> VllmEngine:
        """Ask a server for its version and its model."""
        version = str(host.get("/version")["version"])
        models = host.get("/v1/models")["data"]
        own = [one for one in models if not one.get("parent")] or models
        found = cls(host, str(own[0]["id"]), version)
        found.can_decode = found._probe_decoding()
        return found

    def _probe_decoding(self) -> bool:
        try:
            answer = self._decode([1], _PROBE, [])
            return list(answer["choices"][0]["token_ids"]) == _PROBE
        except (StatusError, KeyError, TypeError, IndexError):
            return False

    @property
    def name(self) -> str:
        """As it is printed."""
        return f"vLLM {self.version} at {self.host.name}"

    @property
    def abilities(self) -> frozenset[Need]:
        """Ids and pictures; forced decoding where the server has it."""
        more: set[Need] = {"decoding"} if self.can_decode else set()
        return super().abilities | more

    def read_version(self) -> str:
        """Ask for the version of the server's program."""
        return str(self.host.get("/version")["version"])

    def beside(self, model: str) -> VllmEngine:
        """Return an engine of another model that the server has, such as an adapter."""
        return replace(self, model=model, _weights=set(), _probe=None)

    def ask(self, request: Request, samples: Samples) -> Array:
        """Return a log-prob for each id of a request; NaN where there is none."""
        self.require_text(request)
        if request.setting == "decoded":
            return self._forced(request, samples)
        answer = (
            self._ask_with_pictures(request, samples)
            if request.pictures
            else self.host.post(
                _COMPLETIONS,
                {
                    "model": self.model,
                    "prompt": request.ids.tolist(),
                    "max_tokens": 1,
                    "temperature": 1,
                    "prompt_logprobs": 0,
                    "return_token_ids": True,
                    "return_weight_versions": True,
                    "add_special_tokens": False,
                    "cache_salt": secrets.token_hex(8),
                },
            )
        )
        return self._read_prompt(answer, request)

    def _ask_with_pictures(self, request: Request, samples: Samples) -> Any:  # noqa: ANN401 JSON
        return self.host.post(
            _GENERATE,
            {
                "model": self.model,
                "token_ids": collapse(request, samples),
                "content_parts": [
                    {"type": "image_url", "url": encode(picture, samples)}
                    for picture in request.pictures
                ],
                "sampling_params": {
                    "max_tokens": 1,
                    "temperature": 1,
                    "prompt_logprobs": 0,
                },
                "return_token_ids": True,
                "cache_salt": secrets.token_hex(8),
            },
        )

    def _read_prompt(self, answer: Any, request: Request) -> Array:  # noqa: ANN401 JSON
        ids = request.ids.numpy()
        self._check(answer)
        returned = _find(answer, "prompt_token_ids")
        if returned is not None:
            self.check_ids(ids, returned, request)
        entries = _find(answer, "prompt_logprobs")
        if not isinstance(entries, list):
            self.refuse(
                "`prompt_logprobs` in the answer",
                "none",
                "Use vLLM 0.12 or newer, without speculative decoding.",
            )
        if len(entries) != len(ids):
            self.check_ids(ids, np.zeros(len(entries)), request)
        found = np.full(len(ids), np.nan)
        for at, (token, entry) in enumerate(zip(ids.tolist(), entries, strict=True)):
            if not at or not isinstance(entry, dict):
                continue
            if str(token) not in entry:
                other = int(next(iter(entry), -1))
                self.check_ids(ids, np.r_[ids[:at], other, ids[at + 1 :]], request)
            found[at] = _number(entry[str(token)]["logprob"])
        return found

    def _check(self, answer: Any) -> None:  # noqa: ANN401 JSON
        if not isinstance(answer, dict):
            self.refuse("a JSON object", repr(answer)[:80], "See its log.")
        usage = answer.get("usage") or {}
        details = usage.get("prompt_tokens_details") or {}
        self.check_cache(details.get("cached_tokens"))
        for span in _find(answer, "weight_versions") or []:
            self.note_weights(span.get("version") if isinstance(span, dict) else span)

    def _forced(self, request: Request, samples: Samples) -> Array:
        """Return the log-probs of a round's tokens, decoded one after the other."""
        at = request.is_scored.nonzero()[:, 0]
        begin, stop = int(at[0]), int(at[-1]) + 1
        shown = tuple(
            picture
            for picture in request.pictures
            if samples[picture.sample].spans[picture.index][1] <= begin
        )
        context = replace(
            request,
            ids=request.ids[:begin],
            source=request.source[:begin],
            is_scored=request.is_scored[:begin],
            pictures=shown,
        )
        wanted = request.ids[begin:stop].tolist()
        answer = self._decode(
            collapse(context, samples), wanted, [encode(one, samples) for one in shown]
        )
        for span in _find(answer, "weight_versions") or []:
            self.note_weights(span.get("version") if isinstance(span, dict) else span)
        choice = answer["choices"][0]
        self.check_ids(np.asarray(wanted), choice["token_ids"], request)
        found = np.full(len(request.ids), np.nan)
        found[begin:stop] = [
            _number(entry["logprob"]) for entry in choice["logprobs"]["content"]
        ]
        return found

    def _decode(self, ids: list[int], wanted: list[int], pictures: list[str]) -> Any:  # noqa: ANN401 JSON
        body: dict[str, Any] = {
            "model": self.model,
            "token_ids": ids,
            "sampling_params": {
                "max_tokens": len(wanted),  # it would be 16
                "temperature": 1,
                "logprobs": 0,
                "trace_decode_token_ids": wanted,
            },
            "return_token_ids": True,
            "cache_salt": secrets.token_hex(8),
        }
        if pictures:
            body["content_parts"] = [
                {"type": "image_url", "url": one} for one in pictures
            ]
        return self.host.post(_GENERATE, body)


def _find(answer: dict[str, Any], key: str) -> Any:  # noqa: ANN401 JSON
    """Return a field of an answer, or of its only choice."""
    if answer.get(key) is not None:
        return answer[key]
    choices = answer.get("choices") or [{}]
    return choices[0].get(key)


def _number(value: Any) -> float:  # noqa: ANN401 JSON
    if value is None:
        return float("nan")
    return -np.inf if value <= _MINUS_INFINITY else float(value)
