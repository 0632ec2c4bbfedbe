"""Open what a training step saved."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rounddiag.checks import checked
from rounddiag.errors import LoadError
from rounddiag.loaders.files.places import files_of
from rounddiag.loaders.files.several import read_files
from rounddiag.loaders.files.single import read_table
from rounddiag.loaders.joining.dividing import divide_after, with_holes
from rounddiag.loaders.joining.rows import join_rows
from rounddiag.loaders.joining.trajectories import with_hint

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from rounddiag.batch import Batch


def load(
    path: str | os.PathLike[str] | Any,  # noqa: ANN401 frames and data sets need not be installed
    *,
    columns: Mapping[str, str] | None = None,
    sample_by: str | Sequence[str] | None = None,
    order_by: str | None = None,
    stop_tokens: Collection[int] = (),
    fill_holes: bool = False,
    tokenizer: object | None = None,
) -> Batch:
    """Open a saved batch; the format is found from the content, not from the name.

    Nothing in the file is executed, and no framework needs to be installed. Pixel
    values stay in the file until a screenshot is asked for. `rounddiag.formats()`
    lists what can be opened. What the cheap contracts of `rounddiag.check` say is in
    `meta["checks"]`.

    Parameters
    ----------
    path : path-like, or mapping, frame or data set
        A file, a folder or a glob that holds one step, whose files are joined end to
        end; or the columns themselves, with a row a sample; or a list of such rows.
    columns : mapping of str to str, optional
        Our name of a field or verl's, and the name that a table has for it:
        `{"old_log_probs": "my_name"}`. Required are `response_ids`, `response_mask`,
        `rollout_log_probs` and `old_log_probs`. Optional, with one value a token, are
        `entropy`, `advantages`, `loss_mask`, `attention_mask` (of prompt and
        response), `round_ids`, `position_ids`, `prompt_ids`, a score as
        `ref_log_probs`, and rewards as `token_level_scores`; with one value a sample
        `rewards`, `group_ids`, `sample_ids` and `images`. A column that cannot be what
        it is named is an error.
    sample_by : str or sequence of str, optional
        Columns that name a trajectory, where each step of one is a row: its rows are
        joined into one sample. The whole prompt of a later row becomes an observation,
        also what it repeats of the rows before; rounds count on, and the round column
        `row` says where each was.
    order_by : str, optional
        The column that counts the steps of a trajectory. Left out, it is the first of
        `turn_index_list`, `step_ids`, `step_idx` and `step`, or of `turn`, `turn_idx`,
        `turn_id`, `turn_index`, `step_index`, `step_id`, `env_step`, `round` and
        `round_idx` where these are whole numbers, no two alike in a trajectory; else
        the rows stay in the order of the file, which is not that of the steps where the
        trainer balanced its batch. `meta["rows"]` says which it was.
    stop_tokens : collection of int
        Token ids that end a round, where no observation stands between two.
    fill_holes : bool
        Whether to put 1 into the holes that a rejection of single tokens left in the
        mask. They are counted in `meta["holes"]` either way.
    tokenizer : object, optional
        Takes the place of the one that was found with the file, if any.

    Returns
    -------
    Batch

    Raises
    ------
    LoadError
        If the file is of another kind, is damaged, or lacks what a batch needs, the
        files are of several steps, a column is not there, or two rows of a trajectory
        are one step.

    Examples
    --------
    >>> import rounddiag as rd
    >>> rd.load("sample_data/image_window_verl.pkl").meta["mask_source"]
    'response_mask'
    """
    if isinstance(path, str | os.PathLike):
        batch = read_files(files_of(path), path, columns)
    else:
        batch = read_table(path, columns)
    batch = with_holes(batch, fill=fill_holes)
    if sample_by:
        batch = join_rows(batch, sample_by, order_by)
    elif order_by is not None:
        raise LoadError.build(
            key="order_by",
            expected="it together with `sample_by`",
            found="it alone",
            advice="Name the columns that name a trajectory in `sample_by`.",
        )
    else:
        batch = with_hint(batch)
    batch = divide_after(batch, stop_tokens)
    if tokenizer is not None:
        batch = replace(batch, tokenizer=tokenizer)
    return checked(batch)
