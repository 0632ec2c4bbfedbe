from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import rounddiag as rd
from rounddiag.batch import Batch
from rounddiag.errors import BatchError, LoadError
from rounddiag.loaders.rescoring import attach
from tests.batches import hand_batch, masks, padded, redacted

NAN = float("nan")
# Sample 0 has tokens 0 to 5 and wrote those at 0, 1 and 3.
OF_SAMPLES: dict[str, list[Any]] = {
    "sample": [0, 1, 2],
    "token_ids": [[0, 1, 3], [7, 8, 9, 11], [12]],
    "log_probs": [[-1.0, -2.0, -3.0], [-4.0, -5.0, -6.0, -7.0], [-8.0]],
}
OF_TOKENS: dict[str, list[Any]] = {
    "sample": [2, 0, 0, 0, 1, 1, 1, 1],
    "position": [0, 0, 1, 3, 1, 2, 3, 5],
    "token_id": [12, 0, 1, 3, 7, 8, 9, 11],
    "log_prob": [-8.0, -1.0, -2.0, -3.0, -4.0, -5.0, -6.0, -7.0],
}
SCORE = [
    *(-1.0, -2.0, NAN, -3.0, NAN, NAN),
    *(NAN, -4.0, -5.0, -6.0, NAN, -7.0),
    *(-8.0, NAN, NAN, NAN, NAN, NAN),
]


@pytest.fixture
def batch() -> Batch:
    return hand_batch()


def changed(source: dict[str, list[Any]], name: str, row: int, value: Any) -> Any:
    column = [*source[name]]
    column[row] = value
    return {**source, name: column}


def without_row(source: dict[str, list[Any]], row: int) -> dict[str, list[Any]]:
    return {k: v[:row] + v[row + 1 :] for k, v in source.items()}


def lines(path: Path, source: dict[str, list[Any]]) -> Path:
    rows = zip(*source.values(), strict=True)
    records = [dict(zip(source, row, strict=True)) for row in rows]
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records))
    return path


@pytest.mark.parametrize("source", [OF_SAMPLES, OF_TOKENS], ids=["samples", "tokens"])
@pytest.mark.parametrize("kind", ["mapping", "frame", "jsonl", "parquet"])
def test_a_score_from_every_kind_of_source(
    batch: Batch, tmp_path: Path, source: dict[str, list[Any]], kind: str
) -> None:
    scores: Any = source
    if kind == "frame":
        scores = pd.DataFrame(source)
    elif kind == "jsonl":
        scores = lines(tmp_path / "scores.jsonl", source)
    elif kind == "parquet":
        scores = str(tmp_path / "scores.parquet")
        pd.DataFrame(source).to_parquet(scores)
    found = attach(batch, "x", scores)
    np.testing.assert_array_equal(found.scores["x"], SCORE)
    assert batch.scores == {}


def test_tensors_on_any_device(device: torch.device) -> None:
    source = {
        "sample": torch.tensor([0, 1, 2]),
        "token_ids": torch.arange(18).reshape(3, 6),
        "log_probs": -torch.arange(18).reshape(3, 6).bfloat16(),
    }
    score = attach(hand_batch(device), "x", source).scores["x"]
    assert score.device.type == device.type
    assert score.tolist() == [-float(value) for value in range(18)]


def in_order(order: list[int], **others: Any) -> dict[str, Any]:
    rows = {name: [values[i] for i in order] for name, values in OF_SAMPLES.items()}
    return {**rows, **others}


BY_ROUND = {
    **{name: OF_TOKENS[name] for name in ("sample", "token_id", "log_prob")},
    "round": [0, 0, 0, 1, 0, 0, 0, 1],
    "token": [0, 0, 1, 0, 0, 1, 2, 0],
}
BY_ID = in_order([2, 0, 1], sample=[9, 9, 9], sample_id=["c", "a", "b"])
SHARED_IDS = {**OF_SAMPLES, "sample_id": ["a", "a", "c"]}
PADDED = hand_batch(lengths=torch.tensor([4, 6, 1]))
NAMED = replace(hand_batch(), sample_ids=("a", "b", "c"))
FOUND: dict[str, tuple[Batch, dict[str, Any]]] = {
    "by round and token": (hand_batch(), BY_ROUND),
    "by the ids of samples": (NAMED, BY_ID),
    "ids that two samples share are not used": (
        replace(hand_batch(), sample_ids=("a", "a", "c")),
        SHARED_IDS,
    ),
    "padding has no value": (PADDED, OF_TOKENS),
}


@pytest.mark.parametrize(("batch", "source"), FOUND.values(), ids=FOUND)
def test_where_each_value_belongs(batch: Batch, source: dict[str, Any]) -> None:
    np.testing.assert_array_equal(attach(batch, "x", source).scores["x"], SCORE)


def test_a_frame_of_the_batch_itself_gives_its_own_numbers(batch: Batch) -> None:
    tokens = rd.token_frame(batch, ["token_id", "rollout_log_prob"])
    source = tokens.rename(columns={"rollout_log_prob": "log_prob"})
    found = attach(batch, "x", source)
    assert rd.token_frame(found, a="x")["diff"].tolist() == [0.0] * 8
    assert found.scores["x"].dtype == torch.float32


def test_a_whole_response_keeps_what_observations_were_given(batch: Batch) -> None:
    source = {
        "sample": [1, 0, 2],
        "token_ids": [[*range(6, 12)], [*range(6)], [*range(12, 18)]],
        "log_probs": [[-1.0] * 6, [None, None, -2.0, -3.0, None, None], [-4.0] * 6],
    }
    expected = [NAN, NAN, -2.0, -3.0, NAN, NAN, *[-1.0] * 6, *[-4.0] * 6]
    np.testing.assert_array_equal(attach(batch, "x", source).scores["x"], expected)


def test_a_score_of_the_same_name_is_replaced(batch: Batch) -> None:
    first = attach(batch, "x", OF_TOKENS)
    second = attach(first, "x", {**OF_TOKENS, "log_prob": [-1.0] * 8})
    assert second.scores["x"][0] == -1.0
    assert first.scores["x"][12] == -8.0


def test_no_sample() -> None:
    empty = padded(torch.zeros(0, 3), torch.zeros(0, 3), torch.zeros(0, 3))
    source = {name: values[:0] for name, values in OF_TOKENS.items()}
    assert attach(empty, "x", source).scores["x"].tolist() == []


@pytest.mark.parametrize("name", ["old", "rollout"])
def test_the_pair_of_the_batch_is_not_replaced(batch: Batch, name: str) -> None:
    message = f"expected a name for a further score; found '{name}', which every batch"
    with pytest.raises(BatchError, match=message):
        attach(batch, name, OF_TOKENS)


def without(source: dict[str, list[Any]], name: str) -> dict[str, list[Any]]:
    return {key: values for key, values in source.items() if key != name}


def in_round(round_: int, token: int) -> dict[str, list[Any]]:
    one = {
        "sample": 0,
        "round": round_,
        "token": token,
        "token_id": 3,
        "log_prob": -1.0,
    }
    return {name: [value] for name, value in one.items()}


TWO_IDS = changed(OF_SAMPLES, "token_ids", 1, [7, 8])
DIFFERS = (
    "expected token id 8 at sample 1 round 0 position 2; found 80, and 0 others differ."
    " Rescore the ids that `rounddiag.export_rescore` writes;"
)
REFUSED: dict[str, tuple[Any, str]] = {
    "a token id that differs": (changed(OF_TOKENS, "token_id", 5, 80), DIFFERS),
    "an id of a sample that differs": (
        changed(OF_SAMPLES, "token_ids", 1, [7, 80, 9, 11]),
        DIFFERS,
    ),
    "a token that is missing": (
        without_row(OF_TOKENS, 3),
        "expected a value for token id 3 at sample 0 round 1 position 3; found none,"
        " nor for 0 other generated tokens.",
    ),
    "a sample that is missing": (
        without_row(OF_SAMPLES, 1),
        "expected a value for token id 7 at sample 1 round 0 position 1; found none,"
        " nor for 3 other generated tokens.",
    ),
    "a token twice": (
        {name: [*values, values[4]] for name, values in OF_TOKENS.items()},
        "expected one value for sample 1 round 0 position 1; found 2.",
    ),
    "a sample twice": (
        {name: [*values, values[0]] for name, values in OF_SAMPLES.items()},
        "expected one value for sample 0 round 0 position 0; found 2.",
    ),
    "a row that is too short": (
        changed(TWO_IDS, "log_probs", 1, [-1.0, -1.0]),
        "`token_ids`: expected 6 token ids for sample 1, its whole response, or 4, its"
        " generated tokens; found 2.",
    ),
    "more values than ids": (
        TWO_IDS,
        "`log_probs`: expected 2 values for sample 1, one per token id; found 4.",
    ),
    **{
        f"a {name} of {value}": (
            changed(OF_TOKENS, name, 1, value),
            f"`{name}`: expected {message}",
        )
        for name, value, message in list[tuple[str, Any, str]](
            [
                (
                    "sample",
                    3,
                    "0 up to 2, one of the 3 samples of the batch; found 3",
                ),
                (
                    "sample",
                    -1,
                    "0 up to 2, one of the 3 samples of the batch; found -",
                ),
                (
                    "position",
                    6,
                    "0 up to 5, one of the 6 positions of its sample; fo",
                ),
                ("token_id", 0.5, "whole numbers; found 0.5"),
                ("token_id", NAN, "whole numbers; found nan"),
                ("sample", NAN, "whole numbers; found nan"),
                ("token_id", "a", "whole numbers; found "),
                ("token_id", 1 << 70, "whole numbers; found "),
                ("token_id", None, "whole numbers; found "),
                ("log_prob", "a", "numbers; found "),
            ]
        )
    },
    "a token beyond its round": (
        in_round(1, 1),
        "`token`: expected 0 up to 0, one of the 1 tokens of its round;",
    ),
    "a round beyond its sample": (
        in_round(2, 0),
        "`round`: expected 0 up to 1, one of the 2 rounds of its sample;",
    ),
    "no ids": (
        without(OF_TOKENS, "token_id"),
        "expected `token_ids` and `log_probs`, one row per sample, or `token_id` and"
        " `log_prob`, one row per token; found columns sample, position, log_prob.",
    ),
    "no sample": (
        without(OF_TOKENS, "sample"),
        "`sample`: expected the index of the sample in each row, or `sample_id` if the"
        " batch has unique ids; found columns position, token_id, log_prob.",
    ),
    "no position": (
        without(OF_TOKENS, "position"),
        "`round`: expected a column of one value per row; found columns sample,",
    ),
    "rows that are no lists": (
        {"sample": [0, 1], "token_ids": [1, 2], "log_probs": [[-1.0], [-1.0]]},
        "`token_ids`: expected a list of numbers per",
    ),
    "an id of no sample": (
        {**BY_ID, "sample_id": ["c", "a", "d"]},
        "`sample_id`: expected ids of the batch, such as 'a'; found 'd' in row 2.",
    ),
}


@pytest.mark.parametrize(("source", "message"), REFUSED.values(), ids=REFUSED)
def test_scores_that_do_not_fit_are_refused(source: Any, message: str) -> None:
    batch = NAMED if "sample_id" in source else hand_batch()
    with pytest.raises(BatchError, match=f"^{re.escape(message)}"):
        attach(batch, "x", source)


def test_a_file_is_named_in_the_error(batch: Batch, tmp_path: Path) -> None:
    path = lines(tmp_path / "a.jsonl", changed(OF_TOKENS, "token_id", 0, 1))
    start = re.escape(f"{path}: expected token id 12 at sample 2 round 0 position 0;")
    with pytest.raises(LoadError, match=f"^{start}"):
        attach(batch, "x", path)


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (None, "nothing"),
        (b"", "an empty file"),
        (b"PK\x03\x04", "a bad zip"),
        (b"\x89PNG", "a PNG picture"),
        (b'{"a": ', "line 1: no JSON"),
        (b"PAR1", "ArrowInvalid"),
    ],
)
def test_a_file_of_another_kind(
    batch: Batch, tmp_path: Path, content: bytes | None, found: str
) -> None:
    path = tmp_path / "scores"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(LoadError, match=rf"^{path}: expected .*{found}"):
        attach(batch, "x", path)


@settings(max_examples=min(50, settings().max_examples))
@given(mask=masks(), data=st.data())
def test_rows_in_any_order_give_the_same_score(
    mask: list[list[int]], data: st.DataObject
) -> None:
    shape = torch.tensor(mask).reshape(len(mask), len(mask[0]) if mask else 0)
    values = -torch.arange(shape.numel()).reshape(shape.shape).float()
    batch = padded(shape, values, values)
    tokens = rd.token_frame(batch, ["position", "token_id", "old_log_prob"])
    order = data.draw(st.permutations(range(len(tokens))))
    source = tokens.rename(columns={"old_log_prob": "log_prob"}).iloc[order]
    written = batch.response_mask != 0
    found = attach(batch, "x", source).scores["x"]
    assert torch.equal(found[written], batch.log_probs("old")[written])
    assert found[~written].isnan().all()


def test_a_redacted_batch_has_no_ids_to_compare_with(batch: Batch) -> None:
    with pytest.raises(BatchError, match="saved with `redact=True`"):
        attach(redacted(batch), "x", OF_TOKENS)
