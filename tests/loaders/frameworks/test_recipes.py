"""The README's recipes for trainers that cannot be run here, with what they would hold.

Those that can are executed in the real trainers: see tests/interop.
"""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import torch

import rounddiag as rd
from rounddiag.loaders import load
from tests.interop.readme import README, blocks

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

_, OPENRLHF, AREAL, NAMES = blocks(README, "Save a batch in TRL and others")


def run(code: str, folder: Path, **names: Any) -> dict[str, Any]:
    code = code.replace("/data/diag", str(folder))
    exec(compile(code, "README.md", "exec"), names)  # noqa: S102 our own page
    return names


def test_areal_s_recipe_saves_trajectories_of_any_width(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module: Any = ModuleType("areal.infra.rpc.rtensor")
    module.RTensor = SimpleNamespace(localize=lambda rows: rows)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    wide = {
        "input_ids": torch.tensor([[1, 5, 6, 7], [1, 8, 0, 0]]),
        "attention_mask": torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]]),
        "loss_mask": torch.tensor([[0, 1, 0, 1], [0, 1, 0, 0]]),
        "logprobs": torch.tensor([[0.0, -1, 0, -2], [0, -3, 0, 0]]),
        "prox_logp": torch.tensor([[-1.5, -9, -2, -9], [-3, -9, -9, -9]]),
        "rewards": torch.tensor([1.0, 0.0]),
        "versions": torch.tensor([[-1, 4, -1, 4], [-1, 4, 0, 0]]),
    }
    narrow = {name: value[1:, :2] for name, value in wide.items() if value.dim() > 1}
    narrow["rewards"] = torch.tensor([0.5])
    run(AREAL, tmp_path, rollout_batch=[wide, narrow], global_step=40)
    batch = load(tmp_path / "step_40.pt")

    assert batch.step == 40
    assert batch.response_ids.tolist() == [5, 6, 7, 8, 8]
    assert batch.rollout_log_probs.tolist() == [-1.0, 0.0, -2.0, -3.0, -3.0]
    assert batch.old_log_probs.tolist() == [-1.5, -9.0, -2.0, -3.0, -3.0]
    assert batch.rewards is not None
    assert batch.rewards.tolist() == [1.0, 0.0, 0.5]


def test_a_table_of_ones_own_opens_with_its_names(tmp_path: Path) -> None:
    path = tmp_path / "step_40.parquet"
    columns = {
        "response_ids": [[5, 6]],
        "response_mask": [[1, 1]],
        "rollout_log_probs": [[-1.0, -2.0]],
        "train_lp": [[-1.5, -2.0]],
        "task": ["a"],
    }
    pq.write_table(pa.table(columns), path)
    batch = run(NAMES, tmp_path, rd=rd, path=path)["batch"]

    assert batch.old_log_probs.tolist() == [-1.5, -2.0]
    assert batch.group_ids == ("a",)


def test_openrlhf_s_recipe_goes_on_without_the_sampler_s_log_probs(
    tmp_path: Path,
) -> None:
    micro_batch = SimpleNamespace(
        sequences=torch.tensor([[1, 5]]),
        attention_mask=torch.tensor([[1, 1]]),
        action_mask=torch.tensor([[1]]),
        action_log_probs=torch.tensor([[-1.0]]),
        rollout_log_probs=None,
        rewards=torch.tensor([1.0]),
        index=[0],
    )
    args = SimpleNamespace(rollout=SimpleNamespace(n_samples_per_prompt=1))
    names = {"experiences": [micro_batch], "global_step": 40, "torch": torch}
    run(OPENRLHF, tmp_path, self=SimpleNamespace(args=args), **names)

    assert (tmp_path / "step_40.pt").is_file()
