"""Log-probs that are bitwise equal up to a token, and then no longer."""

from __future__ import annotations

import numpy as np

from rounddiag import diagnose
from rounddiag.findings.equal_tokens import describe_equal_start
from tests.findings.small import LENGTH, arrays, literal, made


def split(first: dict[int, int], num: int = 8, length: int = 2400) -> str:
    """What is said of samples that differ from some tokens on."""
    rng = np.random.default_rng(0)
    rollout = -rng.uniform(0.1, 3, (num, length))
    old = rollout.copy()
    for sample, token in first.items():
        old[sample, token:] += 0.01
    batch = literal(old.tolist(), rollout.tolist())
    return describe_equal_start(batch, "old", "rollout")


def test_one_sample_is_named_with_its_token() -> None:
    assert split({3: 1204}) == (
        "Log-probs are bitwise equal before token 1,204 of sample 3, and not once from"
        " there on."
    )


def test_more_samples_are_counted_with_their_tokens() -> None:
    assert split({3: 1204, 5: 900, 6: 1500}) == (
        "Log-probs are bitwise equal before token 1,204 of sample 3, and not once from"
        " there on; likewise 2 more samples, at tokens 900 to 1,500."
    )
    assert split({0: 1024, 1: 1024}).endswith(
        "; likewise 1 more sample, at token 1,024."
    )


def test_single_tokens_that_differ_are_not_the_pattern() -> None:
    rollout = -np.linspace(0.1, 3, 400).reshape(2, 200)
    old = rollout.copy()
    old[0, 50] += 0.1
    batch = literal(old.tolist(), rollout.tolist())
    assert describe_equal_start(batch, "old", "rollout") == ""


def test_a_few_equal_tokens_afterwards_are_counted() -> None:
    rollout = -np.linspace(0.1, 3, 400).reshape(1, 400)
    old = rollout.copy()
    old[0, 100:] += 0.1
    old[0, [200, 300]] = rollout[0, [200, 300]]
    batch = literal(old.tolist(), rollout.tolist())
    assert describe_equal_start(batch, "old", "rollout").endswith(
        "before token 100 of sample 0, and equal at 2 of 300 from there on."
    )


def test_equal_and_noisy_batches_have_no_such_sentence() -> None:
    assert split({}) == ""
    assert diagnose(made(arrays())).equal_start == ""


def test_the_headline_says_it() -> None:
    parts = arrays(noise=0)
    parts["old"][2, LENGTH // 2 :] -= 0.2 * parts["mask"][2, LENGTH // 2 :]
    diagnosis = diagnose(made(parts))
    assert diagnosis.headline.endswith(" of sample 2, and not once from there on.")
    assert diagnosis.headline in repr(diagnosis)
