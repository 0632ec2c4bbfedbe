"""`ask`: what the model would have written, and whether it looked at the screen."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

import rounddiag as rd
from rounddiag.errors import BatchError, LoadError
from rounddiag.proof import Answer, Proof
from rounddiag.proof.answer import say_sight
from rounddiag.proof.engines.client import ServerError
from rounddiag.proof.engines.engine import Readout
from rounddiag.proof.engines.local import LocalEngine
from rounddiag.proof.hypotheses.processor import Seen
from rounddiag.proof.question import _find_places, _reproduced
from rounddiag.proof.sight import tile_boxes
from rounddiag.vision.screenshots import EncodedScreenshot
from tests.proof.fake_server import likeliest, score, serve
from tests.proof.fake_server import make_batch as served_batch
from tests.proof.test_local import folder as text_folder  # noqa: F401 a fixture
from tests.proof.test_local import make_batch

SAMPLE_DATA = Path(__file__).parents[2] / "sample_data"
MODEL = str(SAMPLE_DATA / "model")


def load(name: str) -> rd.Batch:
    return rd.load(SAMPLE_DATA / f"{name}.parquet")


@pytest.fixture(scope="module")
def engine() -> LocalEngine:
    return LocalEngine.open(MODEL, dtype="float32")


@pytest.fixture(scope="module")
def answer(engine: LocalEngine) -> Answer:
    batch = load("image_window")[16:20]
    return rd.ask(batch, engine, at=["task-04/2 / r3", "task-04/1 / r0 / t2"])


def rescored(batch: rd.Batch, engine: LocalEngine, *keys: str) -> pd.DataFrame:
    again = rd.rescore(batch, engine, *keys)
    name = keys[0] if keys else "rescored"
    frame = rd.token_frame(again, a=name, b="old")
    return frame[["sample", "round", "token"]].assign(
        expected=frame["diff"] + old(again)
    )


def old(batch: rd.Batch) -> Any:
    return rd.token_frame(batch, ["old_log_prob"])["old_log_prob"]


def test_values_are_those_of_rescore(answer: Answer, engine: LocalEngine) -> None:
    assert answer.batch is not None
    expected = rescored(answer.batch, engine)
    sampled = answer.alternatives[answer.alternatives["is_sampled"]]
    for frame, number in ((answer.sight, 18 + 19), (sampled, 18 + 1)):
        both = frame.merge(expected, on=["sample", "round", "token"])
        assert len(both) == len(frame) == number
        assert np.abs(both["log_prob"] - both["expected"]).max() < 1e-5


def test_alternatives_are_ranked_and_have_the_sampled_token(answer: Answer) -> None:
    ids = answer.require_batch().require_ids()
    for _, place in answer.alternatives.groupby(["sample", "round", "token"]):
        assert place["is_sampled"].sum() == 1
        assert place["rank"].tolist()[:10] == [*range(1, 11)]
        assert place["log_prob"].is_monotonic_decreasing
        assert np.exp(place["log_prob"]).sum() <= 1 + 1e-6
        assert place["token_id"].is_unique
    assert set(
        answer.alternatives["token_id"][answer.alternatives["is_sampled"]]
    ) <= set(ids.tolist())


@given(st.integers(0, 2**16), st.integers(2, 6000), st.integers(1, 40))
def test_top_tokens_are_those_of_all_logits(seed: int, size: int, number: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    first, second = torch.randn(2, 5, size, generator=generator) * 3
    tokens = torch.randint(size, (5,), generator=generator)
    at = torch.arange(1, 6)
    seen = Seen(torch.zeros(6, dtype=torch.int64), at, torch.zeros(5).long(), size)
    readouts = [
        Readout(logits, lambda hidden: hidden, tokens, seen)
        for logits in (first, second)
    ]
    top = readouts[0].top_tokens(number)
    log_probs = first.log_softmax(-1)
    expected = log_probs.sort(-1, descending=True)[0][:, : min(number, size)]
    np.testing.assert_allclose(top.log_probs, expected, atol=1e-5)
    own = log_probs.gather(-1, tokens[:, None])
    np.testing.assert_allclose(top.own, own[:, 0], atol=1e-5)
    assert top.ranks.tolist() == (1 + (log_probs > own).sum(-1)).tolist()
    kl = torch.nn.functional.kl_div(
        second.log_softmax(-1), log_probs, log_target=True, reduction="none"
    )
    np.testing.assert_allclose(
        readouts[0].divergence(readouts[1]), kl.sum(-1), rtol=1e-4, atol=1e-5
    )


@given(st.integers(1, 30), st.integers(1, 30), st.sampled_from([14, 28, 37]))
def test_tiles_divide_a_picture_along_its_image_tokens(
    columns: int, rows: int, side: int
) -> None:
    size = columns * side, rows * side
    boxes = tile_boxes(size, columns * rows)
    painted = np.zeros(size, dtype=int)
    for left, top, right, lower in boxes:
        painted[left:right, top:lower] += 1
        assert {edge % side for edge in (left, top, right, lower)} == {0}
    assert (painted == 1).all()
    across, down = (4, 3) if columns >= rows else (3, 4)
    assert len(boxes) == min(across, columns) * min(down, rows)


def test_a_map_has_twelve_tiles_and_the_quarters_of_one(answer: Answer) -> None:
    tiles = answer.tiles[answer.tiles["round"] == 3]
    whole, quarters = tiles[:12], tiles[12:]
    best = whole.iloc[int(whole["drop"].argmax())]
    assert len(quarters) == 4
    assert tiles.index[tiles["is_divided"]].tolist() == [best.name]
    assert (quarters["x0"].min(), quarters["y1"].max()) == (best["x0"], best["y1"])
    # The agent misses the field at its right edge, which this tile has.
    assert (best["x0"], best["y0"], best["x1"], best["y1"]) == (336, 112, 448, 224)
    assert best["drop"] > 1
    assert set(tiles["picture"]) == {3}


def with_pictures(batch: rd.Batch, change: Any) -> rd.Batch:
    """Return a batch whose pictures have as many image tokens, and other pixels."""
    images = []
    for shots in batch.images or ():
        row = []
        for shot in shots:
            data = io.BytesIO()
            change(shot.image()).save(data, format="PNG")
            row.append(
                EncodedScreenshot(
                    data=data.getvalue(), round=shot.round, position=shot.position
                )
            )
        images.append(tuple(row))
    return replace(batch, images=tuple(images))


def tall(image: Image.Image) -> Image.Image:
    return image.rotate(90, expand=True)


def transparent(image: Image.Image) -> Image.Image:
    picture = image.convert("RGBA")
    picture.putalpha(90)
    return picture


@pytest.mark.parametrize(("change", "width"), [(tall, 336), (transparent, 448)])
def test_tall_and_transparent_pictures(
    engine: LocalEngine, change: Any, width: int
) -> None:
    batch = with_pictures(load("healthy")[18:19], change)
    answer = rd.ask(batch, engine, at="task-04/2 / r3")
    tiles = answer.tiles[:12]
    areas = (tiles["x1"] - tiles["x0"]) * (tiles["y1"] - tiles["y0"])
    assert (areas.sum(), tiles["x1"].max()) == (448 * 336, width)
    both = answer.sight.merge(rescored(batch, engine), on=["sample", "round", "token"])
    assert np.abs(both["log_prob"] - both["expected"]).max() < 1e-5


def test_a_rewritten_context_is_that_of_its_round(engine: LocalEngine) -> None:
    whole = rd.load(SAMPLE_DATA / "step_rows.parquet", sample_by="traj_uid")
    batch = whole[:2]
    assert batch.contexts is not None
    answer = rd.ask(batch, engine, at="sample 0 / r2")
    expected = rescored(batch, engine)
    both = answer.sight.merge(expected, on=["sample", "round", "token"])
    assert len(both) == len(answer.sight) > 0
    assert np.abs(both["log_prob"] - both["expected"]).max() < 1e-5
    context = batch.context(0, 2)
    assert context.images[-1] is (batch.images or ())[0][
        answer.tiles["picture"][0]
    ] or (
        context.images[-1].digest()
        == (batch.images or ())[0][answer.tiles["picture"][0]].digest()
    )


def blind(batch: rd.Batch, side: str, model: LocalEngine) -> rd.Batch:
    """Return a batch one of whose engines had no pixels."""
    values = rd.rescore(batch, model, "no_images").scores["no_images"]
    changed = torch.where(values.isfinite(), values, batch.log_probs(side))
    if side == "old":
        return replace(batch, old_log_probs=changed)
    return replace(batch, rollout_log_probs=changed)


@pytest.mark.parametrize(
    ("side", "dtype"), [("old", "float32"), ("rollout", "bfloat16")]
)
def test_an_engine_that_is_blind_by_construction_has_a_flat_map(
    side: str, dtype: str
) -> None:
    model = LocalEngine.open(MODEL, dtype=dtype)
    batch = blind(load("healthy")[16:20], side, model)
    proof = rd.prove(batch, model, hypotheses=["no_images"])
    assert (proof.verdict, proof.side) == ("proved", side)
    answer = rd.ask(batch, model, at="task-04/2 / r3", proof=proof)
    name = "training" if side == "old" else "sampling"
    assert f"The {name} engine never saw this picture: no_images" in repr(answer)
    assert repr(answer).count("flat by construction") == 1
    assert "does not use the picture" not in repr(answer)
    kl = answer.alternatives["kl"]
    assert kl.between(-1e-3, 20).all()
    assert kl.max() > 0.5  # the coordinates


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_model_that_uses_no_picture_is_said_to_be_such(
    dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = LocalEngine.open(MODEL, dtype=dtype)
    encode = model.eyes._encode

    def pad(picture: Any, *rest: Any) -> Any:
        return encode(replace(picture, look="pad"), *rest)

    monkeypatch.setattr(model.eyes, "_encode", pad)
    answer = rd.ask(load("healthy")[18:19], model, at="task-04/2 / r3")
    assert len(answer.tiles) == 12
    assert (answer.tiles["drop"] == 0).all()
    assert "The model does not use the picture here" in repr(answer)
    assert "no fault of an engine" in repr(answer)


@pytest.fixture(scope="module")
def proof(engine: LocalEngine) -> Proof:
    return rd.prove(load("image_window")[16:22], engine, hypotheses=["last_2_images"])


def test_an_engine_is_named_as_what_has_reproduced_it(
    engine: LocalEngine, proof: Proof
) -> None:
    batch = load("image_window")[16:22]
    answer = rd.ask(batch, engine, at="task-04/2 / r3", proof=proof)
    expected = rescored(batch, engine, "last_2_images")
    own = answer.alternatives.query("is_sampled and hypothesis == 'last_2_images'")
    both = own.merge(expected, on=["sample", "round", "token"])
    assert len(both) == 18
    assert np.abs(both["log_prob"] - both["expected"]).max() < 1e-5
    lines = repr(answer).split("\n")
    assert "the sampling engine (the model as it is" in lines[0]
    assert "the training engine (last_2_images" in lines[1]
    assert "KL(sampling || training) is " in lines[2]
    assert "never saw" not in repr(answer)


def test_without_a_proof_nothing_is_said_of_an_engine(
    answer: Answer, engine: LocalEngine, proof: Proof
) -> None:
    assert "engine (" not in repr(answer)
    batch = load("image_window")[16:22]
    partly = replace(proof, verdict="so_far")
    told = rd.ask(batch, engine, at="task-04/2 / r3", proof=partly)
    assert "the sampling engine (the model as it is" in repr(told)
    assert "the training engine" not in repr(told)
    with pytest.raises(LoadError, match="samples that this batch lacks"):
        rd.ask(load("image_window")[:4], engine, at="0 / r0", proof=proof)


def test_the_evidence_of_the_findings_is_asked_about(engine: LocalEngine) -> None:
    batch = load("image_window")
    answer = rd.ask(batch, engine, budget_s=1e-9)
    evidence = rd.diagnose(batch)[0].tokens().set_index(["sample", "round"]).index
    assert answer.sight.set_index(["sample", "round"]).index.isin(evidence).all()
    assert answer.notes == ("Asked about 1 of 8 rounds: the budget of 1e-09 s ended.",)
    assert answer.statements[-1][2].startswith("Tiles are missing")
    assert answer.tiles.empty


def test_of_a_part_of_the_tiles_is_said_how_many() -> None:
    sight = pd.DataFrame({"drop": [1.0], "noise": [0.1], "role": ["action"]})
    tiles = pd.DataFrame({"x0": [0], "y0": 0, "x1": 4, "y1": 3, "drop": 0.5})
    for drop in (0.5, 0.05):
        some = say_sight(sight, tiles.assign(drop=drop), 12)
        assert "1 of 12 tiles" in some
        assert "12" not in say_sight(sight, tiles.assign(drop=drop), 1)
    assert "no tile alone" not in some


def test_an_interrupt_keeps_what_is_there(
    engine: LocalEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    score, left = engine.score, [22]

    def score_some(*arguments: Any) -> Any:
        left[0] -= 1
        if not left[0]:
            raise KeyboardInterrupt
        return score(*arguments)

    monkeypatch.setattr(engine, "score", score_some)
    batch = load("healthy")[18:19]
    answer = rd.ask(batch, engine, at="task-04/2")
    assert set(answer.sight["round"]) == {0}
    assert set(answer.alternatives["round"]) == {0, 1}
    assert "Asked about 2 of 8 rounds: it was interrupted." in answer.notes


ERRORS: list[tuple[dict[str, Any], str]] = [
    ({"at": "task-04/9 / r3"}, "expected the id of one sample"),
    ({"at": "task-04/2 / r99"}, "expected a round of task-04/2"),
    ({"at": "task-04/2 / r3 / t999"}, "expected one of 18 tokens"),
    ({"at": 5}, "expected a place such as"),
    ({"at": "nope"}, "found 'nope': 0 of 4 samples"),
    ({"at": "0 / r0", "proof": 3}, "expected a Proof; found a int"),
    *(
        ({"at": "0 / r0", "budget_s": wrong}, "expected a number of seconds")
        for wrong in ("a", float("nan"), -1)
    ),
    ({"at": []}, "expected a place with generated tokens"),
    ({}, "expected a place to ask about"),
]


@pytest.mark.parametrize(("arguments", "message"), ERRORS)
def test_a_wrong_place_is_an_error(
    engine: LocalEngine, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(BatchError, match=message):
        rd.ask(load("healthy")[16:20], engine, **arguments)


@pytest.mark.parametrize(
    ("at", "tokens"),
    [
        (["0 / r1 / t2", "0 / r1 / t0"], {0, 2}),
        (["0 / r1 / t2", "0 / r1"], {2, None}),
        (["0 / r1", "0 / r1 / t2"], {2, None}),
    ],
)
def test_a_token_of_a_round_that_is_named_adds_nothing(
    at: list[str], tokens: set[int | None]
) -> None:
    assert _find_places(load("healthy")[:1], at) == {(0, 1): tokens}


@pytest.mark.parametrize(
    "changes", [{"verdict": "scorer_differs"}, {"temperature": 0.7}]
)
def test_nothing_is_said_of_an_engine_that_the_model_as_it_is_does_not_reproduce(
    proof: Proof, changes: dict[str, Any]
) -> None:
    batch = load("image_window")[16:22]
    assert {*_reproduced(proof, batch)} == {"old", "rollout"}
    assert _reproduced(replace(proof, **changes), batch) == {}


def test_what_a_batch_lacks_is_an_error(engine: LocalEngine) -> None:
    batch = load("healthy")[18:19]
    with pytest.raises(BatchError, match="has no token ids"):
        rd.ask(
            replace(batch, response_ids=None, prompt_ids=None, prompt_offsets=None),
            engine,
            at="0 / r0",
        )
    with pytest.raises(BatchError, match="expected pictures for all"):
        rd.ask(replace(batch, images=None), engine, at="task-04/2 / r3")
    alone = replace(batch, prompt_ids=None, prompt_offsets=None, position_ids=None)
    with pytest.raises(BatchError, match="found the first token of a sample without"):
        rd.ask(alone, engine, at="task-04/2 / r0 / t0")
    with pytest.raises(BatchError, match="gives the log-probs of sampled tokens only"):
        rd.ask(batch, lambda ids, _: [0.0] * len(ids), at="task-04/2 / r3")


def test_a_text_model_has_alternatives_and_no_sight(text_folder: str) -> None:  # noqa: F811 the fixture
    answer = rd.ask(make_batch(text_folder), text_folder, at="0 / r0 / t7")
    assert answer.alternatives["rank"].tolist()[:10] == [*range(1, 11)]
    assert answer.sight.empty
    assert answer.statements[-1][2].endswith("the batch has no pictures here.")


def test_what_is_read_is_what_was_written(answer: Answer, tmp_path: Path) -> None:
    path = tmp_path / "answer.json"
    answer.save(path)
    again = rd.load_answer(path, load("image_window")[16:20])
    assert repr(again) == repr(answer)
    rd.plot_sight(again)
    alone = rd.load_answer(path)
    for name in ("alternatives", "sight", "tiles"):
        pd.testing.assert_frame_equal(getattr(alone, name), getattr(answer, name))
    with pytest.raises(BatchError, match="expected an answer with its batch"):
        alone.require_batch()
    with pytest.raises(BatchError, match="expected an answer about this batch"):
        rd.load_answer(path, load("image_window")[:4])
    with pytest.raises(LoadError, match="expected an answer, as"):
        rd.load_answer(SAMPLE_DATA / "tokenizer.json")
    with pytest.raises(LoadError, match="expected a proof, as"):
        rd.load_proof(path)


def test_an_answer_follows_its_samples(answer: Answer) -> None:
    batch = load("image_window")
    order = [*range(63, -1, -1)]
    again = answer.fit(batch[order])
    assert again.asked == answer.fit(batch[order][40:50]).fit(batch[order]).asked
    assert [each[:2] for each in again.asked] == [(45, 3), (46, 0)]
    assert set(again.tiles["sample"]) == {45, 46}
    twice = again.fit(batch[[18, 17, 18, 17]])
    assert {each[0] for each in twice.fit(batch[[18, 17, 18, 17]]).asked} == {2, 3}
    assert {each[0] for each in again.statements} == {45, 46}
    pd.testing.assert_frame_equal(again.fit(batch[16:20]).tiles, answer.tiles)


def test_an_answer_is_of_one_batch(answer: Answer) -> None:
    batch = load("image_window")
    renamed = replace(batch, sample_ids=tuple(reversed(batch.sample_ids or ())))
    ids = batch.require_ids().clone()
    at = int(batch.offsets[18])  # before round 3 of task-04/2
    ids[at] += 1
    other = replace(batch, response_ids=ids)
    blank = replace(batch, images=tuple(() for _ in range(len(batch))))
    for wrong, found in [
        (batch[:4], "no sample 18"),
        (renamed, "sample task-11/1"),
        (other, "other tokens"),
        (blank, "0 pictures"),
    ]:
        with pytest.raises(BatchError, match=f"`answer`.*found {found}"):
            answer.fit(wrong)
    rows = answer.alternatives
    edited = rows.assign(token_id=rows["token_id"] + rows["is_sampled"])
    with pytest.raises(BatchError, match="as it was sampled; found other tokens"):
        replace(answer, alternatives=edited).fit(batch)
    # What comes after an asked round is not what was asked.
    ids = batch.require_ids().clone()
    ids[int(batch.offsets[19]) - 1] += 1
    answer.fit(replace(batch, response_ids=ids))


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("model", 5),
        ("seconds", "1"),
        ("notes", "abc"),
        ("statements", [[0, 0]]),
        ("statements", [[999, 3, "It looked."]]),
        ("tiles", 999),
        ("version", "2"),
    ],
)
def test_an_answer_of_other_types_is_none(
    answer: Answer, tmp_path: Path, field: str, change: Any
) -> None:
    path = tmp_path / "answer.json"
    if field == "tiles":
        change = answer.tiles.assign(sample=change)
    replace(answer, **{} if field == "version" else {field: change}).save(path)
    if field == "version":
        path.write_text(path.read_text().replace('"1"', f'"{change}"', 1))
    with pytest.raises(LoadError, match="expected an answer, as"):
        rd.load_answer(path)


@pytest.mark.parametrize("kind", ["vllm", "sglang"])
@pytest.mark.parametrize("pictures", [False, True])
def test_a_server_gives_alternatives_and_sight(kind: str, *, pictures: bool) -> None:
    batch = served_batch(pictures=pictures)
    with serve(kind=kind) as server:
        answer = rd.ask(batch, server.url, at="0 / r0")
    prompt = batch[[0]].prompt_ids
    assert prompt is not None
    ids = [*prompt.tolist(), *batch[[0]].require_ids().tolist()]
    shots = (batch.images or ((),))[0]
    colors = [int(np.asarray(shot.image())[0, 0, 0]) for shot in shots]
    known = likeliest(ids, colors, 10)[len(prompt) :]
    own = score(ids, colors)[len(prompt) :]
    for token in range(30):
        place = answer.alternatives[answer.alternatives["token"] == token]
        listed = place[place["rank"].between(1, 10)]
        assert listed["token_id"].tolist() == [each for _, each in known[token]]
        expected = pytest.approx([value for value, _ in known[token]])
        assert listed["log_prob"].tolist() == expected
        sampled = place[place["is_sampled"]].iloc[0]
        assert sampled["log_prob"] == pytest.approx(own[token])
        if sampled["token_id"] not in listed["token_id"].tolist():
            assert sampled["rank"] == {"vllm": 40, "sglang": -1}[kind]
    assert answer.alternatives["token"].nunique() == 30
    assert answer.alternatives["kl"].isna().all()
    if not pictures:
        assert answer.sight.empty
        assert answer.notes == ()
        return
    # Pictures of one colour: their mean colour is what they show.
    assert len(answer.tiles) == 2
    assert (answer.tiles["drop"] == 0).all()
    assert "does not use the picture" in repr(answer)
    host = server.url.removeprefix("http://")
    assert answer.notes[-1].startswith("Sent: 1 picture to")
    assert host in answer.notes[-1]


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("500", "HTTP 500"),
        ("other ids", "expected id"),
        (
            "no likeliest",
            "the 10 likeliest tokens at each of 30 places; found those of 0",
        ),
    ],
)
def test_a_server_that_fails_is_an_error(fault: str, message: str) -> None:
    batch = served_batch(pictures=False)
    with (
        serve(kind="sglang", fault=fault) as server,
        pytest.raises(ServerError, match=message),
    ):
        rd.ask(batch, server.url, at="0 / r0")
