"""What is said of a place was measured there: planted noise, and numbers anew."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import rounddiag as rd
from tests.findings.small import Array, arrays, made, rounds_of, shaken

# Of log-odds: nearer to 0 log-probs are rounding, and larger gaps count as this.
SURE, LARGE = -1e-6, 5.0
ROLES = ("action", "coordinates", "thought", "syntax")


def with_prompts(batch: rd.Batch) -> rd.Batch:
    """Give each sample a prompt of its own, all of one length."""
    num, size = len(batch), 40
    ids = torch.arange(num * size) % 50 + 10
    return replace(batch, prompt_ids=ids, prompt_offsets=torch.arange(num + 1) * size)


def warmed(log_probs: Array) -> Array:
    """Return the log-probs of two tokens at a temperature of 0.7."""
    odds = log_probs - np.log(-np.expm1(np.minimum(log_probs, -1e-9)))
    return np.asarray(-np.logaddexp(0, -odds / 0.7))


def planted_batch(kind: str, scale: float, seed: int) -> rd.Batch:
    """Return a batch with noise: of a role, a batch with pictures."""
    if kind != "role":
        parts = arrays(seed=seed)
        if kind == "undone":
            parts["rollout"] = warmed(parts["old"]) * (parts["mask"] > 0)
        shaken(parts, planted(kind, parts, seed), scale, seed)
        rank = np.arange(len(parts["mask"])) % 4
        return with_prompts(made(parts, sample_columns={"rank": rank}))
    batch = rd.load("sample_data/healthy.parquet")
    tokens = rd.token_frame(batch, ["role", "position"])
    at = tokens[tokens["role"] == ROLES[seed % len(ROLES)]]
    old, rng = batch.log_probs("old").clone(), np.random.default_rng(seed)
    flat = batch.offsets.numpy()[at["sample"]] + at["position"].to_numpy()
    old[flat] += torch.from_numpy(rng.normal(0, 2 * scale, len(at))).float()
    return replace(batch, old_log_probs=old.clamp(max=0))


def planted(kind: str, parts: dict[str, Array], seed: int) -> Array:
    """Return where a fault is: a set of samples, rounds, positions or columns."""
    rng = np.random.default_rng(seed)
    shape = parts["mask"].shape
    if kind == "samples":
        return (rng.permutation(shape[0]) < 8)[:, None] & np.ones(shape, dtype=bool)
    if kind in ("rank", "undone"):
        return (np.arange(shape[0]) % 4 == seed % 4)[:, None] & np.ones(shape, bool)
    if kind == "rounds":
        return rounds_of(parts) >= 1 + seed % 3
    if kind == "early":
        return rounds_of(parts) <= seed % 2
    if kind == "position":
        return np.broadcast_to(np.arange(shape[1]) >= 30 + seed % 30, shape)
    return -parts["rollout"] > 0.7  # `band`: unlikely tokens


def least_part(tokens: Any) -> float:
    """Compute how much the part that differs least does, of equally likely tokens."""
    v = tokens["rollout_log_prob"].to_numpy(float)
    edges = np.unique(np.quantile(np.sort(v), np.linspace(0, 1, 25)[1:-1]))
    size = np.log(tokens["diff"].abs() + 1e-6)
    away = size - size.groupby(np.searchsorted(edges, v)).transform("mean")
    means = [
        part.mean()
        for name in {"sample", "round", "role"} & {*tokens}
        for _, part in away.groupby(tokens[name], observed=True)
        if len(part) >= 30
    ]
    return float(np.exp(min(means)))


def relations(own: Any, unsure: Any) -> dict[str, float]:
    """Compute what the settings of a sampler leave, at the tokens of a place."""
    d, likely = unsure["diff"].clip(upper=5), own.filter(like="log_prob").max(axis=1)
    a, b = (
        own[name].astype(float)[likely < SURE]
        for name in ("old_log_prob", "rollout_log_prob")
    )
    known = np.minimum(a, b) < -1e-3
    odds, others = (x[known] - np.log(-np.expm1(x[known])) for x in (a, b))
    gap = (others - odds).clip(-LARGE, LARGE)
    return {
        "part of |diff| that is missing mass": -np.expm1(d).mean() / d.abs().mean(),
        "part of squares that follows the log-odds": np.corrcoef(odds + others, gap)[
            0, 1
        ]
        ** 2,
    }


def numbers_of(
    finding: rd.findings.Finding,
    diagnosis: rd.findings.Diagnosis,
    tokens: Any,
    lengths: Array,
) -> dict[str, float]:
    """Compute from the frame of all tokens what evidence may say of a finding."""
    keys = ["sample", "round", "token"]
    own = tokens.merge(finding.tokens()[keys], on=keys)
    place = tokens.merge(finding.tokens()[keys], on=keys, how="left", indicator=True)
    parts = [f for f in diagnosis if f is finding or (f.is_bug and f.undone is None)]
    known = [f.tokens()[keys] for f in parts]
    apart = tokens.merge(pd.concat(known).drop_duplicates(), how="left", indicator="in")
    outside = tokens[(apart["in"] == "left_only").to_numpy()]
    unsure = own[own[["old_log_prob", "rollout_log_prob"]].min(axis=1) < -1e-3]
    written = tokens.groupby("sample").cumcount().to_numpy()
    written = written[(place["_merge"] == "both").to_numpy()]
    likely = own[["old_log_prob", "rollout_log_prob"]].max(axis=1)
    seen = own["num_images"] if "num_images" in own else pd.Series([0])
    return {
        **relations(own, unsure),
        "least ratio of a part to equally likely tokens": least_part(tokens),
        "fewest images before a token": seen.min(),
        "most images before a token": seen.max(),
        "tokens": len(own),
        "samples": own["sample"].nunique(),
        "mean |diff| here": own["diff"].abs().mean(),
        "mean |diff| elsewhere": outside["diff"].abs().mean(),
        "mean |diff| of round 0": own["diff"].abs()[own["round"] == 0].mean(),
        "mean |diff| at uncertain tokens": unsure["diff"].abs().mean(),
        "mean diff at uncertain tokens": unsure["diff"].mean(),
        "mean diff": own["diff"].mean(),
        "mean of the higher log-prob": likely.mean(),
        "mean number of generated tokens before it": written.mean(),
        "mean number of observed tokens before it": (own["position"] - written).mean(),
        "first position in the context": (
            own["position"] + lengths[own["sample"]]
        ).min(),
    }


def left_of(
    finding: rd.findings.Finding, diagnosis: rd.findings.Diagnosis, tokens: Any
) -> tuple[Any, str]:
    """Return the frame that the numbers of a finding are of, and the end of names."""
    if "undone" not in finding.where:
        return tokens, ""
    keys = ["sample", "round", "token"]
    parts = [f.tokens() for f in diagnosis if f.undone is not None]
    undone = tokens.merge(parts[0][[*keys, "undone"]], on=keys, how="left")["undone"]
    undone = undone.fillna(0).to_numpy()
    left = tokens.assign(
        diff=tokens["diff"] - undone, old_log_prob=tokens["old_log_prob"] - undone
    )
    return left, f", {finding.where['undone']}"


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    kind=st.sampled_from(
        ["samples", "rank", "rounds", "early", "position", "band", "role", "undone"]
    ),
    scale=st.floats(0.1, 0.6),
)
def test_every_number_of_the_evidence_is_one_of_the_frame(
    seed: int, kind: str, scale: float
) -> None:
    batch = planted_batch(kind, scale, seed)
    names = ["position", "old_log_prob", "rollout_log_prob"]
    names += ["role", "num_images"] if kind == "role" else []
    tokens = rd.token_frame(batch, names).assign(
        diff=lambda frame: frame["diff"].astype(float)
    )
    assert batch.prompt_offsets is not None
    lengths = batch.prompt_offsets.diff().numpy()
    diagnosis = rd.diagnose(batch)
    for finding in diagnosis:
        if finding.kind not in ("place", "level"):
            continue
        left, text = left_of(finding, diagnosis, tokens)
        expected = numbers_of(finding, diagnosis, left, lengths)
        for candidate in finding.candidates:
            assert candidate.evidence
            assert text in candidate.clue
        for measure in chain(
            finding.evidence, *(row.evidence for row in finding.candidates)
        ):
            name = measure.name.removesuffix(text)
            assert (name != measure.name) == bool(text)
            if name in expected:
                value = pytest.approx(expected[name], rel=1e-4, abs=1e-6)
                assert measure.value == value, measure.name


def one_sided(rollout: Array, rng: np.random.Generator) -> Array:
    """Return log-probs over 90 to 100 % of the mass; 0 where one token is left."""
    kept = 0.9 + 0.1 * rng.random(rollout.shape)
    cut = np.minimum(rollout - np.log(kept), 0)
    return np.where(rollout > np.log(0.9), 0, cut)


@pytest.mark.parametrize("has_column", [True, False])
def test_a_truncation_in_some_rows_is_undone_there(has_column: bool) -> None:
    parts = arrays(48, noise=0.004)
    rng = np.random.default_rng(4)
    rows = np.sort(rng.permutation(48)[:14])
    parts["rollout"][rows] = one_sided(parts["rollout"][rows], rng)
    client = np.where(np.isin(np.arange(48), rows), "text", "vision")
    columns = {"client": client} if has_column else {}
    finding = rd.diagnose(made(parts, sample_columns=columns))[0]
    assert finding.cause == "truncated_sampling"
    assert finding.samples.tolist() == rows.tolist()
    assert ("with client text" in finding.location) == has_column
    assert "in 14 of 48 samples" in finding.location


@pytest.mark.parametrize("num_clients", [2, 3, 5, 8])
@pytest.mark.parametrize("is_hot", [True, False])
def test_a_setting_of_one_client_is_undone_there(
    num_clients: int, is_hot: bool
) -> None:
    parts = arrays(48, noise=0.004)
    mine = np.arange(48) % num_clients == 0
    changed = one_sided(parts["rollout"], np.random.default_rng(4))
    if is_hot:
        changed = warmed(parts["old"])
    parts["rollout"][mine] = changed[mine] * (parts["mask"] > 0)[mine]
    client = np.array([*"abcdefgh"])[np.arange(48) % num_clients]
    finding = rd.diagnose(made(parts, sample_columns={"client": client}))[0]
    assert finding.cause == ("temperature" if is_hot else "truncated_sampling")
    assert finding.samples.tolist() == np.flatnonzero(mine).tolist()


@pytest.mark.parametrize(("seed", "scale"), [(6, 0.3), (6, 0.5), (10, 0.15), (14, 0.5)])
def test_noise_of_a_role_is_no_setting_of_the_samples_with_few_tokens(
    seed: int, scale: float
) -> None:
    """The best of many small sets follows a line by chance."""
    findings = rd.diagnose(planted_batch("role", scale, seed))
    assert not any(finding.kind == "reversal" for finding in findings)


def test_log_probs_of_the_likeliest_token_are_a_fact_and_no_place() -> None:
    parts = arrays(48, noise=0.004)
    rng = np.random.default_rng(5)
    p = np.exp(parts["old"])
    other = (p < 0.4) & (parts["mask"] > 0)
    top = np.log(np.maximum((1 - p) * (0.5 + 0.4 * rng.random(p.shape)), p))
    parts["rollout"] = np.where(other, top, parts["rollout"])
    diagnosis = rd.diagnose(made(parts))
    finding = diagnosis[0]
    assert (finding.kind, [*map(str, finding.candidates)]) == (
        "fact",
        ["another_token"],
    )
    assert diagnosis.verdict == "broken"
    tokens = finding.tokens()
    assert finding.evidence[0].value == len(tokens)
    assert (tokens["old_log_prob"] < np.log(0.5)).all()
    assert (tokens["diff"] < 0).all()


def copied(parts: dict[str, Array], rows: Array, size: int, seed: int) -> Array:
    """Give rows a run of the values of the next row; return where."""
    rng = np.random.default_rng(seed)
    source = parts["rollout"].copy()
    where = np.zeros(source.shape, dtype=bool)
    for row in rows:
        start = int(rng.integers(0, 18 - size))
        where[row, start : start + size] = True
    parts["rollout"] = np.where(where, np.roll(source, -1, axis=0), source)
    return where


@pytest.mark.parametrize("size", [6, 12])
def test_runs_of_another_row_s_values_are_copies(size: int) -> None:
    parts = arrays(48)
    rows = np.arange(0, 40, 4)
    where = copied(parts, rows, size, seed=6)
    diagnosis = rd.diagnose(made(parts))
    finding = diagnosis[0]
    assert finding.cause == "copied_log_probs"
    assert finding.samples.tolist() == rows.tolist()
    assert finding.num_tokens == where.sum()
    assert f"in {len(rows)} of 48 samples: all bit by bit" in finding.location
    assert diagnosis.verdict == "broken"


@pytest.mark.parametrize("lag", [9, -23])
def test_a_lag_over_the_borders_of_rows_is_undone_where_it_holds(lag: int) -> None:
    parts = arrays(48, noise=0.004)
    written = parts["mask"] > 0
    flat, inside = parts["rollout"][written], np.nonzero(written)[0] >= 20
    moved = flat.copy()
    first = int(inside.argmax())
    if lag > 0:
        moved[first + lag :] = flat[first:-lag]
    else:
        moved[first:lag] = flat[first - lag :]
    parts["rollout"][written] = moved
    finding = rd.diagnose(made(parts))[0]
    assert finding.cause == "shifted_log_probs"
    assert finding.evidence[0].value == lag
    assert finding.samples.tolist() == [*range(20, 48)]
    assert finding.num_tokens >= 0.95 * inside.sum()


def test_equal_texts_after_prompts_that_are_not_known_are_no_copies() -> None:
    """In bfloat16 two tokens of one context often have the same value."""
    parts = arrays(48)
    rng = np.random.default_rng(8)
    for name in ("old", "rollout", "mask"):
        parts[name][1::2] = parts[name][::2]
    parts["ids"][1::2] = parts["ids"][::2]
    parts["ids"][1::2, 6] += 1
    parts["old"][rng.random(parts["old"].shape) < 0.02] -= 1
    causes = {finding.cause for finding in rd.diagnose(made(parts))}
    assert "copied_log_probs" not in causes


def test_few_tokens_that_carry_all_are_no_weights() -> None:
    parts = arrays(48, noise=0.003)
    rng = np.random.default_rng(7)
    rows = rng.permutation(48)[:14]
    for row in rows:
        parts["old"][row, rng.choice(np.flatnonzero(parts["mask"][row]))] -= 12
    diagnosis = rd.diagnose(made(parts))
    listed = {family for finding in diagnosis for family in finding.families}
    assert not {"weights", "context", "positions"} & listed
    assert "no part is spared" not in str(diagnosis)
