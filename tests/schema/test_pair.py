"""Labels contain the names of the two scores that are compared."""

from __future__ import annotations

import re

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
def test_no_label_of_another_pair_names_the_standard_one(
    column: schema.ColumnSchema,
) -> None:
    label = Pair("x", "y").label(column)
    assert not {"old", "rollout", "{", "}"} & {*re.findall(r"\w+|[{}]", label)}
    assert "sampling" not in label
    assert "{" not in column.label


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("|{a} - {b}| log-prob", "|current - ref| log-prob"),
        ("estimate of KL({b} | {a})", "estimate of KL(ref | current)"),
        ("log-prob by {training_engine}", "log-prob by current"),
        ("log-prob by {sampling_engine}", "log-prob by ref"),
        ("token more likely in {training}", "token more likely in current"),
        # No field, no change.
        ("older than the rollout", "older than the rollout"),
    ],
)
def test_names_fill_the_fields_of_a_template(text: str, wanted: str) -> None:
    assert Pair("current", "ref").fill(text) == wanted


def test_names_that_look_like_fields_are_kept() -> None:
    assert Pair("rollout", "old").fill("|{a} - {b}|") == "|rollout - old|"
    assert Pair(r"\1", "{a}").fill("{a} - {b}") == r"\1 - {a}"


def test_the_standard_pair_has_words_for_its_engines() -> None:
    assert Pair().label(schema.DIFF) == "old − rollout log-prob [nat]"
    assert schema.OLD_PROB.label == "probability by the training engine"
    assert schema.ROLLOUT_PROB.label == "probability by the sampling engine"
    assert Pair().fill("likely in {training}") == "likely in training"
