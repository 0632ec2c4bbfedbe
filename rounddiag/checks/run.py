"""The checks at the door: all contracts, and those that need no tokenizer."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rounddiag.batch.batch import require_batch
from rounddiag.checks import images as mrope
from rounddiag.checks import images as pictures
from rounddiag.checks import log_probs, rows
from rounddiag.checks import log_probs as fills
from rounddiag.checks import rounds as headers
from rounddiag.checks import rounds as holes
from rounddiag.checks import rounds as turns
from rounddiag.checks import rows as versions
from rounddiag.checks import tokens as prompts
from rounddiag.checks import tokens as token_ids
from rounddiag.checks.contracts import Checks

if TYPE_CHECKING:
    from rounddiag.batch import Batch


# What takes no tokenizer and no search in the prompts.
_CHEAP = (
    token_ids.INPUT_IDS,
    log_probs.MEASURABLE,
    log_probs.FINITE,
    log_probs.AT_MOST_ZERO,
    log_probs.ZERO_IN_BOTH,
    fills.FILLS,
    token_ids.LENGTHS,
    rows.WRITTEN,
    rows.NOT_EMPTY,
    rows.COPIES,
    prompts.NOT_REPEATED,
    versions.ONE_VERSION,
    holes.NO_HOLES,
    mrope.INTEGERS,
)
_OTHERS = (
    token_ids.IDS_AS_TEXT,
    headers.STARTS,
    turns.ENDS,
    turns.NOT_CUT,
    pictures.NUMBERS,
    pictures.SIZES,
    pictures.NOT_WRITTEN,
    mrope.MROPE,
)


def check(batch: Batch, *, cheap: bool = False) -> Checks:
    """Hold a batch against the contracts that every sound one keeps.

    Facts, not statistics: each contract is passed, failed with the number of places and
    the first few, or not testable with the field that would be needed. Some that fail
    are no bug but a fact to know, as mixed weight versions and rounds cut off.

    Parameters
    ----------
    batch : Batch
    cheap : bool, optional
        Only those that need no tokenizer and search no prompt, as `rounddiag.load` does
        of every file.

    Returns
    -------
    Checks

    Raises
    ------
    BatchError
        If it is no Batch, but the path of one, say.

    Examples
    --------
    >>> import rounddiag as rd
    >>> batch = rd.load("sample_data/image_window_verl.pkl")
    >>> [one.name for one in check(batch).failed]
    []
    """
    require_batch(batch)
    contracts = (*_CHEAP, token_ids.IDS) if cheap else (*_CHEAP, *_OTHERS)
    return Checks(tuple(contract.check(batch) for contract in contracts))


def with_check_results(batch: Batch) -> Batch:
    """Return the batch with what the cheap checks found in `meta["checks"]`."""
    plain = check(batch, cheap=True).as_plain()
    return replace(batch, meta={**batch.meta, "checks": plain})
