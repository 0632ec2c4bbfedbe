"""Nothing is said about an engine by a scorer that is no sound engine of the batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import rounddiag as rd
from rounddiag.batch.chains import split_chains
from rounddiag.errors import BatchError
from rounddiag.proof.engines.local import LocalEngine
from rounddiag.proof.gate import Gate, Reference
from rounddiag.proof.hypotheses.hypothesis import all_registered
from rounddiag.proof.samples import choose_samples
from rounddiag.proof.scorer import Scorer
from rounddiag.proof.scores import ScoreTable, check_log_probs
from rounddiag.proof.trajectory import Samples, collect_scores, to_flat
from tests.proof.test_prove import make_batch, say, score, sound, without_system

SAMPLE_DATA = Path(__file__).parents[2] / "sample_data"
MODEL, OLDER = str(SAMPLE_DATA / "model"), str(SAMPLE_DATA / "older_model")
FALSE = {"proved", "partly", "none_of_these"}


@pytest.fixture(scope="module")
def random_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The sample model's architecture and processor with random weights."""
    import transformers

    folder = tmp_path_factory.mktemp("random")
    config = transformers.AutoConfig.from_pretrained(MODEL)
    torch.manual_seed(0)
    model = transformers.AutoModelForImageTextToText.from_config(config)
    for weight in model.parameters():
        weight.data.mul_(4)  # as sure of itself as a trained one
    model.save_pretrained(folder)
    source = Path(MODEL) / "processor_config.json"
    (folder / source.name).write_bytes(source.read_bytes())
    return str(folder)


LATER = {"1545": MODEL}


@pytest.mark.parametrize(
    ("file", "model", "options", "said", "text"),
    [
        ("healthy", MODEL, {}, "nothing_to_prove", "reproduces both engines"),
        ("healthy", OLDER, {}, "scorer_differs", "checkpoint of this step"),
        ("image_window", OLDER, {}, "scorer_differs", "checkpoint of this step"),
        ("healthy", "random", {}, "scorer_differs", "of the batch's kind"),
        ("image_window", "random", {}, "scorer_differs", "of the batch's kind"),
        # A checkpoint that passes is the base, and the fault is found on it.
        (
            "healthy",
            OLDER,
            {"checkpoints": LATER, "hypotheses": ["temperature"]},
            "nothing_to_prove",
            "\nBase: the weights of 1545, which leave ",
        ),
        (
            "image_window",
            OLDER,
            {"checkpoints": LATER, "hypotheses": ["image_window"]},
            "proved old image_window",
            "\nBase: the weights of 1545, which leave ",
        ),
    ],
)
def test_what_a_model_says(
    file: str, model: str, options: Any, said: str, text: str, random_model: str
) -> None:
    batch = rd.load(SAMPLE_DATA / f"{file}.parquet")
    small = batch if said.startswith("proved") else batch[:12]
    proof = rd.prove(small, random_model if model == "random" else model, **options)
    assert " ".join(filter(None, say(proof))) == said
    assert text in repr(proof)
    assert options == {} or proof.scorer == MODEL
    if said == "scorer_differs":
        assert proof.frame["hypothesis"].unique().tolist() == ["base"]


def test_weights_of_the_wrong_engine_are_no_base() -> None:
    """The older weights are the sampler's in some samples; the trainer is sound."""
    batch = rd.load(SAMPLE_DATA / "stale.parquet")
    alone = rd.prove(batch, OLDER, hypotheses=["stale_weights"])
    assert say(alone) == ("scorer_differs", None, None)
    assert "reproduced" not in repr(alone)
    both = rd.prove(
        batch, OLDER, checkpoints={"1545": MODEL}, hypotheses=["stale_weights"]
    )
    assert say(both) == ("proved", "rollout", "stale_weights")
    assert both.conclusions[0].says == ("the weights of the model given",)


def constant(ids: list[int], images: Any) -> list[float]:
    del images
    return [-0.5] * len(ids)


def shuffled(ids: list[int], images: Any) -> Any:
    return np.random.default_rng(len(ids)).permutation(score(ids, images))


def halved(ids: list[int], images: Any) -> Any:
    return np.array(score(ids, images)) / 2


def impossible(ids: list[int], images: Any) -> list[float]:
    del images
    return [-9999.0] * len(ids)


@pytest.mark.parametrize("nonsense", [constant, shuffled, halved, impossible])
@pytest.mark.parametrize("has_fault", [False, True])
def test_a_scorer_of_nonsense_says_nothing(nonsense: Any, has_fault: bool) -> None:
    old = without_system if has_fault else sound
    proof = rd.prove(make_batch(old), nonsense)
    assert say(proof) == ("scorer_differs", None, None)
    assert "nan" not in repr(proof)


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ([-1.0, np.nan], "nan for 1 of 2 tokens"),
        ([np.inf, np.inf], "inf for 2 of 2 tokens"),
        ([-1.0, 0.01], "0.01 for 1 of 2 tokens"),
        ([-1e300, 0.0], "-1e[+]300 for 1 of 2 tokens"),
        ([-np.inf] * 2 + [-1.0] * 98, "-inf for 2 of 100 tokens"),
    ],
)
def test_what_cannot_be_log_probs_is_an_error(
    values: Sequence[float], found: str
) -> None:
    with pytest.raises(BatchError, match=f"log-probs of it: .* found {found}"):
        check_log_probs(np.array(values), "it")


def test_an_answer_that_cannot_be_log_probs_ends_the_proof() -> None:
    def positive(ids: list[int], images: Any) -> list[float]:
        del images
        return [0.5] * len(ids)

    with pytest.raises(BatchError, match="log-probs of positive: finite, at most 0"):
        rd.prove(make_batch(without_system), positive)


def test_one_impossible_token_in_a_hundred_is_accepted() -> None:
    values = np.array([-np.inf, 2.0**-9] + [-1.0] * 98)
    assert check_log_probs(values, "it").tolist() == values.tolist()


def test_two_rows_exchanged_are_no_truncation() -> None:
    batch = rd.load(SAMPLE_DATA / "healthy.parquet")[:12]
    old = batch.log_probs("old").clone()
    mask = batch.response_mask != 0
    begin = batch.offsets.tolist()
    first, second = (
        slice(begin[row], begin[row] + int(batch.lengths[row])) for row in (2, 5)
    )
    size = min(int(mask[first].sum()), int(mask[second].sum()))
    at = [mask[part].nonzero()[:size, 0] + part.start for part in (first, second)]
    old[at[0]], old[at[1]] = (batch.log_probs("old")[place] for place in reversed(at))
    proof = rd.prove(
        replace(batch, old_log_probs=old), MODEL, hypotheses=["truncated_sampling"]
    )
    assert "truncated_sampling" not in proof.causes


def test_noise_of_the_sampler_hides_no_fault_of_the_trainer() -> None:
    """The sampler is in 8 bits; `old` has a fault that no hypothesis knows."""
    rng = np.random.default_rng(0)
    batch = make_batch(sound)
    size = len(batch.require_ids())
    noisy = batch.log_probs("rollout") + 0.03 * torch.from_numpy(
        rng.standard_normal(size)
    )
    moved = batch.log_probs("old") + torch.from_numpy(0.1 * rng.choice([-1, 1], size))
    both = replace(
        batch, rollout_log_probs=noisy.clamp(max=0), old_log_probs=moved.clamp(max=0)
    )
    proof = rd.prove(both, score)
    assert proof.verdict in {"none_of_these", "scorer_differs"}
    assert "old: reproduced" not in repr(proof)


def test_an_engine_without_finite_log_probs_is_not_measurable() -> None:
    batch = make_batch(without_system)
    lost = torch.full_like(batch.log_probs("old"), torch.nan)
    proof = rd.prove(replace(batch, old_log_probs=lost, rollout_log_probs=lost), score)
    assert say(proof) == ("not_measurable", None, None)
    assert "no engine has finite log-probs" in repr(proof)


@pytest.mark.parametrize("name", ["old", "rollout"])
def test_one_engine_is_proved_alone(name: str) -> None:
    """Round 1 lacks the system prompt; round 0 shows that the scorer is sound."""
    batch = make_batch(sound)
    faulty = make_batch(without_system).log_probs("old")
    later = torch.arange(len(faulty)) % 68 >= 38
    lost = torch.full_like(faulty, torch.nan)
    values = torch.where(later, faulty, batch.log_probs("old"))
    columns: dict[str, Any] = {"old_log_probs": lost, "rollout_log_probs": lost}
    plain = rd.prove(
        replace(batch, **{**columns, f"{name}_log_probs": batch.log_probs("old")}),
        score,
    )
    assert say(plain) == ("nothing_to_prove", None, None)
    assert "reproduces the only engine" in repr(plain)
    proof = rd.prove(replace(batch, **{**columns, f"{name}_log_probs": values}), score)
    assert say(proof) == ("proved", "the only engine", "prompt_mismatch")


def test_a_third_engine_is_judged_and_a_score_of_this_scorer_is_none() -> None:
    batch = make_batch(sound)
    faulty = make_batch(without_system).log_probs("old")
    batch = replace(batch, scores={"sglang": faulty, "rescored": faulty, "ref": faulty})
    proof = rd.prove(batch, score)
    assert say(proof) == ("proved", "sglang", "prompt_mismatch")
    assert sorted(proof.base) == ["old", "rollout", "sglang"]


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        ([5, 5, 5, 2], [5, 2]),
        (np.array([3, 1]), [3, 1]),
        (np.int64(2), 2),
        ([-1], "indices from 0 to 7"),
        ([8], "indices from 0 to 7"),
        ([1.5], "indices from 0 to 7"),
        ("ab", "indices from 0 to 7"),
    ],
)
def test_samples_are_different_and_of_the_batch(samples: Any, expected: Any) -> None:
    batch = make_batch(without_system)
    scorer: Any = Any
    if isinstance(expected, str):
        with pytest.raises(BatchError, match=expected) as caught:
            rd.prove(batch, score, samples=samples)
        assert caught.value.__context__ is None  # no error inside an error
        return
    fields = {"batch": batch, "samples": Samples(split_chains(batch))}
    scorer = type("All", (), {**fields, "engines": ("old", "rollout")})()
    scorer.can_score = lambda _: True
    chosen = choose_samples(scorer, samples)
    assert chosen == expected or len(chosen) == expected


def test_samples_with_the_largest_mismatch_come_first_and_each_third_is_a_control() -> (
    None
):
    batch = make_batch(sound)
    row = torch.repeat_interleave(torch.arange(8), batch.lengths)
    batch = replace(batch, old_log_probs=batch.log_probs("rollout") - 0.1 * row)
    fields = {"batch": batch, "samples": Samples(split_chains(batch))}
    scorer: Any = type("All", (), {**fields, "engines": ("old", "rollout")})()
    scorer.can_score = lambda _: True
    assert choose_samples(scorer, None) == [7, 6, 0, 5, 4, 1, 3, 2]


def table(residual: float, usual: float | None = None, own: float = 0.01) -> ScoreTable:
    """Return 8 clusters of 50 tokens whose residuals have a size, up and down."""
    sign = np.tile([1.0, -1.0], 200)
    base = np.full(400, -1.0)
    return ScoreTable(
        engines={"old": base + residual * sign},
        base=base,
        low_precision=base + own * sign,
        spread=np.ones(400),
        sample=np.repeat(np.arange(4), 100),
        round=np.tile(np.repeat([0, 1], 50), 4),
        at=np.arange(400),
        usual=None if usual is None else np.full(400, usual),
    )


@pytest.mark.parametrize(
    ("residual", "usual", "passes"),
    [
        (0.019, None, True),  # twice the scorer's own 0.01
        (0.021, None, False),
        (0.05, 0.03, True),  # twice the batch's 0.03
        (0.07, 0.03, False),
        (0.0, 0.0, True),
    ],
)
def test_the_gate_lets_pass_twice_what_is_usual(
    residual: float, usual: float | None, passes: bool
) -> None:
    gate = Gate.of_table(table(residual, usual))
    assert gate.passes is passes
    assert gate.is_decided
    assert gate.fits[0].residual == pytest.approx(residual)


def test_the_gate_is_judged_by_its_upper_bound() -> None:
    """One cluster of eight is far off: the mean is 1.5 times what is usual."""
    good = table(0.0)
    old = good.base.copy()
    old[:50] -= 0.12
    gate = Gate.of_table(replace(good, engines={"old": old}))
    assert gate.fits[0].ratio == pytest.approx(1.5)
    assert not gate.passes
    assert not gate.is_decided
    assert "prove with more samples" in gate.advice


def test_tokens_inside_places_do_not_count() -> None:
    batch = rd.load(SAMPLE_DATA / "image_window.parquet")
    diagnosis = rd.diagnose(batch)
    reference = Reference.of_batch(batch, diagnosis)
    assert reference is not None
    for finding in diagnosis:
        assert not reference.is_outside[finding.view.flat[finding.indices]].any()
    assert reference.level.max() < 0.05
    assert reference.is_outside.sum() > 1000


def tempered(batch: rd.Batch, value: float, name: str = "") -> rd.Batch:
    """Return a batch with the log-probs of the sample model's logits, divided.

    `old` is under a hypothesis; the noise between both engines is the batch's own.
    """
    engine = LocalEngine.open(MODEL, device="cpu")
    scorer = Scorer(batch, engine)
    chain = tuple(each for each in all_registered() if each.name == name)
    sides = []
    for each in (chain, ()):
        scored = []
        for sample in range(batch.num_samples):
            requests = scorer.requests(each, sample, None)
            assert requests is not None
            values = []
            for request in requests:
                readout = engine.read(request, scorer.samples)
                logits = readout.head(readout.hidden).double() / value
                own = logits.log_softmax(-1).gather(-1, readout.tokens[:, None])
                values.append(own[:, 0].numpy())
            trajectory = scorer.samples[sample]
            scored.append((trajectory, collect_scores(trajectory, requests, values)))
        sides.append(to_flat(scorer.batch, scored))
    old, plain = sides
    noise = batch.log_probs("rollout") - batch.log_probs("old")
    return replace(
        batch, old_log_probs=old, rollout_log_probs=(plain + noise).clamp(max=0)
    )


def recorded(batch: rd.Batch, value: float) -> rd.Batch:
    sampling = {**batch.meta.get("sampling", {}), "temperature": value}
    return batch.with_meta({**batch.meta, "sampling": sampling})


def test_a_recorded_temperature_by_which_both_engines_divide_is_of_the_base() -> None:
    """A sound batch, and a window on the images of one engine, at temperature 0.7."""
    batch = tempered(rd.load(SAMPLE_DATA / "healthy.parquet")[:6], 0.7)
    assert say(rd.prove(recorded(batch, 1.0), MODEL))[0] == "scorer_differs"
    assert say(rd.prove(recorded(batch, float("nan")), MODEL))[0] == "scorer_differs"
    proof = rd.prove(recorded(batch, 0.7), MODEL)
    assert say(proof)[0] == "nothing_to_prove"
    note = "Base: logits divided by the recorded temperature, 0.7."
    assert note in repr(proof)
    # What both divide by is in the numbers: the record of another one changes nothing.
    assert say(rd.prove(recorded(batch, 1.3), MODEL))[0] == "scorer_differs"
    faulty = rd.load(SAMPLE_DATA / "healthy.parquet")[:12]
    faulty = tempered(faulty, 0.7, "last_2_images")
    proof = rd.prove(recorded(faulty, 0.7), MODEL, hypotheses=["image_window"])
    assert say(proof) == ("proved", "old", "image_window")
    assert note in repr(proof)
