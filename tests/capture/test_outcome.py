"""A Recorder that records nothing says why, at once and at its end."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from rounddiag.capture import Recorder
from tests.capture.conftest import SUPPRESSED, DataProto

SWITCH = "`actor_rollout_ref.rollout.calculate_log_probs=True`"
NEVER_CALLED = (
    "neither `step` nor `step_keys` was called. verl runs the V1 trainer by default"
    " (`trainer.use_v1=True`), and skips the training engine's pass with"
    " `algorithm.rollout_correction.bypass_mode=True`"
)
BYPASSED = (
    "`algorithm.rollout_correction.bypass_mode=True` makes verl skip the training"
    " engine's pass, so there is nothing to compare: set it to False"
)


# The facts of a Recorder that saw no step, and why it will record none.
NOTHING: list[tuple[dict[str, object], str | None]] = [
    ({}, None),
    ({"rollout_correction": {"bypass_mode": True}}, BYPASSED),
    (
        {"calculate_log_probs": False},
        f"the sampler does not return its log-probabilities: set {SWITCH}",
    ),
]


@pytest.mark.parametrize(("facts", "reason"), NOTHING)
def test_what_leaves_nothing_to_record_is_named_at_the_start_and_at_the_end(
    facts: dict[str, object],
    reason: str | None,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    recorder = Recorder(tmp_path, facts=facts)
    recorder.close()
    at_the_start = [f"no step will be recorded because {reason}"] if reason else []
    assert caplog.messages == at_the_start
    del recorder
    assert caplog.messages[len(at_the_start) :] == [
        f"no step was recorded in {tmp_path} because {reason or NEVER_CALLED}"
    ]


@pytest.mark.parametrize(
    ("name", "engine", "advice"),
    [
        (
            "rollout_log_probs",
            "sampling",
            f"Let the sampler return them ({SWITCH} in verl), and pass them with the"
            " others.",
        ),
        (
            "old_log_probs",
            "training",
            "Pass them with the others, after the training engine computed them. verl"
            " skips that with `algorithm.rollout_correction.bypass_mode=True`.",
        ),
    ],
)
def test_a_batch_without_log_probs_names_the_switch_twice(
    name: str,
    engine: str,
    advice: str,
    proto: DataProto,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    del proto.batch[name]
    recorder = Recorder(tmp_path, every=1)
    recorder.step(0, proto)
    recorder.step(1, proto)
    recorder.close()
    error = (
        f"DataProto: `{name}`: expected the log-probabilities of the {engine} engine;"
        f" found only {', '.join(proto.batch)}. {advice}"
    )
    assert caplog.messages == [f"step 0 was not saved: {error} {SUPPRESSED}"]
    del recorder
    assert caplog.messages[1:] == [
        f"no step was recorded in {tmp_path} because {error}"
    ]


def test_steps_of_which_none_is_due(
    proto: DataProto, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = Recorder(tmp_path, every=10)
    recorder.step(3, proto)
    recorder.step(4, proto)
    del recorder
    assert caplog.messages == [
        f"no step was recorded in {tmp_path} because `every` is 10, and none of 2 calls"
        " had a step that is a multiple of it"
    ]


def test_a_recorder_that_recorded_or_was_sent_to_an_actor_says_nothing(
    proto: DataProto, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = Recorder(tmp_path)
    recorder.step(0, proto)
    recorder.step(1, {"responses": torch.ones(1, 1)})
    recorder.close()
    recorder = Recorder(tmp_path)
    pickle.dumps(recorder)
    del recorder
    assert caplog.messages == []


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
def test_the_line_appears_when_the_process_ends_and_not_in_a_forked_child(
    tmp_path: Path,
) -> None:
    code = (
        "import os, sys\n"
        "from rounddiag.capture import Recorder\n"
        "recorder = Recorder(sys.argv[1])\n"
        "if not os.fork():\n"
        "    sys.exit(0)\n"
        "os.wait()\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    # Python 3.12 warns of a fork beside the threads of torch.
    quiet = {**os.environ, "PYTHONWARNINGS": "ignore::DeprecationWarning"}
    done = subprocess.run(
        command, check=True, timeout=300, capture_output=True, env=quiet
    )
    assert done.stderr.decode().splitlines() == [
        f"no step was recorded in {tmp_path} because {NEVER_CALLED}"
    ]
