"""Recipes for trainers that cannot be run here, with what they would hold.

Those that can are executed in the real trainers: see tests/interop.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import rounddiag as rd
from rounddiag.loaders import load
from tests.interop.readme import README, RECIPES, blocks

(TRL,), (OPENRLHF,), (AREAL,), (NAMES,), (SWIFT,), (TINKER,) = (
    blocks(RECIPES, name)
    for name in ("trl", "openrlhf", "areal", "other", "ms-swift", "tinker")
)
VERL = blocks(RECIPES, "verl")
SETUP, KEYS, FINISH_KEYS, STEP, FINISH, AGENT, WITHOUT, WITHOUT_KEYS = VERL


def run(code: str, folder: Path, **names: Any) -> dict[str, Any]:
    code = code.replace("/data/diag", str(folder))
    exec(compile(code, "recipes.md", "exec"), names)  # noqa: S102 our own page
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
    saved = torch.load(tmp_path / "step_40.pt")
    assert [row.tolist() for row in saved["versions"]] == [
        *([-1, 4, -1, 4], [-1, 4, 0, 0], [-1, 4])
    ]
    batch = load(tmp_path / "step_40.pt")

    assert batch.step == 40
    assert batch.require_ids().tolist() == [5, 6, 7, 8, 8]
    assert batch.log_probs("rollout").tolist() == [-1.0, 0.0, -2.0, -3.0, -3.0]
    assert batch.log_probs("old").tolist() == [-1.5, -9.0, -2.0, -3.0, -3.0]
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


class GRPOTrainer:
    """What the recipe needs of TRL's: rewards of all ranks, and a batch's output."""

    def __init__(self, **output: Any) -> None:
        self.model = SimpleNamespace(training=True)
        self.state = SimpleNamespace(global_step=40)
        self.accelerator = SimpleNamespace(process_index=1)
        self.reward_weights = torch.tensor([1.0, 0.5])
        self.output = output

    def _calculate_rewards(self, *_: Any) -> torch.Tensor:
        nan = float("nan")
        return torch.tensor([[9.0, 9], [9, 9], [1, 1], [2, nan]])

    def _generate_and_score_completions(self, inputs: Any) -> dict[str, Any]:
        self._calculate_rewards(inputs, [], [], [])
        return dict(self.output)


def trl_output() -> dict[str, Any]:
    """Of rank 1: two samples, the second with two screenshots of 4 x 4 patches."""
    return {
        "prompt_ids": torch.tensor([[0, 1, 9], [1, 9, 9]]),
        "prompt_mask": torch.tensor([[0, 1, 1], [1, 1, 1]]),
        "completion_ids": torch.tensor([[5, 6, 7], [8, 9, 0]]),
        "completion_mask": torch.tensor([[1, 1, 1], [1, 1, 0]]),
        "sampling_per_token_logps": torch.tensor([[-1.0, -1, -2], [-3, -4, 0]]),
        "old_per_token_logps": torch.tensor([[-1.5, -1, -2], [-3, -4, -9]]),
        "ref_per_token_logps": torch.tensor([[-1.25, -1, -2], [-3, -4, -9]]),
        "advantages": torch.tensor([0.5, -0.5]),
        "num_images": [1, 2],
        "image_grid_thw": torch.tensor([[1, 4, 4]] * 3),
        "pixel_values": torch.arange(48.0)[:, None].repeat(1, 1176),
    }


@pytest.fixture
def saving_trainer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    module: Any = ModuleType("trl")
    module.GRPOTrainer = GRPOTrainer
    monkeypatch.setitem(sys.modules, "trl", module)
    return run(TRL, tmp_path)["SavingTrainer"]


def test_trl_s_recipe_saves_rewards_reference_and_pixels_of_each_sample(
    saving_trainer: Any, tmp_path: Path
) -> None:
    output = trl_output()
    returned = saving_trainer(**output)._generate_and_score_completions([])
    assert returned.keys() == output.keys()
    path = tmp_path / "step_40_rank_1_0.pt"
    rows = torch.load(path)["multi_modal_inputs"]
    assert [row["image_grid_thw"].tolist() for row in rows] == [
        [[1, 4, 4]],
        [[1, 4, 4]] * 2,
    ]
    assert [row["pixel_values"][:, 0].tolist() for row in rows] == [
        [float(i) for i in range(16)],
        [float(i) for i in range(16, 48)],
    ]
    batch = load(path)
    assert batch.rewards.tolist() == [1.5, 2.0]  # own rows; NaN: not applied
    assert batch.scores["ref"].tolist() == [-1.25, -1.0, -2.0, -3.0, -4.0]


def test_trl_s_generations_of_one_step_do_not_overwrite_each_other(
    saving_trainer: Any, tmp_path: Path
) -> None:
    output = trl_output()
    for name in ("num_images", "image_grid_thw", "pixel_values"):
        del output[name]
    trainer = saving_trainer(**output)
    trainer._generate_and_score_completions([])
    trainer.output["completion_ids"] = torch.tensor([[5, 6, 6], [8, 8, 0]])
    trainer._generate_and_score_completions([])
    trainer.state.global_step = 41
    trainer._generate_and_score_completions([])
    files = sorted(path.name for path in tmp_path.iterdir())
    assert files == ["step_40_rank_1_0.pt", "step_40_rank_1_1.pt"]
    batch = load(str(tmp_path / "step_40_rank_*.pt"))
    assert batch.require_ids().tolist() == [5, 6, 7, 8, 9, 5, 6, 6, 8, 8]
    assert batch.step == 40


def test_ms_swift_s_recipe_saves_completions_of_micro_batches(tmp_path: Path) -> None:
    micro_batch = SimpleNamespace(
        completion_mask=torch.tensor([[True, False, True], [True, True, False]]),
        rollout_per_token_logps=torch.tensor([[-1.0, 0, -2], [-3, -4, 0]]),
        old_per_token_logps=torch.tensor([[-1.5, 0, -2], [-3, -4, 0]]),
    )
    trainer = SimpleNamespace(
        state=SimpleNamespace(global_step=40),
        accelerator=SimpleNamespace(process_index=1),
    )
    ids = torch.tensor([[1, 2, 5, 6, 7], [1, 2, 8, 9, 0]])
    names = {"grpo_batch": micro_batch, "model_inputs": {"input_ids": ids}}
    for change in (0, 10):
        names["model_inputs"] = {"input_ids": ids + change}
        run(SWIFT, tmp_path, self=trainer, torch=torch, **names)

    files = sorted(path.name for path in tmp_path.iterdir())
    assert files == ["step_40_rank_1_1.pt", "step_40_rank_1_2.pt"]
    batch = load(str(tmp_path / "step_40_rank_*.pt"))
    assert batch.step == 40
    assert batch.require_ids().tolist()[:6] == [5, 6, 7, 8, 9, 0]
    assert batch.rounds.num_tokens.tolist() == [1, 1, 2] * 2
    assert batch.log_probs("old").tolist()[:3] == [-1.5, 0, -2]


def test_tinker_s_recipe_saves_what_the_model_wrote(tmp_path: Path) -> None:
    def data(*values: float) -> SimpleNamespace:
        return SimpleNamespace(to_torch=lambda: torch.tensor(values))

    inputs = {
        "target_tokens": data(2, 5, 6),
        "logprobs": data(0.0, -1.0, -2.0),
        "mask": data(0.0, 1.0, 1.0),
    }
    names = {
        "data_D": [SimpleNamespace(loss_fn_inputs=inputs)],
        "training_logprobs_D": [torch.tensor([-9.0, -1.5, -2.0])],
    }
    run(TINKER, tmp_path, i_batch=40, torch=torch, **names)

    batch = load(tmp_path / "step_40.pt")
    assert batch.step == 40
    assert rd.token_frame(batch)["diff"].tolist() == [-0.5, 0.0]


def fail(*_: Any) -> None:
    msg = "no space left"
    raise OSError(msg)


def test_an_error_in_a_recipe_does_not_reach_the_trainer(
    saving_trainer: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    step = "rounddiag: the step was not saved: OSError('no space left')\n"
    monkeypatch.setattr(torch, "save", fail)
    saving_trainer(**trl_output())._generate_and_score_completions([])
    assert capsys.readouterr().out == step
    run(AREAL, tmp_path, rollout_batch=[{}], global_step=40)
    run(OPENRLHF, tmp_path, experiences=None, global_step=40)
    batch = SimpleNamespace(select=fail)
    run(WITHOUT, tmp_path, self=SimpleNamespace(global_steps=40), batch=batch)
    run(AGENT, tmp_path, agent_data=None, output=None)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(": ")[1] for line in lines] == [
        *["the step was not saved"] * 3,
        "a round was not recorded",
    ]


def test_recipes_leave_steps_between_the_tenth_alone(tmp_path: Path) -> None:
    """Nothing that a recipe needs exists here, and nothing is asked for."""
    run(AREAL, tmp_path, global_step=41)
    run(OPENRLHF, tmp_path, global_step=41)
    run(WITHOUT, tmp_path, self=SimpleNamespace(global_steps=41))


def test_areal_s_recipe_goes_on_where_a_field_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module: Any = ModuleType("areal.infra.rpc.rtensor")
    module.RTensor = SimpleNamespace(localize=lambda rows: rows)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    ids = torch.tensor([[1, 5]])
    trajectory = {"input_ids": ids, "attention_mask": ids, "loss_mask": ids}
    run(AREAL, tmp_path, rollout_batch=[trajectory], global_step=40)
    saved = torch.load(tmp_path / "step_40.pt")
    assert [*saved] == ["input_ids", "attention_mask", "loss_mask", "global_step"]


def test_verl_s_recipe_records_with_the_facts_of_its_configuration(
    tmp_path: Path,
) -> None:
    config = {"actor_rollout_ref": {"rollout": {"name": "vllm", "temperature": 0.7}}}
    trainer: Any = SimpleNamespace(global_steps=40, config=config, tokenizer=None)
    run(SETUP, tmp_path, self=trainer)
    batch = {
        "responses": torch.tensor([[5, 6]]),
        "response_mask": torch.tensor([[1, 1]]),
        "rollout_log_probs": torch.tensor([[-1.0, -2.0]]),
        "old_log_probs": torch.tensor([[-1.5, -2.0]]),
    }
    run(STEP, tmp_path, self=trainer, batch=batch, entropys=torch.ones(1, 2))
    batch["advantages"] = torch.tensor([[0.5, 0.5]])
    run(FINISH, tmp_path, self=trainer, batch=batch)
    trainer.recorder.close()
    recorded = load(tmp_path / "step_40.parquet")
    assert recorded.meta["facts"] == {
        "rollout_engine": "vllm",
        "sampling": {"temperature": 0.7},
    }
    assert recorded.meta["sampling"] == {"temperature": 0.7}
    assert recorded.advantages is not None


def test_verl_s_switches_come_before_its_recipe_which_begins_with_the_v1_trainer() -> (
    None
):
    section = RECIPES.read_text(encoding="utf-8")
    order = [
        "actor_rollout_ref.rollout.calculate_log_probs=True",
        "bypass_mode=False",
        "trainer.use_v1: true",
        "verl/trainer/ppo/v1/trainer_base.py",
        "step_keys",
        "verl/trainer/ppo/ray_trainer.py",
        "verl/experimental/separation/ray_trainer.py",
        "_fit_compute_log_prob",
    ]
    places = [section.index(text) for text in order]
    assert places == sorted(places)
    assert (KEYS.count("step_keys"), FINISH_KEYS.count("finish_keys")) == (1, 1)
    (lines,) = blocks(README, "What to save")
    code = [line for line in lines.splitlines() if line and line[0] != "#"]
    assert code == [line for line in (SETUP + KEYS).splitlines() if line]


@pytest.mark.parametrize(
    "name", ["R1-V", "VLM-R1", "UI-R1", "EasyR1", "RAGEN", "ZeroGUI", "skyrl-agent"]
)
def test_a_framework_with_nothing_to_compare_has_a_line_that_says_why(
    name: str,
) -> None:
    page = RECIPES.read_text(encoding="utf-8").partition("## one-engine")[2]
    rows = [line for line in page.splitlines() if line.startswith("| ")]
    frameworks = [row.split(" | ")[0].removeprefix("| ").split(", ") for row in rows]
    assert sum(name in names for names in frameworks) == 1
