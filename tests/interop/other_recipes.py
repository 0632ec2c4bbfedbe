"""Run recipes inside the packages they are for, and read what they saved.

Usage, in an environment that has the package, with the checkout on PYTHONPATH:
`python other_recipes.py NAME FOLDER`. Each recipe is pasted into the function that it
names, as installed; what needs a GPU or a service is a stand-in.

===============  =====================================================================
`fully_async`    verl's `_fit_compute_log_prob` and `_fit_compute_advantage`
`tinker`         the cookbook's training step, its `train_step` and real datums
`ms-swift`       `_prepare_batch_inputs`, with its own collation of samples
`trinity`        `train_step`, with its own experiences as a DataProto
`areal`          the lines alone, with the real `RTensor`
===============  =====================================================================
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections import defaultdict
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
from paste import paste  # type: ignore[import-not-found]  # verl has `tests`
from readme import RECIPES, blocks  # type: ignore[import-not-found]

from rounddiag.loaders import load

if TYPE_CHECKING:
    from rounddiag.batch import Batch

# Two samples: two rounds around an observation, and one round.
PROMPTS = [[1, 2], [3]]
RESPONSES = [[5, 6, 90, 7], [8, 9]]
MASKS = [[1, 1, 0, 1], [1, 1]]
ROLLOUT = [[-0.5, -1.0, 0.0, -2.0], [-0.25, -3.0]]
OLD = [[-0.75, -1.0, 0.0, -2.5], [-0.25, -2.0]]
STEP = 40


def recipe(name: str, folder: Path, index: int = 0) -> str:
    """Return a block of a recipe that writes into the folder."""
    block: str = blocks(RECIPES, name)[index]
    return block.replace("/data/diag", str(folder))


def padded(rows: list[list[Any]], width: int = 0) -> torch.Tensor:
    size = max(width, *map(len, rows))
    return torch.tensor([[*row, *[0] * (size - len(row))] for row in rows])


def generated(values: list[Any], mask: list[int]) -> list[Any]:
    return [value for value, w in zip(values, mask, strict=True) if w]


def check(batch: Batch, *, has_prompts: bool = True) -> None:
    """Compare what was saved with the samples above."""
    written = batch.response_mask != 0
    assert batch.num_rounds == 3, batch
    for found, rows in (
        (batch.require_ids(), RESPONSES),
        (batch.log_probs("rollout"), ROLLOUT),
        (batch.log_probs("old"), OLD),
    ):
        parts: Any = zip(rows, MASKS, strict=True)
        expected = [value for part in parts for value in generated(*part)]
        assert found[written].tolist() == expected, found
    if has_prompts:
        assert batch.prompt_ids is not None
        assert batch.prompt_ids.tolist() == [1, 2, 3], batch.prompt_ids
    assert batch.step == STEP, batch.step


def fully_async(folder: Path) -> None:
    """Run verl's two functions with the recorder's lines at their places."""
    import numpy as np
    from omegaconf import OmegaConf
    from verl import DataProto
    from verl.experimental.separation.ray_trainer import SeparateRayPPOTrainer

    from rounddiag.capture import Recorder

    width = max(map(len, RESPONSES))
    left = [[0] * (2 - len(row)) + row for row in PROMPTS]
    real = [[int(i != 0) for i in row] for row in left]
    tail = [[1] * len(r) + [0] * (width - len(r)) for r in RESPONSES]
    batch = DataProto.from_dict(
        tensors={
            "prompts": torch.tensor(left),
            "responses": padded(RESPONSES),
            "response_mask": padded(MASKS),
            "attention_mask": torch.cat([torch.tensor(real), torch.tensor(tail)], 1),
            "rollout_log_probs": padded(ROLLOUT),
        },
        non_tensors={"uid": np.array(["a", "a"], dtype=object)},
    )
    old = {"old_log_probs": padded(OLD), "entropys": padded(OLD).abs()}
    algorithm = {
        "use_kl_in_reward": False,
        "adv_estimator": "grpo",
        "gamma": 1.0,
        "lam": 1.0,
        "rollout_correction": {
            "bypass_mode": False,
            "rollout_is": "token",
            "rollout_is_threshold": 2.0,
        },
    }
    actor = {"loss_agg_mode": "token-mean", "loss_scale_factor": None}
    config = {
        "algorithm": algorithm,
        "actor_rollout_ref": {"actor": actor, "rollout": {"n": 2}},
    }
    trainer = SimpleNamespace(
        config=OmegaConf.create(config),
        metrics={},
        timing_raw={},
        global_steps=STEP,
        recorder=Recorder(folder),
        reward_tensor=torch.tensor([[0.0, 0.0, 0.0, 1.0], [0.0, 0.0, 0.0, 0.0]]),
        reward_extra_infos_dict={},
        _compute_old_log_prob=lambda _: (DataProto.from_dict(tensors=old), 0.0),
    )
    compute = paste(
        SeparateRayPPOTrainer._fit_compute_log_prob,
        "batch = batch.union(old_log_prob)",
        recipe("fully_async", folder),
    )
    finish = paste(
        SeparateRayPPOTrainer._fit_compute_advantage,
        'with marked_timer("adv"',
        recipe("fully_async", folder, 1),
    )
    finish(trainer, compute(trainer, batch))
    trainer.recorder.close()
    batch = load(folder / f"step_{STEP}.parquet")
    check(batch)
    assert batch.entropy is not None
    assert batch.advantages is not None
    weights = (batch.scores["rollout_is"] - batch.log_probs("rollout")).exp()
    # exp(-0.25), exp(0), exp(-0.5), exp(0), and exp(1) truncated at 2.
    expected = torch.tensor([-0.25, 0.0, -0.5, 0.0]).exp().tolist()
    found = weights[batch.response_mask != 0].tolist()
    assert np.allclose(found, [*expected, 2.0]), found


def tinker(folder: Path) -> None:
    """Run the cookbook's training step on datums of its own."""
    import tinker as api
    from tinker_cookbook.completers import TokensWithLogprobs
    from tinker_cookbook.rl import train
    from tinker_cookbook.rl.data_processing import trajectory_to_data
    from tinker_cookbook.rl.types import Trajectory, Transition

    def step(seen: list[int], ids: list[int], lps: list[float]) -> Transition:
        return Transition(
            ob=api.ModelInput.from_ints(seen),
            ac=TokensWithLogprobs(tokens=ids, maybe_logprobs=lps),
            reward=0.0,
            episode_done=False,
        )

    steps = [
        [step([1, 2], [5, 6], [-0.5, -1.0]), step([1, 2, 5, 6, 90], [7], [-2.0])],
        [step([3], [8, 9], [-0.25, -3.0])],
    ]
    data = [
        datum
        for transitions in steps
        for datum in trajectory_to_data(
            Trajectory(transitions=transitions, final_ob=api.ModelInput.empty()), 1.0
        )
    ]
    # The trainer's log-probs of the targets: all tokens but the first.
    scores = [[0.0] * (len(p) - 1) + o for p, o in zip(PROMPTS, OLD, strict=True)]

    async def given(value: Any) -> Any:
        return value

    client = SimpleNamespace(
        forward_backward=lambda _, **__: given(
            SimpleNamespace(
                loss_fn_outputs=[
                    {"logprobs": api.TensorData.from_torch(torch.tensor(row))}
                    for row in scores
                ]
            )
        ),
        optim_step=lambda _: given(SimpleNamespace(metrics={})),
    )
    config = SimpleNamespace(
        kl_penalty_coef=0.0,
        kl_discount_factor=0.0,
        learning_rate=1e-5,
        num_substeps=1,
        training_loss_fn=lambda: "importance_sampling",
        loss_fn_config=None,
        compute_post_kl=False,
        records_stability_info=lambda: False,
    )

    async def prepared(*_: Any, **__: Any) -> Any:
        return data, {}, None

    async def measured(*_: Any, **__: Any) -> Any:
        return None, {}

    run = paste(
        train.do_train_step_and_get_sampling_client,
        "training_logprobs_D = await train_step(",
        recipe("tinker", folder),
        prepare_minibatch=prepared,
        compute_full_batch_metrics_and_get_sampling_client=measured,
    )
    asyncio.run(run(config, STEP, client, None, None, None, [], []))
    check(load(folder / f"step_{STEP}.pt"), has_prompts=False)


def swift(folder: Path) -> None:
    """Run ms-swift's preparation of a batch, which collates its own samples."""
    from swift.rl_core.data import GRPOSample
    from swift.rlhf_trainers import grpo_trainer

    width = max(len(p) + len(r) for p, r in zip(PROMPTS, RESPONSES, strict=True))

    def collated(rows: list[dict[str, Any]], **_: Any) -> dict[str, Any]:
        """As the templates' `data_collator` pads, on the right."""
        fills = {"input_ids": 0, "labels": -100, "attention_mask": 0}
        return {
            name: torch.tensor(
                [[*row[name], *[fill] * (width - len(row[name]))] for row in rows]
            )
            for name, fill in fills.items()
        }

    samples = []
    parts = zip(PROMPTS, RESPONSES, MASKS, ROLLOUT, strict=True)
    for prompt, ids, mask, scores in parts:
        sample = GRPOSample(messages=[])
        kept = [i if w else -100 for i, w in zip(ids, mask, strict=True)]
        sample.encoded = {
            "input_ids": [*prompt, *ids],
            "labels": [*[-100] * len(prompt), *kept],
            "attention_mask": [1] * len([*prompt, *ids]),
            "length": len([*prompt, *ids]),
        }
        sample.rollout_logprobs = [generated(scores, mask)]
        samples.append(sample)

    def trained(_: Any, inputs: dict[str, Any], batch: Any, **__: Any) -> Any:
        rows = torch.zeros(inputs["input_ids"].shape)
        for row, prompt, scores in zip(rows, PROMPTS, OLD, strict=True):
            row[len(prompt) : len(prompt) + len(scores)] = torch.tensor(scores)
        return (rows[:, -batch.logits_to_keep :],)

    device = torch.device("cpu")
    trainer = SimpleNamespace(
        template=SimpleNamespace(
            padding_free=False, padding_side="right", data_collator=collated
        ),
        split_by_mini_batches=lambda rows: [rows],
        _template_context=lambda _: nullcontext(),
        accelerator=SimpleNamespace(device=device, process_index=0),
        state=SimpleNamespace(global_step=STEP),
        model=SimpleNamespace(training=True),
        args=SimpleNamespace(gradient_checkpointing_kwargs=None),
        beta=0.0,
        dynamic_num_samples=False,
        is_multimodal=False,
        use_teacher_api=False,
        _has_teacher=False,
        _is_dynamic_self_distillation=False,
        _has_teacher_explicit=lambda: False,
        _get_per_token_logps_and_entropies=trained,
        _gather_and_flatten=lambda rows, dtype, **_: torch.tensor(
            [value for row in rows for value in row], dtype=dtype
        ),
        _metrics={"train": defaultdict(list)},
    )
    run = paste(
        grpo_trainer.GRPOTrainer._prepare_batch_inputs,
        "grpo_batch.old_per_token_logps = (",
        recipe("ms-swift", folder),
        encode_sample=lambda sample, _: dict(sample.encoded),
        disable_gradient_checkpointing=lambda *_: nullcontext(),
        profiling_decorator=lambda function: function,
        build_opsd_samples=lambda _: False,
    )
    run(trainer, samples)
    check(load(folder / f"step_{STEP}_rank_0_1.pt"), has_prompts=False)


def trinity(folder: Path) -> None:
    """Run Trinity's step up to the update, on a DataProto of its own experiences."""
    from trinity.common.experience import EID, Experience
    from trinity.trainer.verl import trainer as module
    from trinity.trainer.verl.utils import to_data_proto

    from rounddiag.capture import Recorder

    experiences = [
        Experience(
            eid=EID(task=0, run=run),
            tokens=torch.tensor([*prompt, *ids]),
            prompt_length=len(prompt),
            logprobs=torch.tensor(scores),
            action_mask=torch.tensor(mask, dtype=torch.bool),
            reward=float(run),
        )
        for run, (prompt, ids, scores, mask) in enumerate(
            zip(PROMPTS, RESPONSES, ROLLOUT, MASKS, strict=True)
        )
    ]

    class Stop(Exception):  # noqa: N818 not an error
        """The rest of the step needs a GPU."""

    def scored(batch: Any, _: Any) -> Any:
        batch.batch["old_log_probs"] = padded(OLD)
        batch.batch["entropys"] = padded(OLD).abs()
        return batch

    def stop(*_: Any) -> Any:
        raise Stop

    config = SimpleNamespace(
        model=SimpleNamespace(temperature=0.7),
        trainer=SimpleNamespace(balance_batch=False),
        algorithm=SimpleNamespace(bypass_old_logprobs=False),
    )
    holder = SimpleNamespace(
        tokenizer=SimpleNamespace(pad_token_id=0),
        empty_model=None,
        logger=logging.getLogger(),
        global_steps=STEP - 1,
        global_config=config,
        algorithm=SimpleNamespace(can_balance_batch=False),
        use_reference_policy=True,
        recorder=Recorder(folder),
        _compute_old_log_prob=scored,
        _compute_ref_log_prob=stop,
    )
    (owner,) = {
        value
        for value in vars(module).values()
        if isinstance(value, type)
        and "_compute_old_log_prob" in vars(value)
        and "train_step" in vars(value)
    }
    run = paste(
        owner.train_step,  # type: ignore[attr-defined]
        "batch = self._compute_old_log_prob(batch, metrics)",
        recipe("trinity", folder),
        to_data_proto=to_data_proto,
    )
    try:
        asyncio.run(run(holder, experiences))
    except Stop:
        holder.recorder.close()
    batch = load(folder / f"step_{STEP}.parquet")
    check(batch)
    assert batch.meta["sampling"] == {"temperature": 0.7}, batch.meta
    assert batch.rewards is not None
    assert batch.rewards.tolist() == [0.0, 1.0], batch.rewards


def areal(folder: Path) -> None:
    """Run the lines with the real `RTensor`; the trainer's loop needs a cluster."""
    rows = []
    for prompt, ids, mask, rollout, old in zip(
        PROMPTS, RESPONSES, MASKS, ROLLOUT, OLD, strict=True
    ):
        before = [0] * len(prompt)
        trained = [*before, *old]
        real = torch.ones(1, len(trained), dtype=torch.bool)
        rows.append(
            {
                "input_ids": torch.tensor([[*prompt, *ids]]),
                "attention_mask": real,
                "loss_mask": torch.tensor([[*before, *mask]]),
                "logprobs": torch.tensor([[float(v) for v in [*before, *rollout]]]),
                # AReaL has the value of the next token at each position.
                "prox_logp": torch.tensor([[float(v) for v in [*trained[1:], 9]]]),
                "versions": torch.full((1, len(trained)), 3),
                "rewards": torch.tensor([1.0]),
            }
        )
    code = compile(recipe("areal", folder), "areal", "exec")
    exec(code, {"rollout_batch": rows, "global_step": STEP})  # noqa: S102 our own page
    batch = load(folder / f"step_{STEP}.pt")
    check(batch)
    assert batch.rewards is not None
    assert batch.rewards.tolist() == [1.0, 1.0]
    assert batch.sample_columns["min_weight_version"].tolist() == [3.0, 3.0]


RUNS = {
    "fully_async": fully_async,
    "tinker": tinker,
    "ms-swift": swift,
    "trinity": trinity,
    "areal": areal,
}


def main() -> None:
    name, folder = sys.argv[1], Path(sys.argv[2])
    folder.mkdir(parents=True)
    RUNS[name](folder)
    print(f"{name}: the recipe's file was read")


if __name__ == "__main__":
    main()
