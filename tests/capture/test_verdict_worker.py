"""The verdict on recorded steps: log lines, metrics, the callback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.utils.rnn import pad_sequence

import rounddiag as rd
from rounddiag.capture import Recorder, verdict_worker
from rounddiag.capture import recorder as recorder_module
from rounddiag.capture.verdict_child import judge_file
from rounddiag.errors import BatchError
from tests.batches import padded
from tests.capture.conftest import SUPPRESSED, DataProto

judge_child = verdict_worker._run_child
SEVERITIES = {"healthy": 0, "noisy": 1, "broken": 4}


def fields_of(batch: rd.Batch) -> dict[str, Any]:
    """A batch as a trainer holds it."""
    sizes = batch.offsets.diff().tolist()

    def rows(values: torch.Tensor) -> torch.Tensor:
        return pad_sequence(list(values.split(sizes)), batch_first=True)

    return {
        "responses": rows(batch.require_ids()),
        "response_mask": rows(batch.response_mask),
        "rollout_log_probs": rows(batch.log_probs("rollout")),
        "old_log_probs": rows(batch.log_probs("old")),
        "uid": list(batch.group_ids or ()),
    }


@pytest.fixture
def verdicts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The verdicts of the next steps, in place of those of a child process."""
    verdicts: list[str] = []
    requests: list[dict[str, Any]] = []

    def answer(request: dict[str, Any], _: object) -> dict[str, Any]:
        requests.append(request)
        verdict = verdicts.pop(0)
        if verdict == "error":
            message = "no tokens"
            raise BatchError(message)
        if request["diagnosis_file"]:
            Path(request["diagnosis_file"]).write_bytes(b"\x80\x04N.")  # None
        return {
            "verdict": verdict,
            "severity": SEVERITIES[verdict],
            "text": f"This is\n{verdict}.",
            "metrics": {"rounddiag/severity": float(SEVERITIES[verdict])},
            "cost": 2.0,
        }

    monkeypatch.setattr(verdict_worker, "_run_child", answer)
    return verdicts


def record(recorder: Recorder, proto: DataProto, *steps: int) -> None:
    for step in steps:
        recorder.step(step, proto)
        recorder.close()


def test_a_line_when_the_verdict_becomes_worse_or_better(
    proto: DataProto,
    tmp_path: Path,
    verdicts: list[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    verdicts += ["healthy", "broken", "broken", "noisy", "healthy"]
    recorder = Recorder(tmp_path, every=1, diagnose=True)
    record(recorder, proto, 0, 1, 2, 3, 4)
    assert caplog.messages == [
        f"step 1: broken, was healthy. This is broken. ({tmp_path}/step_1.parquet)",
        f"step 3: noisy, was broken. This is noisy. ({tmp_path}/step_3.parquet)",
        f"step 4: healthy, was noisy. This is healthy. ({tmp_path}/step_4.parquet)",
    ]


def test_metrics_are_those_of_the_last_judged_step_once(
    proto: DataProto, tmp_path: Path, verdicts: list[str]
) -> None:
    verdicts += ["healthy", "broken"]
    recorder = Recorder(tmp_path, every=1, diagnose=True)
    assert recorder.metrics() == {}
    record(recorder, proto, 0, 1)
    found = recorder.metrics()
    assert found.pop("rounddiag/seconds") >= 0
    assert found == {"rounddiag/step": 1.0, "rounddiag/severity": 4.0}
    assert recorder.metrics() == {}


def test_the_callback_gets_the_diagnosis_and_its_errors_are_counted(
    proto: DataProto,
    tmp_path: Path,
    verdicts: list[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    verdicts += ["healthy", "broken", "noisy"]
    calls: list[tuple[object, str]] = []

    def call(diagnosis: rd.findings.Diagnosis, file: str) -> None:
        calls.append((diagnosis, file))
        message = "no network"
        raise OSError(message)

    recorder = Recorder(tmp_path, every=1, diagnose=True, on_verdict=call)
    record(recorder, proto, 0, 1, 2)
    assert calls == [(None, f"{tmp_path}/step_{step}.parquet") for step in (1, 2)]
    assert recorder.errors == 2
    assert caplog.messages[1] == (
        f"on_verdict of step 1 was not run: OSError: no network {SUPPRESSED}"
    )
    assert recorder.metrics()["rounddiag/severity"] == 1.0


def test_a_step_that_cannot_be_judged_is_an_error_and_the_next_one_is_judged(
    proto: DataProto,
    tmp_path: Path,
    verdicts: list[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    verdicts += ["error", "healthy"]
    recorder = Recorder(tmp_path, every=1, diagnose=True)
    record(recorder, proto, 0)
    assert caplog.messages == [f"step 0 was not judged: no tokens {SUPPRESSED}"]
    assert (recorder.errors, recorder.metrics()) == (1, {})
    record(recorder, proto, 1)
    assert recorder.metrics()["rounddiag/step"] == 1.0


def test_finish_is_not_judged_again_but_a_further_part_is(
    proto: DataProto, tmp_path: Path, verdicts: list[str]
) -> None:
    verdicts += ["healthy", "broken"]
    recorder = Recorder(tmp_path, every=1, diagnose=True)
    recorder.step(0, proto)
    recorder._writer.close()
    recorder.finish(0, proto)
    recorder._writer.close()
    recorder._verdicts.close()
    assert verdicts == ["broken"]
    proto.batch["responses"] = proto.batch["responses"] + 1
    recorder.step(0, proto)
    recorder.close()
    assert verdicts == []
    assert recorder.metrics()["rounddiag/severity"] == 4.0


@pytest.mark.parametrize("options", [{"diagnose": False}, {"rank": 1}, {}])
def test_steps_that_are_not_judged(
    options: dict[str, Any], proto: DataProto, tmp_path: Path, verdicts: list[str]
) -> None:
    verdicts += ["broken"] * 3
    recorder = Recorder(tmp_path, every=1, **{"diagnose": True, **options})
    if not options:
        recorder = Recorder(tmp_path, every=1)  # the steps of a test are short
    record(recorder, proto, 0, 1, 2)
    assert len(verdicts) == 3
    assert recorder.metrics() == {}


def test_by_default_steps_are_judged_that_cost_at_most_a_hundredth(
    proto: DataProto,
    tmp_path: Path,
    verdicts: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(os, "cpu_count", lambda: 10)
    verdicts += ["healthy"] * 3
    recorder = Recorder(tmp_path, every=1)
    judged = []
    # 10 s of a processor are assumed: 100 s. The first answer says 2 s: 20 s.
    for step, seconds in enumerate([0.0, 99.0, 101.0, 120.0, 122.0, 141.0, 143.0]):
        now[0] = seconds
        record(recorder, proto, step)
        judged += [recorder.metrics().get("rounddiag/step")]
    assert judged == [None, None, 2.0, None, 4.0, None, 6.0]


def test_a_file_with_some_samples_is_judged_by_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies = []

    def look(request: dict[str, Any], _: object) -> dict[str, Any]:
        copies.append(Path(request["file"]))
        return judge_file(**request)

    monkeypatch.setattr(verdict_worker, "_run_child", look)
    whole = rd.load("sample_data/healthy.parquet")
    recorder = Recorder(tmp_path, max_samples=4, diagnose=True)
    recorder.step(0, fields_of(whole))
    recorder.close()
    assert len(rd.load(tmp_path / "step_0.parquet")) == 4
    expected = float(rd.token_frame(whole)["diff"].abs().astype("float64").mean())
    assert recorder.metrics()["rounddiag/mean_abs_diff"] == pytest.approx(expected)
    assert not copies[0].exists()


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of temporary files of this test alone."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    return tmp_path / "temporary"


def test_of_waiting_steps_the_newest_are_judged_and_no_copy_is_left(
    proto: DataProto,
    tmp_path: Path,
    temporary: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    begun, opened, judged = threading.Event(), threading.Event(), []

    def answer(request: dict[str, Any], _: object) -> dict[str, Any]:
        begun.set()
        opened.wait(timeout=60)
        judged.append(rd.load(request["file"]).step)
        return {**HEALTHY, "cost": 0.0}

    monkeypatch.setattr(verdict_worker, "_run_child", answer)
    with Recorder(tmp_path / "run", every=1, max_samples=1, diagnose=True) as recorder:
        for step in range(6):
            recorder.step(step, proto)
            recorder._writer.close()
            begun.wait(timeout=60)
        assert len([*temporary.glob("*.parquet")]) == 3
        opened.set()
    assert judged == [0, 4, 5]
    assert [*temporary.iterdir()] == []
    assert caplog.messages == [
        "step 1 was not judged: 2 other steps are waiting; further warnings are"
        " suppressed"
    ]


HEALTHY = {"verdict": "healthy", "severity": 0, "text": "", "metrics": {}}


def test_closing_ends_the_child_and_says_which_step_was_judged_last(
    proto: DataProto,
    tmp_path: Path,
    temporary: Path,
    verdicts: list[str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    verdicts += ["healthy"]
    run_child, started = judge_child, threading.Event()
    recorder = Recorder(tmp_path / "run", every=1, max_samples=1, diagnose=True)
    record(recorder, proto, 0)

    def run(request: dict[str, Any], tell: Callable[[Any], None]) -> dict[str, Any]:
        def begin(child: Any) -> None:
            tell(child)
            started.set()

        return run_child(request, begin)

    monkeypatch.setattr(verdict_worker, "_run_child", run)
    monkeypatch.setattr(verdict_worker, "_CODE", "import time; time.sleep(600)")
    monkeypatch.setattr(recorder_module, "CLOSE_TIMEOUT", 0.1)
    for step in (1, 2):
        recorder.step(step, proto)
        recorder._writer.close()
    assert started.wait(timeout=60)
    child = recorder._verdicts._child
    assert child.poll() is None
    recorder.close()
    assert child.poll() == -signal.SIGKILL
    first, last = caplog.messages
    assert first.startswith("gave up on the pending steps after ")
    assert last == "step 0 was judged last (healthy); step 2 was not judged"
    assert recorder.errors == 0
    assert [*temporary.iterdir()] == []


def test_files_and_verdicts_together_have_half_a_minute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = Recorder(tmp_path, diagnose=True)
    now, waits = [100.0], []

    def wait(timeout: float = 30.0, *_: object) -> bool:
        waits.append(timeout)
        now[0] += 25.0
        return True

    monkeypatch.setattr(recorder._writer, "close", wait)
    monkeypatch.setattr(recorder._verdicts._writer, "close", wait)
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    recorder.close()
    assert waits == [30.0, 5.0]


@pytest.mark.slow  # starts two Pythons
def test_the_child_ends_with_a_trainer_that_is_killed(tmp_path: Path) -> None:
    """It would read from a pipe for ever, and leaves its own id."""
    pipe, note = tmp_path / "step_0.parquet", tmp_path / "id"
    os.mkfifo(pipe)
    code = (
        "import sys; from rounddiag.capture import verdict_worker;"
        "verdict_worker._run_child({'file': sys.argv[1], 'before': None,"
        " 'diagnosis_file': None}, lambda c: open(sys.argv[2], 'w').write(str(c.pid)))"
    )
    trainer = subprocess.Popen([sys.executable, "-c", code, str(pipe), str(note)])
    while not (note.exists() and note.read_text()):
        time.sleep(0.05)
    child = int(note.read_text())
    trainer.kill()
    trainer.wait()
    for _ in range(1200):
        if (
            not Path(f"/proc/{child}/cmdline").exists()
            or not Path(f"/proc/{child}/cmdline").read_bytes()
        ):
            break
        time.sleep(0.05)
    else:
        pytest.fail("the child goes on")


def test_a_verdict_holds_until_half_its_limit_is_not_met(tmp_path: Path) -> None:
    """Up to 0.057 nat is usual for these; a noisy run is healthy again below half."""
    generator = torch.Generator().manual_seed(0)
    noise = 0.045 * 1.25 * torch.randn(16, 32, generator=generator)
    rollout = -torch.rand(16, 32, generator=generator) - 0.5
    file = tmp_path / "step_0.parquet"
    rd.save(padded(torch.ones(16, 32), rollout + noise, rollout), file)
    assert judge_file(str(file), None, None)["verdict"] == "healthy"
    assert judge_file(str(file), "noisy", None)["verdict"] == "noisy"
    assert judge_file(str(file), "broken", None)["verdict"] == "healthy"


def test_the_metrics_of_a_step_by_hand(tmp_path: Path) -> None:
    mask = torch.tensor([[1, 1, 0, 1], [1, 1, 0, 0]])
    old = torch.tensor([[-1.0, -1.0, 0.0, -2.0], [-1.0, -0.5, 0.0, 0.0]])
    rollout = torch.tensor([[-1.0, -1.0, 0.0, -1.0], [-1.0, -0.75, 0.0, 0.0]])
    rd.save(padded(mask, old, rollout), tmp_path / "step_0.parquet")
    found = judge_file(str(tmp_path / "step_0.parquet"), None, None)["metrics"]
    del found["rounddiag/severity"]
    assert found == {
        "rounddiag/mean_abs_diff": 0.25,
        "rounddiag/share_beyond_2x": 0.2,
        "rounddiag/share_equal": 0.6,
        "rounddiag/first_unequal": 1.0,
        "per_round/round_0_abs_diff_mean": 0.0625,
        "per_round/round_1_abs_diff_mean": 1.0,
    }


@pytest.mark.slow  # starts a Python
def test_the_verdict_of_a_child_process(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder_module, "CLOSE_TIMEOUT", 300.0)
    calls = []
    recorder = Recorder(
        tmp_path,
        diagnose=True,
        on_verdict=lambda diagnosis, file: calls.append((diagnosis, file)),
    )
    batch = rd.load("sample_data/image_window.parquet")
    recorder.step(40, fields_of(batch))
    recorder.close()
    (line,) = caplog.messages
    file = f"{tmp_path}/step_40.parquet"
    assert line.startswith("step 40: broken, was healthy. ")
    assert line.endswith(f" ({file})")
    ((diagnosis, path),) = calls
    assert (diagnosis.verdict, path) == ("broken", file)
    assert diagnosis.headline in line
    assert (diagnosis[0].kind, diagnosis[0].num_tokens > 0) == ("place", True)
    with pytest.raises(BatchError, match="left them in the file"):
        diagnosis[0].tokens()
    found = recorder.metrics()
    assert found["rounddiag/severity"] == 4.0
    assert found["rounddiag/onset_round"] == 2.0
    logged = {k: v for k, v in rd.metrics(batch).items() if k in found}
    assert len(logged) == 8  # rounds
    assert {k: found[k] for k in logged} == pytest.approx(logged)
    assert recorder.errors == 0


@pytest.mark.parametrize("value", ["print", 3])
def test_a_callback_that_cannot_be_called(
    value: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert Recorder(tmp_path, on_verdict=value).errors == 1
    assert "`on_verdict`: expected a function" in caplog.messages[0]
