"""`load`: a path or a table becomes a checked Batch.

`paths` resolves the path to files, `file_reader` reads them, and `assembly` puts rows
and rounds together.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rounddiag.checks import with_check_results
from rounddiag.errors import LoadError
from rounddiag.loaders.assembly.round_splitting import fill_mask_holes, split_after
from rounddiag.loaders.assembly.trajectories import join_rows, with_join_hint
from rounddiag.loaders.file_reader import read_files, read_table
from rounddiag.loaders.paths import resolve_paths

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
    """Open a saved batch. The format is detected from the content.

    - Nothing in the file is executed, and no framework needs to be installed.
    - Pixel values stay in the file until a screenshot is requested.
    - `rounddiag.formats()` lists what can be opened.
    - `meta["checks"]` holds the results of the fast checks of `rounddiag.check`.

    Parameters
    ----------
    path : path-like, mapping, list of mappings, frame or data set
        ==========================  ================================================
        a file                      one batch
        a folder or a glob          the files of one step, joined end to end
        a mapping, frame, data set  the columns, one row per sample
        a list of mappings          the rows, one per sample
        ==========================  ================================================
    columns : mapping of str to str, optional
        Names of your own, as `{"old_log_probs": "my_name"}`: our name of a field or
        verl's, and the name in the table.

        ================  ==========================================================
        required          `response_ids`, `response_mask`, `rollout_log_probs`,
                          `old_log_probs`
        one per token     `entropy`, `advantages`, `loss_mask`, `round_ids`,
                          `position_ids`, `token_level_scores`, further scores such
                          as `ref_log_probs`
        of the prompt     `prompt_ids`, `attention_mask` (prompt and response)
        one per sample    `rewards`, `group_ids`, `sample_ids`, `images`
        ================  ==========================================================
    sample_by : str or sequence of str, optional
        For files with one row per step: the columns that identify a trajectory. Its
        rows are joined into one sample.

        - The whole prompt of a later row becomes an observation, including what it
          repeats of earlier rows.
        - Rounds are numbered through, and the round column `row` is the row in the
          file.
    order_by : str, optional
        With `sample_by`: the column with the step number. By default the first of

        1. `turn_index_list`, `step_ids`, `step_idx`, `step`;
        2. `turn`, `turn_idx`, `turn_id`, `turn_index`, `step_index`, `step_id`,
           `env_step`, `round`, `round_idx`, if these are whole numbers and distinct
           within each trajectory;
        3. the order of the file, which is not the order of the steps if the trainer
           balanced the batch.

        `meta["rows"]` says which one was used.
    stop_tokens : collection of int
        Token ids that end a round where no observation separates two rounds.
    fill_holes : bool
        Put 1 into the holes that rejection of single tokens left in the mask. They are
        counted in `meta["holes"]` either way.
    tokenizer : object, optional
        Replaces the tokenizer found with the file, if any.

    Returns
    -------
    Batch

    Raises
    ------
    LoadError
        If the file is of another kind, is damaged, or lacks what a batch needs; if the
        files are of several steps; if a column is missing or holds the wrong kind of
        values; or if two rows of a trajectory have the same step.

    Notes
    -----
    A file cannot run code, but a forged one can fill the memory: pickles check lengths
    against the file's size, while Parquet and Arrow files are refused only after the
    column that is too large was read.

    Examples
    --------
    >>> import rounddiag as rd
    >>> rd.load("sample_data/image_window_verl.pkl").meta["mask_source"]
    'response_mask'
    """
    if isinstance(path, str | os.PathLike):
        batch = read_files(resolve_paths(path), path, columns)
    else:
        batch = read_table(path, columns)
    batch = fill_mask_holes(batch, fill=fill_holes)
    if sample_by:
        batch = join_rows(batch, sample_by, order_by)
    elif order_by is not None:
        raise LoadError.build(
            key="order_by",
            expected="it together with `sample_by`",
            found="it alone",
            advice="Pass the columns that identify a trajectory as `sample_by`.",
        )
    else:
        batch = with_join_hint(batch)
    batch = split_after(batch, stop_tokens)
    if tokenizer is not None:
        batch = replace(batch, tokenizer=tokenizer)
    return with_check_results(batch)
