"""What the child may hand over, and answers that it would not write."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from rounddiag.errors import LoadError
from rounddiag.loaders import load, save
from rounddiag.loaders.untrusted import Limits, child, guard
from rounddiag.loaders.untrusted.child import batch_bytes
from rounddiag.text.token_table import TokenTable
from rounddiag.vision import EncodedScreenshot
from tests.batches import hand_batch
from tests.fuzz.forked import run_forked
from tests.loaders import heavy_files
from tests.loaders.untrusted.children import answer_with

MB = 10**6


def test_a_batch_weighs_its_tensors_its_rounds_and_its_objects() -> None:
    batch = hand_batch()  # of 3 samples
    per_position = sum(tensor.dtype.itemsize for tensor in batch.per_token.values())
    size = len(batch.require_ids()) * per_position + 8 * (4 + 3)
    size += 32 * batch.num_rounds + 3 * 58
    none = ("sample_ids", "group_ids", "rewards", "prompt_ids", "prompt_offsets")
    empty = ("scores", "sample_columns", "round_columns")
    parts: dict[str, Any] = {**dict.fromkeys(none), **{name: {} for name in empty}}
    bare = replace(batch, **parts)
    assert batch_bytes(bare) == size
    texts = np.array(["a", "b" * 999, None], dtype=object)
    # Three pointers; a string of ASCII is 49 bytes and its length; None is 16.
    assert batch_bytes(replace(bare, sample_columns={"text": texts})) == (
        size + 3 * 8 + 50 + 1048 + 16
    )
    shots = ((EncodedScreenshot(data=b"x" * 100),), (), ())
    assert batch_bytes(replace(bare, images=shots)) == size + 400 + 100
    rows = tuple(torch.zeros(2, dtype=torch.int64) for _ in range(3))
    assert batch_bytes(replace(bare, rollout_ids=rows)) == size + 3 * (400 + 16)


TOO_LARGE = "a quarter of `memory_limit`; found a larger one"
LISTS: list[list[object]] = [[] for _ in range(12_500)]  # 50 kB, or 2 MB of objects
EMPTY = np.array([LISTS, [], []], dtype=object)
KEYS = {name: np.arange(3) for name in ("sample", "round")}
HEAVY: dict[str, dict[str, Any]] = {
    "meta": {"meta": {"lists": LISTS}},
    "sample_columns": {"sample_columns": {"lists": EMPTY}},
    "round_columns": {"round_columns": {**KEYS, "lists": EMPTY}},
    "footer": {"sample_columns": {f"{i}": np.zeros(3, np.int8) for i in range(500)}},
}


@pytest.mark.parametrize("kind", HEAVY)
def test_the_parent_weighs_json_and_footer_as_objects(
    kind: str, tmp_path: Path
) -> None:
    parts = {"sample_columns": {}, "round_columns": {}, "meta": {}, **HEAVY[kind]}
    batch = replace(hand_batch(), **parts)
    plain = {"checks": [], **batch.meta}
    save(replace(batch, meta={"meta": plain, "tokens": None}), tmp_path / child.BATCH)
    for most, is_large in ((10**6, True), (10**7, False)):
        limits = Limits(memory=4 * most / 10**9, time=1)
        try:
            read = guard._read_answer(tmp_path, "a.pkl", limits, None)
        except LoadError as error:
            assert is_large, error  # noqa: PT017 one of the two is right
            assert TOO_LARGE in str(error)  # noqa: PT017
        else:
            assert not is_large
            assert read.num_samples == 3


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
        patch.setattr(guard, "run_child", run_child)
        with pytest.raises(LoadError):  # the answer is gone
            load(folder / "a.parquet", untrusted=True)
    tokens(TokenTable({1: b"a", 2: b"b"}, {2: "b"}).to_json())(answer)
    return folder / "a.parquet", answer


BATCH, ANSWER = "batch.parquet", "answer.json"


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


def tokens(text: object) -> Callable[[Path], object]:
    return footer(lambda facts: facts["meta"].update(tokens=text))


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
    "tokens that are no JSON": tokens("{"),
    "tokens 100,000 deep": tokens(deep(100_000)),
    "tokens of numbers": tokens("[1, 2]"),
    "tokens that are a number": tokens(1),
    "tokens that are no bytes": tokens(json.dumps([{"1": "\u20ac"}, {}])),
    "a special token of numbers": tokens('[{}, {"1": 2}]'),
    "meta 100,000 deep": footer(lambda _: deep(100_000)),
    "meta that is a list": footer(lambda facts: facts["meta"].update(meta=[])),
    "no meta": footer(lambda facts: facts["meta"].clear()),
    "a newer version": footer(lambda facts: facts.update(version=99)),
    "no column of the mask": column("response_mask", None),
    "ids that are texts": column("response_ids", [["a"], ["b"], ["c"]]),
    "rows of other lengths": column("rollout_log_probs", [[1.0], [1.0], [1.0]]),
    "rows that are null": column("response_mask", [None, None, None]),
    "facts of other pictures": column("screenshot_facts", [[], [], []]),
    "pictures that are numbers": column("screenshots", [[1], [], []]),
    "a column twice": twice,
    "no answer": lambda folder: (folder / ANSWER).unlink(),
    "an answer that is a pipe": pipe(ANSWER),
    "an answer of 2 GB": sparse(ANSWER),
    "an answer that is no JSON": write(ANSWER, b"\xff" * 100),
    "an answer of another shape": write(ANSWER, b'{"code": "0"}'),
    "a refusal without a word": write(ANSWER, b'{"code": 3, "message": ""}'),
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
