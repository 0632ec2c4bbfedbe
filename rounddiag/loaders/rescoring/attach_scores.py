"""`attach`: add log-probabilities that another engine computed."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from rounddiag.batch.batch import require_batch
from rounddiag.checks.contracts import place_of
from rounddiag.errors import BatchError, LoadError
from rounddiag.loaders.detection import describe_content, open_container
from rounddiag.loaders.rescoring.score_files import read_entries
from rounddiag.loaders.source import Source
from rounddiag.loaders.tabular.in_memory import in_memory, table_of_lines
from rounddiag.loaders.tabular.json_lines import JsonLines
from rounddiag.loaders.tabular.table import Table

if TYPE_CHECKING:
    from rounddiag._typing import Array
    from rounddiag.batch import Batch
    from rounddiag.loaders.rescoring.score_files import Entries


def require_ids(batch: Batch, advice: str) -> None:
    """Raise a BatchError unless it is a batch with its token ids."""
    require_batch(batch)
    if batch.is_redacted:
        raise BatchError.build(
            expected="a batch with its token ids",
            found="one that was saved with `redact=True`",
            advice=advice,
        )


def _check_entries(batch: Batch, entries: Entries) -> None:
    """Raise a BatchError unless the entries are the batch's tokens.

    Raises
    ------
    BatchError
        For the first token whose id differs, that is duplicated, or that is missing.
    """
    flat = entries.flat_positions(batch)
    _check_ids(batch, entries, flat)
    counts = np.bincount(flat, minlength=len(batch.response_ids))
    twice = np.flatnonzero(counts > 1)
    if len(twice):
        raise BatchError.build(
            expected=f"one value for {place_of(batch, int(twice[0]))}",
            found=f"{counts[twice[0]]}",
            advice="Remove the duplicate rows.",
        )
    _check_complete(batch, counts)


def _check_ids(batch: Batch, entries: Entries, flat: Array) -> None:
    expected = batch.response_ids.cpu().numpy()[flat]
    differs = np.flatnonzero(entries.token_ids != expected)
    if len(differs):
        first = differs[0]
        place = place_of(batch, int(flat[first]))
        raise BatchError.build(
            expected=f"token id {expected[first]} at {place}",
            found=f"{entries.token_ids[first]}, and {len(differs) - 1} others differ",
            advice="Rescore the ids that `rounddiag.export_rescore` writes; text that"
            " is tokenised again can give other ids.",
        )


def _check_complete(batch: Batch, counts: Array) -> None:
    generated = batch.response_mask.cpu().numpy() != 0
    missing = np.flatnonzero(generated & (counts == 0))
    if len(missing):
        first = missing[0]
        token = batch.response_ids[first].item()
        raise BatchError.build(
            expected=f"a value for token id {token} at {place_of(batch, int(first))}",
            found=f"none, nor for {len(missing) - 1} other generated tokens",
            advice="Rescore all samples, or attach to a selection of the batch.",
        )


def attach(batch: Batch, name: str, source: Any) -> Batch:  # noqa: ANN401 frames of several libraries
    """Add log-probabilities that another engine computed for the tokens of a batch.

    A third score of identical tokens shows which of two engines is wrong: compare with
    `token_frame(batch, a="rescored", b="rollout")`. Every token id is checked against
    the batch, so that scores of other tokens are rejected.

    Parameters
    ----------
    batch : Batch
    name : str
        The name of the score in `batch.scores`; an existing one is replaced.
    source : path-like, DataFrame or mapping of str to sequence
        A file of JSON lines or Parquet, or the columns themselves.

        ==================  ======================================================
        one row per sample  `token_ids` and `log_probs`, of the whole response or of
                            its generated tokens
        one row per token   `token_id`, `log_prob`, and `position` or both `round`
                            and `token`
        both                `sample_id` if the batch has unique ids, else `sample`,
                            the index in this batch
        ==================  ======================================================

        Log-probabilities are in nats; null where there is none.

    Returns
    -------
    Batch
        The batch with one more score; NaN at tokens without a value, such as
        observations.

    Raises
    ------
    BatchError
        If a token id differs, a generated token or a sample is missing or duplicated,
        the columns do not fit, or the batch was redacted.
    LoadError
        The same for a file, or if it cannot be read.

    Examples
    --------
    >>> import torch, rounddiag as rd
    >>> batch = rd.Batch.from_padded(
    ...     response_ids=torch.tensor([[5, 6, 7]]),
    ...     response_mask=torch.tensor([[1, 0, 1]]),
    ...     rollout_log_probs=torch.tensor([[-1.0, 0.0, -2.0]]),
    ...     old_log_probs=torch.tensor([[-1.5, 0.0, -2.0]]),
    ... )
    >>> rescored = {"sample": [0], "token_ids": [[5, 7]], "log_probs": [[-1.25, -2.0]]}
    >>> rd.token_frame(attach(batch, "rescored", rescored), a="rescored")
       sample  round  token  diff
    0       0      0      0 -0.25
    1       0      1      0  0.00
    """
    if name in {"old", "rollout"}:
        raise BatchError.build(
            expected="a name for a further score",
            found=f"{name!r}, which every batch has",
            advice="Pass another name, such as 'rescored'.",
        )
    require_ids(batch, "Attach to the batch that it was made of.")
    if not isinstance(source, str | os.PathLike):
        return _with_score(batch, name, in_memory(source)[0])
    path = Path(source).absolute()
    try:
        return _with_score(batch, name, _read_table(path))
    except BatchError as error:
        msg = f"{path}: {error}"
        raise LoadError(msg) from error


def _with_score(batch: Batch, name: str, table: Table) -> Batch:
    entries = read_entries(batch, table)
    _check_entries(batch, entries)
    values = np.full(len(batch.response_ids), np.nan, entries.log_probs.dtype)
    values[entries.flat_positions(batch)] = entries.log_probs
    score = torch.from_numpy(values).to(batch.response_ids.device)
    return replace(batch, scores={**batch.scores, name: score})


def _read_table(path: Path) -> Table:
    if not path.is_file():
        raise LoadError.build(
            file=path,
            expected="a file of JSON lines or Parquet",
            found="a folder" if path.is_dir() else "nothing",
            advice="Pass the path of the scores.",
        )
    source = Source.of_file(path)
    root = open_container(source)
    if isinstance(root, JsonLines):
        return table_of_lines(root)
    if isinstance(root, Table):
        return root
    raise source.error(
        expected="JSON lines or a Parquet file of scores",
        found=describe_content(root),
        advice="See `rounddiag.attach` for the columns: one row per sample or per"
        " token.",
    )
