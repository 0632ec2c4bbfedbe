"""Whatever `load` accepts, every view shows or leaves out: generated columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import rounddiag as rd
from rounddiag.cli.summary import describe
from rounddiag.widgets.requests import RequestHandler
from rounddiag.widgets.session import Session
from rounddiag.widgets.view import serialize

if TYPE_CHECKING:
    from pathlib import Path

    from rounddiag import Batch

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
    *("M8[s]", "m8[ms]", "U3", "S0", "S2", "V2"),
)
NAMES = st.one_of(
    st.text(st.characters(), max_size=6),
    st.sampled_from([LONE, "x" * 5000, "sample", "round", "diff", "sample_id", "a.b"]),
)
INTEGERS = ("i1", "i4", "i8", "u1", "u2", "u4", "u8", ">i2", ">u4")


@st.composite
def arrays(draw: st.DrawFn) -> Any:
    """Arrays of every dtype, of one, two or three dimensions."""
    shape = draw(st.sampled_from([(NUM,), (NUM, 2), (NUM, 2, 2)]))
    values = draw(st.lists(st.integers(0, 5), min_size=12, max_size=12))
    size = int(np.prod(shape))
    return np.array(values[:size]).reshape(shape).astype(draw(st.sampled_from(DTYPES)))


COLUMNS = st.one_of(arrays(), st.lists(NESTED, min_size=NUM, max_size=NUM))


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
    return tensors


def look_at(batch: Batch, folder: Path) -> None:
    """Make every frame, figure, page and file of a batch."""
    samples = rd.sample_frame(batch)
    assert len(samples) == NUM
    for frame in (rd.token_frame(batch), rd.round_frame(batch), samples):
        frame.to_html()
    rd.round_summary(batch)
    rd.metrics(batch)
    for shown in (batch, rd.check(batch), rd.diagnose(batch)):
        repr(shown).encode()
        shown._repr_html_().encode()
    describe(batch).encode()
    rd.token_text(batch, sample=0)._repr_html_().encode()
    for plot in (rd.plot_rounds, rd.plot_heatmap, rd.plot_tail, rd.plot_conditional):
        plot(batch).to_json()
    rd.plot_trajectory(batch, sample=0).to_json()
    session = Session({"batch": batch}, {})
    handle = RequestHandler(session, lambda: None)
    overview: Any = handle("overview", {"theme": "light"})
    serialize(overview)
    serialize(handle("trajectory", {"sample": 0, "batch": 0}))
    for name in ("findings", "tokens", "rounds", "samples", "common", "selection"):
        reply: Any = handle("list", {"list": name})
        serialize(reply() if callable(reply) else reply)
    own = {*batch.sample_columns, *batch.round_columns}
    for by in [by for by in overview["options"]["by"] if by in own][:2]:
        serialize(handle("set", {"changes": {"by": by}, "theme": "dark"}))
        rd.plot_rounds(batch, by=by).to_json()
    rd.report(batch, folder / "page.html")


@settings(
    max_examples=4,
    phases=[Phase.explicit, Phase.generate],  # a smaller case takes minutes
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(tensors=fields(), columns=st.dictionaries(NAMES, COLUMNS, max_size=6))
def test_every_view_of_what_load_accepts(
    tensors: dict[str, Any], columns: dict[str, Any], tmp_path: Path
) -> None:
    batch = rd.load({**columns, **tensors})
    look_at(batch, tmp_path)
    rd.save(batch, tmp_path / "again.parquet")
    again = rd.load(tmp_path / "again.parquet")
    pd.testing.assert_frame_equal(rd.token_frame(again), rd.token_frame(batch))
    pd.testing.assert_frame_equal(rd.sample_frame(again), rd.sample_frame(batch))
    rd.save(batch, tmp_path / "redacted.parquet", redact=True)
    assert rd.load(tmp_path / "redacted.parquet").num_tokens == batch.num_tokens
