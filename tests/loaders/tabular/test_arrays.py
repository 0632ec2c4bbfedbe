"""Tensors by name, without a framework's class around them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch

from rounddiag.loaders import load
from tests.loaders.verl_writer import Consolidated, borrowed_names, small_batch


def test_a_dictionary_in_a_pt_has_columns_and_facts_too(tmp_path: Path) -> None:
    path = tmp_path / "a.pt"
    torch.save(
        {
            **small_batch(),
            "uid": ["a", "b"],
            "turns": torch.tensor([2, 3]),
            "rewards": torch.tensor([1.0, 0.5]),
            "temperature": 0.7,
            "global_steps": torch.tensor(12),
        },
        path,
    )
    batch = load(path)

    assert batch.group_ids == ("a", "b")
    assert batch.sample_columns["turns"].tolist() == [2, 3]
    assert batch.rewards.tolist() == [1.0, 0.5]
    assert batch.step == 12
    assert batch.meta["sampling"] == {"temperature": 0.7}
    assert batch.meta["old_log_probs_source"] == "unknown"


def test_rows_one_by_one_are_rows(tmp_path: Path) -> None:
    path = tmp_path / "a.pt"
    fields = small_batch()
    del fields["attention_mask"], fields["prompts"]
    torch.save({k: [v[0], v[1, :1].clone()] for k, v in fields.items()}, path)
    batch = load(path)

    assert batch.offsets.tolist() == [0, 4, 5]
    assert batch.log_probs("old").tolist() == [-1.5, -2.0, -9.0, -0.5, -3.0]


def test_a_tensordict_alone_opens(tmp_path: Path) -> None:
    path = tmp_path / "a.pt"
    with borrowed_names():
        torch.save(Consolidated(small_batch()), path)

    assert load(path).log_probs("old")[:2].tolist() == [-1.5, -2.0]


def test_tensors_that_are_views_open(tmp_path: Path) -> None:
    path = tmp_path / "a.pt"
    fields = small_batch()
    fields["old_log_probs"] = fields["old_log_probs"].T.contiguous().T
    fields["response_mask"] = fields["response_mask"].bool()
    fields["rollout_log_probs"] = torch.tensor([[-1.0], [-4.0]]).expand(2, 4)
    torch.save(fields, path)
    batch = load(path)

    assert batch.log_probs("old").tolist() == [
        -1.5,
        -2.0,
        -9.0,
        -0.5,
        -3.0,
        0.0,
        0.0,
        0.0,
    ]
    assert batch.log_probs("rollout").tolist() == [-1.0] * 4 + [-4.0] * 4
    assert batch.rounds.num_tokens.tolist() == [2, 1, 1]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_log_probs_keep_their_dtype(dtype: torch.dtype, tmp_path: Path) -> None:
    fields = small_batch()
    fields["old_log_probs"] = fields["old_log_probs"].to(dtype)
    torch.save(fields, tmp_path / "a.pt")
    safetensors.torch.save_file(fields, tmp_path / "a.safetensors")

    for name in ("a.pt", "a.safetensors"):
        batch = load(tmp_path / name)
        assert batch.log_probs("old").dtype == dtype
        assert batch.log_probs("old")[:4].tolist() == [-1.5, -2.0, -9.0, -0.5]


def test_the_metadata_of_safetensors_is_heard(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    safetensors.torch.save_file(small_batch(), path, metadata={"temperature": "0.7"})

    assert load(path).meta["sampling"] == {"temperature": "0.7"}


def test_an_npz_has_columns_and_facts_too(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    fields: dict[str, object] = {k: v.numpy() for k, v in small_batch().items()}
    fields["responses"] = small_batch()["responses"].numpy().astype(np.uint16)
    fields["global_steps"] = np.array(3)
    for dtype in (None, object):
        fields["uid"] = np.array(["a", "b"], dtype=dtype)
        np.savez(path, **fields)  # type: ignore[arg-type]
        batch = load(path)
        assert batch.group_ids == ("a", "b")
    assert batch.step == 3
    assert batch.require_ids().dtype == torch.int64
    assert batch.require_ids()[:4].tolist() == [5, 6, 7, 8]
