"""`rounddiag recipe`: a list of trainers, and the lines of one."""

from __future__ import annotations

import re

import pytest

from rounddiag.cli import main
from rounddiag.cli.recipe import read_recipes
from tests.interop.readme import README


def test_without_a_name_it_lists_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recipe"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "verl                  verl 0.9.1, both trainers"
    assert "areal                 AReaL 1.0.4" in lines
    assert "rllm                  rLLM, unverified" in lines
    assert len(lines) == len(read_recipes()) == 25


def test_a_recipe_is_printed_with_its_place(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recipe", "verl-agent"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("verl-agent and its forks, *unverified*.")
    assert (
        'batch.non_tensor_batch["step_idx"] = np.full(batch_size, _step)\n```\n' in out
    )


def test_every_recipe_has_lines_or_says_what_to_save() -> None:
    without = [name for name, text in read_recipes().items() if "```py" not in text]
    assert without == ["open-instruct", "agent", "one-engine"]


def test_the_recipes_that_pages_name_exist() -> None:
    recipes = read_recipes()
    texts = [README.read_text(encoding="utf-8"), *recipes.values()]
    named = {
        name
        for text in texts
        for listed in re.findall(r"`rounddiag recipe ([^`|]+)`((?:, `[^`]+`)*)", text)
        for name in re.findall(r"[\w-]+", " ".join(listed))
    }
    assert named
    assert named <= {*recipes}
