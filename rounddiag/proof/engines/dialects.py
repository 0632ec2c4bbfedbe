"""How vLLM and SGLang are asked for the log-probs of exact ids, and how they answer."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, TypeAlias

import numpy as np

from rounddiag._typing import Array
from rounddiag.proof.engines.client import OTHER_SERVER, Host, ServerError, StatusError
from rounddiag.proof.engines.pictures import collapse, encode
from rounddiag.proof.trajectory import Request, Samples

_MINUS_INFINITY = -9999.0  # as JSON of vLLM has it
_PROBE = [1, 2, 1, 2, 1, 2]
_GENERATE, _COMPLETIONS = "/inference/v1/generate", "/v1/completions"
_CHAT = "/v1/chat/completions"
_FORCED = "trace_decode_token_ids"


@dataclass(frozen=True, eq=False, kw_only=True)
class ServerAnswer:
    """What a server answered to one request.

    Attributes
    ----------
    ids: What it read.
    log_probs: NaN where there is none.
    top: Of each id, the likeliest instead: log-prob and id; none where not asked for.
    ranks: Of each id; -1 where the server does not say.
    num_cached: How many of the ids it had in its cache.
    weights: The versions of its weights, where it has them.
    """

    ids: Array
    log_probs: Array
    top: Sequence[Sequence[tuple[float, int]]] = ()
    ranks: Array = field(default_factory=lambda: np.empty(0, np.int64))
    num_cached: int = 0
    weights: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How a server draws tokens; what is not named here is left to its defaults.

    Attributes
    ----------
    num_tokens: At most.
    salt: Requests with the same salt share the prefix cache; None is a new one, "" the
        cache that requests without a salt share.
    forced: The tokens to write instead of drawing any, where a server can.
    """

    num_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    salt: str | None = None
    forced: Sequence[int] = ()


@dataclass(frozen=True, eq=False, kw_only=True)
class Continuation(ServerAnswer):
    """What a server wrote after some ids: its `ids` and `log_probs` are of that.

    Attributes
    ----------
    read: The ids that it read, image tokens expanded; None where it does not say.
    """

    read: Array | None


@dataclass(frozen=True)
class Vllm:
    """A vLLM server.

    Text goes to `/v1/completions`, which every server has; pictures go to
    `/inference/v1/generate`, which needs `--enable-scale-out`. With
    `--enable-trace-replay` the server also decodes given tokens.
    """

    model: str
    version: str
    can_decode: bool = False
    known: frozenset[str] = frozenset()
    # As in 0.32; SGLang's cache is flushed before each request.
    cache_note: ClassVar = "`prompt_logprobs` fill the prefix cache and never read it"

    @classmethod
    def open(cls, host: Host) -> Vllm | None:
        """Ask a server for its version and its model; None if it is another program."""
        try:
            version = _pick(host.get("/version"), "version")
            models = _pick(host.get("/v1/models"), "data")
        except StatusError:
            return None
        if not isinstance(version, str) or not isinstance(models, list):
            return None
        names = [
            (str(model["id"]), model.get("parent"))
            for model in models
            if isinstance(model, dict) and "id" in model
        ]
        own = [name for name, parent in names if not parent] or [n for n, _ in names]
        if not own:
            return None
        vllm = cls(own[0], version, known=frozenset(name for name, _ in names))
        with suppress(ServerError):
            how = Sampling(num_tokens=len(_PROBE), forced=_PROBE)
            written = vllm.sample(host, [1], [], how)
            return replace(vllm, can_decode=written.ids.tolist() == _PROBE)
        return vllm

    @property
    def title(self) -> str:
        """The program and its version."""
        return f"vLLM {self.version}"

    def refreshed(self, host: Host) -> Vllm:
        """Ask for its models again; one that was not there before is meant from now on.

        An adapter that a trainer loads has a name of its own.
        """
        models = _pick(host.get("/v1/models"), "data") or []
        names = [str(_pick(model, "id")) for model in models]
        added = [name for name in names if name not in self.known]
        return replace(self, model=added[-1]) if added else self

    def read_version(self, host: Host) -> str:
        """Ask for the version."""
        return str(_pick(host.get("/version"), "version"))

    def ask(
        self, host: Host, request: Request, samples: Samples, number: int = 0
    ) -> ServerAnswer:
        """Ask for the log-probs of a request, and for some likeliest tokens."""
        if request.setting == "decoded":
            return self._force(host, request, samples)
        answer = self._generate(
            host,
            collapse(request, samples),
            [encode(picture, samples) for picture in request.pictures],
            {"max_tokens": 1, "temperature": 1, "prompt_logprobs": number},
        )
        entries = self._find(answer, "prompt_logprobs")
        if not isinstance(entries, list):
            advice = "Use vLLM 0.12 or newer, without speculative decoding."
            host.refuse("`prompt_logprobs` in the answer", "none", advice)
        ids = request.ids.tolist()
        read = self._find(answer, "prompt_token_ids")
        if read is None:
            read = [
                _id_of(entry, token) for entry, token in zip(entries, ids, strict=False)
            ]
            read += [-1] * (len(entries) - len(read))
        own = [_pick(e, str(token)) for e, token in zip(entries, ids, strict=False)]
        values = [None, *(_pick(each, "logprob") for each in own[1:])]
        values += [None] * (len(ids) - len(values))
        listed = [
            [[_pick(value, "logprob"), token] for token, value in entry.items()]
            if isinstance(entry, dict)
            else None
            for entry in entries
        ]
        return ServerAnswer(
            ids=_read_ids(host, read),
            log_probs=_read_log_probs(host, values),
            top=_read_top(host, listed, number),
            ranks=np.array([_count(_pick(each, "rank")) or -1 for each in own]),
            **self._facts(answer),
        )

    def sample(
        self, host: Host, ids: Sequence[int], pictures: Sequence[str], how: Sampling
    ) -> Continuation:
        """Let it write after ids that have one image token for each picture."""
        settings: dict[str, Any] = {
            "max_tokens": how.num_tokens,
            "temperature": how.temperature,
            "top_p": how.top_p,
            "logprobs": 0,
        }
        if how.forced:
            settings[_FORCED] = list(how.forced)
        answer = self._generate(host, ids, pictures, settings, how.salt)
        if pictures or how.forced:
            content = _pick(answer, "choices", 0, "logprobs", "content")
            values = [_pick(entry, "logprob") for entry in content or []]
        else:
            values = _pick(answer, "choices", 0, "logprobs", "token_logprobs") or []
        read = self._find(answer, "prompt_token_ids")
        return _continuation(
            host,
            read=None if read is None else _read_ids(host, read),
            ids=_pick(answer, "choices", 0, "token_ids"),
            values=values,
            **self._facts(answer),
        )

    def _force(self, host: Host, request: Request, samples: Samples) -> ServerAnswer:
        at = request.is_scored.nonzero()[:, 0]
        begin, stop = int(at[0]), int(at[-1]) + 1
        context = request.before(samples[request.sample], begin)
        pictures = [encode(each, samples) for each in context.pictures]
        forced = request.ids[begin:stop].tolist()
        how = Sampling(num_tokens=len(forced), forced=forced)
        written = self.sample(host, collapse(context, samples), pictures, how)
        ids, log_probs = request.ids.numpy(), np.full(len(request.ids), np.nan)
        if len(written.ids) == len(forced):
            log_probs[begin:stop] = written.log_probs
        return ServerAnswer(
            ids=np.r_[ids[:begin], written.ids, ids[stop:]],
            log_probs=log_probs,
            weights=written.weights,
        )

    def _generate(
        self,
        host: Host,
        ids: Sequence[int],
        pictures: Sequence[str],
        settings: Mapping[str, Any],
        salt: str | None = None,
    ) -> Any:  # noqa: ANN401 JSON
        body: dict[str, Any] = {"model": self.model, "return_token_ids": True}
        body |= _salted(salt)
        if pictures or _FORCED in settings:
            body |= {"token_ids": list(ids), "sampling_params": settings}
            if pictures:
                body["content_parts"] = [
                    {"type": "image_url", "url": picture} for picture in pictures
                ]
            return host.post(_GENERATE, body)
        body |= settings
        body |= {
            "prompt": list(ids),
            "return_weight_versions": True,
            "add_special_tokens": False,
        }
        return host.post(_COMPLETIONS, body)

    def _find(self, answer: Any, key: str) -> Any:  # noqa: ANN401 JSON
        value = _pick(answer, key)
        return _pick(answer, "choices", 0, key) if value is None else value

    def _facts(self, answer: Any) -> dict[str, Any]:  # noqa: ANN401 JSON
        usage = _pick(answer, "usage", "prompt_tokens_details", "cached_tokens")
        spans = self._find(answer, "weight_versions")
        weights = [
            str(span.get("version", span) if isinstance(span, dict) else span)
            for span in (spans if isinstance(spans, list) else [])
        ]
        return {"num_cached": _count(usage), "weights": weights}


@dataclass(frozen=True)
class Sglang:
    """An SGLang server, through `/generate`."""

    version: str
    model: str = "default"
    can_decode: bool = False
    cache_note: ClassVar = ""

    @classmethod
    def open(cls, host: Host) -> Sglang:
        """Ask a server for its model and its version."""
        try:
            host.get("/model_info")
        except StatusError:  # before 0.5.4
            host.get("/get_model_info")
        return cls(cls("").read_version(host))

    @property
    def title(self) -> str:
        """The program and its version."""
        return f"SGLang {self.version}".rstrip()

    def refreshed(self, host: Host) -> Sglang:
        """Return the same: it has one model."""
        del host
        return self

    def read_version(self, host: Host) -> str:
        """Ask for the version; empty if it has none."""
        for path in ("/server_info", "/get_server_info"):
            with suppress(StatusError):
                return str(_pick(host.get(path), "version") or "")
        return ""

    def ask(
        self, host: Host, request: Request, samples: Samples, number: int = 0
    ) -> ServerAnswer:
        """Ask for the log-probs of a request, and for some likeliest tokens."""
        body: dict[str, Any] = {
            "input_ids": collapse(request, samples),
            "sampling_params": {"max_new_tokens": 0, "temperature": 0},
            "return_logprob": True,
            "logprob_start_len": 0,
            "top_logprobs_num": number,
            "return_prompt_token_ids": True,
        }
        if request.pictures:
            body["image_data"] = [
                encode(picture, samples) for picture in request.pictures
            ]
        with suppress(StatusError):  # it is refused while other requests run
            host.post("/flush_cache", {})
        answer = host.post("/generate", body)
        entries = _pick(answer, "meta_info", "input_token_logprobs")
        if not isinstance(entries, list):
            expected = "`meta_info.input_token_logprobs` in the answer"
            advice = "Start the server without speculative decoding."
            host.refuse(expected, "none", advice)
        read = _read_ids(host, [_pick(entry, 1) for entry in entries])
        ids = request.ids.numpy()
        if read.shape == ids.shape and request.pictures:
            # Pictures have ids of their own there, made of their hashes.
            first = request.pictures[0]
            own = samples[first.sample]
            is_image = ids == int(own.ids[own.spans[first.index][0]])
            read = np.where(is_image, ids, read)
        listed = _pick(answer, "meta_info", "input_top_logprobs") or []
        return ServerAnswer(
            ids=read,
            log_probs=_read_log_probs(host, [_pick(entry, 0) for entry in entries]),
            top=_read_top(host, listed, number),
            ranks=np.full(len(entries), -1),
            **self._facts(answer),
        )

    def sample(
        self, host: Host, ids: Sequence[int], pictures: Sequence[str], how: Sampling
    ) -> Continuation:
        """Let it write after ids that have one image token for each picture."""
        is_cold = how.salt is None  # its cache is used up to where log-probs start
        body: dict[str, Any] = {
            "input_ids": list(ids),
            "sampling_params": {
                "max_new_tokens": how.num_tokens,
                "temperature": how.temperature,
                "top_p": how.top_p,
            },
            "return_logprob": True,
            "logprob_start_len": 0 if is_cold else -1,
            **_salted(how.salt),
        }
        if pictures:
            body["image_data"] = list(pictures)
        answer = host.post("/generate", body)
        entries = _pick(answer, "meta_info", "output_token_logprobs") or []
        known = _pick(answer, "meta_info", "input_token_logprobs")
        read = [_pick(entry, 1) for entry in known] if is_cold and known else None
        return _continuation(
            host,
            read=None if read is None else _read_ids(host, read),
            ids=[_pick(entry, 1) for entry in entries],
            values=[_pick(entry, 0) for entry in entries],
            **self._facts(answer),
        )

    def _facts(self, answer: Any) -> dict[str, Any]:  # noqa: ANN401 JSON
        weights = _pick(answer, "meta_info", "weight_version")
        return {
            "num_cached": _count(_pick(answer, "meta_info", "cached_tokens")),
            "weights": [] if weights is None else [str(weights)],
        }


Dialect: TypeAlias = Vllm | Sglang


def read_messages(
    host: Host, model: str, messages: Sequence[Any], tools: Sequence[Any]
) -> Array | None:
    """Return the ids that a server makes of messages; None where it does not say.

    vLLM's `/tokenize` is not asked: it drops `reasoning_content`, which the chat keeps.
    """
    body = {
        "model": model,
        "messages": list(messages),
        **({"tools": list(tools)} if tools else {}),
        "max_tokens": 1,
        "return_token_ids": True,
    }
    answer = host.post(_CHAT, body)
    ids = _pick(answer, "prompt_token_ids")
    ids = _pick(answer, "choices", 0, "prompt_token_ids") if ids is None else ids
    return None if ids is None else _read_ids(host, ids)


def _salted(salt: str | None) -> dict[str, str]:
    """Return what a request says of the prefix cache (`Sampling.salt`)."""
    salt = secrets.token_hex(8) if salt is None else salt
    return {"cache_salt": salt} if salt else {}


def _continuation(
    host: Host,
    *,
    read: Array | None,
    ids: Any,  # noqa: ANN401 JSON
    values: Sequence[Any],
    **facts: Any,  # noqa: ANN401 of its cache and weights
) -> Continuation:
    written = _read_ids(host, ids)
    log_probs = _read_log_probs(host, values)
    number = int((~np.isnan(log_probs)).sum())
    if not len(written) == len(log_probs) == number:
        expected = f"a log-prob for each of the {len(written)} tokens that it wrote"
        advice = "Start the server so that it returns the log-probs of sampled tokens."
        host.refuse(expected, f"{number}", advice)
    return Continuation(read=read, ids=written, log_probs=log_probs, **facts)


def _pick(answer: Any, *path: str | int) -> Any:  # noqa: ANN401 JSON
    for key in path:
        if isinstance(answer, dict) and isinstance(key, str):
            answer = answer.get(key)
        elif isinstance(answer, list) and isinstance(key, int) and len(answer) > key:
            answer = answer[key]
        else:
            return None
    return answer


def _count(value: Any) -> int:  # noqa: ANN401 JSON
    return value if isinstance(value, int) else 0


def _id_of(entry: Any, token: int) -> Any:  # noqa: ANN401 JSON
    if not isinstance(entry, dict) or str(token) in entry:
        return token
    first = str(next(iter(entry), "-1"))
    return int(first) if first.isdecimal() and len(first) <= _LONGEST_ID else -1


_LONGEST_ID = 9  # digits


def _read_ids(host: Host, values: Any) -> Array:  # noqa: ANN401 JSON
    limit = 10**_LONGEST_ID
    if not isinstance(values, list) or not all(
        type(value) is int and abs(value) < limit for value in values
    ):
        content = "none" if values is None else f"{values!r:.80}"
        host.refuse("the ids that it read, as whole numbers", content, OTHER_SERVER)
    return np.array(values, dtype=np.int64)


def _read_top(
    host: Host,
    listed: Any,  # noqa: ANN401 JSON
    number: int,
) -> list[list[tuple[float, int]]]:
    """Return the likeliest tokens of each place, from pairs of log-prob and id."""
    top: list[list[tuple[float, int]]] = []
    for place in listed if number and isinstance(listed, list) else ():
        pairs = place if isinstance(place, list) else []
        values = _read_log_probs(host, [_pick(pair, 0) for pair in pairs])
        ids = [_pick(pair, 1) for pair in pairs]
        ids = [_id_of({token: 0}, -1) if type(token) is str else token for token in ids]
        known = zip(values.tolist(), _read_ids(host, ids).tolist(), strict=True)
        top.append(sorted(known, reverse=True)[:number])
    return top


def _read_log_probs(host: Host, values: Sequence[Any]) -> Array:
    log_probs = np.full(len(values), np.nan)
    for at, value in enumerate(values):
        if value is None:
            continue
        if type(value) not in (int, float):
            host.refuse("log-probs as numbers", f"{value!r:.80}", OTHER_SERVER)
        try:
            log_probs[at] = -np.inf if value <= _MINUS_INFINITY else value
        except OverflowError:
            content = "a whole number of many digits"
            host.refuse("log-probs as numbers", content, OTHER_SERVER)
    return log_probs
