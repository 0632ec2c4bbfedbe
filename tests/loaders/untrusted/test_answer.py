"""What the child may hand over, and answers that it would not write."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from rounddiag.errors import LoadError
from rounddiag.loaders import load, save
from rounddiag.loaders.untrusted.answer import (
    TooLargeError,
    read_answer,
    room_beside,
    write_answer,
)
from rounddiag.loaders.untrusted.weight import batch_bytes, extra_bytes
from rounddiag.text.token_table import TokenTable
from rounddiag.vision import EncodedScreenshot
from tests.batches import hand_batch
from tests.fuzz.forked import run_forked
from tests.loaders import heavy_files
from tests.loaders.untrusted.children import answer_with

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from rounddiag import Batch

MB = 10**6


def test_a_batch_weighs_its_tensors_its_rounds_and_its_objects() -> None:
    batch = hand_batch()  # of 3 samples
    per_position = sum(tensor.dtype.itemsize for tensor in batch.per_token.values())
    size = len(batch.response_ids) * per_position + 8 * (4 + 3) + 32 * batch.num_rounds
    bare = replace(
        batch,
        sample_ids=None,
        group_ids=None,
        rewards=None,
        prompt_ids=None,
        prompt_offsets=None,
        scores={},
        sample_columns={},
        round_columns={},
    )
    assert batch_bytes(bare) == size
    texts = np.array(["a", "b" * 999, None], dtype=object)
    # Three pointers; a string of ASCII is 49 bytes and its length.
    assert batch_bytes(replace(bare, sample_columns={"text": texts})) == (
        size + 3 * 8 + 50 + 1048
    )
    shots = ((EncodedScreenshot(data=b"x" * 100),), (), ())
    assert batch_bytes(replace(bare, images=shots)) == size + 3 * 8 + 400 + 100
    rows = tuple(torch.zeros(2, dtype=torch.int64) for _ in range(3))
    assert batch_bytes(replace(bare, rollout_ids=rows)) == size + 3 * (400 + 16)


def test_long_texts_that_are_equal_weigh_once() -> None:
    bare = replace(hand_batch(), sample_columns={})
    texts = np.array(["x" * 1000, "y" + "x" * 999, "x" * 1000], dtype=object)
    added = batch_bytes(replace(bare, sample_columns={"text": texts}))
    assert added - batch_bytes(bare) == 3 * 8 + 2 * 1049


def test_the_longest_column_needs_room() -> None:
    bare = replace(
        hand_batch(), prompt_ids=None, prompt_offsets=None, sample_columns={}
    )
    assert extra_bytes(bare) == 12 * len(bare.response_ids) + 3 * 50
    texts = np.array(["b" * 1000, "b" * 1000, None], dtype=object)
    assert extra_bytes(replace(bare, sample_columns={"text": texts})) == 2000
    assert room_beside(10) == 250 * MB + 40


def written(folder: Path, batch: Batch, most: int = MB, room: int = MB) -> Batch:
    """Write a batch and read it back."""
    meta = {**batch.meta, "checks": []}
    write_answer(folder, replace(batch, meta=meta), most=most, room=room)
    return read_answer(folder, most=most, room=room)


def test_a_batch_over_the_limit_is_not_written(tmp_path: Path) -> None:
    batch = hand_batch()
    with pytest.raises(TooLargeError):
        written(tmp_path, batch, most=batch_bytes(batch) - 1)
    assert [*tmp_path.iterdir()] == []
    assert written(tmp_path, batch).num_samples == 3


def test_one_that_takes_too_much_to_read_is_not_written(tmp_path: Path) -> None:
    texts = np.array(["a" * 30_000, "b", "c"], dtype=object)
    batch = replace(hand_batch(), sample_columns={"text": texts})
    with pytest.raises(TooLargeError):
        written(tmp_path, batch, room=30_001)


@pytest.mark.parametrize("where", ["meta", "sample_columns", "round_columns", "tokens"])
def test_json_counts_as_the_objects_that_it_becomes(where: str, tmp_path: Path) -> None:
    """50,000 bytes of lists are 2 MB of objects."""
    lists: list[list[object]] = [[] for _ in range(12_500)]
    empty = np.array([lists, [], []], dtype=object)
    batch = replace(hand_batch(), sample_columns={}, round_columns={})
    if where == "meta":
        batch = replace(batch, meta={"lists": lists})
    elif where == "tokens":
        table = TokenTable(dict.fromkeys(range(5000), b"a"), {})
        batch = replace(batch, tokenizer=table)
    elif where == "sample_columns":
        batch = replace(batch, sample_columns={"lists": empty})
    else:
        keys = {name: np.arange(3) for name in ("sample", "round")}
        batch = replace(batch, round_columns={**keys, "lists": empty})
    with pytest.raises(TooLargeError):
        written(tmp_path, batch, room=5 * MB)
    assert written(tmp_path, batch, most=4 * MB, room=5 * MB).num_samples == 3


@pytest.mark.parametrize(
    ("columns", "found"),
    [
        ({"n" * 10_001: 0}, "1 column, the longest name of 10,001 bytes"),
        (
            {f"{i}": 0 for i in range(10_001)},
            "10,001 columns, the longest name of 5 bytes",
        ),
    ],
)
def test_columns_that_the_parent_could_not_list_are_refused(
    columns: Mapping[str, int], found: str, tmp_path: Path
) -> None:
    names = {name: np.zeros(3, np.int8) for name in columns}
    batch = replace(hand_batch(), scores={}, round_columns={}, sample_columns=names)
    with pytest.raises(LoadError, match=f"of at most 10,000 bytes; found {found}"):
        written(tmp_path, batch)


def test_a_footer_larger_than_the_room_is_refused(tmp_path: Path) -> None:
    columns = {f"{i}": np.zeros(3, np.int8) for i in range(100)}
    batch = replace(hand_batch(), sample_columns=columns)
    with pytest.raises(TooLargeError):
        written(tmp_path, batch, room=200_000)


@pytest.mark.usefixtures("forked")
def test_the_checks_run_in_the_child(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.parquet"
    save(hand_batch(), path)
    expected = load(path).meta["checks"]

    def check(*_: object) -> Any:
        pytest.fail("checked in the parent")

    monkeypatch.setattr("rounddiag.loaders.open.with_check_results", check)
    monkeypatch.setattr("rounddiag.loaders.untrusted.answer.check_tokenizer", check)
    assert load(path, untrusted=True).meta["checks"] == expected
    assert len(expected) == 20


@pytest.mark.usefixtures("forked")
def test_a_tokenizer_of_the_parent_is_checked_there(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    save(replace(hand_batch(), tokenizer=None), path)
    read = load(path, untrusted=True, tokenizer=lambda _: "")
    (result,) = (c for c in read.meta["checks"] if "tokenizer is" in c["name"])
    assert result["status"] == "failed"


@pytest.mark.usefixtures("forked")
def test_equal_texts_of_a_file_are_one_object(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    heavy_files.one_text_many_times(path, 0.005)
    texts = load(path, untrusted=True).sample_columns["text"]
    assert len(texts) == 9
    assert len({*map(id, texts)}) == 1


@pytest.mark.hostile
@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize("kind", heavy_files.KINDS)
def test_a_heavy_file_is_a_batch_or_a_load_error_that_names_it(
    kind: str, tmp_path: Path
) -> None:
    name, write = heavy_files.KINDS[kind]
    write(tmp_path / name, 0.002)
    try:
        batch = load(tmp_path / name, untrusted=True, memory_limit=0.5, time_limit=20)
    except LoadError as error:
        assert str(error).startswith(f"{tmp_path / name}: ")  # noqa: PT017 both are right
        assert "unexpected error" not in str(error)  # noqa: PT017
    else:
        assert batch.num_samples > 0


@pytest.mark.usefixtures("forked")
def test_a_batch_over_a_quarter_of_the_memory_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    heavy_files.many_rounds(path, 0.025)  # 16 MB of rounds alone
    message = (
        f"{path}: expected a batch of at most 0.025 GB, a quarter of `memory_limit`; "
        "found a larger one, "
    )
    with pytest.raises(LoadError) as caught:
        load(path, untrusted=True, memory_limit=0.1, time_limit=60)
    assert str(caught.value).startswith(message)


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A file, and the folder with its answer."""
    from rounddiag.loaders.untrusted import process

    folder = tmp_path_factory.mktemp("honest")
    shots = ((EncodedScreenshot(data=b"x"),), (), ())
    texts = np.array(["a", "b", "c"], dtype=object)
    batch = replace(hand_batch(), images=shots, sample_columns={"text": texts})
    save(batch, folder / "a.parquet")
    answer = folder / "answer"

    def run_child(shared: Path, *_: object) -> tuple[int, str]:
        ended = run_forked(shared)
        shared.rename(answer)
        return ended

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(process, "run_child", run_child)
        with pytest.raises(LoadError):  # the answer is gone
            load(folder / "a.parquet", untrusted=True)
    table = TokenTable({1: b"a", 2: b"b"}, {2: "b"})
    (answer / "tokens.json").write_text(table.to_json())
    return folder / "a.parquet", answer


BATCH, TOKENS, DONE, ERROR = "batch.parquet", "tokens.json", "done", "error.txt"


def write(name: str, data: bytes) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes(data)


def cut(folder: Path) -> None:
    data = (folder / BATCH).read_bytes()
    (folder / BATCH).write_bytes(data[: len(data) // 2])


def footer_of(length: int) -> Callable[[Path], object]:
    def forge(folder: Path) -> None:
        data = (folder / BATCH).read_bytes()
        tail = length.to_bytes(4, "little") + b"PAR1"
        (folder / BATCH).write_bytes(data[:-8] + tail)

    return forge


def link(name: str, target: str) -> Callable[[Path], object]:
    def forge(folder: Path) -> None:
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(target)

    return forge


def pipe(name: str) -> Callable[[Path], object]:
    def forge(folder: Path) -> None:
        (folder / name).unlink(missing_ok=True)
        os.mkfifo(folder / name)

    return forge


def as_folder(folder: Path) -> None:
    (folder / BATCH).unlink()
    (folder / BATCH).mkdir()


def sparse(name: str) -> Callable[[Path], object]:
    return lambda folder: os.truncate(folder / name, 2 * 10**9)


def footer(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], object]:
    """Change the JSON of the answer."""

    def forge(folder: Path) -> None:
        table = pq.read_table(folder / BATCH)
        facts = json.loads(table.schema.metadata[b"rounddiag"])
        changed = change(facts) or facts
        text = changed if isinstance(changed, str) else json.dumps(changed)
        metadata = {b"rounddiag": text.encode()}
        pq.write_table(table.replace_schema_metadata(metadata), folder / BATCH)

    return forge


def column(name: str, values: object) -> Callable[[Path], object]:
    """Change a column of the answer; None leaves it out."""

    def forge(folder: Path) -> None:
        table = pq.read_table(folder / BATCH)
        at = table.column_names.index(name)
        table = table.remove_column(at)
        if values is not None:
            table = table.add_column(at, name, pa.array(values))
        pq.write_table(table, folder / BATCH)

    return forge


def refusal(folder: Path) -> None:
    (folder / DONE).write_bytes(b"3")
    os.mkfifo(folder / ERROR)


def twice(folder: Path) -> None:
    table = pq.read_table(folder / BATCH)
    pq.write_table(
        table.append_column("response_ids", table["response_ids"]), folder / BATCH
    )


def deep(depth: int) -> str:
    return "[" * depth + "]" * depth


FORGED: dict[str, Callable[[Path], object]] = {
    "no batch": lambda folder: (folder / BATCH).unlink(),
    "nothing": write(BATCH, b""),
    "another file": write(BATCH, b"GIF89a" * 100),
    "cut off": cut,
    "a footer longer than the file": footer_of(2**31 - 1),
    "a footer of no bytes": footer_of(0),
    "a link to a device": link(BATCH, "/dev/zero"),
    "a link to a file": link(BATCH, "/etc/passwd"),
    "a pipe": pipe(BATCH),
    "a folder": as_folder,
    "a batch of 2 GB": sparse(BATCH),
    "tokens of 2 GB": sparse(TOKENS),
    "tokens that are a pipe": pipe(TOKENS),
    "tokens that are no JSON": write(TOKENS, b"{"),
    "tokens 100,000 deep": write(TOKENS, deep(100_000).encode()),
    "tokens of numbers": write(TOKENS, b"[1, 2]"),
    "tokens that are no bytes": write(
        TOKENS, json.dumps([{"1": "\u20ac"}, {}]).encode()
    ),
    "tokens that are no ASCII": write(TOKENS, b'[{"1": "\xff"}, {}]'),
    "a special token of numbers": write(TOKENS, b'[{}, {"1": 2}]'),
    "meta 100,000 deep": footer(lambda _: deep(100_000)),
    "meta that is a list": footer(lambda facts: facts["meta"].update(meta=[])),
    "no meta": footer(lambda facts: facts["meta"].clear()),
    "no checks": footer(lambda facts: facts["meta"]["meta"].pop("checks") and None),
    "checks of numbers": footer(
        lambda facts: facts["meta"]["meta"].update(checks=[1, 2])
    ),
    "checks that lack a status": footer(
        lambda facts: facts["meta"]["meta"].update(checks=[{"name": "a"}])
    ),
    "checks that are no list": footer(
        lambda facts: facts["meta"]["meta"].update(checks={})
    ),
    "a newer version": footer(lambda facts: facts.update(version=99)),
    "no column of log-probs": column("old_log_probs", None),
    "ids that are texts": column("response_ids", [["a"], ["b"], ["c"]]),
    "rows of other lengths": column("rollout_log_probs", [[1.0], [1.0], [1.0]]),
    "rows that are null": column("response_mask", [None, None, None]),
    "facts of other pictures": column("screenshot_facts", [[], [], []]),
    "pictures that are numbers": column("screenshots", [[1], [], []]),
    "a column twice": twice,
    "an end without a word": lambda folder: (folder / DONE).unlink(),
    "an end that is a pipe": pipe(DONE),
    "an end with another word": write(DONE, b"\xff" * 100),
    "an error that is a pipe": refusal,
}


@pytest.mark.parametrize("kind", FORGED)
def test_a_forged_answer_is_a_load_error_that_names_the_file(
    kind: str, honest: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, answer = honest
    answer_with(answer, FORGED[kind], monkeypatch)
    with pytest.raises(LoadError) as caught:
        load(path, untrusted=True)
    message = str(caught.value)
    assert message.startswith(f"{path}: expected ")
    assert "rounddiag-untrusted-" not in message


def test_the_answer_itself_is_no_forgery(
    honest: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, answer = honest
    answer_with(answer, lambda _: None, monkeypatch)
    read = load(path, untrusted=True)
    assert read.sample_columns["text"].tolist() == ["a", "b", "c"]
    assert isinstance(read.tokenizer, TokenTable)


def test_a_token_keeps_the_first_thousand_bytes_of_its_text() -> None:
    texts = {0: "a" * 1001, 1: "é" * 501, 2: "b"}
    table = TokenTable.from_tokenizer(
        lambda ids: "".join(texts[i] for i in ids), [0, 1, 2]
    )
    assert {i: len(text) for i, text in table.tokens.items()} == {
        0: 1000,
        1: 1000,
        2: 1,
    }
    assert table.decode([1]) == "é" * 500
