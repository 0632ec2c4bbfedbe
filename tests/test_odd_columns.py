"""Whatever `load` accepts, every view shows or leaves out: generated columns."""

from __future__ import annotations

import inspect
import os
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import rounddiag as rd
from rounddiag import Batch, figures, stats
from rounddiag.cli.summary import describe
from rounddiag.errors import RounddiagError
from rounddiag.widgets.requests import RequestHandler
from rounddiag.widgets.serialization import serialize
from rounddiag.widgets.session import Session
from tests.figures.plots import PLOTS, decode, plot

pytestmark = pytest.mark.slow
View: TypeAlias = Callable[[], object]
NUM = 3  # samples
LONE = "\ud800$\\href{x}{y}$\x1b[31m"  # text that UTF-8 cannot hold, and that acts
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(10**30, 10**5000),
    st.floats(),
    st.text(st.characters(), max_size=8),
    st.sampled_from([LONE, "", "x" * 5000]),
    st.binary(max_size=4),
)
NESTED = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.text(max_size=3), inner, max_size=3),
    ),
    max_leaves=6,
)
DTYPES = (
    *("?", "i1", "u2", "u4", "u8", ">i4", ">u8", "f2", "f4", ">f8", "g", "c8"),
    *("M8[s]", "m8[ms]", "M8[D]", "m8[Y]", "U3", "S0", "S2", "V2"),
)
NAMES = st.one_of(
    st.text(st.characters(), max_size=6),
    st.sampled_from([LONE, "x" * 5000, "sample", "round", "diff", "sample_id", "a.b"]),
)
INTEGERS = ("i1", "i4", "i8", "u1", "u2", "u4", "u8", ">i2", ">u4")


@st.composite
def arrays(draw: st.DrawFn, shapes: tuple[tuple[int, ...], ...]) -> Any:
    """Arrays of every dtype."""
    shape = draw(st.sampled_from(shapes))
    values = draw(st.lists(st.integers(0, 5), min_size=12, max_size=12))
    size = int(np.prod(shape))
    return np.array(values[:size]).reshape(shape).astype(draw(st.sampled_from(DTYPES)))


COLUMNS = st.one_of(
    arrays(((NUM, 2), (NUM, 2, 2), (1,), (NUM, 4))),  # the last has one per token
    st.lists(NESTED, min_size=NUM, max_size=NUM),
    SCALARS,
)
PLAIN = st.one_of(
    arrays(((NUM,),)),
    st.lists(st.sampled_from([LONE, "a", None]), min_size=NUM, max_size=NUM),
    st.lists(st.one_of(st.integers(), st.floats()), min_size=NUM, max_size=NUM),
    st.lists(SCALARS, min_size=NUM, max_size=NUM),
)


@st.composite
def fields(draw: st.DrawFn) -> dict[str, Any]:
    """The required fields in dtypes that engines and other machines write."""
    ids = np.array([[1, 2, 3, 4], [5, 6, 7, 8], [1, 2, 3, 4]])
    mask = np.array([[1, 1, 0, 1], [1, 0, 1, 0], [0, 1, 1, 1]])
    log_probs = -np.arange(1.0, 13).reshape(3, 4) / 8
    tensors: dict[str, Any] = {
        "response_ids": ids.astype(draw(st.sampled_from(INTEGERS))),
        "response_mask": mask.astype(draw(st.sampled_from((*INTEGERS, "?", "f2")))),
        "rollout_log_probs": torch.tensor(log_probs),
        "old_log_probs": torch.tensor(log_probs * 1.25),
    }
    if draw(st.booleans()):
        tensors["response_mask"] = torch.tensor(mask).bfloat16()
        tensors["rollout_log_probs"] = torch.tensor(log_probs).bfloat16()
    if draw(st.booleans()):
        tensors["group_ids"] = ["a", LONE, LONE]
        tensors["sample_ids"] = [LONE, 10**30, None]
    if draw(st.booleans()):
        tensors["step"] = draw(st.sampled_from([7, -1, 2.5, LONE, 10**4999, None]))
    return tensors


def frames(batch: Batch) -> dict[str, View]:
    columns = [*batch.sample_columns, *batch.round_columns, *batch.token_columns]
    return {
        "token_frame": lambda: rd.token_frame(batch).to_html(),
        "token_frame, columns": lambda: rd.token_frame(
            batch, ["position", "token_id", "text", *columns]
        ).to_html(),
        "round_frame": lambda: rd.round_frame(batch).to_html(),
        "sample_frame": lambda: rd.sample_frame(batch).to_html(),
        "metrics": lambda: rd.metrics(batch),
        "describe": lambda: describe(batch).encode(),
        "batch": lambda: batch._repr_html_().encode(),
        "repr": lambda: repr(batch).encode(),
        "check": lambda: rd.check(batch)._repr_html_().encode(),
        "token_text": lambda: str(rd.token_text(batch, sample=0).html).encode(),
    }


# One of each way in which `stats.means_by` finds the place of a token.
MEANS: dict[str, Callable[..., Any]] = {
    "means_by": partial(stats.means_by, x="round"),
    "means by token": partial(stats.means_by, x="token"),
    "means by role": partial(stats.means_by, x="role"),
    "means by probability": partial(stats.means_by, x="probability"),
}


def statistics(batch: Batch) -> dict[str, View]:
    """Every function of `rounddiag.stats`; of tokens, or of pairs of batches."""
    tokens = rd.token_frame(batch)
    scored = replace(batch, rewards=torch.zeros(NUM))
    of_tokens = ("worst_cells", "worst_samples", "worst_tokens")
    others: dict[str, View] = {
        "compare_batches": lambda: stats.compare_batches([batch, batch]),
        "compare_outcomes": lambda: stats.compare_outcomes(scored, scored),
        **{name: partial(means, batch) for name, means in MEANS.items()},
        "few_rows": lambda: stats.few_rows(stats.round_summary(batch)),
        "worst_round": lambda: stats.worst_round(stats.round_summary(batch)),
    }
    return others | {
        name: partial(getattr(stats, name), tokens if name in of_tokens else batch)
        for name in stats.__all__
        if name not in {*others, "FEW_SAMPLES"}
    }


def split(batch: Batch) -> list[tuple[str, View]]:
    """Every statistic and figure, by columns of the file."""
    functions = {
        f"{name}, by": function
        for package in (stats, figures)
        for name in package.__all__
        if callable(function := getattr(package, name))
        and "by" in inspect.signature(function).parameters
    }
    functions |= {f"{name}, by": function for name, function in MEANS.items()}
    return [
        (name, partial(function, batch, by=column))
        for name, function in functions.items()
        for column in [
            *batch.sample_columns,
            *batch.round_columns,
            *batch.token_columns,
        ][:3]
    ]


def pictures(batch: Batch, folder: Path) -> dict[str, View]:
    """Every figure, as the page gets it."""
    made: dict[str, View] = {
        name: lambda name=name: plot(name, batch).to_json()  # type: ignore[misc]
        for name in PLOTS
    }
    return {
        **made,
        "diagnose": lambda: rd.diagnose(batch)._repr_html_().encode(),
        "plot_finding": lambda: [
            rd.plot_finding(one).to_json() for one in rd.diagnose(batch).findings
        ],
        "plot_run": partial(_run, batch, folder / "run"),
    }


def _run(batch: Batch, folder: Path) -> None:
    for step in range(2):
        rd.save(replace(batch, step=step), folder / f"step_{step}.parquet")
    run = rd.open_run(folder)
    rd.plot_run(run).to_json()
    run._repr_html_().encode()
    run.diagnose()._repr_html_().encode()
    assert run.failed == {}
    assert run.batch(1).num_tokens == batch.num_tokens


def pages(batch: Batch, folder: Path) -> dict[str, View]:
    return {
        "explorer": partial(_explore, batch),
        "report": lambda: rd.report(batch, folder / "page.html"),
    }


def _explore(batch: Batch) -> None:
    handle = RequestHandler(Session(batch, {}), lambda: None)
    overview: Any = handle("overview", {"theme": "light"})
    serialize(overview)
    serialize(handle("trajectory", {"sample": 0}))
    for name in ("findings", "tokens", "rounds", "samples", "common", "selection"):
        reply: Any = handle("list", {"list": name})
        serialize(reply() if callable(reply) else reply)
    own = {*batch.sample_columns, *batch.round_columns, *batch.token_columns}
    for by in [by for by in overview["options"]["by"] if by in own][:2]:
        serialize(handle("set", {"changes": {"by": by}, "theme": "dark"}))


def files(batch: Batch, folder: Path) -> dict[str, View]:
    return {
        "save": partial(_save, batch, folder / "again.parquet"),
        "save, redacted": partial(_redact, batch, folder / "redacted.parquet"),
    }


def _save(batch: Batch, path: Path) -> None:
    rd.save(batch, path)
    again = rd.load(path)
    for frame in (rd.token_frame, rd.round_frame, rd.sample_frame):
        pd.testing.assert_frame_equal(frame(again), frame(batch))


def _redact(batch: Batch, path: Path) -> None:
    rd.save(batch, path, redact=True)
    assert rd.load(path).num_tokens == batch.num_tokens


NUM_SHOWN: Counter[str] = Counter()
NUM_LEFT_OUT: Counter[str] = Counter()
# What the required fields alone are enough for.
ALWAYS = {
    *("token_frame", "round_frame", "sample_frame", "metrics", "describe", "batch"),
    *("repr", "check", "token_text", "round_summary", "compare_batches", "diagnose"),
    *("plot_rounds", "plot_heatmap", "plot_trajectory", "plot_run", "plot_finding"),
    *("explorer", "report", "save", "save, redacted"),
}


MORE = os.environ.get("ROUNDDIAG_EXAMPLES")  # as many, at random


@settings(
    max_examples=int(MORE or min(4, settings().max_examples // 4)),
    derandomize=MORE is None,
    phases=[Phase.explicit, Phase.generate],  # a smaller case takes minutes
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    tensors=fields(),
    columns=st.dictionaries(NAMES, COLUMNS, min_size=1, max_size=4),
    plain=st.dictionaries(NAMES, PLAIN, min_size=2, max_size=4),
)
def test_every_view_of_what_load_accepts(
    tensors: dict[str, Any],
    columns: dict[str, Any],
    plain: dict[str, Any],
    tmp_path: Path,
) -> None:
    """A view shows the batch, or says as a RounddiagError what it lacks."""
    tokenizer = decode if len(columns) % 2 else None
    batch = rd.load({**columns, **plain, **tensors}, tokenizer=tokenizer)
    assert len(rd.sample_frame(batch)) == NUM
    views = frames(batch) | statistics(batch) | files(batch, tmp_path)
    views |= pictures(batch, tmp_path) | pages(batch, tmp_path)
    for name, view in [*views.items(), *split(batch)]:
        refused = refusal(view)
        assert not (refused and name in ALWAYS), f"{name}: {refused}"
        (NUM_LEFT_OUT if refused else NUM_SHOWN)[name] += 1
    shutil.rmtree(tmp_path / "run")


def refusal(view: View) -> str:
    """Return the words of a view that leaves something out; "" if it shows it."""
    try:
        view()
    except RounddiagError as error:
        assert str(error).encode()  # noqa: PT017 other errors are not caught
        return str(error)
    return ""


def test_all_views_were_tried(record_property: Callable[[str, object], None]) -> None:
    """Run after the test above; `-rP` prints the counts."""
    num = NUM_SHOWN["token_frame"]
    for name in sorted({*NUM_SHOWN, *NUM_LEFT_OUT}):
        print(f"{name:28}{NUM_SHOWN[name]:5} shown{NUM_LEFT_OUT[name]:5} left out")
        record_property(name, f"{NUM_SHOWN[name]} shown, {NUM_LEFT_OUT[name]} left out")
        assert ", by" in name or NUM_SHOWN[name] + NUM_LEFT_OUT[name] == num
    assert {*stats.__all__, *PLOTS, "plot_run", "plot_finding"} - {"FEW_SAMPLES"} <= {
        *NUM_SHOWN,
        *NUM_LEFT_OUT,
    }
    never = {name for name in NUM_LEFT_OUT if not NUM_SHOWN[name]}
    assert never == set()
