"""Where a place begins: rounds against positions in the context, roles and pictures."""

from __future__ import annotations

import io
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

import rounddiag as rd
from rounddiag.vision import EncodedScreenshot
from tests.findings.small import arrays, made, rounds_of, shaken

NUM, LIMIT = 40, 1500


def long_batch(seed: int, *, first_round: int | None = None) -> rd.Batch:
    """Samples of unequal prompts and rounds; ten times the noise from a start on.

    The start is a position in the context, or a round.
    """
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(NUM):
        prompt, parts = int(rng.integers(50, 250)), []
        for number in range(int(rng.integers(5, 10))):
            parts.append((number, 1, int(rng.integers(15, 40))))
            parts.append((number, 0, int(rng.integers(200, 350))))
        rounds, mask = (
            np.repeat([part[k] for part in parts], [part[2] for part in parts])
            for k in (0, 1)
        )
        place = prompt + np.arange(len(mask))
        late = place >= LIMIT if first_round is None else rounds >= first_round
        rollout = -rng.exponential(0.8, len(mask))
        noise = rng.normal(0, 1, len(mask)) * np.where(late, 0.04, 0.004)
        old = np.minimum(rollout + noise * np.minimum(-rollout, 1), 0)
        rows.append((prompt, mask, rollout, old))
    return rd.Batch.from_rows(
        prompt_ids=[torch.arange(row[0]) + 10 for row in rows],
        response_ids=[torch.from_numpy(rng.integers(10, 900, len(r[1]))) for r in rows],
        response_mask=[torch.from_numpy(row[1]) for row in rows],
        rollout_log_probs=[torch.from_numpy(row[2]).float() for row in rows],
        old_log_probs=[torch.from_numpy(row[3]).float() for row in rows],
    )


@pytest.mark.parametrize("seed", range(3))
def test_a_length_of_the_context_is_no_round(seed: int) -> None:
    batch = long_batch(seed)
    (finding,) = rd.diagnose(batch)
    at = finding.where["place"].conditions[0]
    assert at.column == "context_length"
    assert abs(at.value - LIMIT) < 20
    tokens = rd.token_frame(batch, ["position"])
    assert batch.prompt_offsets is not None
    prompts = np.diff(batch.prompt_offsets.numpy())[tokens["sample"]]
    late = tokens["position"].to_numpy() + prompts >= at.value
    assert finding.num_tokens == late.sum()
    assert "numerics" in finding.families


@pytest.mark.parametrize("first", [2, 3])
def test_a_round_is_no_length_of_the_context(first: int) -> None:
    (finding,) = rd.diagnose(long_batch(5, first_round=first))
    assert finding.where["rounds_from"] == first
    assert f"from round {first} on" in finding.location
    assert "context position" not in finding.location


def test_what_equal_contexts_cannot_tell_apart_is_said_as_both() -> None:
    parts = arrays()
    shaken(parts, rounds_of(parts) >= 2, 0.3)
    prompts = [torch.arange(30) + 10] * len(parts["mask"])
    batch = made(parts)
    offsets = torch.arange(len(prompts) + 1) * 30
    batch = replace(batch, prompt_ids=torch.cat(prompts), prompt_offsets=offsets)
    (finding,) = rd.diagnose(batch)
    # Round 2 begins at position 46 of a response after a prompt of 30 tokens.
    both = "from round 2 on, or just as well from context position 76 on"
    assert both in finding.location


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("first", [1, 2])
def test_a_role_has_the_onset_of_its_own_tokens(first: int, seed: int) -> None:
    batch = rd.load("sample_data/healthy.parquet")
    tokens = rd.token_frame(batch, ["role", "position"])
    at = tokens[(tokens["role"] == "thought") & (tokens["round"] >= first)]
    size = np.random.default_rng(seed).exponential(0.1, len(at))
    assert batch.old_log_probs is not None
    old = batch.old_log_probs.clone()
    places = batch.offsets.numpy()[at["sample"]] + at["position"].to_numpy()
    old[places] -= torch.from_numpy(size).float()
    diagnosis = rd.diagnose(replace(batch, old_log_probs=old))
    thoughts = [finding for finding in diagnosis if "thoughts" in finding.location]
    assert [finding.where["rounds_from"] for finding in thoughts] == [first]
    assert thoughts[0].num_tokens == len(at)


def picture(height: int) -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (40, height)).save(stream, "PNG")
    return stream.getvalue()


def test_a_fault_follows_the_height_of_the_last_picture() -> None:
    parts = arrays()
    rng = np.random.default_rng(3)
    heights = rng.choice([30, 90], (len(parts["mask"]), 4))
    shaken(parts, np.take_along_axis(heights, rounds_of(parts), axis=1) == 90, 0.3)
    shots = {height: picture(height) for height in (30, 90)}
    images = tuple(
        tuple(
            EncodedScreenshot(data=shots[height], round=number)
            for number, height in enumerate(row)
        )
        for row in heights.tolist()
    )
    batch = made(parts, images=images)
    (finding,) = rd.diagnose(batch)
    assert "with image height 90" in finding.location
    assert finding.num_tokens == (heights == 90).sum() * 20
    assert "context" in finding.families
    # A column of the file with this name wins.
    own = {
        "sample": np.repeat(np.arange(len(heights)), 4),
        "round": np.tile(np.arange(4), len(heights)),
        "image_height": np.ones(heights.size, dtype=int),
    }
    mine = made(parts, images=images, round_columns=own)
    assert all("image height" not in f.location for f in rd.diagnose(mine))
