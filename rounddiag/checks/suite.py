"""`check`: all contracts of a batch, or the fast ones, which `load` runs."""

from __future__ import annotations

from dataclasses import replace

from rounddiag.batch import Batch
from rounddiag.checks import (
    advantages,
    coordinates,
    fills,
    images,
    log_probs,
    mask,
    provable,
    rounds,
    rows,
    tokens,
    update,
    weights,
)
from rounddiag.checks.contracts import Checks
from rounddiag.core.scores import select_scores

# They need no tokenizer beyond the one that is present, and search no prompts.
_FAST = (
    rounds.KNOWN,
    tokens.TOKENIZER,
    tokens.INPUT_IDS,
    log_probs.MEASURABLE,
    log_probs.FINITE,
    log_probs.AT_MOST_ZERO,
    fills.FILLS,
    mask.COVERS_WRITTEN,
    tokens.IMAGE_TOKENS,
    tokens.LENGTHS,
    rows.WRITTEN,
    rows.NOT_EMPTY,
    rows.COPIES,
    tokens.NOT_REPEATED,
    rows.ONE_VERSION,
    weights.VERSIONS_KNOWN,
    weights.NOT_AHEAD,
    weights.ARRIVED,
    weights.CHANGED,
    rounds.NO_HOLES,
    images.INTEGERS,
    images.POSSIBLE,
    advantages.REWARDS_READ,
    advantages.ADVANTAGES_REACH,
    advantages.ADVANTAGES_DIFFER,
    advantages.NO_OUTLIER,
    advantages.SHARED_GROUPS,
    advantages.KNOWN_ESTIMATOR,
    advantages.EVEN_GROUPS,
    advantages.NO_GRADIENT,
    advantages.BALANCED,
    update.SEPARATED,
)
_OTHERS = (
    tokens.IDS_AS_TEXT,
    rounds.STARTS,
    rounds.STOPS,
    rounds.ENDS,
    rounds.NOT_CUT,
    update.RESUMED,
    images.NUMBERS,
    images.SIZES,
    images.NOT_WRITTEN,
    images.MROPE,
    coordinates.FRAME,
    images.EXACT,
    provable.FACTS,
)


def check(
    batch: Batch, *, fast: bool = False, a: str = "old", b: str = "rollout"
) -> Checks:
    """Check a batch against the invariants that every valid batch satisfies.

    These are facts, not statistics. Each check has one of three results:

    - `passed`;
    - `failed`, with the number of places and the first few of them, and what that means
      in `kind`: a bug in the log-probs, the ids or the mask; a wrong update from sound
      log-probs; or something worth knowing, such as truncated rounds;
    - `not testable`, with the field that is missing.

    Parameters
    ----------
    batch : Batch
    fast : bool, optional
        Run only the fast checks, as `rounddiag.load` does for every file.
    a, b : str
        The scores whose log-probs are checked against each other.

    Examples
    --------
    >>> import rounddiag as rd
    >>> batch = rd.load("sample_data/image_window_verl.pkl")
    >>> [result.name for result in check(batch).failed]
    []
    """
    batch = select_scores(batch, a, b)
    contracts = (*_FAST, tokens.IDS) if fast else (*_FAST, *_OTHERS)
    return Checks(tuple(contract.check(batch) for contract in contracts))


def check_tokenizer(batch: Batch) -> Checks:
    """Check whether the tokenizer is the model's, and nothing else."""
    return Checks((tokens.TOKENIZER.check(batch),))


def with_check_results(batch: Batch) -> Batch:
    """Return the batch with the results of the fast checks in `meta["checks"]`."""
    plain = check(batch, fast=True).as_plain()
    return replace(batch, meta={**batch.meta, "checks": plain})
