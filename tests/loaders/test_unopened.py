"""Content of no known format: the same words for a file and for what it holds.

The lines of Python in a message are run: they must open what they are about.
"""

from __future__ import annotations

import gzip
import json
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

import rounddiag as rd
from rounddiag.errors import LoadError
from rounddiag.loaders.unopened import find_lists
from tests.loaders.values import png, url_of

SAID: list[dict[str, Any]] = [
    {"role": "user", "content": "Open the menu."},
    {"role": "assistant", "content": "click(3, 4)"},
    {"role": "user", "content": [{"type": "text", "text": "It is open."}]},
    {"role": "assistant", "content": "done()"},
]
GPT = [{"from": "human", "value": "Go."}, {"from": "gpt", "value": "wait()"}]
LANGCHAIN = [
    {"id": ["HumanMessage"], "kwargs": {"type": "human", "content": "Go."}},
    {"id": ["AIMessage"], "kwargs": {"type": "ai", "content": "wait()"}},
]
GEMINI = [
    {"role": "user", "parts": [{"text": "Go."}]},
    {"role": "model", "parts": [{"text": "wait()"}]},
]
# What a file holds; the place of its messages; samples and rounds of the batch.
CHATS = [
    ({"run": {"log": SAID}}, "run.log", 1, 2),
    ({"log": SAID[:2], "a": {"b": [{"c": {"d": SAID}}]}}, "log", 1, 1),
    ([{"runs": [{"log": SAID}, {"log": SAID}]}], "runs[*].log", 2, 4),
    ([{"span": {"input": SAID}}, {"span": None}, {"x": 1}], "span.input", 1, 2),
    ([{"t": [{"choice": 1, "message": m} for m in SAID]}] * 2, "t", 2, 4),
    ([{"t": [SAID[0], {"message": SAID[1]}, *SAID[2:]]}], "t", 1, 2),
    (
        [{"type": "summary"}, *({"type": m["role"], "message": m} for m in SAID)],
        "the rows",
        1,
        2,
    ),
    ([{"at": 1, "payload": m} for m in ({"id": "s"}, *SAID)], "the rows", 1, 2),
    ([{"q": SAID[0], "a": SAID[1]}] * 3, "the rows", 3, 3),
    ({"chat": GPT}, "chat", 1, 1),
    ([{"inputs": {"messages": [LANGCHAIN]}}], "inputs.messages[*]", 1, 1),
    ([{"contents": GEMINI}], "contents", 1, 1),
    ([{"deep": [[[[{"x": {"y": [SAID]}}]]]]}], "deep[*][*][*][*].x.y[*]", 1, 2),
    ({"samples": {"7": SAID, "8": SAID}}, "samples.7", 1, 2),
]


def refused(data: Any) -> str:
    with pytest.raises(LoadError) as caught:
        rd.load(data)
    return str(caught.value)


def code_in(message: str) -> str:
    return message.partition("\n")[2]


def opened(code: str, data: object = None) -> rd.Batch:
    names: dict[str, Any] = {"data": data}
    exec(code, names)  # noqa: S102 lines that the message gives
    batch: rd.Batch = names["batch"]
    return batch


@pytest.mark.parametrize(("data", "place", "num_samples", "num_rounds"), CHATS)
@pytest.mark.parametrize("form", ["json", "lines", "gz", "zst", "pickle", "memory"])
def test_messages_are_found_and_the_lines_open_them(
    form: str, data: Any, place: str, num_samples: int, num_rounds: int, tmp_path: Path
) -> None:
    path = tmp_path / "file"
    text = json.dumps(data, indent=2).encode()
    if form == "lines":
        if not isinstance(data, list) or len(data) == 1 or isinstance(data[0], list):
            return
        text = "\n".join(map(json.dumps, data)).encode()
    if form == "gz":
        text = gzip.compress(text)
    if form == "zst":
        text = pa.compress(text, codec="zstd", asbytes=True)
    if form == "pickle":
        text = pickle.dumps(data)
    path.write_bytes(text)

    message = refused(data if form == "memory" else path)

    assert f"messages without token ids or log-probs, in `{place}`" in message
    assert "columns={" not in message
    assert (
        message.partition(": ")[2].partition("\n")[0]
        == (refused(data).partition(": ")[2].partition("\n")[0])
    )
    batch = opened(code_in(message), data)
    assert (batch.num_samples, batch.num_rounds) == (num_samples, num_rounds)
    shown = [turn.text for turn in batch.turns[0]]
    assert any("(" in text for text in shown)


PICTURE = Image.new("RGB", (8, 6), "red")
STEP: dict[str, Any] = {
    "index": 0,
    "image": "a.png",
    "value": {"thought": "Up.", "code": "click(1)"},
}
OPERATION = {"uid": "u", "html": "<p>", "operation": {"op": "CLICK", "value": ""}}


URL = url_of(png("red", (8, 6)))
SEEN = {
    "type": "environment_input",
    "content": [{"type": "image_url", "image_url": {"url": URL}}],
}
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
DID = {"type": "assistant_message", "content": "Up.", "toolCalls": [CALL]}
TARS = [
    {"type": "agent_run_start", "model": "m"},
    {"type": "user_message", "content": "Go."},
    *[SEEN, DID, {"type": "tool_call", "name": "f", "arguments": {}}] * 2,
    {"type": "tool_result", "content": {"success": True}},
    {"type": "final_answer", "content": "Done."},
    {"type": "agent_run_end"},
]
# What a file holds; what is said of it; samples, rounds, pictures and calls.
STEPS = [
    (
        [{"task": "t", "traj": [STEP] * 2}, {"traj": [STEP]}],
        ("3 steps of index, image, value in `traj`", "`value`"),
        (2, 3, 3, 0),
    ),
    (
        {"history": [{"seen": "a", "did": "b"}] * 3},
        ("3 steps of seen, did in `history`", "`did`"),
        (1, 3, 0, 0),
    ),
    (
        [{"step": n, "image": URL, "action": {"x": n}} for n in (3, 4, 5)],
        ("3 steps of step, image, action in `the rows`", "`action`"),
        (1, 3, 3, 0),
    ),
    (
        [{"actions": [OPERATION] * 2}],
        ("2 steps of uid, html, operation in `actions`", "`operation`"),
        (1, 2, 0, 0),
    ),
    (
        {"sessionId": "s", "events": TARS},
        ("11 events of agent_run_start, user_message", "`assistant_message`, `final"),
        (1, 3, 2, 2),
    ),
]


@pytest.mark.parametrize(("data", "words", "numbers"), STEPS)
@pytest.mark.parametrize("form", ["file", "memory"])
def test_steps_and_events_are_named_and_the_lines_open_them(
    form: str,
    data: Any,
    words: tuple[str, ...],
    numbers: tuple[int, ...],
    tmp_path: Path,
) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps(data))
    (tmp_path / "shots").mkdir()
    PICTURE.save(tmp_path / "shots" / "a.png")

    message = refused(path if form == "file" else data)

    assert all(word in message for word in words)
    assert "are left out" in message
    batch = opened(code_in(message), data)
    num_samples, num_rounds, num_pictures, num_calls = numbers
    assert (batch.num_samples, batch.num_rounds) == (num_samples, num_rounds)
    if form == "file" or "traj" not in message:
        shown = [] if batch.images is None else [s for row in batch.images for s in row]
        assert [shot.size for shot in shown] == [(8, 6)] * num_pictures
    actions = batch.round_columns.get("action", np.array([]))
    assert [a for a in actions if a] == ["f()"] * num_calls
    assert not {"messages.toolCalls", "content.toolCalls"} & {
        *batch.meta.get("left_out", [])
    }


def test_what_is_no_step_or_of_no_model_prints_no_lines() -> None:
    rows = [{"action": "a", "size": 3, "note": None}, {"action": "b", "size": 5}]
    assert code_in(refused(rows)) == code_in(refused([rows[0]])) == ""
    message = refused([{"points": [{"x": 1, "y": 2}] * 3}])
    assert "3 steps of x, y in `points`" in message
    assert code_in(message) == ""


def test_lines_of_events_are_one_trajectory(tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"
    path.write_text("\n".join(map(json.dumps, TARS)))

    message = refused(path)

    assert "11 events of agent_run_start" in message
    assert "`the rows`" in message
    batch = opened(code_in(message))
    assert (batch.num_samples, batch.num_rounds) == (1, 3)


NAMES = st.text("bcfgjkmnpqvwxz", min_size=3, max_size=5)
VALUES = st.none() | st.integers(0, 9) | NAMES | st.lists(NAMES, max_size=2)
SHOWN = st.sampled_from([URL, [URL], {"url": URL}])


@given(data=st.data())
def test_the_lines_keep_the_rounds_and_the_pictures_of_any_layout(
    data: st.DataObject,
) -> None:
    """Steps or events under random names, at a random place."""
    is_events = data.draw(st.booleans())
    wrote = data.draw(st.sampled_from(["action", "response", "model_output"]))
    kinds = data.draw(
        st.sampled_from([("user_message", "assistant"), ("env", "agent")])
    )
    seen = data.draw(st.lists(st.none() | SHOWN, min_size=1, max_size=4))
    items: list[dict[str, Any]] = []
    for shown in seen:
        read: dict[str, Any] = data.draw(st.dictionaries(NAMES, VALUES, max_size=2))
        if shown is not None:
            read["shown"] = shown
        if is_events:
            items += [{"kind": kinds[0], **read}, {"kind": kinds[1], "said": "a"}]
        else:
            said: Any = data.draw(NAMES | st.just({"x": 1}))
            items.append({**read, wrote: said})
    root: Any = items
    for name in data.draw(st.lists(NAMES, min_size=1, max_size=3)):
        root = {name: root}

    batch = opened(code_in(refused([root])), [root])

    assert batch.num_rounds == len(seen)
    num_pictures = sum(shown is not None for shown in seen)
    assert sum(map(len, batch.images or ())) == num_pictures


def event(kind: str, source: str, **more: Any) -> dict[str, Any]:
    return {"id": "i", "timestamp": "t", "source": source, "kind": kind, **more}


SHOT = {"type": "image", "image_urls": [URL]}
SAY = {"type": "text", "text": "Up."}
OPENHANDS = [
    event("SystemPromptEvent", "agent", system_prompt=SAY, tools=[]),
    event("MessageEvent", "user", llm_message={"role": "user", "content": [SAY]}),
    event("ActionEvent", "agent", thought=[SAY], tool_call=CALL["function"]),
    event("ActionEvent", "agent", thought=[], tool_call=CALL["function"]),
    event("ObservationEvent", "environment", observation={"content": [SHOT]}),
    event("MessageEvent", "agent", llm_message={"role": "assistant", "content": [SAY]}),
    event("ConversationStateUpdateEvent", "environment", key="stats", value=1),
]


def test_a_folder_of_events_is_one_trajectory(tmp_path: Path) -> None:
    """OpenHands SDK: `base_state.json`, `events/event-00000-ID.json`."""
    (tmp_path / "events").mkdir()
    (tmp_path / "base_state.json").write_text('{"id": "s", "stats": {}}')
    for number, each in enumerate(OPENHANDS):
        path = tmp_path / "events" / f"event-{number:05d}-i.json"
        path.write_text(json.dumps(each))

    message = refused(tmp_path)

    assert "7 JSON objects in files of `events`" in message
    assert "`ActionEvent agent`, `MessageEvent agent`" in message
    batch = opened(code_in(message))
    assert batch.num_rounds == 2  # the two actions stand side by side
    assert batch.round_columns["action"].tolist() == ["f(); f()", None]
    assert [shot.round for shot in batch.images[0]] == [1]


def test_a_folder_is_described_by_the_file_with_messages(tmp_path: Path) -> None:
    """cua-agent's `metadata.json` with items beside `turn_000/0000_NAME.json`."""
    (tmp_path / "turn_000").mkdir()
    for number in range(2):
        path = tmp_path / "turn_000" / f"000{number}_api_start.json"
        path.write_text(json.dumps({"kwargs": {"model": "m"}, "created_at": "1"}))
    shown = {"type": "input_image", "image_url": URL}
    items = [
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Up."}]},
        {"type": "computer_call", "call_id": "c", "action": {"type": "wait"}},
        {"type": "computer_call_output", "call_id": "c", "output": shown},
        {"type": "message", "role": "assistant", "content": [SAY]},
    ]
    document = {"trajectory_id": "t", "new_items": items}
    (tmp_path / "metadata.json").write_text(json.dumps(document))

    message = refused(tmp_path)

    assert message == refused(tmp_path / "metadata.json")
    assert "in `new_items`" in message
    batch = opened(code_in(message))
    assert batch.num_rounds == 2
    assert batch.round_columns["action"].tolist() == ["computer(type='wait')", None]
    assert [shot.round for shot in batch.images[0]] == [1]


@pytest.mark.parametrize(
    "data",
    [
        {"point": [[3, 4], [5, 6]], "name": ["a", "b"]},
        {"text": ["a", "b"], "size": [448, 336]},
        [{"coordinate": [100, 90], "text": "click"}],
        [{"embedding": [0.5, -0.25], "text": "click"}],
        [{"labels": ["a"], "scores": [0.5]}],
        {},
        [],
        [[], []],
        [1, 2],
        ["a"],
    ],
)
def test_columns_are_not_suggested_where_none_can_be_ids(
    data: Any, tmp_path: Path
) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps(data))

    message = refused(path)

    assert "columns={" not in message
    assert "unexpected" not in message
    assert message.partition(": ")[2] == refused(data).partition(": ")[2]


@pytest.mark.parametrize(
    "data",
    [
        {"ids": [[5], [6]], "mask": [[1], [1]], "lp": [[-1.5], [-2.5]]},
        [{"ids": [5, 6], "lp": [-0.5, 0.0]}, {"ids": [], "lp": []}],
        [{"ids": [], "lp": []}, {"ids": [5], "lp": [-0.5]}],
        {"ids": [5, 6], "mask": [0, 1]},
    ],
)
def test_columns_are_suggested_where_some_can_be_ids(data: Any, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps(data))

    assert 'columns={"response_ids": "..."' in refused(path)
    assert refused(path).partition(": ")[2] == refused(data).partition(": ")[2]


def test_texts_of_an_npz_are_no_columns(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, prompt=np.array(["a", "b"]), answer=np.array(["c", "d"]))

    assert "columns={" not in refused(path)


def test_a_zip_of_json_names_its_files(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("run/a.json", json.dumps(SAID))

    assert "a zip of another program, with run/a.json" in refused(path)


def test_a_value_in_itself_ends() -> None:
    ring: list[Any] = [{}]
    ring[0]["again"] = ring
    shared: Any = "a"
    for _ in range(60):
        shared = [shared, shared]

    assert "found a value that holds itself" in refused(ring)
    assert "expected a saved batch" in refused([{"a": shared}])


def test_the_first_place_has_the_fewest_lists_around_it_then_most_items() -> None:
    row = {"a": [{"b": SAID}], "c": SAID[:1], "d": SAID, "e": SAID[:2]}

    places = find_lists([row])

    assert [str(p) for p in places if p.is_chat] == ["d", "e", "a[*].b", "c"]


def test_log_probs_of_an_unknown_layout_are_not_called_missing() -> None:
    content = [{"token": "wait()", "logprob": -0.5}]
    choice = {"message": SAID[1], "logprobs": {"content": content}}
    row = {"request": {"messages": SAID[:1]}, "answer": {"choices": [choice]}}
    message = refused([row])
    where = "log-probs that are not read there, `answer.choices[*].logprobs`"
    assert where in message
    assert opened(code_in(message), [row]).num_rounds == 1
    choice["logprobs"] = None
    assert "messages without token ids or log-probs" in refused([row])


FIELDS = {
    "prompts": torch.tensor([[1, 2]]),
    "responses": torch.tensor([[5, 6, 7]]),
    "response_mask": torch.tensor([[1, 0, 1]]),
    "rollout_log_probs": torch.tensor([[-0.5, 0.0, -1.5]]),
    "old_log_probs": torch.tensor([[-0.5, 0.0, -1.0]]),
}


@pytest.mark.parametrize("gone", ["response_mask", "responses"])
def test_what_is_missing_beside_verl_s_names_is_named(
    gone: str, tmp_path: Path
) -> None:
    path = tmp_path / "step_7.pt"
    torch.save({k: v for k, v in FIELDS.items() if k != gone}, path)
    missing = gone.replace("responses", "response_ids")
    assert f", without `{missing}`. " in refused(path)


LOG = [
    {"gen_step": [n] * 2, "prompt": ["a", "b"], "completion": ["c", "d"], "lr": 0.1}
    for n in (7, 8)
]


def test_lists_of_one_length_are_rows(tmp_path: Path) -> None:
    path = tmp_path / "completions.jsonl"
    path.write_text("\n".join(map(json.dumps, LOG)))

    for data in (path, LOG):
        batch = rd.load(data)

        said = [[turn.text for turn in turns] for turns in batch.turns or ()]
        assert said == [["a", "c"], ["b", "d"]] * 2
        assert batch.sample_columns["gen_step"].tolist() == [7, 7, 8, 8]
        assert batch.sample_columns["lr"].tolist() == [0.1] * 4


def test_a_step_of_which_lists_differ_in_length_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "completions.jsonl"
    rows = [*LOG, {**LOG[0], "completion": ["c"]}]
    path.write_text("\n".join(map(json.dumps, rows)))

    assert "`completion` of 1 in line 3" in refused(path)


def test_one_conversation_is_one_row_and_columns_of_them_are_several() -> None:
    assert rd.load({"messages": SAID}).num_samples == 1
    assert rd.load({"messages": [SAID, SAID]}).num_samples == 2
    assert rd.load({"prompt": "a", "completion": "b"}).num_samples == 1
    assert rd.load({"prompt": ["a", "b"], "completion": ["c", "d"]}).num_samples == 2
    assert rd.load([{"prompt": "a", "completion": "b", "ids": [1, 2]}]).num_samples == 1


def test_messages_may_be_json_and_other_text_is_no_conversation() -> None:
    batch = rd.load([{"messages": json.dumps(SAID)}])

    assert batch.num_rounds == 2
    assert "without an answer" in refused([{"messages": "click(3, 4)"}])


def test_rows_without_messages_are_no_samples() -> None:
    rows = [{"log": SAID}, {}, {"log": None}]

    assert opened(code_in(refused(rows)), rows).num_samples == 1


@pytest.mark.parametrize("pack", [gzip.compress, "zstd"])
def test_packed_files_open_as_what_is_in_them(pack: Any, tmp_path: Path) -> None:
    plain, packed = tmp_path / "a.pt", tmp_path / "a.pt.gz"
    torch.save(FIELDS, plain)
    data = plain.read_bytes()
    if pack == "zstd":
        packed.write_bytes(pa.compress(data, codec="zstd", asbytes=True))
    else:
        packed.write_bytes(pack(data[:99]) + pack(data[99:]))  # two members

    assert rd.load(packed).old_log_probs.tolist() == [-0.5, 0.0, -1.0]

    packed.write_bytes(packed.read_bytes()[:-9])
    assert "cannot unpack" in refused(packed)
