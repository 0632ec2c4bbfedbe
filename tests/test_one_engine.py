"""Every public function on a batch of text, of one engine's log-probs, and of ids."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest
import torch

import rounddiag as rd
from rounddiag.errors import MissingError
from rounddiag.schema import METRICS
from rounddiag.vision import RawScreenshot
from tests.batches import hand_batch
from tests.proof.test_prove import score

# One batch of each kind, and its sentence on the log-probs of two engines.
TURNS = [
    [("user", "Go."), ("assistant", "click(1, 2)"), ("tool", "ok"), ("assistant", "a")],
    [("user", "Go."), ("assistant", "done")],
]


def spelled(ids: list[int]) -> str:
    return "".join(chr(65 + number) for number in ids)


ONLY = (
    "This batch has the {}'s log-probs only:"
    " `rd.rescore(batch, MODEL)` adds the second."
)
KINDS: dict[str, tuple[rd.Batch, str]] = {
    "text": (
        rd.Batch.from_turns(TURNS, rewards=[1.0, 0.0], group_ids=["g", "g"]),
        "This batch has no log-probs: save both engines' with the token ids.",
    ),
    "sampler": (
        hand_batch(old_log_probs=None, tokenizer=spelled),
        ONLY.format("sampler"),
    ),
    "trainer": (
        hand_batch(rollout_log_probs=None, tokenizer=spelled),
        ONLY.format("training engine"),
    ),
    "ids": (
        hand_batch(old_log_probs=None, rollout_log_probs=None, tokenizer=spelled),
        "This batch has no log-probs: `rd.rescore(batch, MODEL)` adds one engine's.",
    ),
}
NO_IDS = (
    "This batch has text without token ids: save the ids that the engine had, since"
    " text cannot be turned back into them."
)
Call: TypeAlias = Callable[[rd.Batch, Path], object]


def save_and_load(batch: rd.Batch, folder: Path) -> rd.Batch:
    rd.save(batch, folder / "batch.parquet")
    return rd.load(folder / "batch.parquet")


# What needs both engines, and how it is called on a batch.
NEED_BOTH: dict[str, Call] = {
    "corrections": lambda batch, _: rd.corrections(batch),
    "legs": lambda batch, _: rd.legs(batch),
    "metrics": lambda batch, _: rd.metrics(batch),
    "places": lambda batch, _: rd.places(batch),
    "plot_compare": lambda batch, _: rd.plot_compare({"A": batch, "B": batch}),
    "plot_conditional": lambda batch, _: rd.plot_conditional(batch),
    "plot_corrections": lambda batch, _: rd.plot_corrections(batch),
    "plot_heatmap": lambda batch, _: rd.plot_heatmap(batch),
    "plot_legs": lambda batch, _: rd.plot_legs(batch),
    "plot_positions": lambda batch, _: rd.plot_positions(batch),
    "plot_probabilities": lambda batch, _: rd.plot_probabilities(batch),
    "plot_roles": lambda batch, _: rd.plot_roles(batch),
    "plot_rounds": lambda batch, _: rd.plot_rounds(batch),
    "plot_tail": lambda batch, _: rd.plot_tail(batch),
    "plot_trajectory": lambda batch, _: rd.plot_trajectory(batch, sample=0),
    "reconcile": lambda batch, _: rd.reconcile(batch, {}),
    "round_summary": lambda batch, _: rd.round_summary(batch),
}
LOG_PROBS = {"old_log_probs", "rollout_log_probs"}
# What works on all of them, and what it gives.
WORK: dict[str, tuple[Call, Callable[[Any, rd.Batch], bool]]] = {
    "check": (
        lambda batch, _: {one.name: one.detail for one in rd.check(batch)},
        lambda found, batch: (
            found["the mismatch can be measured"] == batch.lacks("old", "rollout")
        ),
    ),
    "diagnose": (
        lambda batch, _: rd.diagnose(batch),
        lambda found, batch: (
            found.verdict == "not_measurable"
            and found.reason == str(batch.lacks("old", "rollout")).removesuffix(".")
        ),
    ),
    "explore": (
        lambda batch, _: rd.explore(batch),
        lambda found, batch: (
            found.state["metric"]
            == ("surprise" if batch.per_token.keys() & LOG_PROBS else "action")
        ),
    ),
    "report": (
        lambda batch, folder: rd.report(batch, folder / "report.html"),
        lambda _, __: True,
    ),
    "round_frame": (
        lambda batch, _: rd.round_frame(batch),
        lambda found, batch: (
            [*found] == ["sample", "round", "start", "num_tokens"]
            and len(found) == batch.num_rounds
        ),
    ),
    "sample_frame": (
        lambda batch, _: rd.sample_frame(batch),
        lambda found, batch: (
            found["num_tokens"].sum() == batch.num_tokens
            and "mean_abs_diff" not in found
        ),
    ),
    "save": (
        save_and_load,
        lambda found, batch: (
            found.per_token.keys() == batch.per_token.keys()
            and found.turns == batch.turns
        ),
    ),
    "token_frame": (
        lambda batch, _: rd.token_frame(batch),
        lambda found, batch: (
            [*found] == ["sample", "round", "token"] and len(found) == batch.num_tokens
        ),
    ),
    "groups": (
        lambda batch, _: rd.groups(replace(batch, group_ids=("g",) * len(batch))),
        lambda found, batch: found["num_samples"].sum() == batch.num_samples,
    ),
    "token_text": (
        lambda batch, _: rd.token_text(batch, sample=0).html,
        lambda found, _: "log-probs" in found and ' class="p' not in found,
    ),
}
# What scores again needs ids, and `attach` a source for them.
NEED_IDS: dict[str, Call] = {
    "ask": lambda batch, _: rd.ask(batch, "none"),
    "attach": lambda batch, _: rd.attach(batch, "x", rd.token_frame(hand_batch())),
    "export_rescore": lambda batch, folder: rd.export_rescore(batch, folder / "out"),
    "prove": lambda batch, _: rd.prove(batch, score),
    "rescore": lambda batch, _: rd.rescore(batch, score),
}
# They take no batch, or rewards, or what was made of one that has both engines.
OTHERS = {
    *(
        "compare_outcomes",
        "demo",
        "formats",
        "ingest",
        "load",
        "load_proof",
        "open_run",
        "plot_finding",
    ),
    *("load_answer", "plot_proof", "plot_run", "plot_sight", "preflight"),
}


def test_every_public_function_is_here() -> None:
    names: list[str] = vars(rd)["__all__"]
    functions = {n for n in names if callable(getattr(rd, n)) and n.islower()}
    assert functions == {*NEED_BOTH, *WORK, *NEED_IDS, *OTHERS}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", NEED_BOTH)
def test_what_needs_both_engines_says_the_same_sentence(
    name: str, kind: str, tmp_path: Path
) -> None:
    batch, sentence = KINDS[kind]
    with pytest.raises(MissingError, match=f"^{re.escape(sentence)}$"):
        NEED_BOTH[name](batch, tmp_path)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", WORK)
def test_what_needs_no_pair_works(name: str, kind: str, tmp_path: Path) -> None:
    call, is_right = WORK[name]
    batch = KINDS[kind][0]
    assert is_right(call(batch, tmp_path), batch)


@pytest.mark.parametrize("name", NEED_IDS)
def test_what_scores_again_needs_ids(name: str, tmp_path: Path) -> None:
    with pytest.raises(MissingError, match=f"^{re.escape(NO_IDS)}$"):
        NEED_IDS[name](KINDS["text"][0], tmp_path)


@pytest.mark.parametrize("column", ["diff", "importance_weight", "prob_diff"])
def test_a_column_of_a_pair_says_the_same_sentence(column: str) -> None:
    batch, sentence = KINDS["sampler"]
    columns = [] if column == "diff" else [column]
    if column == "diff":
        assert column not in rd.token_frame(batch)
        return
    with pytest.raises(MissingError, match=f"^{re.escape(sentence)}$"):
        rd.token_frame(batch, columns)


FIGURES: dict[str, Callable[..., Any]] = {
    "rounds": lambda data, metric: rd.plot_rounds(data, metric=metric),
    "heatmap": lambda data, metric: rd.plot_heatmap(data, metric=metric),
    "trajectory": lambda data, metric: rd.plot_trajectory(
        data, sample=0, metric=metric
    ),
}


@pytest.mark.parametrize("figure", FIGURES)
@pytest.mark.parametrize("metric", [n for n, m in METRICS.items() if m.of != "pair"])
def test_a_metric_of_one_engine_is_the_same_with_two(metric: str, figure: str) -> None:
    """The training engine's log-probs change nothing of the sampler's surprise."""
    keys = {"sample": np.array([0, 0, 1, 1, 2]), "round": np.array([0, 1, 0, 1, 0])}
    columns = {
        "sampling_seconds": np.array([1.0, 2.0, np.nan, 4.0, 5.0]),
        "turn_score": np.array([0.0, -1.0, 0.5, 1.0, 0.0]),
    }
    shots = tuple(
        RawScreenshot(mode="L", width=1, height=1, data=partial(bytes, [at]), round=at)
        for at in range(3)  # the last one after all rounds
    )
    both = hand_batch(
        entropy=torch.rand(3, 6),
        round_columns={**keys, **columns},
        images=(shots, shots, ()),
    )
    alone = replace(both, old_log_probs=None)
    left, right = (FIGURES[figure](one, metric).data[0] for one in (both, alone))
    axis = "z" if figure == "heatmap" else "y"
    np.testing.assert_array_equal(left[axis], right[axis])
    found = [
        rd.round_summary(one, metric=metric)["mean"].tolist() for one in (both, alone)
    ]
    assert found[0] == found[1]


def test_the_round_metrics_have_the_numbers_of_their_columns() -> None:
    """Rounds of hand_batch: 2 and 1 tokens, 3 and 1, 1."""
    found = rd.round_summary(hand_batch(old_log_probs=None), metric="round_length")
    assert found["mean"].tolist() == [2.0, 1.0]
    surprise = rd.round_summary(hand_batch(old_log_probs=None), metric="surprise")
    # -log p: 1, 1 | 2; 1, 1, 1 | 3; 2.
    assert surprise["mean"].tolist() == [pytest.approx(7 / 6), 2.5]
