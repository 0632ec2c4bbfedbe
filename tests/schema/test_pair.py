"""Labels of another pair of scores: the names stand where the standard ones did."""

from __future__ import annotations

import pytest

from rounddiag import schema
from rounddiag.schema import Pair

COLUMNS = (
    *schema.TOKENS.columns,
    *schema.ROUNDS.columns,
    *schema.SUMMARY.columns,
    *schema.METRICS.values(),
    *schema.PLACES.values(),
)


@pytest.mark.parametrize("column", COLUMNS, ids=lambda column: column.name)
def test_the_standard_pair_changes_nothing(column: schema.Column) -> None:
    assert Pair("old", "rollout").label(column) == column.label


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("|old - rollout| log-prob", "|current - ref| log-prob"),
        (
            "mean k3 estimate of KL(rollout | old)",
            "mean k3 estimate of KL(ref | current)",
        ),
        ("log-prob by the training engine", "log-prob by current"),
        ("log-prob by the sampling engine", "log-prob by ref"),
        ("training likes the token more", "current likes the token more"),
        ("mean k3 of trainer - inference", "mean k3 of current - ref"),
        # Neither score is in it.
        ("entropy of the training engine", "entropy of the training engine"),
        ("`old_log_prob` of a threshold", "`old_log_prob` of a threshold"),
    ],
)
def test_both_names_stand_where_the_standard_ones_did(text: str, wanted: str) -> None:
    assert Pair("current", "ref").named(text) == wanted


def test_names_that_are_words_of_labels_are_put_once() -> None:
    assert Pair("rollout", "old").named("|old - rollout|") == "|rollout - old|"
    assert Pair(r"\1", "{a}").named("old - rollout") == r"\1 - {a}"


def test_the_standard_pair_is_the_default() -> None:
    assert Pair() == Pair("old", "rollout")
    assert Pair().is_standard
    assert not Pair("rollout", "old").is_standard
