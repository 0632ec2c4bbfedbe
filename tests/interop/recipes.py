"""Run the recipes for verl inside the real verl.

Usage, in an environment that has verl, TransferQueue, pyarrow and Pillow, with the
checkout on PYTHONPATH: `python recipes.py [PAGE]`. The blocks marked `py` in the page
(default: rounddiag/cli/recipes.md) are executed at the places that it names: in verl's
own objects, with verl's own rollout correction between a step and its end. The files
they write are opened with `rounddiag.load` and compared with the trainer's batch.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import ray
import torch
import transfer_queue as tq  # type: ignore[import-not-found]
import verl
from omegaconf import OmegaConf
from PIL import Image
from readme import RECIPES, blocks  # type: ignore[import-not-found]  # verl has `tests`
from verl import DataProto
from verl.experimental.agent_loop.tool_agent_loop import AgentData
from verl.trainer.config.algorithm import RolloutCorrectionConfig
from verl.trainer.ppo.padding_utils import upsample_batch_to_divisible_size
from verl.trainer.ppo.rollout_corr_helper import (
    compute_rollout_correction_and_add_to_batch,
)
from verl.trainer.ppo.v1.trainer_base import PPOTrainer
from verl.utils.tensordict_utils import get_tensordict, list_of_dict_to_tensordict
from verl.workers.rollout.replica import TokenOutput

from rounddiag.loaders import load

if TYPE_CHECKING:
    from rounddiag.batch import Batch

SAMPLES = 10
IMAGE, GRID = 151655, (1, 8, 8)
GRIDS = torch.tensor([GRID])
PICTURE = [IMAGE] * 16  # its tokens
FIELDS = {
    "response_ids": "responses",
    "rollout_log_probs": "rollout_log_probs",
    "old_log_probs": "old_log_probs",
    "prompt_ids": "prompts",
}
PLACES = {
    "trainer/ppo/ray_trainer.py": [
        "def fit(",
        'old_log_prob.batch["entropys"]',
        "batch = batch.union(old_log_prob)",
        "batch, is_metrics = compute_rollout_correction_and_add_to_batch(",
        "batch = compute_advantage(",
    ],
    "trainer/ppo/v1/trainer_base.py": [
        "def fit(",
        "def _compute_old_log_prob(",
        "batch = tq.kv_batch_put(",
        'data.select("old_log_probs", "entropy")',
        "def _compute_advantage(",
        "batch = tq.kv_batch_put(",
        "def _update_critic(",
    ],
    "experimental/agent_loop/tool_agent_loop.py": [
        "async def _handle_generating_state(",
        "agent_data.response_ids = output.token_ids",
    ],
}
# Weights of tokens, and rejection of tokens by their ratio.
CORRECTION = RolloutCorrectionConfig(
    rollout_is="token", rollout_rs="token_k1", rollout_rs_threshold="0.6_1.8"
)


class Page:
    """The recipes of a page, to be run with names as the trainer has them."""

    def __init__(self, page: Path, folder: Path) -> None:
        found = blocks(page, "verl")
        names = ["setup", "keys", "finish_keys", "step", "finish", "agent", "without"]
        names += ["without_keys"]
        self.recipes = dict(zip(names, found, strict=True))
        self.folder = folder
        config = OmegaConf.create({})
        self.trainer = SimpleNamespace(global_steps=40, config=config, tokenizer=None)

    def run(self, recipe: str, **names: object) -> None:
        """Execute a recipe as if it stood in the trainer."""
        self.folder.mkdir(exist_ok=True)
        code = self.recipes[recipe].replace("/data/diag", str(self.folder))
        exec(compile(code, recipe, "exec"), {"self": self.trainer, **names})  # noqa: S102 our own page

    def written(self) -> Batch:
        """Open the only file of the folder, and remove it."""
        if hasattr(self.trainer, "recorder"):
            self.trainer.recorder.close()
            assert (self.trainer.recorder.dropped, self.trainer.recorder.errors) == (
                0,
                0,
            )
        (file,) = self.folder.iterdir()
        assert file.stat().st_size < 300_000  # the pixels are 1.5 MB
        self.folder = self.folder.with_name(f"{self.folder.name}_")
        return load(file)


def trajectory(page: Page, sample: int) -> dict[str, Any]:
    """One row as the agent loop makes it: two rounds and a screenshot between."""
    response = [7] * (2 + sample % 3) + PICTURE + [8, 9]
    mask = torch.tensor([int(token != IMAGE) for token in response])
    pixels = torch.rand(GRID[1] * GRID[2], 1176).bfloat16()
    row = {
        "prompts": torch.arange(2 + sample % 2),
        "responses": torch.tensor(response),
        "response_mask": mask,
        "rollout_log_probs": -torch.rand(len(response)) * mask,
        "old_log_probs": -torch.rand(len(response)),
        "rm_scores": torch.eye(len(response))[-1] * sample,
        "uid": f"group{sample // 2}",
        "session_id": sample,
        "num_turns": 4,
        "position_ids": torch.arange(len(response) + 2 + sample % 2).repeat(4, 1),
        "multi_modal_inputs": {"pixel_values": pixels, "image_grid_thw": GRIDS},
    }
    return {**row, "extra_fields": {"round_records": records_of(page, row)}}


def records_of(page: Page, row: dict[str, Any]) -> list[dict[str, Any]]:
    """What the agent loop's recipe records of a row: one call of the engine a round."""
    prompt, response = row["prompts"].tolist(), row["responses"].tolist()
    first = response.index(IMAGE)
    last = first + len(PICTURE)
    state = AgentData(
        messages=[],
        image_data=[],
        video_data=[],
        audio_data=None,
        mm_processor_kwargs=None,
        metrics={},
        request_id=f"request{row['session_id']}",
        tools_kwargs={},
    )
    for start, stop in ((0, first), (last, len(response))):
        state.prompt_ids = prompt + response[:start]
        facts = {"global_steps": 39, "num_cached_tokens": start}
        output = TokenOutput(
            token_ids=response[start:stop], stop_reason="completed", extra_fields=facts
        )
        page.run("agent", agent_data=state, output=output)
        state.image_data = [Image.new("RGB", (8, 8))]
    return list(state.extra_fields["round_records"])


def padded(rows: list[dict[str, Any]], key: str) -> torch.Tensor:
    """Rows of one field, padded to the right."""
    return torch.nn.utils.rnn.pad_sequence([row[key] for row in rows], batch_first=True)


def data_proto(rows: list[dict[str, Any]]) -> DataProto:
    """What `RayPPOTrainer.fit` holds after `batch.union(old_log_prob)`."""
    keys = ("responses", "response_mask", "rollout_log_probs", "rm_scores")
    tensors = {key: padded(rows, key) for key in keys}
    real = [torch.ones_like(row["responses"]) for row in rows]
    prompts = [row["prompts"].flip(0) for row in rows]
    left = torch.nn.utils.rnn.pad_sequence(prompts, batch_first=True).flip(1)
    sizes = torch.tensor([len(prompt) for prompt in prompts])
    before = torch.arange(left.shape[1]) >= left.shape[1] - sizes[:, None]
    after = torch.nn.utils.rnn.pad_sequence(real, batch_first=True)
    tensors["prompts"] = left
    tensors["attention_mask"] = torch.cat([before.long(), after], dim=1)
    others = {
        name: np.fromiter((row[name] for row in rows), dtype=object)
        for name in ("uid", "multi_modal_inputs")
    }
    # V0 makes a field of each of the extra fields.
    records = [row["extra_fields"]["round_records"] for row in rows]
    others["round_records"] = np.fromiter(records, dtype=object)
    others["__num_turns__"] = np.full(len(rows), 4, dtype=np.int32)
    batch = DataProto.from_dict(tensors=tensors, non_tensors=others)
    batch.meta_info["temperature"] = 1.0
    old = get_tensordict({"old_log_probs": padded(rows, "old_log_probs")})
    return batch.union(DataProto.from_tensordict(old))


def check(batch: Batch, rows: list[dict[str, Any]], recipe: str) -> None:
    """Compare what was read with what the trainer held."""
    parts = zip(batch.offsets.diff().tolist(), batch.lengths.tolist(), strict=True)
    real = torch.cat([torch.arange(stored) < length for stored, length in parts])
    for field, key in FIELDS.items():
        expected = torch.cat([row[key] for row in rows])
        found = getattr(batch, field)
        found = found if field == "prompt_ids" else found[real]
        assert torch.equal(found.to(expected.dtype), expected), (recipe, field)
    assert batch.num_rounds == 2 * len(rows), (recipe, batch)
    assert batch.group_ids == tuple(row["uid"] for row in rows), (recipe, batch)
    assert batch.rewards is not None
    assert batch.rewards.tolist() == [float(i) for i in range(len(rows))], recipe
    assert batch.meta["old_log_probs_source"] == "a pass of its own", recipe
    print(f"{recipe}: {batch!r}, step {batch.step}")


def check_recorded(batch: Batch, rows: list[dict[str, Any]], recipe: str) -> None:
    """Compare what only a Recorder keeps."""
    check(batch, rows, recipe)
    why = batch.sample_columns["picked"].tolist()
    shots = [[(shot.round, shot.size) for shot in row] for row in batch.images or ()]
    assert shots == [[(1, (8 * 14, 8 * 14))] if w else [] for w in why], recipe
    assert sorted(why) == [""] * 2 + ["random"] * 4 + ["worst"] * 4, recipe
    assert batch.entropy is not None
    columns = {k: v.tolist() for k, v in batch.round_columns.items()}
    assert columns["round"] == [0, 1] * len(rows), recipe
    assert columns["num_tokens"] == batch.rounds.num_tokens.tolist(), recipe
    assert columns["num_images"] == [0, 1] * len(rows), recipe
    assert set(columns["weight_version"]) == {39}, recipe
    assert columns["request_id"][2:4] == ["request1"] * 2, recipe


def check_finished(batch: Batch, recipe: str) -> None:
    """Compare what rollout correction and the advantages added."""
    written = batch.response_mask != 0
    assert batch.advantages is not None
    assert bool(batch.advantages[written].any()), recipe
    difference = (batch.log_probs("old") - batch.log_probs("rollout"))[written]
    weight = (batch.scores["rollout_is"] - batch.log_probs("rollout"))[written]
    # verl truncates weights at 2; it rejects by the ratio of the sampler to training.
    assert torch.allclose(weight, difference.clamp(max=np.log(2)), atol=1e-5), recipe
    bounds = (-difference >= np.log(0.6)) & (-difference <= np.log(1.8))
    assert batch.loss_mask is not None
    assert torch.equal(batch.loss_mask[written] != 0, bounds), recipe
    assert not bool(bounds.all())


def check_places() -> None:
    """The lines that the recipe names are in this verl, in the order it needs."""
    home = Path(verl.__file__).parent
    for file, lines in PLACES.items():
        text, found = (home / file).read_text(), 0
        for line in lines:
            found = text.index(line, found) + 1


def run_v0(page: Page, rows: list[dict[str, Any]]) -> None:
    """Run the recipes where `fit` holds the batch."""
    batch, entropys = data_proto(rows), padded(rows, "old_log_probs") / -2
    page.run("setup")
    page.run("step", batch=batch, entropys=entropys)
    recorded = page.written()
    check_recorded(recorded, rows, "V0")
    assert recorded.meta["sampling"] == {"temperature": 1.0}, recorded.meta
    page.run("setup")
    page.run("step", batch=batch, entropys=entropys)
    batch, _ = compute_rollout_correction_and_add_to_batch(batch, CORRECTION)
    batch.batch["advantages"] = torch.ones_like(batch.batch["old_log_probs"])
    page.run("finish", batch=batch)
    finished = page.written()
    check_recorded(finished, rows, "V0, finished")
    check_finished(finished, "V0")
    page.run("without", batch=data_proto(rows))
    check(page.written(), rows, "without rounddiag")


def run_v1(page: Page, rows: list[dict[str, Any]]) -> None:
    """Run the recipes where verl's own methods have put what they computed."""
    algorithm = {
        "use_kl_in_reward": False,
        "adv_estimator": "grpo",
        "gamma": 1.0,
        "lam": 1.0,
        "rollout_correction": CORRECTION,
    }
    rollout = {"actor_rollout_ref": {"rollout": {"n": 2, "temperature": 0.7}}}
    page.trainer.config = OmegaConf.create({"algorithm": algorithm, **rollout})
    ray.init(num_cpus=8, include_dashboard=False, log_to_driver=False)
    tq.init()
    try:
        batch = queued(rows)
        page.run("setup")
        page.run("keys", batch=batch, tq=tq)
        check_recorded(page.written(), rows, "V1")
        del page.trainer.recorder
        page.run("without_keys", batch=batch, tq=tq, torch=torch)
        saved = page.written()
        check(saved, rows, "V1 without rounddiag")
        assert saved.meta["sampling"] == {"temperature": 0.7}, saved.meta
        page.run("setup")
        page.run("keys", batch=batch, tq=tq)
        batch = PPOTrainer._compute_advantage(page.trainer, batch, {})
        page.run("finish_keys", batch=batch, tq=tq)
        finished = page.written()
        check_recorded(finished, rows, "V1, finished")
        check_finished(finished, "V1")
    finally:
        tq.close()
        ray.shutdown()


def queued(rows: list[dict[str, Any]]) -> tq.KVBatchMeta:
    """Put the rows into the queue as the agent loop does, and fill up with padding."""
    early = [{k: v for k, v in row.items() if k != "old_log_probs"} for row in rows]
    batch = tq.kv_batch_put(
        keys=[f"{row['uid']}_{row['session_id']}_0" for row in rows],
        partition_id="train",
        fields=list_of_dict_to_tensordict(early),
        tags=[{"global_steps": 40, "is_padding": False} for _ in rows],
    )
    batch = upsample_batch_to_divisible_size(batch, 4, eos_token_id=2)
    data = tq.kv_batch_get(batch.keys, "train", select_fields="response_mask")
    sizes = data["response_mask"].offsets().diff().tolist()
    assert len(sizes) == len(rows) + 2, sizes
    old = [row["old_log_probs"] for row in rows]
    old += [torch.zeros(size) for size in sizes[len(rows) :]]
    late = [{"old_log_probs": scores, "entropy": -scores / 2} for scores in old]
    return tq.kv_batch_put(
        keys=batch.keys,
        partition_id="train",
        fields=list_of_dict_to_tensordict(late),
    )


def main() -> None:
    torch.manual_seed(0)
    check_places()
    with tempfile.TemporaryDirectory() as home:
        page = Page(Path(sys.argv[1]) if sys.argv[1:] else RECIPES, Path(home) / "diag")
        rows = [trajectory(page, sample) for sample in range(SAMPLES)]
        run_v0(page, rows)
        run_v1(page, rows)


if __name__ == "__main__":
    main()
