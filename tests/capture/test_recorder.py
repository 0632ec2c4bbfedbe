from __future__ import annotations

import logging
import os
import pickle
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from rounddiag.batch import Batch
from rounddiag.capture import Recorder
from rounddiag.core import token_frame
from rounddiag.loaders.parquet import load_parquet
from tests.capture.conftest import SUPPRESSED, DataProto


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def record(folder: Path, data: object, **more: Any) -> Batch:
    with Recorder(folder) as recorder:
        recorder.step(0, data, **more)
    assert recorder.errors == 0
    return load_parquet(folder / "step_0.parquet")


def test_every_tenth_step_is_recorded_from_zero_on(
    proto: DataProto, tmp_path: Path
) -> None:
    with Recorder(tmp_path) as recorder:
        for step in range(21):
            recorder.step(step, proto)
            recorder.close()
    assert names(tmp_path) == ["step_0.parquet", "step_10.parquet", "step_20.parquet"]
    assert load_parquet(tmp_path / "step_10.parquet").step == 10
    assert (recorder.dropped, recorder.errors) == (0, 0)


class LazyFields:
    """The dictionaries of a DataProto on verl's branch `neo`."""

    def __init__(self, fields: dict[str, Any]) -> None:
        self._fields = fields

    def keys(self) -> Any:
        return self._fields.keys()

    def __getitem__(self, name: str) -> Any:
        return self._fields[name]

    def __len__(self) -> int:
        return 2  # samples


def test_fields_that_are_fetched_when_asked_for(
    proto: DataProto, tmp_path: Path
) -> None:
    for name in ("whole", "lazy"):
        with Recorder(tmp_path / name, diagnose=False) as recorder:
            recorder.step(40, proto)
        assert recorder.errors == 0
        proto.batch = LazyFields(proto.batch)
        proto.non_tensor_batch = LazyFields(proto.non_tensor_batch)
    files = (tmp_path / name / "step_40.parquet" for name in ("whole", "lazy"))
    one, other = map(load_parquet, files)
    columns = ["token_id", "rollout_log_prob", "old_log_prob", "entropy"]
    pd.testing.assert_frame_equal(
        token_frame(one, columns), token_frame(other, columns)
    )
    assert other.group_ids == ("a", "b")
    assert [len(shots) for shots in other.images] == [1, 1]


def test_entropy_that_the_batch_does_not_have(proto: DataProto, tmp_path: Path) -> None:
    del proto.batch["entropys"]
    batch = record(tmp_path, proto, entropy=torch.full((2, 12), 0.5))
    assert batch.entropy.tolist() == [0.5] * 23


def test_a_mapping_on_any_device_with_gradients_and_gaps(
    proto: DataProto, tmp_path: Path, device: torch.device
) -> None:
    fields = {name: value.to(device) for name, value in proto.batch.items()}
    fields["old_log_probs"] = fields["old_log_probs"].bfloat16().requires_grad_()
    wide = fields["rollout_log_probs"].repeat_interleave(2, dim=1)
    fields["rollout_log_probs"] = wide[:, ::2]
    batch = record(tmp_path, fields)
    assert batch.log_probs("old").tolist() == [-0.75] * 23
    assert batch.log_probs("rollout").tolist() == [-0.5] * 23


def test_log_probs_of_other_tokens_are_left_out_and_named(
    proto: DataProto, tmp_path: Path
) -> None:
    proto.batch["teacher_log_probs"] = torch.zeros(2, 12, 4)
    proto.batch["whole_log_probs"] = torch.zeros(2, 15)
    batch = record(tmp_path, proto)
    assert [*batch.scores] == ["ref"]
    found = batch.meta["capture"]["left_out"]
    assert found == ["teacher_log_probs", "whole_log_probs", "raw_prompt"]


def test_a_step_that_is_a_number_of_numpy(proto: DataProto, tmp_path: Path) -> None:
    with Recorder(tmp_path) as recorder:
        recorder.step(np.int64(10), proto)  # type: ignore[arg-type]
    assert load_parquet(tmp_path / "step_10.parquet").step == 10


def test_an_empty_batch_and_one_without_rounds(tmp_path: Path) -> None:
    def fields(num_samples: int) -> dict[str, torch.Tensor]:
        zeros = torch.zeros(num_samples, 2)
        whole = {"responses": zeros.long(), "response_mask": zeros.long()}
        return {**whole, "rollout_log_probs": zeros, "old_log_probs": zeros}

    with Recorder(tmp_path, every=1) as recorder:
        recorder.step(0, fields(0))
        recorder.step(1, fields(1))
    assert recorder.errors == 0
    assert len(load_parquet(tmp_path / "step_0.parquet")) == 0
    assert load_parquet(tmp_path / "step_1.parquet").num_rounds == 0


def test_a_step_recorded_twice_is_replaced(proto: DataProto, tmp_path: Path) -> None:
    with Recorder(tmp_path) as recorder:
        recorder.step(0, proto)
        proto.batch["old_log_probs"] = torch.full((2, 12), -0.25)
        recorder.step(0, proto)
    assert names(tmp_path) == ["step_0.parquet"]
    batch = load_parquet(tmp_path / "step_0.parquet")
    assert batch.log_probs("old").tolist() == [-0.25] * 23


def test_two_recorders_of_one_folder(proto: DataProto, tmp_path: Path) -> None:
    with Recorder(tmp_path, rank=0) as first, Recorder(tmp_path, rank=1) as second:
        first.step(0, proto)
        second.step(0, proto)
    with Recorder(tmp_path) as third, Recorder(tmp_path) as fourth:
        third.step(0, proto)
        fourth.step(0, proto)
    files = ["step_0.parquet", "step_0_rank_0.parquet", "step_0_rank_1.parquet"]
    assert names(tmp_path) == files
    assert {len(load_parquet(tmp_path / name)) for name in files} == {2}


def test_a_closed_recorder_records_again(proto: DataProto, tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    recorder.close()
    recorder.step(0, proto)
    recorder.close()
    recorder.close()
    recorder.step(10, proto)
    recorder.close()
    assert names(tmp_path) == ["step_0.parquet", "step_10.parquet"]


def test_a_pickled_recorder_arrives_as_a_new_one(
    proto: DataProto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with Recorder("diag", every=2, rank=3) as recorder:
        recorder.step(1, proto)
        recorder.step(0, None)
        assert recorder.errors == 1
        data = pickle.dumps(recorder)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    with pickle.loads(data) as copy:  # noqa: S301 our own
        assert copy.errors == 0
        copy.step(4, proto)
    assert names(tmp_path / "diag") == ["step_4_rank_3.parquet"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"every": 0}, "`every`: expected an integer of at least 1; found 0."),
        ({"every": "10"}, "`every`: expected an integer of at least 1; found '10'."),
        ({"images": -1}, "`images`: expected an integer of at least 0; found -1."),
        (
            {"max_samples": 0},
            "`max_samples`: expected an integer of at least 1; found 0.",
        ),
        ({"seed": -1}, "`seed`: expected an integer of at least 0; found -1."),
    ],
)
def test_the_default_of_an_option_that_is_out_of_range_is_used_with_a_word(
    options: dict[str, Any],
    message: str,
    proto: DataProto,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with Recorder(tmp_path, **options) as recorder:
        recorder.step(0, proto)
    whole = f"{message} Pass another number to `Recorder`. {SUPPRESSED}"
    (name,) = options
    assert caplog.messages == [
        f"the Recorder was not set up with its `{name}`: {whole}"
    ]
    assert (names(tmp_path), recorder.errors) == (["step_0.parquet"], 1)


def test_nothing_that_an_option_may_hold_is_raised_into_the_trainer(
    proto: DataProto, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Odd:
        def __getattribute__(self, name: str) -> Any:
            raise RuntimeError(name)

    every_name = "images prove_samples max_samples seed facts tokenizer on_verdict"
    for folder in (5, None, Odd(), "a\0b", "x" * 5000, b"\xff"):
        Recorder(folder).step(0, proto)  # type: ignore[arg-type]
    recorder = Recorder(tmp_path, **dict.fromkeys(every_name.split(), Odd()))  # type: ignore[arg-type]
    recorder.step(0, proto)
    recorder.close()
    assert (names(tmp_path), recorder.errors) == (["step_0.parquet"], 7)
    caplog.clear()


def test_a_recorder_arrives_where_its_folder_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(5, "Input/output error")

    data = pickle.dumps(Recorder(tmp_path))
    monkeypatch.setattr("rounddiag.capture.recorder.remove_stale_files", refuse)
    assert pickle.loads(data).errors == 1  # noqa: S301 our own
    assert "the Recorder was not set up: OSError" in caplog.messages[0]


def step_of(step: int) -> dict[str, torch.Tensor]:
    """A batch whose values say of which step it is."""
    return {
        "responses": torch.full((2 + step % 3, 4), step),
        "response_mask": torch.ones(2 + step % 3, 4),
        "rollout_log_probs": torch.full((2 + step % 3, 4), -1.0 - step),
        "old_log_probs": torch.full((2 + step % 3, 4), -1.0 - step),
    }


def test_each_step_of_eight_threads_is_saved_or_counted(tmp_path: Path) -> None:
    """And no file has samples of another one."""
    steps = range(64)
    recorder = Recorder(tmp_path, every=1, diagnose=False)

    def record(first: int) -> None:
        for step in steps[first::8]:
            recorder.step(step, step_of(step))

    threads = [threading.Thread(target=record, args=(k,)) for k in range(8)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    recorder.close()
    saved = {path.name for path in tmp_path.iterdir()}
    assert len(saved) + recorder.dropped == len(steps)
    assert recorder.errors == 0
    for name in saved:
        batch = load_parquet(tmp_path / name)
        assert batch.step is not None
        assert batch.num_samples == 2 + batch.step % 3
        assert {*batch.require_ids().tolist()} == {batch.step}


def test_a_step_that_comes_again_after_another_is_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its file is replaced: the parts of before are not at hand any more."""
    with Recorder(tmp_path, every=1, diagnose=False) as recorder:
        for step in (0, 1, 0):
            recorder.step(step, step_of(step))
        recorder.finish(1, step_of(1))
    assert recorder.errors == 2
    assert "step 0 was not kept" in caplog.messages[0]
    assert "step 1 (finish) was not saved" in caplog.messages[1]


def test_a_field_of_another_shape_is_logged_once_and_never_raised(
    proto: DataProto, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    proto.batch["old_log_probs"] = torch.zeros(2, 11)
    with Recorder(tmp_path, every=1) as recorder:
        recorder.step(0, proto)
        recorder.step(1, proto)
    assert recorder.errors == 2
    assert names(tmp_path) == []
    assert caplog.record_tuples == [
        (
            "rounddiag.capture",
            logging.WARNING,
            "step 0 was not saved: DataProto: `old_log_probs`: expected 2"
            " rows of 12 positions; found 2 rows of 11 positions. Save every field for"
            f" the same samples and tokens. {SUPPRESSED}",
        )
    ]


@pytest.mark.parametrize("data", [None, [], {}, {"responses": None}, object()])
def test_what_is_no_batch_does_not_reach_the_trainer(
    tmp_path: Path, data: object
) -> None:
    with Recorder(tmp_path) as recorder:
        recorder.step(0, data)
        recorder.finish(0, data)
        recorder.step_keys(0, data, None)
    assert recorder.errors == 2
    assert names(tmp_path) == []


@pytest.mark.parametrize("step", [None, "a", 1.5])
def test_a_step_that_is_no_number_does_not_reach_the_trainer(
    step: Any, proto: DataProto, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    for folder in (tmp_path, tmp_path / "file"):  # nor does a folder that is none
        with Recorder(folder) as recorder:
            recorder.step(step if folder == tmp_path else 0, proto)
        assert recorder.errors == 1
    assert caplog.messages[0] == (
        f"step {step} was not saved: `step`: expected the trainer's global step, an"
        f" integer; found {step!r}. Pass the step first, then the batch. {SUPPRESSED}"
    )


def test_a_folder_that_is_deleted_comes_back(proto: DataProto, tmp_path: Path) -> None:
    folder = tmp_path / "diag"
    with Recorder(folder) as recorder:
        recorder.step(0, proto)
        recorder.close()
        (folder / "step_0.parquet").unlink()
        folder.rmdir()
        recorder.step(10, proto)
    assert names(folder) == ["step_10.parquet"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_nobody_may_write_to(proto: DataProto, tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with Recorder(tmp_path) as recorder:
        recorder.step(0, proto)
    tmp_path.chmod(0o700)
    assert recorder.errors == 1


def test_where_no_thread_starts_once_later_steps_are_saved(
    proto: DataProto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`step`, `with` and `close` raise nothing into the trainer."""

    def refuse(_: threading.Thread) -> None:
        msg = "can't start new thread"
        raise RuntimeError(msg)

    with Recorder(tmp_path) as recorder, monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        recorder.step(0, proto)
        recorder.close()
    with recorder:
        recorder.step(10, proto)
    assert names(tmp_path) == ["step_10.parquet"]
    assert recorder.errors == 1


class NamelessStep(int):
    def __format__(self, _: str) -> str:
        msg = "no text"
        raise TypeError(msg)


def test_a_step_that_formats_itself_badly_is_recorded(
    proto: DataProto, tmp_path: Path
) -> None:
    with Recorder(tmp_path) as recorder:
        recorder.step(NamelessStep(0), proto)
        recorder.finish(NamelessStep(0), proto)
    assert recorder.errors == 0
    assert names(tmp_path) == ["step_0.parquet"]


def test_a_step_that_python_cannot_write_is_counted_and_not_raised(
    proto: DataProto, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Recorder(tmp_path) as recorder:
        recorder.step(10**5000, proto)  # more than 4,300 digits
        recorder.finish(10**5000, proto)
        recorder.step(10, proto)
    assert recorder.errors >= 1
    assert names(tmp_path) == ["step_10.parquet"]
    assert caplog.messages[0].startswith(
        "a step whose name cannot be read was not saved: ValueError: "
    )
