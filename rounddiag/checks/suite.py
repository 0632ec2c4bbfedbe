"""`check`: all contracts of a batch, or the fast ones. Results are kept."""

from __future__ import annotations

from weakref import WeakKeyDictionary

from rounddiag.batch import Batch
from rounddiag.batch.html import known_failures
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
from rounddiag.checks.contracts import Check, Checks, Contract
from rounddiag.checks.written import Written
from rounddiag.core.kept import Key, state_of
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


# Results of each batch, as long as nothing of it changes, by its pair of scores.
_results: WeakKeyDictionary[
    Batch, tuple[Key, dict[tuple[str, str], dict[Contract, Check]]]
] = WeakKeyDictionary()


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
        Run only the fast checks, as the explorer does for every batch.
    a, b : str
        The scores whose log-probs are checked against each other.

    Examples
    --------
    >>> import rounddiag as rd
    >>> batch = rd.load("sample_data/image_window_verl.pkl")
    >>> [result.name for result in check(batch).failed]
    []
    """
    contracts = (*_FAST, tokens.IDS) if fast else (*_FAST, *_OTHERS)
    pair = select_scores(batch, a, b)
    known = _known_results(batch, a, b)
    try:
        known |= {each: each.check(pair) for each in contracts if each not in known}
    finally:
        Written.forget(pair)
    checks = Checks(tuple(known[each] for each in contracts))
    if pair is batch:
        # Of every check that was run: a fast one later forgets none.
        results = {result.name: result for result in known.values()}.values()
        failed = (result for result in results if result.status == "failed")
        known_failures[batch] = tuple(f"{each.name}: {each.detail}" for each in failed)
    return checks


def _known_results(batch: Batch, a: str, b: str) -> dict[Contract, Check]:
    state, known = state_of(batch), _results.get(batch)
    if known is None or known[0] != state:
        known = _results[batch] = (state, {})
    return known[1].setdefault((a, b), {})
