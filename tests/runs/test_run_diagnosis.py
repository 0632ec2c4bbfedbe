"""A verdict per step, and what changed between steps."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import rounddiag as rd
from rounddiag.errors import BatchError, FrameError, LoadError
from rounddiag.findings.registry import Detector
from rounddiag.loaders.parquet.totals import (
    TOTALS,
    has_digest,
    reserve_digest,
    write_digest,
)
from rounddiag.runs import run as run_module
from rounddiag.runs.change_points import find_breaks, find_changes
from rounddiag.runs.diagnosis import choose_steps, find_events, hold_verdicts, judged_by
from rounddiag.widgets.steps import StepLine
from tests.runs.step_folders import scaled_batch, write_steps

NUM_STEPS, ONSET = 18, 9


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of which each step has 60 of the samples of the sample data.

    From step 9 on, the training engine does not see older screenshots.
    """
    path = tmp_path_factory.mktemp("run")
    generator = np.random.default_rng(0)
    batches = [rd.load(f"sample_data/{n}.parquet") for n in ("healthy", "image_window")]
    for step in range(NUM_STEPS):
        batch = batches[step >= ONSET]
        rows = np.sort(generator.choice(64, 60, replace=False))
        facts = {"rollout_engine": "vllm", "parallel": {"nodes": 2 if step < 12 else 4}}
        batch = replace(
            batch[rows], step=step, images=None, meta={**batch.meta, "facts": facts}
        )
        rd.save(batch, path / f"step_{step}.parquet")
    return path


def test_a_run_is_tested_for_changes_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def count(*args: Any, **options: Any) -> pd.DataFrame:
        calls.append(options)
        return find_changes(*args, **options)

    monkeypatch.setattr(run_module, "find_changes", count)
    rd.open_run(write_steps(tmp_path, {1: 1, 2: 1})).diagnose(kind="dense")
    assert calls == [{"metric": "abs_diff"}]


@pytest.mark.slow
def test_a_run_in_which_a_fault_begins(folder: Path) -> None:
    diagnosis = rd.open_run(folder).diagnose(kind="dense")
    assert diagnosis.frame["step"].tolist() == [*range(NUM_STEPS)]
    assert diagnosis.frame["verdict"].tolist() == ["healthy"] * 9 + ["broken"] * 9
    assert [[*one] for one in diagnosis.frame["causes"]] == [[]] * 18
    assert [len(one) > 0 for one in diagnosis.frame["places"]] == (
        [False] * 9 + [True] * 9
    )
    (one,) = diagnosis.breaks
    assert (one.step, one.previous) == (ONSET, ONSET - 1)
    assert {2, 3} <= {*one.rounds}
    assert {0, 1} & {*one.rounds} == set()
    lines = str(diagnosis).splitlines()
    assert lines[0] == (
        "healthy from step 0 to 8; broken from step 9 to 17 (18 of 18 steps diagnosed)"
    )
    assert lines[1].startswith("  from step 9: rounds 2 to ")
    place = "from round 2 on: in 9 of 18 diagnosed steps, from step 9 to 17"
    assert f"  {place}" in lines
    assert lines[-1] == "  from step 12: parallel.nodes changes from 2 to 4"
    assert f"<li>{place}</li>" in diagnosis._repr_html_()


def test_diagnoses_are_kept_by_kind(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = rd.open_run(folder).diagnose([0, 17], kind="moe")

    def read(*_: object, **__: object) -> None:
        message = "a step was diagnosed again"
        raise AssertionError(message)

    monkeypatch.setattr(run_module, "diagnose_step", read)
    again = rd.open_run(folder).diagnose([17], kind="moe")
    assert again.frame["text"].tolist() == first.frame["text"].tolist()[1:]
    assert str(again).startswith("suspicious at step 17 (1 of 18 steps diagnosed)")


def test_an_unknown_kind_or_step_is_an_error(folder: Path) -> None:
    run = rd.open_run(folder)
    with pytest.raises(FrameError, match="`kind`: expected one of"):
        run.diagnose(kind="huge")
    with pytest.raises(LoadError, match="`step`: expected one of the steps"):
        run.diagnose([99])


def test_of_many_steps_both_sides_of_each_break_are_chosen() -> None:
    steps = [10 * step for step in range(500)]
    change = {"change": "step", "before": 1.0, "after": 2.0, "p_value": 0.0}
    changes = pd.DataFrame([{**change, "step": 1230, "round": 1}])
    chosen = choose_steps(steps, find_breaks(changes, steps))
    assert {0, 1220, 1230, 4990} <= {*chosen}
    assert len(chosen) == 40


def test_changes_of_neighbouring_steps_are_one_break() -> None:
    rows: list[dict[str, Any]] = [
        {"step": 5, "round": 2, "change": "step", "before": 1.0, "after": 3.0},
        {"step": 6, "round": 3, "change": "step", "before": 1.0, "after": 9.0},
        {"step": 6, "round": 4, "change": "step", "before": 1.0, "after": 2.0},
        {"step": 9, "round": 0, "change": "growth", "before": 1.0, "after": 2.0},
        {"step": 20, "round": 7, "change": "step", "before": 4.0, "after": 1.0},
    ]
    first, second = find_breaks(pd.DataFrame(rows), range(30), metric="prob_diff")
    assert str(first) == "from step 6: rounds 2 to 4, round 3 most: 1 to 9"
    assert (second.step, second.rounds) == (20, (7,))


def test_a_run_without_a_break_has_no_line(tmp_path: Path) -> None:
    run = rd.open_run(write_steps(tmp_path, dict.fromkeys(range(8), 1.0)))
    diagnosis = run.diagnose()
    assert (len(diagnosis), diagnosis.breaks, diagnosis.events) == (8, (), ())


def test_a_run_of_which_no_step_can_be_diagnosed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        msg = "no"
        raise BatchError(msg)

    monkeypatch.setattr(run_module, "diagnose_step", fail)
    run = rd.open_run(write_steps(tmp_path, {1: 1.0, 2: 1.0}))
    with pytest.warns(UserWarning, match="2 steps left out"):
        diagnosis = run.diagnose()
    assert str(diagnosis) == "no verdict (0 of 2 steps diagnosed)"
    assert diagnosis.frame["verdict"].tolist() == []


def test_many_changed_facts_are_counted(tmp_path: Path) -> None:
    for step in range(9):
        batch = replace(scaled_batch(step), meta={"facts": {"seed": step}})
        rd.save(batch, tmp_path / f"step_{step}.parquet")
    run = rd.open_run(tmp_path)
    lines = run.diagnose().lines
    assert lines[0] == "from step 1: seed changes from 0 to 1"
    assert lines[-1] == "2 more changes"
    assert len(lines) == 7
    events = find_events(run.step_summary())
    assert [(one.previous, one.step) for one in events][-1] == (7, 8)


# Versions of the steps 0, 1, ... of a run; what is said, and from which step on.
WEIGHTS = [
    # Synced before each step, then not from step 4 on, then again from step 7 on.
    (
        ["1", "2", "3", "4", "4", "4", "4", "8", "9"],
        {4: "stops changing: still 4", 7: "changes again from 4 to 8"},
    ),
    # Synced every two steps; partial rollouts begin under the version before.
    (["0", "0", "0 to 1", "1", "1 to 2", "2", "2 to 3"], {}),
    (["0", "0", "1", "1", "2", "2", "2"], {6: "stops changing: still 2"}),
    # Steps without a version are passed over.
    (["1", "2", "", "3", "3", "2"], {4: "stops changing: still 3", 5: "goes back"}),
    (["base", "base", "base", "tuned", "tuned"], {3: "changes from base to tuned"}),
    ([""] * 5, {}),
    (["7"] * 5, {}),
]


def steps_of(
    versions: Sequence[str], weights: Sequence[str] | str = ""
) -> pd.DataFrame:
    columns = {"weight_version": versions, "weights": weights, "facts": "{}"}
    return pd.DataFrame({"step": range(len(versions)), **columns})


def test_weights_that_do_not_arrive_and_arrive_again_are_events() -> None:
    lost = "the sampler still has the weights of step"
    weights = ["as sent", "", f"{lost} 1", f"{lost} 1", "as sent", "as sent"]
    assert [str(event) for event in find_events(steps_of([""] * 6, weights))] == [
        f"from step 2: {lost} 1",
        "from step 4: weights as sent",
    ]


@pytest.mark.parametrize(("versions", "said"), WEIGHTS)
def test_weights_that_stop_changing_are_an_event(
    versions: list[str], said: dict[int, str]
) -> None:
    events = {one.step: one.text for one in find_events(steps_of(versions))}
    assert [*events] == [*said]
    for step, text in said.items():
        assert events[step].startswith(f"weight version {text}")


@pytest.mark.parametrize("is_stored", [True, False])
def test_weight_versions_of_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_stored: bool
) -> None:
    """From the footer of a file, or from its columns where it has no totals."""
    if not is_stored:
        writer = "rounddiag.loaders.parquet.writer"
        monkeypatch.setattr(f"{writer}.totals_entry", lambda _: {})
    for step, version in enumerate([3, 4, 5, 5]):
        versions = [np.array([one] * 3) for one in (version - 1, version)]
        names = ("min_global_steps", "max_global_steps")
        columns = dict(zip(names, versions, strict=True))
        batch = replace(scaled_batch(step), sample_columns=columns)
        rd.save(batch, tmp_path / f"step_{step}.parquet")
    run = rd.open_run(tmp_path)
    assert run.step_summary()["weight_version"].tolist() == [
        *("2 to 3", "3 to 4", "4 to 5", "4 to 5")
    ]
    (event,) = run.events()
    assert str(event) == "from step 3: weight version stops changing: still 5"
    assert str(event) in str(run.diagnose())
    assert "stops changing" in str(rd.plot_run(run).layout.annotations)
    assert "stops changing" in str(StepLine(run).payload()["marks"])


def test_a_verdict_holds_on_either_side_of_a_limit() -> None:
    now = ["healthy", "suspicious", "broken", "suspicious", "suspicious", "healthy"]
    strict = ["noisy", "suspicious", "broken", "broken", "suspicious", "healthy"]
    rows = pd.DataFrame({"step": range(6), "verdict": now, "strict": strict})
    assert hold_verdicts(rows)["verdict"].tolist() == [
        *("healthy", "suspicious", "broken", "broken", "suspicious", "healthy")
    ]


def test_a_run_is_diagnosed_again_for_another_range_or_detector(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = rd.open_run(write_steps(tmp_path, {1: 0.25}))
    assert rd.diagnose(run, kind="dense").frame["verdict"].tolist() == ["suspicious"]
    high = replace(rd.findings.REFERENCE["dense"], usual=10.0, limit=20.0)
    monkeypatch.setitem(rd.findings.REFERENCE, "dense", high)
    assert rd.diagnose(run, kind="dense").frame["verdict"].tolist() == ["healthy"]
    before = judged_by()
    monkeypatch.setitem(
        rd.findings.DETECTORS, "mine", Detector("mine", "fact", lambda _: None)
    )
    assert judged_by() != before


def test_totals_that_are_not_those_of_the_columns_are_counted(tmp_path: Path) -> None:
    """A program read a step, corrected a column and wrote it: it keeps the footer."""
    write_steps(tmp_path, {1: 1.0, 2: 1.0, 3: 1.0})
    table = pq.read_table(tmp_path / "step_2.parquet")
    at = table.column_names.index("old_log_probs")
    old = [[value - 2.0 for value in row] for row in table[at].to_pylist()]
    field = table.schema.field(at)
    corrected = table.set_column(at, field, pa.array(old, field.type))
    pq.write_table(corrected, tmp_path / "step_2.parquet")
    run = rd.open_run(tmp_path)
    summary = run.summary()
    batch = rd.load(tmp_path / "step_2.parquet")
    expected = rd.round_summary(batch)
    found = summary[summary["step"] == 2].drop(columns="step").reset_index(drop=True)
    pd.testing.assert_frame_equal(found, expected)
    words = "of the columns, not the footer"
    facts = run.step_summary()["facts"].tolist()
    assert [words in text for text in facts] == [False, True, False]
    assert words in str(run.events()[0])
    assert run.diagnose().frame["step"].tolist() == [1, 2, 3]
    assert run.failed == {}
    again = rd.open_run(tmp_path).step_summary()  # from the index
    assert again["facts"].tolist() == facts


@pytest.mark.parametrize("name", ["num_samples", "reward", "length", "rounds"])
@pytest.mark.parametrize("odd", [None, "x", [], {}, -1, 1e308, 10**400, [{"round": 0}]])
def test_one_odd_value_in_a_footer_leaves_the_run_as_it_is(
    name: str, odd: object, tmp_path: Path
) -> None:
    """Whatever its digest says: a forger can compute it too."""
    write_steps(tmp_path, {1: 1.0, 2: 2.0})
    expected = rd.open_run(tmp_path).summary()
    path = tmp_path / "step_1.parquet"
    table = pq.read_table(path)
    entry = json.loads(table.schema.metadata[b"rounddiag.totals"])
    text = json.dumps({**entry, name: odd}).encode()
    marks = {**table.schema.metadata, b"rounddiag.totals": text}
    for is_forged in (False, True):
        with pq.ParquetWriter(path, table.schema.with_metadata(marks)) as writer:
            writer.write_table(table.replace_schema_metadata(marks))
            if is_forged:
                reserve_digest(writer)
        write_digest(path)
        run = rd.open_run(tmp_path)
        if not is_forged:
            pd.testing.assert_frame_equal(run.summary(), expected)
        assert len(run.step_summary()) == 2
        assert not run.failed


def test_a_diagnosis_counts_what_a_forger_wrote_into_a_footer(tmp_path: Path) -> None:
    """The digest is right, and the totals are possible: another step's."""
    write_steps(tmp_path, {1: 1.0, 2: 1.0, 3: 9.0})
    path = tmp_path / "step_3.parquet"
    table = pq.read_table(path)
    other = pq.read_schema(tmp_path / "step_1.parquet").metadata
    marks = {**table.schema.metadata, TOTALS: other[TOTALS]}
    with pq.ParquetWriter(path, table.schema.with_metadata(marks)) as writer:
        writer.write_table(table.replace_schema_metadata(marks))
        reserve_digest(writer)
    write_digest(path)
    run = rd.open_run(tmp_path)
    told = run.summary()["mean"].to_numpy().reshape(3, -1)
    np.testing.assert_array_equal(told[2], told[0])
    run.diagnose()
    counted = run.summary()["mean"].to_numpy().reshape(3, -1)
    np.testing.assert_allclose(counted[2], 9 * counted[0], rtol=1e-4)
    assert "of the columns, not the footer" in str(run.events()[-1])


def test_the_digest_is_of_the_totals_and_of_each_column_behind_them(
    tmp_path: Path,
) -> None:
    path = write_steps(tmp_path, {1: 1.0}) / "step_1.parquet"

    def is_known() -> bool:
        with path.open("rb") as file:
            return has_digest(file, pq.read_metadata(path))

    assert is_known()
    whole = bytearray(path.read_bytes())
    metadata = pq.read_metadata(path)
    chunks = [metadata.row_group(0).column(k) for k in range(metadata.num_columns)]
    for chunk in chunks:
        at = chunk.data_page_offset + chunk.total_compressed_size - 1
        whole[at] ^= 1
        path.write_bytes(whole)
        is_behind = chunk.path_in_schema.split(".")[0] in {
            *("response_mask", "rollout_log_probs", "old_log_probs", "round_ids"),
            *("group_id", "reward", "entropy"),
        }
        assert is_known() != is_behind, chunk.path_in_schema
        whole[at] ^= 1
    path.write_bytes(whole)
    assert is_known()
