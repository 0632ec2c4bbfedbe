"""Trajectories and their scores as a batch."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

import rounddiag as rd
from rounddiag.vision import EncodedScreenshot

from .rollout import Trajectory

GROUP = 4


def to_batch(
    found: Sequence[Trajectory],
    old: Sequence[Tensor],
    step: int,
    source: str,
    facts: Mapping[str, Any],
) -> rd.Batch:
    """Return the batch of these trajectories with the log-probs of a scoring pass.

    `facts` are those of the run, as a `Recorder` takes them.
    """
    rows = [torch.tensor(one.talk.ids) for one in found]
    masks = [torch.tensor(one.talk.mask) for one in found]
    starts = [one.prompt_length for one in found]
    return rd.Batch.from_rows(
        response_ids=[row[at:] for row, at in zip(rows, starts, strict=True)],
        response_mask=[row[at:] for row, at in zip(masks, starts, strict=True)],
        rollout_log_probs=[torch.tensor(one.log_probs) for one in found],
        old_log_probs=list(old),
        prompt_ids=[row[:at] for row, at in zip(rows, starts, strict=True)],
        rewards=torch.tensor([one.reward for one in found]),
        group_ids=[group_id(index) for index in range(len(found))],
        sample_ids=[sample_id(index) for index in range(len(found))],
        step=step,
        images=[
            tuple(
                EncodedScreenshot(data=data, round=round_)
                for round_, data in enumerate(one.screenshots)
            )
            for one in found
        ],
        sample_columns=sample_columns(found),
        round_columns=round_columns(found),
        meta={
            "mask_source": "response_mask",
            "old_log_probs_source": source,
            "sampling": facts["sampling"],
            "facts": dict(facts),
            "tokenizer": "tokenizer.json",
        },
    )


def with_advantages(batch: rd.Batch) -> rd.Batch:
    """Return the groups of different rewards, with the advantages of GRPO.

    Of a sample: its reward less the mean of its group, over the standard deviation
    (n - 1), as verl computes it.
    """
    rewards, groups = np.asarray(batch.rewards), np.array(batch.group_ids)
    advantage = np.zeros(len(rewards))
    for group in np.unique(groups):
        own = rewards[groups == group]
        spread = own.std(ddof=1) + 1e-6
        advantage[groups == group] = (own - own.mean()) / spread
    of_tokens = np.repeat(advantage, batch.lengths.numpy()).astype(np.float32)
    weighted = replace(batch, advantages=torch.from_numpy(of_tokens))
    return weighted.where(advantage != 0)


def group_id(index: int) -> str:
    """Name the task of a sample."""
    return f"task-{index // GROUP:02d}"


def sample_id(index: int) -> str:
    """Name a sample: its task and the number of the attempt."""
    return f"{group_id(index)}/{index % GROUP}"


def sample_columns(found: Sequence[Trajectory]) -> dict[str, np.ndarray[Any, Any]]:
    """Return the sample columns."""
    return {
        "task": np.array([one.task for one in found], dtype=object),
        "task_kind": np.array([one.kind for one in found], dtype=object),
        "status": np.array([one.status for one in found], dtype=object),
    }


def round_columns(found: Sequence[Trajectory]) -> dict[str, np.ndarray[Any, Any]]:
    """Return the round columns."""
    rows = [
        (sample, round_, action, parsed, one.weight_version, round_ + 1)
        for sample, one in enumerate(found)
        for round_, (action, parsed) in enumerate(
            zip(one.actions, one.parsed, strict=True)
        )
    ]
    sample, round_, action, parsed, version, images = zip(*rows, strict=True)
    return {
        "sample": np.array(sample),
        "round": np.array(round_),
        "action": np.array(action, dtype=object),
        "parsed": np.array(parsed),
        "weight_version": np.array(version),
        "num_images": np.array(images),
    }
