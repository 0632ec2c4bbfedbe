"""A page per figure: the picture, the code that draws it, and its docstring."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import rounddiag as rd
from tests.site.pages import Page, draw

# What a figure takes, where it is not a batch, and how it is called.
_GIVEN = {
    "plot_compare": ('batches = [rd.demo("healthy"), batch]', "batches"),
    "plot_finding": ("diagnosis = rd.diagnose(batch)", "diagnosis[0]"),
    "plot_proof": (
        'names = ["last_2_images", "last_3_images", "zero_features"]\n'
        'proof = rd.prove(batch, "sample_data/model", hypotheses=names)',
        "proof",
    ),
    "plot_sight": (
        'answer = rd.ask(batch, "sample_data/model", at="task-04/2 / r3")',
        "answer",
    ),
    "plot_run": ('run = rd.open_run("sample_data/run")', "run"),
}
_OPTIONS = {"plot_trajectory": {"sample": "task-08/1"}}


def figure_pages(pictures: Path) -> Iterator[Page]:
    """Draw every figure of the sample batch; yield a page for each."""
    for name in dir(rd):
        if not name.startswith("plot_"):
            continue
        plot = getattr(rd, name)
        lines, argument = _GIVEN.get(name, ("", "batch"))
        names: dict[str, Any] = {"rd": rd, "batch": rd.demo()}
        exec(lines, names)  # noqa: S102 of this file
        options = _OPTIONS.get(name, {})
        given = eval(argument, names)  # noqa: S307 of this file
        sentence = (plot.__doc__ or "").partition("\n")[0]
        picture = draw(pictures, name, sentence, partial(plot, given, **options))
        call = "".join(f', {key}="{value}"' for key, value in options.items())
        code = "\n".join(
            filter(None, ["batch = rd.demo()", lines, f"rd.{name}({argument}{call})"])
        )
        docs = f".. autofunction:: rounddiag.{name}\n   :no-index:"
        yield Page(
            name=name,
            title=name,
            sentence=sentence,
            picture=picture,
            text=f"{picture}\n\n```python\nimport rounddiag as rd\n\n{code}\n```\n\n"
            f"```{{eval-rst}}\n{docs}\n```\n",
        )
