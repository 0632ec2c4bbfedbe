"""Run the README's recipes for verl inside the real verl.

Usage, in an environment that has verl, TransferQueue, pyarrow and Pillow, with the
checkout on PYTHONPATH: `python recipes.py [PAGE]`. The blocks marked `py` in the page
(README.md when none is named) are executed in their order: V0, V1, and without
rounddiag. What each wrote is opened with `rounddiag.load` and compared with what the
trainer held.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import ray  # type: ignore[import-not-found]
import torch
import transfer_queue as tq  # type: ignore[import-not-found]
import verl
from verl import DataProto
from verl.trainer.ppo.padding_utils import upsample_batch_to_divisible_size
from verl.utils.tensordict_utils import get_tensordict, list_of_dict_to_tensordict

from rounddiag.loaders import load
from tests.interop.readme import README, blocks

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
TRAINER = SimpleNamespace(global_steps=40)


def run(code: str, folder: Path, **names: object) -> Batch:
    """Execute a recipe, and open the file that it wrote."""
    folder.mkdir()
    code = code.replace("/data/diag", str(folder))
    exec(compile(code, "README.md", "exec"), {"self": TRAINER, **names})  # noqa: S102 our own page
    (written,) = folder.iterdir()
    assert written.stat().st_size < 100_000  # the pixels are 15 times as many
    return load(written)


def trajectory(sample: int) -> dict[str, Any]:
    """One row as the agent loop makes it: two rounds and a screenshot between."""
    response = [7] * (2 + sample % 3) + PICTURE + [8, 9]
    mask = torch.tensor([int(token != IMAGE) for token in response])
    pixels = torch.rand(GRID[1] * GRID[2], 1176).bfloat16()
    return {
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
    others["__num_turns__"] = np.full(len(rows), 4, dtype=np.int32)
    batch = DataProto.from_dict(tensors=tensors, non_tensors=others)
    batch.meta_info["temperature"] = 1.0
    old = get_tensordict({"old_log_probs": padded(rows, "old_log_probs")})
    return batch.union(DataProto.from_tensordict(old))


def check(
    batch: Batch, rows: list[dict[str, Any]], recipe: str, screenshots: int = 0
) -> None:
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
    if screenshots:
        shots = [
            [(shot.round, shot.size) for shot in row] for row in batch.images or ()
        ]
        seen = [(1, (8 * 14, 8 * 14))]
        assert shots == [seen] * screenshots + [[]] * (SAMPLES - screenshots), recipe
    print(f"{recipe}: {batch!r}, step {batch.step}")


def check_places() -> None:
    """The lines that the README names are in this verl, before the correction."""
    home = Path(verl.__file__).parent / "trainer" / "ppo"
    v0 = (home / "ray_trainer.py").read_text()
    correction = "batch, is_metrics = compute_rollout_correction_and_add_to_batch("
    assert 0 < v0.index("batch = batch.union(old_log_prob)") < v0.index(correction)
    v1 = (home / "v1" / "trainer_base.py").read_text()
    method = v1.index("def _compute_old_log_prob(")
    assert v1.index('data.select("old_log_probs", "entropy")', method) > method


def run_v1(code: str, rows: list[dict[str, Any]], folder: Path) -> Batch:
    """Run the recipe where `_compute_old_log_prob` has put what it computed."""
    ray.init(num_cpus=8, include_dashboard=False, log_to_driver=False)
    tq.init()
    try:
        batch = queued(rows)
        return run(code, folder, batch=batch, tq=tq)
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
    page = Path(sys.argv[1]) if sys.argv[1:] else README
    v0, v1, without = blocks(page, "Save a batch in verl")
    torch.manual_seed(0)
    rows = [trajectory(sample) for sample in range(SAMPLES)]
    check_places()
    with tempfile.TemporaryDirectory() as home:
        folders = [Path(home) / name for name in ("v0", "v1", "without")]
        held = data_proto(rows)
        check(run(v0, folders[0], batch=held), rows, "V0", screenshots=8)
        check(run(without, folders[2], batch=held), rows, "without rounddiag")
        check(run_v1(v1, rows, folders[1]), rows, "V1", screenshots=8)


if __name__ == "__main__":
    main()
