"""A running vLLM or SGLang as the engine: a fake one on this machine."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import rounddiag as rd
from rounddiag.errors import BatchError
from rounddiag.proof.engines import client
from rounddiag.proof.engines.client import Host, ServerError
from rounddiag.proof.engines.dialects import Sampling
from rounddiag.proof.engines.server import ServerEngine
from rounddiag.proof.scorer import Scorer
from rounddiag.vision.screenshots import EncodedScreenshot
from tests.proof.fake_server import (
    PAD,
    SYSTEM,
    FakeServer,
    make_batch,
    png,
    score,
    serve,
)
from tests.proof.test_prove import say

KINDS = pytest.mark.parametrize("kind", ["vllm", "sglang"])


def without_system(ids: list[int], colors: list[int]) -> Any:
    return np.r_[np.zeros(len(SYSTEM)), score(ids[len(SYSTEM) :], colors)]


def without_pictures(ids: list[int], colors: list[int]) -> Any:
    """Score as an engine that removes pictures with their tokens."""
    del colors
    text = [at for at, token in enumerate(ids) if token not in {3, 4, PAD}]
    log_probs = np.zeros(len(ids))
    log_probs[text] = score([ids[at] for at in text])
    return log_probs


@KINDS
@pytest.mark.parametrize("pictures", [False, True])
def test_rescore_gives_what_the_server_gives(kind: str, *, pictures: bool) -> None:
    batch = make_batch(pictures=pictures)
    with serve(kind=kind) as server:
        rescored = rd.rescore(batch, server.url).scores["rescored"]
    mask = batch.response_mask != 0
    assert float((rescored - batch.log_probs("rollout"))[mask].abs().max()) < 0.02


@KINDS
def test_a_missing_system_prompt_is_proved(kind: str) -> None:
    with serve(kind=kind) as server:
        proof = rd.prove(make_batch(without_system, pictures=False), server.url)
    assert (proof.verdict, proof.side) == ("proved", "old")
    assert proof.conclusions[0].says == ("no first message, such as the system prompt",)
    # vLLM 0.32.0: rescoring through the server hides a stale prefix cache.
    hidden = proof.not_tested.get("stale cache of the server", "")
    assert ("never read it" in hidden) is (kind == "vllm")
    assert proof.num_sent == 0
    assert "needs the logits" not in repr(proof.not_tested.get("base", ""))


@KINDS
def test_missing_pictures_are_proved_and_those_sent_are_counted(kind: str) -> None:
    with serve(kind=kind) as server:
        proof = rd.prove(make_batch(without_pictures, pictures=True), server.url)
    assert say(proof) == ("proved", "old", "dropped_image")
    assert proof.num_sent >= 10
    host = server.url.removeprefix("http://")
    assert re.search(rf"Sent: \d+ pictures to .*{host}\.", repr(proof))


def test_requests_have_one_image_token_for_each_picture() -> None:
    batch = make_batch(pictures=True)
    with serve() as server:
        rd.rescore(batch, server.url, samples=[0])
    ((_, body),) = [
        request for request in server.asked if "content_parts" in request[1]
    ]
    assert body["token_ids"].count(PAD) == len(body["content_parts"]) == 2
    assert body["content_parts"][0]["url"].startswith("data:image/png;base64,")
    assert body["sampling_params"]["prompt_logprobs"] == 0


def test_decoding_that_differs_from_prefill_is_proved() -> None:
    """The sampler's numbers are those of decoding: 0.3 nat less than of prefill."""
    batch = make_batch(pictures=True)
    drifted = replace(batch, rollout_log_probs=batch.log_probs("rollout") - 0.3)
    with serve(decodes=True, drift=-0.3) as server:
        proof = rd.prove(drifted, server.url)
    assert (proof.side, proof.cause) == ("rollout", "decode_path")
    assert proof.verdict == "proved"


@KINDS
@pytest.mark.parametrize("colors", [[], [40, 90]])
def test_a_server_writes_and_says_what_it_read(kind: str, colors: list[int]) -> None:
    """Two pictures of two tokens each: one token for each is sent."""
    sent = [1, 11, *(token for _ in colors for token in (3, PAD, 4)), 7]
    read = [1, 11, *(token for _ in colors for token in (3, PAD, PAD, 4)), 7]
    shots = [EncodedScreenshot(data=png(color)) for color in colors]
    with serve(kind=kind) as server:
        engine = ServerEngine.open(Host.at(server.url))
        written = engine.sample(sent, shots, Sampling(num_tokens=3))
    assert written.ids.tolist() == [20, 21, 22]
    expected = score([*read, 20, 21, 22], colors)[-3:]
    assert np.allclose(written.log_probs, expected)
    assert written.read is not None
    is_text = np.array(read) != PAD  # pictures have ids of their own in SGLang
    assert written.read[is_text].tolist() == np.array(read)[is_text].tolist()
    assert len(written.read) == len(read)


@KINDS
@pytest.mark.parametrize(
    ("salt", "sent"), [("abc", ["abc"] * 2), ("", [None] * 2), (None, ["a", "b"])]
)
def test_a_salt_is_kept_left_out_or_new(
    kind: str, salt: str | None, sent: list[str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    how = Sampling(num_tokens=1, salt=salt)
    with serve(kind=kind) as server:
        engine = ServerEngine.open(Host.at(server.url))
        names = iter("ab")
        monkeypatch.setattr("secrets.token_hex", lambda _: next(names))
        for _ in range(2):
            engine.sample([1, 11, 7], [], how)
    assert [body.get("cache_salt") for _, body in server.asked[-2:]] == sent


def test_without_trace_replay_decoding_is_not_tested() -> None:
    with serve() as server:
        engine = ServerEngine.open(Host.at(server.url))
    assert "decoding" not in engine.abilities


ANSWERS = {  # fault of the server: what is said
    "other ids": "The server tokenised text again",
    "larger": "Start it with the processor's limits",
    "cached": "Start the server without prefix caching",
    "500": "HTTP 500: .*the engine died",
    "weights": "that no trainer updates",
}


@pytest.mark.parametrize(
    ("kind", "fault", "message"),
    [
        *((kind, *each) for kind in ("vllm", "sglang") for each in ANSWERS.items()),
        ("vllm", "nan", "nan for 1 of"),
        ("vllm", "no scale-out", "Start vLLM with --enable-scale-out"),
    ],
)
def test_answers_that_cannot_be_used_are_errors(
    kind: str, fault: str, message: str
) -> None:
    batch = make_batch(pictures=fault in {"larger", "no scale-out"})
    with (
        serve(kind=kind, fault=fault) as server,
        pytest.raises(ServerError, match=message),
    ):
        rd.rescore(batch, server.url)


def test_another_version_at_the_end_is_an_error() -> None:
    with serve() as server:
        engine = ServerEngine.open(Host.at(server.url))
        scorer = Scorer(make_batch(pictures=False), engine)
        scorer.scores((), 0)
        engine.confirm(scorer.samples)
        server.version = "0.34.0"
        with pytest.raises(ServerError, match="Prove again while the server stays up"):
            engine.confirm(scorer.samples)


def test_a_server_that_does_not_answer_in_time_is_an_error() -> None:
    with serve() as server:
        engine = ServerEngine.open(Host(server.url, timeout_s=0.2))
        server.fault = "slow"
        scorer = Scorer(make_batch(pictures=False), engine)
        with pytest.raises(ServerError, match=r"within 0\.2 s"):
            scorer.scores((), 0)


def drip(server: FakeServer) -> None:
    """Send a space each tenth of a second, of an answer that never ends."""

    def wait() -> bytes:
        time.sleep(0.1)
        return b" "

    server.raw = wait


def flood(server: FakeServer) -> None:
    server.raw = lambda: b" " * 2**16


@pytest.mark.parametrize(
    ("behave", "message"),
    [(drip, r"an answer within 0\.5 s"), (flood, "an answer of at most 1 MB")],
)
def test_an_answer_without_end_is_an_error(
    behave: Callable[[FakeServer], None], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "MOST_BYTES", 2**20)
    with serve() as server:
        behave(server)
        with pytest.raises(ServerError, match=message):
            Host(server.url, timeout_s=0.5).get("/version")


def replaced(answer: Any, path: list[Any], value: Any) -> Any:
    """Return an answer with another value at a path."""
    if not path:
        return value
    changed = dict(answer) if isinstance(answer, dict) else list(answer)
    changed[path[0]] = replaced(changed[path[0]], path[1:], value)
    return changed


@pytest.mark.parametrize(
    ("keys", "value"),
    [
        ([], None),
        ([], [1]),
        ([], 7),
        (["choices"], {"a": 1}),
        (["choices"], "abc"),
        (["choices", 0], 1),
        (["choices", 0, "prompt_token_ids"], "abc"),
        (["choices", 0, "prompt_token_ids"], [[1], [2, 3]]),
        (["choices", 0, "prompt_token_ids", 3], 1.0),
        (["choices", 0, "prompt_token_ids", 3], True),
        (["choices", 0, "prompt_token_ids", 3], 10**30),
        (["choices", 0, "prompt_logprobs"], {}),
        (["choices", 0, "prompt_logprobs"], [None]),
        (["choices", 0, "prompt_logprobs", 20], {"abc": {"logprob": -1}}),
        (["choices", 0, "prompt_logprobs", 20], -1.0),
        (["choices", 0, "prompt_logprobs", 20, ...], {}),
        (["choices", 0, "prompt_logprobs", 20, ..., "logprob"], "x"),
        (["choices", 0, "prompt_logprobs", 20, ..., "logprob"], True),
        (["choices", 0, "prompt_logprobs", 20, ..., "logprob"], 10**400),
        (["choices", 0, "prompt_logprobs", 20, ..., "logprob"], float("nan")),
        (["choices", 0, "prompt_logprobs", 20, ..., "logprob"], float("inf")),
    ],
)
def test_an_answer_of_another_shape_is_an_error(keys: list[Any], value: Any) -> None:
    """One field is another; `...` is the id that an entry is about."""
    with serve() as server:
        answer = server.answer

        def change(path: str, body: Any) -> tuple[int, Any]:
            status, reply = answer(path, body)
            if path == "/v1/completions":
                token = str(body["prompt"][20])
                at = [token if key is ... else key for key in keys]
                return status, replaced(reply, at, value)
            return status, reply

        server.answer = change  # type: ignore[method-assign]
        with pytest.raises(ServerError, match=server.url.removeprefix("http://")):
            rd.rescore(make_batch(pictures=False), server.url)


def test_no_server_is_an_error_that_names_the_address() -> None:
    with serve() as server:
        url = server.url
    with pytest.raises(ServerError, match=f"{url}/version"):
        rd.rescore(make_batch(pictures=False), url)


@pytest.mark.parametrize(
    "address", ["ftp://host", "http://", "http://user:word@host:8000", "http://h:99999"]
)
def test_an_address_that_is_none_is_an_error(address: str) -> None:
    with pytest.raises(BatchError, match="Pass scheme, host and port") as caught:
        rd.prove(make_batch(pictures=False), address)
    assert "word@" not in str(caught.value)


def test_what_was_scored_before_a_server_died_is_judged() -> None:
    batch = make_batch(without_system, pictures=False)
    with serve() as server:
        whole = rd.prove(batch, server.url)
        names = whole.frame["hypothesis"].unique()
        assert "first_message_removed" in names
        server.asked.clear()
        answer = server.answer

        def die(path: str, body: Any) -> tuple[int, Any]:
            removed = [
                sent["prompt"]
                for _, sent in server.asked
                if "prompt" in sent and SYSTEM[1] not in sent["prompt"]
            ]
            if len(removed) > 4 and body is not None:
                return 500, {"error": "the engine died"}
            return answer(path, body)

        server.answer = die  # type: ignore[method-assign]
        proof = rd.prove(batch, server.url)
    assert proof.not_tested
    assert any("HTTP 500" in why for why in proof.not_tested.values())
    assert (proof.side, proof.cause) == ("old", "prompt_mismatch")


def test_pictures_go_nowhere_else() -> None:
    """A redirect to another host is not followed."""
    with serve() as server, serve() as other:
        answer = server.answer

        def redirect(path: str, body: Any) -> tuple[int, Any]:
            return (307, {}) if body is not None else answer(path, body)

        server.answer = redirect  # type: ignore[method-assign]
        with pytest.raises(ServerError, match="HTTP 307"):
            rd.rescore(make_batch(pictures=True), server.url)
    assert not other.asked
