"""Tidy frames of a batch: tokens, rounds and samples.

pandas is imported only when a frame is built, so that a trainer can measure without it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rounddiag import schema
from rounddiag._typing import Array
from rounddiag.batch import Batch
from rounddiag.core.columns import (
    aggregates,
    check_columns,
    first_unequal,
    positions,
    to_numpy,
    token_column,
    token_numbers,
)
from rounddiag.core.scores import has_pair, select_scores, tag_pair
from rounddiag.core.sums import Totals, diffs, diffs_of_pair, sum_diffs, sum_rounds
from rounddiag.errors import FrameError

if TYPE_CHECKING:
    import pandas as pd


# Columns of samples that are made of fields.
_FIELDS = ("sample_id", "group_id", "reward", "num_rounds", "num_tokens")


def token_frame(
    batch: Batch, columns: Sequence[str] = (), *, a: str = "old", b: str = "rollout"
) -> pd.DataFrame:
    """Return one row per generated token: `sample, round, token, diff`.

    A batch without the log-probs of both engines has no `diff`.

    Parameters
    ----------
    batch : Batch
    columns : sequence of str
        More columns: `position`, `token_id`, `rollout_log_prob`, `old_log_prob`,
        `entropy`, `advantage`, `loss_mask`, `importance_weight` (:math:`e^d`),
        `prob_diff`; `weight_tis` and those of the other corrections; `text`, and
        `role`, which needs a tokenizer; and by name those of the batch's
        `token_columns`, and of its `round_columns` and `sample_columns`, repeated for
        each token. Rounds without a row in `round_columns` have NaN or None.
    a, b : str
        The scores to compare: `old`, `rollout`, or a name in `batch.scores`.

    Returns
    -------
    DataFrame
        `diff` is `a - b` in nats, NaN or infinite where a log-probability is. For
        a pair other than the standard one, `old_log_prob` holds the log-probs of `a`
        and `rollout_log_prob` those of `b`, and `attrs["pair"]` names both.

    Examples
    --------
    >>> import torch, rounddiag as rd
    >>> batch = rd.Batch.from_padded(
    ...     response_ids=torch.tensor([[5, 6, 7]]),
    ...     response_mask=torch.tensor([[1, 0, 1]]),
    ...     rollout_log_probs=torch.tensor([[-1.0, 0.0, -2.0]]),
    ...     old_log_probs=torch.tensor([[-1.5, 0.0, -2.0]]),
    ... )
    >>> rd.token_frame(batch)
       sample  round  token  diff
    0       0      0      0  -0.5
    1       0      1      0   0.0
    """
    batch = select_scores(batch, a, b)
    check_columns(batch, columns)
    return tokens_of(batch, diffs_of_pair(batch), columns)


def round_frame(
    batch: Batch, columns: Sequence[str] = (), *, a: str = "old", b: str = "rollout"
) -> pd.DataFrame:
    """Return one row per sample and round, with the columns of `schema.ROUNDS`.

    Aggregates are over the tokens whose diff is finite; `num_nonfinite` counts the
    others, and a round without any finite diff has NaN. A batch without the log-probs
    of both engines has no aggregates. The batch's `round_columns` follow, and with
    advantages `round_advantage`, their mean.

    Parameters
    ----------
    batch : Batch
    columns : sequence of str
        More columns: `first_unequal`, the position in the response of the first token
        whose log-probs differ at all, NaN if none does.
    a, b : as everywhere, see `help(rounddiag)`

    Examples
    --------
    >>> import rounddiag as rd
    >>> batch = rd.load("sample_data/healthy.parquet")
    >>> len(rd.round_frame(batch)) == batch.num_rounds
    True
    """
    batch = select_scores(batch, a, b)
    _check_requested(columns)
    totals = sum_rounds(batch) if has_pair(batch) else None
    frame = _add_columns_of_file(_rounds(batch, totals), batch)
    if columns:
        frame["first_unequal"] = first_unequal(batch, diffs(batch))
    return frame


def _check_requested(columns: Sequence[str]) -> None:
    unknown = [name for name in columns if name != "first_unequal"]
    if unknown:
        raise FrameError.build(
            key="columns",
            expected="['first_unequal']",
            found=repr(columns),
            advice="The other columns are always there.",
        )


def round_and_token_frames(
    batch: Batch, columns: Sequence[str] = ()
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return `round_frame` and `token_frame` from one pass over the batch."""
    check_columns(batch, columns)
    rounds, diff = round_frame_and_diffs(batch)
    rounds = _add_columns_of_file(rounds, batch)
    return rounds, tokens_of(batch, diff, columns)


def round_frame_and_diffs(batch: Batch) -> tuple[pd.DataFrame, Array | None]:
    """Return `round_frame`, and the diff of every generated token, from one pass.

    The frame has no columns of the file; without both log-probs there is no diff.
    """
    if not has_pair(batch):
        return _rounds(batch, None), None
    diff = np.empty(batch.num_tokens, dtype=np.float32)
    return _rounds(batch, sum_rounds(batch, out=diff)), diff


def rounds_of_tokens(tokens: pd.DataFrame) -> pd.DataFrame:
    """Return the round frame of a token frame: as `round_frame`, without `start`."""
    import pandas as pd

    schema.TOKENS.require(tokens.columns, "sample", "round", "diff")
    sample, index = tokens["sample"].to_numpy(), tokens["round"].to_numpy()
    changes = (sample[1:] != sample[:-1]) | (index[1:] != index[:-1])
    begins = np.r_[: min(len(tokens), 1), np.flatnonzero(changes) + 1]
    num = np.diff(begins, append=len(tokens))
    totals = sum_diffs(tokens["diff"].to_numpy(), num)
    keys = {"sample": sample[begins], "round": index[begins]}
    frame = pd.DataFrame({**keys, **aggregates(totals, num)}, copy=False)
    return tag_pair(frame, tokens)


def sample_frame(
    batch: Batch, columns: Sequence[str] = (), *, a: str = "old", b: str = "rollout"
) -> pd.DataFrame:
    """Return one row per sample, with the columns of `schema.SAMPLES`.

    A sample in which nothing was generated has a row too, with 0 tokens and NaN. A
    batch without the log-probs of both engines has no aggregates. The batch's
    `sample_columns` follow.

    Parameters
    ----------
    batch, columns, a, b
        As of `round_frame`.

    Examples
    --------
    >>> import rounddiag as rd
    >>> batch = rd.load("sample_data/healthy.parquet")
    >>> int(rd.sample_frame(batch)["num_tokens"].sum()) == batch.num_tokens
    True
    """
    import pandas as pd

    batch = select_scores(batch, a, b)
    _check_requested(columns)
    catalogue = batch.columns
    made = catalogue.available(_FIELDS)
    own = {
        "sample": np.arange(batch.num_samples, dtype=np.int32),
        **{name: column.filled for name, column in made.items()},
    }
    if has_pair(batch):
        totals = sum_rounds(batch).sum_by_group(catalogue.owner, batch.num_samples)
        own |= aggregates(totals, own["num_tokens"])
    if columns:
        first = np.full(batch.num_samples, np.nan)
        np.fmin.at(first, catalogue.owner, first_unequal(batch, diffs(batch)))
        own["first_unequal"] = first
    for name, column in catalogue.samples.items():
        own.setdefault(name, column.filled)
    return tag_pair(pd.DataFrame(_share_texts(own)), batch)


def tokens_of(batch: Batch, diff: Array | None, more: Sequence[str]) -> pd.DataFrame:
    """Return the token frame of a batch whose diffs are known; it shares them.

    Without the log-probs of both engines, there are none, and no column `diff`.
    """
    import pandas as pd

    rounds = batch.rounds
    num = to_numpy(rounds.num_tokens)
    columns = {
        "sample": np.repeat(to_numpy(rounds.sample).astype(np.int32), num),
        "round": np.repeat(to_numpy(rounds.round).astype(np.int32), num),
        "token": token_numbers(batch),
        **({} if diff is None else {"diff": diff}),
    }
    for name in more:
        columns[name] = token_column(batch, columns["token"], name)
    return tag_pair(pd.DataFrame(_share_texts(columns), copy=False), batch)


def _rounds(batch: Batch, totals: Totals | None) -> pd.DataFrame:
    import pandas as pd

    rounds = batch.rounds
    columns = {
        "sample": to_numpy(rounds.sample).astype(np.int32),
        "round": to_numpy(rounds.round).astype(np.int32),
        "start": positions(batch),
    }
    num_tokens = to_numpy(rounds.num_tokens)
    columns |= (
        {"num_tokens": num_tokens} if totals is None else aggregates(totals, num_tokens)
    )
    return tag_pair(pd.DataFrame(columns, copy=False), batch)


def _add_columns_of_file(rounds: pd.DataFrame, batch: Batch) -> pd.DataFrame:
    own = {**batch.columns.rounds, **batch.columns.available(["round_advantage"])}
    more = {name: column.filled for name, column in own.items() if name not in rounds}
    return rounds.assign(**_share_texts(more))


def _share_texts(columns: dict[str, Any]) -> dict[str, Any]:
    """Keep texts as objects that rows share: pandas 3 would copy that of every row."""
    import pandas as pd

    return {
        name: (
            pd.Series(values, dtype=object)
            if isinstance(values, np.ndarray) and values.dtype == object
            else values
        )
        for name, values in columns.items()
    }
