"""A preflight against the sample model behind a stand-in of vLLM."""

from __future__ import annotations

import json
import math
from collections import ChainMap
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import rounddiag as rd
from rounddiag.cli import main
from rounddiag.proof.engines.client import Host
from rounddiag.proof.engines.local import LocalEngine
from rounddiag.proof.engines.server import ServerEngine
from rounddiag.proof.episodes import Episode, Prompt, make_episodes
from rounddiag.proof.flight import SampledPair
from rounddiag.proof.noise import RoundingNoise
from rounddiag.proof.readings import compare_ids, difference, read_prompts
from tests.proof.fake_server import serving
from tests.proof.model_server import MODEL, ModelServer
from tests.proof.preflight_bench import FAULTS, Case, fly, with_template

CHECKS = [
    *("ids", "images", "log-probs", "prefill", "cache", "batch"),
    *("sampling", "packed", "weights"),
]


@pytest.fixture(scope="module")
def engine() -> LocalEngine:
    return LocalEngine.open(MODEL, dtype="bfloat16")


@pytest.fixture(scope="module")
def sound(engine: LocalEngine) -> rd.Preflight:
    """A sound server with a cache, a function as the trainer, and a known change."""
    pytest.importorskip("peft", reason="peft is the extra `lora`")
    with serving(ModelServer(engine=engine, has_cache=True)) as server:
        return rd.preflight(MODEL, server.url, scorer=forward, after=server.sync)


@cache
def trainer() -> LocalEngine:
    return LocalEngine.open(MODEL)


@torch.inference_mode()
def forward(ids: list[int], images: list[Any], positions: torch.Tensor) -> Any:
    """Score a row as a trainer does: positions that begin again are another sample."""
    model = trainer().model
    starts = [*(positions[0] == 0).nonzero()[:, 0].tolist(), len(ids)]
    shown = iter(images)
    parts = []
    for begin, stop in pairwise(starts):
        part = torch.tensor([ids[begin:stop]])
        is_image = part == trainer().eyes.image_token
        number = int((part == 3).sum())  # where pictures open
        pixels = trainer().processor(
            images=[next(shown) for _ in range(number)], return_tensors="pt"
        )
        logits = model(
            input_ids=part,
            position_ids=positions[:, None, begin:stop],
            mm_token_type_ids=is_image.int(),
            **pixels,
        ).logits
        chosen = logits[0, :-1].log_softmax(-1).gather(1, part[0, 1:, None])[:, 0]
        parts.append(torch.cat([torch.zeros(1), chosen]))
    return torch.cat(parts).numpy()


def test_a_sound_server_passes(sound: rd.Preflight) -> None:
    assert sound.passed, sound
    assert sound.failed == ()
    assert set(sound.frame["result"]) == {"passes"}
    assert [*sound.frame] == ["check", "result", "value", "limit", "where", "why"]
    assert [*sound.frame["check"]] == CHECKS
    assert (sound.frame["value"] <= sound.frame["limit"]).all()


def test_the_batch_has_the_ids_that_the_server_read(sound: rd.Preflight) -> None:
    """Scoring it again gives what is in it, and pictures lie at their tokens."""
    batch = sound.batch
    assert batch.num_samples == 4
    assert batch.sample_ids == ("small", "large", "tall", "several")
    again = rd.rescore(batch, MODEL)
    pair = SampledPair.of_batch(again, "rescored")
    assert torch.allclose(
        torch.from_numpy(pair.other),
        torch.from_numpy(SampledPair.of_batch(again, "old").other),
        atol=1e-5,
    )
    assert batch.images is not None
    for sample, shots in enumerate(batch.images):
        begin = int(batch.offsets[sample])
        assert batch.prompt_ids is not None
        assert batch.prompt_offsets is not None
        stop = int(batch.prompt_offsets[sample + 1])
        for shot in shots:
            assert shot.position is not None
            ids, at = (
                (batch.prompt_ids, stop + shot.position)
                if shot.position < 0
                else (batch.require_ids(), begin + shot.position)
            )
            assert int(ids[at]) == 5
            assert int(ids[at - 1]) == 3  # where a picture opens


def test_the_command_prints_a_line_a_check(
    engine: LocalEngine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("peft", reason="peft is the extra `lora`")
    file = tmp_path / "episodes.parquet"
    with serving(ModelServer(engine=engine)) as server:
        words = ["preflight", MODEL, "--server", server.url, "--json", "-o", str(file)]
        code = main([*words, "--after", "sh -c 'echo gone >&2; exit 3'"])
        host = server.url.removeprefix("http://")
    printed = json.loads(capsys.readouterr().out)
    assert code == 0
    assert printed["passed"]
    assert printed["verdict"] == "healthy"
    assert host in printed["server"]
    assert [row["check"] for row in printed["checks"]] == CHECKS
    by_name = {row["check"]: row for row in printed["checks"]}
    assert by_name["weights"]["result"] == "could not be tested"
    assert "3: gone" in by_name["weights"]["why"]
    assert by_name["packed"]["result"] == "could not be tested"
    saved = rd.load(file)
    assert saved.num_samples == 4
    assert rd.diagnose(saved).verdict == "healthy"


@dataclass
class CachedScores(ModelServer):
    """A server whose `prompt_logprobs` are 0 where an earlier prompt begins alike."""

    prompts: list[list[int]] = field(default_factory=list)

    def _complete(
        self, ids: list[int], urls: list[str], settings: Any, body: Any
    ) -> Any:
        answer = super()._complete(ids, urls, settings, body)
        read, scores = answer["prompt_token_ids"], answer.get("prompt_logprobs")
        for known in self.prompts if scores else []:
            for at, (own, other) in enumerate(zip(read, known, strict=False)):
                if own != other:
                    break
                scores[at] = scores[at] and {str(own): {"logprob": 0.0}}
        self.prompts.append(read)
        return answer


@pytest.mark.parametrize("blind", ["", "no_pixels"])
def test_scores_of_a_cache_do_not_tell_what_a_server_sees(
    engine: LocalEngine, blind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "rounddiag.proof.preflight.make_episodes",
        lambda engine, seed: make_episodes(engine, seed)[:2],
    )
    with serving(CachedScores(engine=engine, blind=blind)) as server:
        result = rd.preflight(trainer(), server.url)
    row = result.frame.set_index("check").loc["images"]
    assert "does not see them" not in row["why"]
    if blind:
        assert row["result"] == "could not be tested"
    else:
        assert row["result"] == "passes"
        assert result.failed == ("prefill",)


@pytest.mark.parametrize("names", [("ids",), ("images",), ("ids", "images")])
def test_what_was_not_tested_is_not_passed(
    sound: rd.Preflight, names: tuple[str, ...]
) -> None:
    frame = sound.frame.copy()
    frame.loc[frame["check"].isin(names), "result"] = "could not be tested"
    result = replace(sound, frame=frame)
    last = str(result).splitlines()[-1]
    assert last == f"no check fails; {', '.join(names)} could not be tested"
    assert (result.passed, result.untested, result.failed) == (False, names, ())
    frame.loc[frame["check"] == "cache", "result"] = "fails"
    assert str(replace(sound, frame=frame)).splitlines()[-1] == "failed: cache"
    assert str(sound).splitlines()[-1] == "passed: no check fails"


def test_no_server_is_exit_code_two(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["preflight", MODEL, "--server", "http://127.0.0.1:9"])
    assert code == 2
    assert "127.0.0.1:9" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(
    "names",
    [
        ("thoughts dropped", "processed log-probs", "cache kept over an update"),
        ("bos twice", "update never delivered"),
        ("older adapter",),
        ("pictures of the older tower",),
        ("3 prompt tokens lost", "other max_pixels"),
        ("image dropped",),
        ("pixels dropped",),
    ],
)
def test_planted_faults_are_each_found_in_their_own_line(
    names: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("peft", reason="peft is the extra `lora`")
    # Two of the four tasks: one picture a round, and several of every size.
    monkeypatch.setattr(
        "rounddiag.proof.preflight.make_episodes",
        lambda engine, seed: make_episodes(engine, seed)[::3],
    )
    result = fly(plant(*names), tmp_path)
    rows = result.frame.set_index("check")
    for name in names:
        assert rows.loc[FAULTS[name].check, "result"] == "fails", (name, result)
        assert rows.loc[FAULTS[name].check, "where"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "result", "said"),
    [
        ({}, "passes", ""),
        ({"tower": "out"}, "passes", "it leaves the part of the vision tower out"),
        ({"tower": "refused"}, "passes", "the vision tower has no part in it"),
        ({"keeps_pictures": True}, "fails", "still those of the older vision tower"),
    ],
)
def test_a_part_of_the_vision_tower_is_delivered_or_said_not_to_be(
    engine: LocalEngine,
    options: dict[str, Any],
    result: str,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An adapter that a server leaves out and one behind stale pictures look alike.

    Of pictures that it has seen: white ones, which it has not, tell them apart.
    """
    pytest.importorskip("peft", reason="peft is the extra `lora`")
    monkeypatch.setattr(
        "rounddiag.proof.preflight.make_episodes",
        lambda engine, seed: make_episodes(engine, seed)[:2],
    )
    with serving(ModelServer(engine=engine, **options)) as server:
        flown = rd.preflight(trainer(), server.url, after=server.sync)
    row = flown.frame.set_index("check").loc["weights"]
    assert row["result"] == result, row["why"]
    assert said in row["why"]
    assert ("tower" in row["why"]) == bool(said)


def plant(*names: str) -> Case:
    """Return a server with several faults."""
    cases = [FAULTS[name] for name in names]
    chats = [case.chat for case in cases if case.chat]
    return Case(
        lambda: dict(ChainMap(*(dict(case.server()) for case in cases))),
        chat=chats[0] if chats else None,
    )


ids = st.lists(st.integers(0, 5), max_size=12)


@given(ids, ids)
def test_a_difference_turns_what_was_expected_into_what_was_read(
    expected: list[int], read: list[int]
) -> None:
    apart = difference(expected, read)
    if apart is None:
        assert expected == read
        return
    stop = apart.at + len(apart.missing)
    assert expected[apart.at : stop] == apart.missing
    assert [*expected[: apart.at], *apart.added, *expected[stop:]] == read


def test_the_limit_is_the_larger_of_two_nulls() -> None:
    """Twice the model's own rounding, or the published level of tokens as likely."""
    even = np.full(4, math.log(0.5))
    own = RoundingNoise(0.01).limit(even, "same_engine")
    assert own.value == pytest.approx(2 * 0.01 * 0.5)
    assert "rounding" in own.ground
    published = RoundingNoise(0.0).limit(even, "same_engine")
    assert published.value == pytest.approx(0.001 * 0.043 / 0.0134)
    assert "usual" in published.ground


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "temperature", "failed"),
    [("processed", 0.8, ()), ("raw", 0.8, ("sampling",)), ("raw", 1.0, ())],
)
def test_the_prompts_of_a_file_are_sampled_in_place_of_the_own_ones(
    engine: LocalEngine, mode: str, temperature: float, failed: tuple[str, ...]
) -> None:
    """The file's log-probs are processed: raw ones are the same at temperature 1."""
    batch = rd.load("sample_data/healthy.parquet")[:4]
    batch.meta["sampling"]["temperature"] = temperature
    with serving(ModelServer(engine=engine, mode=mode)) as server:
        result = rd.preflight(trainer(), server.url, episodes=batch)
    assert result.failed == failed, result
    assert result.passed == (not failed)
    assert result.batch.sample_ids == batch.sample_ids
    assert result.batch.prompt_ids is not None
    assert batch.prompt_ids is not None
    assert torch.equal(result.batch.prompt_ids, batch.prompt_ids)
    row = result.frame.set_index("check").loc["sampling"]
    assert row["where"] == ("temperature 0.7" if failed else "")
    assert ("the file of the episodes says processed" in row["why"]) == bool(failed)


TOOLS = "{% for tool in tools or () %}{{ tool | tojson }}\n{% endfor %}"


@pytest.mark.parametrize(
    ("prints", "said"),
    [("", ""), (TOOLS, "the server's dump of the tools"), (TOOLS, '"descriptio')],
)
def test_a_servers_dump_of_tools_is_named(
    engine: LocalEngine, prints: str, said: str
) -> None:
    """Of vLLM 0.32: another order of keys, and `"description": null`."""
    chat = with_template(lambda text: f"{prints}{text}{{# #}}")
    messages = ({"role": "user", "content": "Go."},)
    text = chat.write(messages, opens_reply=True)
    assert text is not None
    prompt = Prompt(messages, tuple(chat.encode(text)), ())
    trainer = SimpleNamespace(chat=chat, eyes=engine.eyes)
    with serving(ModelServer(engine=engine, chat=chat)) as server:
        sampler = ServerEngine.open(Host.at(server.url))
        flight: Any = SimpleNamespace(
            engine=trainer,
            server=sampler,
            episodes=[Episode("go", (), (prompt,))],
            played=[],
        )
        line = compare_ids(flight, *read_prompts(flight, lambda: None))
    assert line.result == "passes"
    assert said in line.why
    assert ("tools" in line.why) == bool(prints)
