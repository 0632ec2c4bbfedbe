"""Files in NeMo-RL's layout that lack something, or lie: LoadErrors that say what."""

from __future__ import annotations

from pathlib import Path

import pytest

from rounddiag.errors import LoadError
from rounddiag.loaders import load
from tests.loaders.nemo_rl_writer import record, small_step, write
from tests.loaders.refusal import refused_file


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "train_data_step12.jsonl"


def test_a_file_of_an_older_release_says_what_it_lacks(path: Path) -> None:
    older = record([1, 2], [0, 1])
    del older["token_ids"], older["token_loss_mask"]
    write(path, [older])

    assert refused_file(path) == (
        "expected `token_ids` in the records of NeMo-RL; found only content, rewards,"
        " input_lengths, sample_loss_mask, advantages, generation_logprobs,"
        " prev_logprobs, idx. Older releases and some of its algorithms do not save"
        " it: update NeMo-RL, and train with GRPO."
    )


def test_a_row_of_another_length_names_its_line(path: Path) -> None:
    short = record([1, 2, 3], [0, 1, 1], prev_logprobs=[0.0, -1.0])
    write(path, [*small_step(), short])

    assert refused_file(path) == (
        "expected a list of 3 numbers in `prev_logprobs` of line 4; found 2 numbers."
        " Every line must have one number per token in it."
    )


def test_a_field_that_a_line_lacks_names_the_line(path: Path) -> None:
    lacking = record([1, 2, 3], [0, 1, 1])
    del lacking["generation_logprobs"]
    write(path, [*small_step(), lacking])

    assert refused_file(path) == (
        "expected a list of 3 numbers in `generation_logprobs` of line 4; found no such"
        " field. Every line must have one number per token in it."
    )


@pytest.mark.parametrize("length", [4, -1, "2", None, 1.5])
def test_a_length_that_lies_is_an_error(path: Path, length: object) -> None:
    write(path, [record([1, 2, 3], [0, 1, 1], input_lengths=length)])

    assert refused_file(path).startswith(
        "expected 0 to 3 in `input_lengths` of line 1; found "
    )


def test_a_mask_of_other_numbers_is_an_error(path: Path) -> None:
    write(path, [record([1, 2, 3], [0, 2, 1])])

    with pytest.raises(LoadError, match="response_mask"):
        load(path)


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (["a", "b", "c"], "a list of other values"),
        ([1, 2, 1 << 70], "a list of other values"),
        ("<script>", "text"),
        ({"a": 1}, "an object"),
        (3, "one number"),
    ],
)
def test_anything_else_for_token_ids_is_an_error(
    path: Path, value: object, found: str
) -> None:
    write(path, [{**record([1, 2, 3], [0, 1, 1]), "token_ids": value}])

    assert refused_file(path) == (
        f"expected a list of numbers in `token_ids` of line 1; found {found}. Every"
        " line must have one number per token in it."
    )


def test_a_field_that_only_some_lines_have_is_an_error(path: Path) -> None:
    rows = small_step()
    del rows[1]["advantages"]
    write(path, rows)

    assert "`advantages`: expected 3 rows" in refused_file(path)


def test_a_file_that_ends_in_the_middle_names_the_line(path: Path) -> None:
    write(path, small_step())
    path.write_bytes(path.read_bytes()[:-30])

    assert "found line 3: no JSON: " in refused_file(path)
