"""What `rounddiag.prove` can use of a batch: its checkpoint, prompts, more."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rounddiag.batch import Batch
from rounddiag.checks.contracts import Contract, Fault, UntestableError


def checkpoint_of(batch: Batch) -> str:
    """Return the model that the batch names as that of its step; empty if none.

    A Recorder's `facts["checkpoint"]`, in which `{step}` stands for the step; else the
    folder that verl saved before this step; else `facts["model"]`, which is right until
    the first update.
    """
    facts = batch.meta.get("facts")
    if not isinstance(facts, Mapping):
        return ""
    named = facts.get("checkpoint")
    if isinstance(named, str):
        return named.replace("{step}", str(batch.step))
    folder = facts.get("checkpoints")
    if isinstance(folder, str) and batch.step is not None:
        # verl saves after the update of a step; the next step samples with it.
        saved = Path(folder) / f"global_step_{batch.step - 1}" / "actor/huggingface"
        if (saved / "config.json").is_file():
            return str(saved)
    model = facts.get("model")
    is_first = batch.step is None or batch.step <= 1
    return model if isinstance(model, str) and "/" in model and is_first else ""


def _lacks(batch: Batch) -> Fault | None:
    missing = []
    if not checkpoint_of(batch):
        missing.append(
            'the checkpoint of the step (`facts={"checkpoint": "folder/{step}"}`)'
        )
    if batch.prompt_ids is None:
        missing.append("the prompts' ids")
    if batch.tokenizer is None:
        missing.append("the tokenizer")
    if not recorded_sampling(batch).get("temperature"):
        missing.append("the temperature of the sampler")
    if "prompt_hash" not in batch.round_columns:
        missing.append("what the sampler read in each round (`capture.round_record`)")
    if missing:
        names = ", ".join(missing)
        raise UntestableError(
            field="meta", why=f"`rounddiag.prove` could also use {names}"
        )
    return None


def recorded_sampling(batch: Batch) -> Mapping[str, Any]:
    """Return the sampler's settings that a batch records."""
    facts = batch.meta.get("sampling")
    return facts if isinstance(facts, Mapping) else {}


FACTS = Contract(
    "the facts that a proof uses are there",
    "meta",
    _lacks,
    effect="a proof has less to compare",
)
