"""`prove` and `rescore` with a function as the engine: no model, exact numbers."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from io import StringIO
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from tqdm import tqdm

import rounddiag as rd
from rounddiag.batch import Batch
from rounddiag.errors import BatchError
from rounddiag.proof import Proof
from rounddiag.proof.hypotheses import register_hypothesis, unregister_hypothesis
from rounddiag.proof.hypotheses.context import drop_tokens, opening_length
from rounddiag.proof.hypotheses.history import _after, _read_recorded
from rounddiag.proof.scorer import Clock, StoppedError
from rounddiag.proof.trajectory import Picture, Request, read_trajectory

OPEN, NUM_SAMPLES = 1, 8
SYSTEM = [OPEN, 11, 12, 2]


def score(ids: list[int], images: list[Any]) -> list[float]:
    """Return log-probs that depend on the sum of all ids before."""
    assert images == []
    before = np.cumsum([0, *ids[:-1]])
    log_probs: list[float] = (
        -1.5 + np.sin(before * 12.9898 + np.array(ids)) * 1.2
    ).tolist()
    return log_probs


def make_batch(old: Callable[[list[int], int], list[float]]) -> Batch:
    """Return samples of two rounds; `old` scores the ids of one."""
    rng = np.random.default_rng(3)
    rows, masks, olds, rollouts, prompts = [], [], [], [], []
    for sample in range(NUM_SAMPLES):
        prompt = [*SYSTEM, OPEN, *rng.integers(20, 90, 5).tolist(), OPEN, 7]
        observation = [2, OPEN, *rng.integers(20, 90, 4).tolist(), OPEN, 7]
        first, second = (rng.integers(20, 90, 30).tolist() for _ in range(2))
        response = [*first, *observation, *second]
        whole = [*prompt, *response]
        noise = 0.002 * rng.standard_normal((2, len(response)))
        rows.append(torch.tensor(response))
        masks.append(torch.tensor([1] * 30 + [0] * len(observation) + [1] * 30))
        olds.append(
            torch.tensor(np.array(old(whole, sample))[len(prompt) :] + noise[0])
        )
        rollouts.append(
            torch.tensor(np.array(score(whole, []))[len(prompt) :] + noise[1])
        )
        prompts.append(torch.tensor(prompt))
    return rd.Batch.from_rows(
        response_ids=rows,
        response_mask=masks,
        old_log_probs=olds,
        rollout_log_probs=rollouts,
        prompt_ids=prompts,
    )


def without_system(ids: list[int], sample: int) -> list[float]:
    del sample
    return [0.0] * len(SYSTEM) + score(ids[len(SYSTEM) :], [])


def say(proof: Proof) -> tuple[str, str | None, str | None]:
    return proof.verdict, proof.side, proof.cause


def test_the_prompt_that_one_engine_lacked_is_proved() -> None:
    proof = rd.prove(make_batch(without_system), score)
    assert say(proof) == ("proved", "old", "prompt_mismatch")
    assert proof.conclusions[0].says == ("no first message, such as the system prompt",)
    text = repr(proof)
    assert text.startswith("proved: the training engine (old): prompt_mismatch.")
    assert "rollout: reproduced without any change" in text
    assert "older weights (no checkpoints given)" in text
    best = proof.frame[proof.frame["is_proved"]]
    assert best["hypothesis"].tolist() == ["first_message_removed"]
    assert set(proof.batch.scores) == {"base", "first_message_removed"}


def shuffled(ids: list[int], sample: int) -> list[float]:
    rng = np.random.default_rng(sample)
    return list(np.array(score(ids, [])) + rng.standard_normal(len(ids)))


def sound(ids: list[int], sample: int) -> list[float]:
    del sample
    return score(ids, [])


def late(ids: list[int], sample: int) -> list[float]:
    return [*sound(ids, sample)[1:], -1.0]


def other(ids: list[int], images: list[Any]) -> list[float]:
    return [value / 2 for value in score([7 * token for token in ids], images)]


@pytest.mark.parametrize(
    ("old", "engine", "options", "said"),
    [
        (sound, score, {}, ("nothing_to_prove", None, None)),
        (sound, other, {}, ("scorer_differs", None, None)),
        (late, score, {}, ("proved", "old", "shifted_log_probs")),
        (shuffled, score, {}, ("none_of_these", "old", None)),
        # Findings print such names: a temperature needs no hypothesis of its own.
        (
            without_system,
            score,
            {"hypotheses": ["temperature", "stale_weights"]},
            ("none_of_these", "old", None),
        ),
    ],
)
def test_what_is_said_of_an_engine(
    old: Any, engine: Any, options: dict[str, Any], said: tuple[str | None, ...]
) -> None:
    proof = rd.prove(make_batch(old), engine, **options)
    assert say(proof) == said
    if said[0] == "none_of_these":
        assert proof.next_step.startswith("Record what the request of `old` held")


def test_values_in_place_of_log_probs_are_proved_wherever_they_stand() -> None:
    batch = make_batch(sound)
    zero = torch.arange(len(batch.require_ids())) % 3 == 0
    exact = torch.where(zero, 0.0, batch.log_probs("old"))
    proof = rd.prove(replace(batch, old_log_probs=exact), score)
    assert (proof.side, proof.cause) == ("old", "filled_log_probs")


def test_a_hypothesis_of_ones_own_is_proved() -> None:
    @register_hypothesis("no_task", cause="prompt_mismatch", says="no task")
    def drop_task(trajectory: Any, samples: Any) -> Any:
        del samples
        gone = torch.zeros(len(trajectory.ids), dtype=torch.bool)
        gone[5:8] = True
        request = drop_tokens(trajectory, gone, compact=True)
        return request and [request]

    def without_task(ids: list[int], sample: int) -> list[float]:
        del sample
        values = score([*ids[:5], *ids[8:]], [])
        return [*values[:5], 0.0, 0.0, 0.0, *values[5:]]

    try:
        proof = rd.prove(make_batch(without_task), score)
    finally:
        unregister_hypothesis("no_task")
    assert proof.conclusions[0].says == ("no task",)


def recorded_batch() -> rd.Batch:
    """Of round 1 it read the observation only; round 0 it read as the batch has it."""
    batch = make_batch(sound)
    rollout = batch.log_probs("rollout").clone()
    prompts: list[Any] = []
    for sample in range(NUM_SAMPLES):
        begin = int(batch.offsets[sample])
        shown = batch.require_ids()[begin + 30 : begin + 38].tolist()
        second = batch.require_ids()[begin + 38 : begin + 68].tolist()
        rollout[begin + 38 : begin + 68] = torch.tensor(score([*shown, *second], []))[
            8:
        ]
        prompts += [None, shown]
    columns = {
        "sample": np.repeat(np.arange(NUM_SAMPLES), 2),
        "round": np.tile([0, 1], NUM_SAMPLES),
        "prompt_ids": np.array([*prompts, 0], dtype=object)[:-1],
    }
    return replace(batch, rollout_log_probs=rollout, round_columns=columns)


def test_the_prompts_that_a_sampler_recorded_are_proved() -> None:
    proof = rd.prove(recorded_batch(), score)
    assert say(proof) == ("proved", "rollout", "prompt_mismatch")
    assert proof.conclusions[0].says == ("the prompts that the sampler recorded",)
    assert proof.conclusions[0].rivals == ()


def test_another_cause_that_reads_the_same_takes_no_proof_away() -> None:
    register_hypothesis("alike", cause="rewritten_history", says="alike")(
        _read_recorded
    )
    try:
        proof = rd.prove(recorded_batch(), score)
    finally:
        unregister_hypothesis("alike")
    assert proof.verdict == "proved"
    assert proof.conclusions[0].rivals == ("alike",)


@pytest.mark.parametrize("size", [4, 1])
def test_recorded_prompts_have_the_newest_pictures(size: int) -> None:
    """A picture has four tokens, or one that the engine expands."""
    batch = make_batch(sound)
    trajectory = read_trajectory(batch, 0)
    ids = trajectory.ids.clone()
    ids[5:9] = ids[42:46] = 99  # in the prompt, and between the rounds
    trajectory = replace(trajectory, ids=ids, spans=((5, 9), (42, 46)), image_token=99)
    prompt = np.array([OPEN, *[99] * size, 7])
    shown = [(Picture(0, 0), 4), (Picture(0, 1), 4)]
    request = _after(prompt, trajectory, 1, shown)
    assert request is not None
    assert request.ids.tolist() == [OPEN, 99, 99, 99, 99, 7, *ids[50:80].tolist()]
    assert [picture.index for picture in request.pictures] == [1]
    assert request.source.tolist() == [-1] * 6 + list(range(50, 80))
    longer = np.concatenate([prompt, [99] * 3, prompt])
    assert _after(longer, trajectory, 1, shown) is None


def test_what_is_known_is_judged_after_an_interrupt(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The likeliest are tried first: they are enough here."""
    asked: list[bool] = []  # whether the first message was removed

    def interrupted(ids: list[int], images: list[Any]) -> list[float]:
        asked.append(not {*SYSTEM[1:-1]} & {*ids})
        if sum(asked) > 4:
            raise KeyboardInterrupt
        return score(ids, images)

    proof = rd.prove(make_batch(without_system), interrupted)
    assert asked[-1]  # nothing is scored after it
    assert sum(asked) == 5
    assert (proof.side, proof.cause) == ("old", "prompt_mismatch")
    assert "it was interrupted" in proof.not_tested.values()
    assert "it was interrupted" in repr(proof)
    assert "rounddiag prove with interrupted: " in capsys.readouterr().err


def counted_passes(
    monkeypatch: pytest.MonkeyPatch,
) -> tuple[Callable[[list[int], list[Any]], list[float]], list[tuple[int, ...]]]:
    """Return a scorer, a pass of which takes a second, and the ids it was asked for."""
    asked: list[tuple[int, ...]] = []

    def counted(ids: list[int], images: list[Any]) -> list[float]:
        asked.append(tuple(ids))
        return score(ids, images)

    monkeypatch.setattr(time, "perf_counter", lambda: float(len(asked)))
    return counted, asked


def test_after_a_deadline_no_verdict_is_given_on_what_was_not_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A pass takes a second here; then it goes on with what is not known yet."""
    counted, asked = counted_passes(monkeypatch)
    batch = make_batch(shuffled)
    proof = rd.prove(batch, counted, budget_s=9)
    assert len(asked) == 10  # the pass at 9 s is the last that begins
    assert say(proof) == ("so_far", "old", None)
    text = repr(proof)
    number, total = proof.tried
    assert 0 < number < total
    assert text.startswith(
        f"so_far: stopped after {number} of {total} hypotheses; nothing tried"
        " reproduces the training engine."
    )
    assert "(no time was left)" in text
    assert text.endswith("Next: `proof.more(budget_s=600)` tries the others.")
    whole = proof.more()
    assert (whole.verdict, whole.side) == ("none_of_these", "old")
    assert len(asked) > 10
    assert max(Counter(asked).values()) == 1  # not even by two hypotheses


def test_more_after_the_deadline_ends_where_one_run_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counted, asked = counted_passes(monkeypatch)
    batch = make_batch(without_system)
    once, number = rd.prove(batch, counted), len(asked)
    asked.clear()
    proof = rd.prove(batch, counted, budget_s=6)
    assert (proof.verdict, proof.cause) == ("so_far", None)
    whole = proof.more(budget_s=2).more()  # stops once more, and goes on
    assert say(whole) == ("proved", "old", once.cause)
    pd.testing.assert_frame_equal(
        whole.frame.drop(columns="seconds"), once.frame.drop(columns="seconds")
    )
    assert len(asked) == number
    assert max(Counter(asked).values()) == 1


def test_an_interrupt_before_anything_is_known_is_passed_on() -> None:
    def interrupted(_ids: list[int], _images: list[Any]) -> list[float]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        rd.prove(make_batch(without_system), interrupted)


def test_the_bar_counts_every_hypothesis(monkeypatch: pytest.MonkeyPatch) -> None:
    bars: list[Any] = []

    class Bar(tqdm):  # type: ignore[type-arg]
        def __init__(self, **options: Any) -> None:
            super().__init__(
                file=StringIO(),
                **{**options, "delay": 0, "mininterval": 0, "disable": False},
            )
            bars.append(self)

    monkeypatch.setattr("rounddiag.proof.experiment.tqdm", Bar)
    rd.prove(make_batch(without_system), score)
    (bar,) = bars
    assert bar.n == bar.total > 20
    assert "first_message_removed:" in bar.fp.getvalue()
    assert "judging 5 samples" in bar.fp.getvalue()


def test_rescore_adds_the_scores_of_all_generated_tokens() -> None:
    batch = make_batch(sound)
    rescored = rd.rescore(batch, score)
    mask = batch.response_mask != 0
    left = (rescored.scores["rescored"] - batch.log_probs("old"))[mask].abs()
    assert left.max() < 0.02
    assert bool(rescored.scores["rescored"][~mask].isnan().all())
    changed = rd.rescore(batch, score, "first_message_removed", samples=[0])
    assert set(changed.scores) == {"first_message_removed"}
    assert changed.num_samples == 1


def test_unknown_names_are_errors_that_say_what_to_do() -> None:
    batch = make_batch(without_system)
    with pytest.raises(BatchError, match="Did you mean"):
        rd.prove(batch, score, hypotheses=["first_message_remove"])
    with pytest.raises(BatchError, match="needs custom positions"):
        rd.rescore(batch, score, "bfloat16_positions")
    with pytest.raises(BatchError, match="or a function"):
        rd.prove(batch, 3)
    with pytest.raises(BatchError, match="expected a number of seconds"):
        rd.prove(batch, "no_such_folder", budget_s=-1)  # before a model is opened


def test_a_function_that_returns_too_few_values_is_an_error() -> None:
    with pytest.raises(BatchError, match="one for each id"):
        rd.rescore(make_batch(without_system), lambda ids, _: ids[1:])


def test_a_request_without_tokens_moves_the_others_up_or_not() -> None:
    trajectory = read_trajectory(make_batch(without_system), 0)
    gone = torch.zeros(len(trajectory.ids), dtype=torch.bool)
    gone[1:3] = True
    compact = drop_tokens(trajectory, gone, compact=True)
    in_place = drop_tokens(trajectory, gone, compact=False)
    assert compact is not None
    assert in_place is not None
    assert compact.ids.tolist()[:3] == [OPEN, 2, OPEN]
    assert compact.places is None
    positions = torch.arange(len(trajectory.ids))[None]
    assert in_place.places is not None
    assert in_place.places(positions, positions)[0, :3].tolist() == [0, 3, 4]
    assert int(compact.is_scored.sum()) == 60


def test_the_template_before_rounds_is_found() -> None:
    trajectory = read_trajectory(make_batch(without_system), 0)
    assert Request.of_sample(trajectory).source.tolist() == list(
        range(len(trajectory.ids))
    )
    # One observation only: all but its first token.
    assert opening_length(trajectory) == 7


def test_no_pass_begins_that_would_end_ten_seconds_too_late(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """100 tokens took 10 s, and 5 s are left: 140 tokens end 9 s late, 160 11 s."""
    monkeypatch.setattr(time, "perf_counter", lambda: 100.0)
    clock = Clock(deadline=105.0, spent=10.0, num_read=100)
    clock.go_on(140)
    with pytest.raises(StoppedError, match="no time was left"):
        clock.go_on(160)
    clock = Clock(deadline=99.0)
    with pytest.raises(StoppedError):
        clock.go_on()
