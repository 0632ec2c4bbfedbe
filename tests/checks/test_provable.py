"""The checkpoint of a step, as a batch names it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from rounddiag.checks.provable import checkpoint_of
from tests.checks.chats import scored

BATCH = scored([[-1.0]], [[-2.0]])


@pytest.mark.parametrize(
    ("step", "facts", "checkpoint"),
    [
        (7, {"checkpoint": "saved/{step}", "model": "org/base"}, "saved/7"),
        (None, {"model": "org/base"}, "org/base"),
        (1, {"model": "org/base"}, "org/base"),
        (2, {"model": "org/base"}, ""),  # an update lies between
        (1, {"model": "base"}, ""),  # neither a folder nor a name of a model
        (1, {"model": 3}, ""),
        (1, "no mapping", ""),
    ],
)
def test_the_model_of_a_step(step: int | None, facts: object, checkpoint: str) -> None:
    assert checkpoint_of(replace(BATCH, step=step, meta={"facts": facts})) == checkpoint


def test_the_folder_that_was_saved_before_the_step_is_its_checkpoint(
    tmp_path: Path,
) -> None:
    saved = tmp_path / "global_step_4/actor/huggingface"
    saved.mkdir(parents=True)
    facts = {"checkpoints": str(tmp_path), "model": "org/base"}
    batch = replace(BATCH, step=5, meta={"facts": facts})
    assert checkpoint_of(batch) == ""  # no `config.json` yet
    (saved / "config.json").write_text("{}")
    assert checkpoint_of(batch) == str(saved)
    assert checkpoint_of(replace(batch, step=6)) == ""
