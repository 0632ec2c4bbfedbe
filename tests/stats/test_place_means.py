"""The mean of a metric by round, position, role or probability; standardised means."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import rounddiag as rd
from rounddiag import Batch, stats
from rounddiag.core.scores import select_scores
from rounddiag.errors import BatchError, FrameError
from rounddiag.schema import PLACE_MEANS
from rounddiag.stats import means_by, round_summary, standardise
from rounddiag.stats.standardisation import PROB_EDGES, prob_bin
from rounddiag.vision import EncodedScreenshot
from tests import oracle
from tests.batches import hand_batch, padded

NAN = np.nan
# |diff| of `hand_batch` and the places of its tokens:
# 0.5 0.25 . 1 | . 0 0.25 0.5 . 2 | 1
# 0   1    . 3 | . 1 2    3   . 5 | 0
LETTERS = "go?k(?" + "?ab(?1" + "x"  # rounds: "go", "k" | "ab(", "1" | "x"
LIKELY, RARE = np.log(0.8), np.log(0.02)
FRAME = pd.DataFrame(
    {
        "sample": [0, 0, 0, 1, 1, 1],
        "round": [0, 0, 1, 0, 1, 1],
        "diff": [0.1, -0.5, 0.7, 0.3, -0.9, NAN],
        "rollout_log_prob": [LIKELY, RARE, RARE, LIKELY, RARE, LIKELY],
    }
)


def spelled(ids: list[int]) -> str:
    return "".join(LETTERS[i] for i in ids)


def shots(*places: tuple[int | None, int | None]) -> tuple[EncodedScreenshot, ...]:
    """Screenshots that begin at a position and come before a round."""
    return tuple(
        EncodedScreenshot(data=b"", position=position, round=round_)
        for position, round_ in places
    )


def whole(**others: Any) -> Batch:
    """The hand batch with a tokenizer, prompts of 1, 2 and 0 tokens, screenshots."""
    images = (shots((2, 1), (-4, 0)), shots((4, 1), (9, None)), ())
    return hand_batch(
        tokenizer=spelled,
        prompt_ids=torch.full((3, 2), 7),
        prompt_mask=torch.tensor([[0, 1], [1, 1], [0, 0]]),
        images=images,
        **others,
    )


def rows(means: pd.DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    return list(means[[*columns]].itertuples(index=False, name=None))


@pytest.mark.parametrize(
    ("x", "expected"),
    [
        ("round", [("0", 6, 2.5 / 6), ("1", 2, 1.5)]),
        ("token", [("0", 5, 4.5 / 5), ("1", 2, 0.25), ("2 to 3", 1, 0.5)]),
        ("end", [("0", 5, 4.75 / 5), ("1", 2, 0.375), ("2 to 3", 1, 0.0)]),
        (
            "position",
            [("0", 2, 0.75), ("1", 2, 0.125), ("2 to 3", 3, 1.75 / 3),
             ("4 to 7", 1, 2)],
        ),
        (
            "context",
            [("0", 1, 1), ("1", 1, 0.5), ("2 to 3", 2, 0.125), ("4 to 7", 4, 3.75 / 4)],
        ),
        # 4 5 . 1 | before any, 1 | before any
        (
            "image",
            [("1", 2, 1.5), ("4 to 7", 2, 0.375), ("no screenshot yet", 4, 1.75 / 4)],
        ),
        # 1 1 . 2 | 0 0 0 1 | 0
        ("images", [("0", 4, 1.75 / 4), ("1", 3, 2.75 / 3), ("2", 1, 1.0)]),
        (
            "role",
            [
                *(("thought", 5, 4.75 / 5), ("action", 2, 0.125), ("syntax", 1, 0.5)),
                *(("first of a round", 5, 4.5 / 5), ("last of a round", 5, 4.75 / 5)),
            ],
        ),
    ],
)  # fmt: skip
def test_every_token_is_at_its_place(x: Any, expected: list[Any]) -> None:
    batch = whole()
    if x == "image":  # needs the position of each
        batch = replace(batch, images=(batch.images[0], shots((4, 1)), ()))  # type: ignore[index]
    means = means_by(batch, x)
    assert rows(means, "label", "num_tokens", "mean") == expected
    names = [column.name for column in PLACE_MEANS.columns]
    assert means.columns.tolist() == [*names, *["overlaps"] * (x == "role")]
    known = means["place"].notna()
    assert known.tolist() == [label != "no screenshot yet" for label, *_ in expected]
    assert means["place"][known].is_monotonic_increasing
    empty = replace(batch, response_mask=torch.zeros_like(batch.response_mask))
    assert rows(means_by(empty, x), "label") == []
    assert rows(means_by(empty[:0], x), "label") == []


def test_roles_divide_all_tokens_and_the_ends_of_rounds_come_on_top() -> None:
    batch = rd.load("sample_data/image_window.parquet")
    means = means_by(batch, "role")
    assert means.loc[~means["overlaps"], "num_tokens"].sum() == batch.num_tokens
    assert means.loc[means["overlaps"], "num_tokens"].tolist() == [batch.num_rounds] * 2
    named = means_by(whole(), "role", tagger=lambda _: [(0, 1, "last of a round")])
    # A role of the same name as an end is another row.
    assert rows(named, "label", "overlaps", "num_tokens")[:2] == [
        ("other", False, 3),
        ("last of a round", False, 5),
    ]


def test_bins_double_in_size_and_what_is_not_finite_is_left_out() -> None:
    values = [[0.0] * 19 + [NAN]]
    means = means_by(padded([[1] * 20], values, [[0.5] * 20]), "token")
    assert means["place"].tolist() == [0, 1, 2, 4, 8, 16]
    assert means["label"].tolist()[-1] == "16 to 31"
    assert means["num_tokens"].tolist() == [1, 1, 2, 4, 8, 4]
    assert means["num_nonfinite"].tolist() == [0, 0, 0, 0, 0, 1]
    nothing = padded([[1, 1]], [[NAN] * 2], [[0.5] * 2], tokenizer=spelled)
    assert means_by(nothing, "role")["num_nonfinite"].tolist() == [2, 1, 1]
    assert means_by(nothing, "role")["mean"].isna().all()


@pytest.mark.parametrize("x", ["images", "context", "position"])
def test_means_by_place_are_those_of_plain_loops(x: Any) -> None:
    batch = rd.load("sample_data/image_window.parquet")
    offsets, images = batch.prompt_offsets, batch.images
    assert offsets is not None
    assert images is not None
    values: dict[int, list[float]] = {}
    samples: dict[int, set[int]] = {}
    tokens = rd.token_frame(batch, ["position"])[
        ["sample", "round", "position", "diff"]
    ]
    for sample, index, position, diff in tokens.itertuples(index=False, name=None):
        place = position + (
            int(offsets[sample + 1] - offsets[sample]) if x == "context" else 0
        )
        place = 2 ** (place.bit_length() - 1) if place else 0
        if x == "images":
            place = sum(
                s.round is not None and s.round <= index for s in images[sample]
            )
        values.setdefault(place, []).append(abs(diff))
        samples.setdefault(place, set()).add(sample)
    means = means_by(batch, x).set_index("place")
    assert means.index.tolist() == sorted(values)
    for place, sizes in values.items():
        assert means["num_tokens"][place] == len(sizes)
        assert means["num_samples"][place] == len(samples[place])
        assert means["mean"][place] == pytest.approx(oracle.mean(sizes))


def test_probabilities_are_by_group_of_rounds_with_the_envelope_of_the_first() -> None:
    means = means_by(FRAME, "probability")
    scale = (0.1 + 0.5 + 0.3) / (0.2 + 0.98 + 0.2)
    assert rows(means, "rounds", "place", "label", "num_tokens", "num_samples") == [
        ("0", 0.01, "0.01 to 0.05", 1, 1),
        ("0", 0.75, "0.75 to 0.9", 2, 2),
        ("1", 0.01, "0.01 to 0.05", 2, 2),
        ("1", 0.75, "0.75 to 0.9", 1, 1),
    ]
    assert means["num_nonfinite"].tolist() == [0, 0, 0, 1]
    assert means["mean"].tolist() == pytest.approx([0.5, 0.2, 0.8, NAN], nan_ok=True)
    envelope = [scale * 0.98, scale * 0.2] * 2
    assert means["envelope"].tolist() == pytest.approx(envelope)
    # Without a first round, it is scaled to the earliest: 2 of the group 2 to 3.
    late = FRAME[:2].assign(round=[2, 3], diff=[0.25, 4.0], rollout_log_prob=LIKELY)
    assert means_by(late, "probability")["envelope"].tolist() == pytest.approx([0.25])
    assert "envelope" not in means_by(FRAME, "probability", metric="k2")


def test_what_is_no_probability_has_a_row_of_its_own() -> None:
    frame = FRAME.assign(rollout_log_prob=[0.5, NAN, LIKELY, 0.0, -np.inf, LIKELY])
    means = means_by(frame, "probability")
    assert means["num_tokens"].sum() == 6
    assert rows(means[:2], "label", "num_tokens") == [("0.999 to 1", 1), ("unknown", 2)]
    assert np.isnan(means["place"][1])
    probs = np.array([0.0, 0.1, 0.2, 0.5, 0.7, 1.0, 1.5, -0.5, NAN])
    assert prob_bin(probs).tolist() == [0, 3, 4, 5, 6, 10, 11, 11, 11]
    assert list(PROB_EDGES) == sorted(PROB_EDGES)


@pytest.mark.parametrize(
    ("x", "expected"),
    [
        ("end", [
            (3, "0", 1.25), (3, "1", 0.25), (3, "2 to 3", 0),
            (7, "0", 2.25 / 3), (7, "1", 0.5),
        ]),
        ("role", [
            (3, "thought", 2.0), (3, "action", 0.125), (3, "syntax", 0.5),
            (3, "first of a round", 1.0), (3, "last of a round", 1.25),
            (7, "thought", 2.75 / 4), (7, "first of a round", 2.5 / 3),
            (7, "last of a round", 2.25 / 3),
        ]),
        # e^-1 (6 tokens), e^-2 and e^-3 (one each of round 1, and of sample 2).
        ("probability", [
            (3, "0.01 to 0.05", 2.0), (3, "0.25 to 0.5", 0.25),
            (7, "0.1 to 0.25", 1.0), (7, "0.25 to 0.5", 0.375),
        ]),
        ("round", [(3, "0", 0.25), (3, "1", 2.0), (7, "0", 1.75 / 3), (7, "1", 1.0)]),
    ],
)  # fmt: skip
def test_a_column_divides_the_tokens_of_each_place(x: Any, expected: object) -> None:
    batch = whole(sample_columns={"rank": np.array([7, 3, 7])})
    means = means_by(batch, x, by="rank")
    assert means.columns[0] == "rank"
    assert rows(means, "rank", "label", "mean") == expected


@pytest.mark.parametrize(
    ("metric", "of_roles", "of_probabilities"),
    [
        # Diffs 0.5 -0.25 | 1 | 0 0.25 -0.5 | 2 | -1: thought, action twice, syntax.
        ("diff", [2.25 / 5, 0.125, -0.5], [-0.5, 0.2, -0.1]),
        (
            "k2",
            [(0.25 + 0.0625 + 1 + 4 + 1) / 10, 0.0625 / 4, 0.125],
            [0.125, 0.025, (0.7**2 + 0.9**2) / 4],
        ),
        ("beyond", [3 / 5, 0, 0], [0, 0, 1]),
        (
            "train_rollout_logprob_abs_diff",
            [(1.75 / 3 + 2 + 1) / 3, 0.125, 0.5],
            [0.5, 0.2, 0.8],
        ),
    ],
)
def test_another_metric_is_averaged(
    metric: str, of_roles: list[float], of_probabilities: list[float]
) -> None:
    means = means_by(whole(), "role", metric=metric)
    assert means["mean"].tolist()[:3] == pytest.approx(of_roles)
    means = means_by(FRAME, "probability", metric=metric)
    assert means["mean"].tolist()[:3] == pytest.approx(of_probabilities)


def test_differences_of_probabilities_are_those_of_both_columns() -> None:
    syntax = means_by(whole(), "role", metric="prob_diff")["mean"][2]
    assert syntax == pytest.approx(np.exp(-1.0) - np.exp(-1.5), rel=1e-6)
    # 0.02 (1 - exp(-0.5)); 0.8 (exp(0.1) - 1) and 0.8 (exp(0.3) - 1).
    wanted = [0.02 * (1 - np.exp(-0.5)), 0.4 * (np.exp(0.1) + np.exp(0.3) - 2)]
    means = means_by(FRAME, "probability", metric="prob_diff")
    assert means["mean"].tolist()[:2] == pytest.approx(wanted)


def test_means_by_round_are_those_of_the_summary_and_name_the_pair() -> None:
    batch = rd.load("sample_data/image_window.parquet")
    means, summary = (
        means_by(batch, "round", metric="k3"),
        round_summary(batch, metric="k3"),
    )
    for name in ("num_samples", "num_tokens", "mean", "ci_low", "ci_high", "is_few"):
        assert means[name].equals(summary[name])
    other = select_scores(whole(), "rollout", "old")
    assert means_by(other, "role").attrs == {"pair": ["rollout", "old"]}


def lacking(name: str, what: str, found: str = "a batch without them") -> str:
    return f"`{name}`: expected {what}; found {found}. Count something else."


UNKNOWN = (shots((0, 1), (None, 1), (None, None)), (), ())


@pytest.mark.parametrize(
    ("data", "x", "options", "message"),
    [
        (hand_batch(), "context", {}, lacking("context", "a batch with `prompt_ids`")),
        (hand_batch(), "image", {}, lacking("image", "a batch with screenshots")),
        (hand_batch(), "images", {}, lacking("images", "a batch with screenshots")),
        (
            *(hand_batch(images=UNKNOWN), "image", {}),
            lacking(
                "image", "screenshots whose `position` is known", "2 of 3 without it"
            ),
        ),
        (
            *(hand_batch(images=UNKNOWN), "images", {}),
            lacking(
                "images", "screenshots whose `round` is known", "1 of 3 without it"
            ),
        ),
        (
            *(hand_batch(), "role", {}),
            "This batch has no tokenizer: pass `tokenizer=` to `rd.load`.",
        ),
        (
            *(hand_batch(), "response", {}),
            "`x`: expected one of ['round', 'token', 'position', 'end', 'image',"
            " 'images', 'context', 'role', 'probability']; found 'response'. Choose"
            " what the places are.",
        ),
        (
            *(FRAME, "probability", {"by": "place"}),
            "`by`: expected one of ['sample', 'diff', 'rollout_log_prob']; found"
            " 'place'. Name a column of samples or of rounds.",
        ),
        (
            *(FRAME.assign(label=1.0), "probability", {"by": "label"}),
            "`by`: expected a column that is called none of ['place', 'label',"
            " 'num_samples', 'num_tokens', 'num_nonfinite', 'mean', 'ci_low',"
            " 'ci_high', 'is_few']; found 'label'. Give the column another name.",
        ),
    ],
)
def test_what_is_not_known_is_an_error(
    data: Any, x: Any, options: dict[str, Any], message: str
) -> None:
    with pytest.raises((FrameError, BatchError), match=f"^{re.escape(message)}$"):
        means_by(data, x, **options)


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("position_means", "`means_by(data, x)`, with x from `token` to `context`"),
        ("role_means", '`means_by(data, "role")`'),
        ("conditional_means", '`means_by(data, "probability")`'),
    ],
)
def test_a_name_that_was_removed_says_what_to_use(name: str, advice: str) -> None:
    message = f"0.3.0 removed `{name}`. Use {advice}."
    with pytest.raises(ImportError, match=f"^{re.escape(message)}$"):
        getattr(stats, name)
    with pytest.raises(AttributeError, match="no attribute 'means'"):
        _ = stats.means


def test_rounds_are_weighted_to_the_same_probabilities() -> None:
    means = standardise(FRAME)
    # Of the five finite tokens two are likely and three are rare.
    assert means["mean"].tolist() == pytest.approx([0.3, 0.8])
    assert means["standardised"].tolist() == pytest.approx([0.4 * 0.2 + 0.6 * 0.5, 0.8])
    assert means["covered"].tolist() == pytest.approx([1.0, 0.6])
    means = standardise(FRAME.assign(diff=[0.1, 0.5, NAN, 0.3, NAN, NAN]))
    assert means["round"].tolist() == [0, 1]
    assert np.isnan(means["standardised"][1])
    assert means["covered"].tolist() == [1.0, 0.0]


def test_a_mean_of_sample_means_is_standardised_as_one() -> None:
    frame = pd.DataFrame(
        {
            "sample": [0, 0, 0, 1, 0],
            "round": [0, 0, 0, 0, 1],
            "diff": [0.3, 0.3, 0.6, 0.8, 0.6],
            "rollout_log_prob": [LIKELY, LIKELY, RARE, RARE, RARE],
        }
    )
    means = standardise(frame, metric="train_rollout_logprob_abs_diff")
    assert means["mean"].tolist() == pytest.approx([0.6, 0.6])
    # A token of sample 0 counts a third: 2/3 are likely, 1/3 + 1 + 1 are rare.
    likely, rare = 2 / 9, 7 / 9
    assert means["standardised"].tolist() == pytest.approx(
        [likely * 0.3 + rare * (0.6 / 3 + 0.8) / (4 / 3), 0.6]
    )
    assert means["covered"].tolist() == pytest.approx([1.0, rare])
