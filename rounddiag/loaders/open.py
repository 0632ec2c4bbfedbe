"""Open what a training step saved."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rounddiag.checks import with_check_results
from rounddiag.errors import LoadError
from rounddiag.loaders.assembly.concatenation import concatenate
from rounddiag.loaders.assembly.round_splitting import divide_after, with_holes
from rounddiag.loaders.assembly.trajectories import join_rows, with_hint
from rounddiag.loaders.file_reader import read_file, read_table
from rounddiag.loaders.paths import files_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from rounddiag.batch import Batch


def read_files(
    files: Sequence[Path],
    place: str | os.PathLike[str],
    columns: Mapping[str, str] | None,
) -> Batch:
    """Return what files of one format hold of one step.

    Of several, `meta["source"]` names the place and counts them, and the sample column
    `file` says which one a sample was in.

    Parameters
    ----------
    files : sequence of Path
        At least one.
    place : path-like
        The file, folder or glob that means them.
    columns : mapping of str to str, optional
        See `rounddiag.load`.

    Raises
    ------
    LoadError
        If a file cannot be read, or they are of several formats or steps.
    """
    if len(files) == 1:
        batch = read_file(files[0], columns)[1]
        source = batch.meta["source"]
        # As it was given: a notebook need not show where its folder lies.
        if source == str(files[0]) == str(Path(place).expanduser().absolute()):
            source = str(place)
    else:
        batch = concatenate(_read_each(files, columns))
        source = f"{place} ({len(files)} files)"
    return replace(batch, meta={**batch.meta, "source": source})


def _read_each(
    files: Sequence[Path], columns: Mapping[str, str] | None
) -> Iterator[Batch]:
    folder = Path(os.path.commonpath([file.parent for file in files]))
    first = None
    for file in _with_progress(files):
        form, batch = read_file(file, columns)
        first = first or form
        if form.name != first.name:
            raise LoadError.build(
                file=file,
                expected=f"the same format as in {files[0]}: {first.name}",
                found=form.name,
                advice="Pass files of one format.",
            )
        name = file.relative_to(folder).as_posix()
        named = {"file": np.full(len(batch), name, dtype=object)}
        yield replace(batch, sample_columns={**named, **batch.sample_columns})


def _with_progress(files: Sequence[Path]) -> Iterable[Path]:
    """Show a bar once reading takes over a second."""
    from tqdm.auto import tqdm

    return tqdm(files, unit="file", delay=1, leave=False)


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
    return with_check_results(batch)
