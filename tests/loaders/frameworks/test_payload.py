"""verl's V1 payload: which rows are padding, and what its keys say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from rounddiag.errors import LoadError
from rounddiag.loaders import load
from tests.loaders.verl_writer import Consolidated, borrowed_names, small_batch


def payload(path: Path, **others: Any) -> Path:
    fields = small_batch()
    fields["response_mask"] = torch.tensor([[1, 1, 0, 1], [0, 0, 0, 0]])
    with borrowed_names():
        torch.save({"tensordict": Consolidated(fields), **others}, path)
    return path


def test_padding_is_recognised_by_its_tag(tmp_path: Path) -> None:
    tags = [{"is_padding": False, "status": "done"}, {"is_padding": True}]
    batch = load(payload(tmp_path / "a.pt", tags=tags, keys=["g_x_0_0", "g_x_1_2"]))

    assert batch.meta["num_dropped_rows"] == 1
    assert batch.sample_ids == ("g_x_0_0",)
    assert batch.group_ids == ("g_x",)
    assert batch.sample_columns["status"].tolist() == ["done"]
    assert batch.sample_columns["session"].tolist() == ["0"]


@pytest.mark.parametrize(
    "facts", [{"extra_info": {"temperature": 0.7}}, {"temperature": 0.7}]
)
def test_the_temperature_is_that_of_the_queue_or_of_the_payload(
    facts: dict[str, Any], tmp_path: Path
) -> None:
    batch = load(payload(tmp_path / "a.pt", global_steps=7, **facts))

    assert batch.step == 7
    assert batch.meta["sampling"] == {"temperature": 0.7}
    assert "extra_info" not in batch.meta.get("left_out", [])


def test_without_tags_padding_is_recognised_by_its_group_and_empty_mask(
    tmp_path: Path,
) -> None:
    batch = load(payload(tmp_path / "a.pt", keys=["g0_0_0", "pad0a1b_0_0"]))

    assert batch.meta["num_dropped_rows"] == 1
    assert batch.group_ids == ("g0",)


def test_a_row_with_tokens_or_another_group_is_no_padding(tmp_path: Path) -> None:
    for keys in (["pad0_0_0", "g0_0_0"], ["a", "pad"]):
        batch = load(payload(tmp_path / "a.pt", keys=keys))
        assert "num_dropped_rows" not in batch.meta
        assert batch.sample_ids == tuple(keys)


def test_a_payload_without_a_tensordict_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.pt"
    torch.save({"tensordict": [1, 2], "keys": []}, path)

    with pytest.raises(LoadError, match="found a V1 payload without a TensorDict"):
        load(path)


def test_outputs_of_one_session_are_joined_in_their_order(tmp_path: Path) -> None:
    fields = small_batch()
    keys = ["g_x_0_10", "g_x_0_9"]
    with borrowed_names():
        path = tmp_path / "a.pt"
        torch.save({"tensordict": Consolidated(fields), "keys": keys}, path)

    batch = load(path)

    assert batch.sample_ids == ("g_x_0",)
    assert batch.group_ids == ("g_x",)
    assert batch.sample_columns["session"].tolist() == ["0"]
    assert batch.require_ids().tolist() == [9, 1, 2, 5, 6, 7, 8]
    assert batch.rounds.num_tokens.tolist() == [1, 2, 1]
    assert batch.round_columns["row"].tolist() == [1, 0, 0]
    assert batch.round_columns["index"].tolist() == ["9", "10", "10"]
    assert batch.round_columns["row_id"].tolist() == ["g_x_0_9", "g_x_0_10", "g_x_0_10"]
    assert batch.meta["rows"] == (
        "2 rows joined into 1 sample by `uid`, `session`, ordered by `index`"
    )
