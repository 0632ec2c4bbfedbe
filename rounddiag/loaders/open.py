"""`load`: open a path or a table as a checked Batch.

`paths` resolves the path to files. `read_files` detects their format, applies the
user's column names and reads them. `assembly` joins rows and splits rounds. `untrusted`
runs all of this in a child process.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from rounddiag.batch import Batch
from rounddiag.batch.trajectories import join_rows
from rounddiag.errors import LoadError
from rounddiag.loaders.assembly.concatenation import (
    concatenate,
    without_copied_rows,
    without_padding_rows,
)
from rounddiag.loaders.assembly.join_hint import check_order, with_join_hint
from rounddiag.loaders.assembly.round_splitting import (
    fill_mask_holes,
    split_after,
    with_template_mask,
)
from rounddiag.loaders.column_mapping import (
    check_kinds,
    check_used,
    missing_columns_error,
    rename_columns,
    response_column,
)
from rounddiag.loaders.containers import open_container
from rounddiag.loaders.detection import (
    TENSORS,
    content_names,
    describe_content,
    find_format,
    read_tensors,
)
from rounddiag.loaders.format import Format
from rounddiag.loaders.json_lines import JsonLines, columns_or_rows, is_json_value
from rounddiag.loaders.paths import name_others, resolve_paths, several_batches
from rounddiag.loaders.source import Source, load_errors
from rounddiag.loaders.tables import as_table
from rounddiag.loaders.unopened import unopened_error
from rounddiag.loaders.untrusted import Limits, load_untrusted
from rounddiag.schema import OPENED_WITH
from rounddiag.text.tokenizers import decoder

_Columns = Mapping[str, str]


def read_files(
    files: Sequence[Path], path: str | os.PathLike[str], columns: _Columns | None
) -> Batch:
    """Return the batch of one step, its files joined end to end.

    For several files, `meta["source"]` names the path and their number, and the sample
    column `file` says which file a sample came from. Files of trajectories that cannot
    be read, or in which no model wrote, do not end it: `meta["not_opened"]` has them.
    """
    if len(files) > 1:
        refused: dict[str, str] = {}
        batch = concatenate(_read_each(files, Path(path), columns, refused))
        source = f"{path} ({len(files)} files)"
        if refused:
            reasons = [f"{name}: {reason}" for name, reason in refused.items()]
            if num_more := max(len(reasons) - _MAX_REASONS, 0):
                reasons[_MAX_REASONS:] = [f"and {num_more} more"]
            batch = batch.with_meta({**batch.meta, "not_opened": reasons})
    else:
        batch = read_file(files[0], columns)[1]
        source = batch.meta.get("source", str(files[0]))
        # Keep a relative path, so that a notebook does not show the folders above it.
        if source == str(files[0]) == str(Path(path).expanduser().absolute()):
            source = str(path)
    return batch.with_meta({**batch.meta, "source": source})


_MAX_REASONS = 8  # in `meta`
_OTHERS = "not named as the files that were opened"


def _read_each(
    files: Sequence[Path], path: Path, columns: _Columns | None, refused: dict[str, str]
) -> Iterator[Batch]:
    from tqdm.auto import tqdm

    folder = Path(os.path.commonpath([file.parent for file in files]))
    first, error = None, None
    for file in tqdm(files, unit="file", delay=1, leave=False):
        answer = _read_or_refuse(file, columns)
        if isinstance(answer, LoadError):
            error = error or answer
            name = file.relative_to(folder).as_posix()
            refused[name] = str(answer).removeprefix(f"{file}: ")
            continue
        form, batch = answer
        first = first or form
        if error and form.trajectories is None:  # a rank of a trainer is missing
            raise error
        if form is TENSORS and file.suffix == ".jsonl" and path.is_dir():  # no texts
            raise several_batches(path, [*files])
        if form.name != first.name:
            raise LoadError.build(
                file=file,
                expected=f"the same format as in {files[0]}: {first.name}",
                found=form.name,
                advice="Pass files of one format.",
            )
        name = file.relative_to(folder).as_posix()
        names = {"file": np.full(len(batch), name, dtype=object)}
        yield replace(batch, sample_columns={**names, **batch.sample_columns})
    if error and (first is None or first.trajectories is None):
        raise error


def _read_or_refuse(
    file: Path, columns: _Columns | None
) -> tuple[Format, Batch] | LoadError:
    try:
        return read_file(file, columns)
    except LoadError as error:
        return error


def read_file(file: Path, columns: _Columns | None) -> tuple[Format, Batch]:
    """Detect the format of a file from its content; return both format and batch."""
    source = Source.of_file(file)
    with load_errors(source):
        return _read(open_container(source), source, columns or {})


def read_table(data: object, columns: _Columns | None) -> Batch:
    """Return the batch of a mapping, frame or data set."""
    source = Source(path=Path(type(data).__name__), size=0, data=b"")
    with load_errors(source):
        if not is_json_value(data):
            from rounddiag.loaders.memory import in_memory  # takes pyarrow

            data, source = in_memory(data)
        return _read(data, source, columns or {})[1]


def _read(
    root: Any,  # noqa: ANN401 whatever a file holds
    source: Source,
    columns: _Columns,
) -> tuple[Format, Batch]:
    root = _as_records(root, source)
    if isinstance(root, JsonLines):
        root = columns_or_rows(root, [*columns.values(), *TENSORS.names])
    table: Any = rename_columns(root, columns, source)
    form = find_format(content_names(table))
    if form is None and not columns:
        raise unopened_error(source, table)
    if form is not None and form.is_general and isinstance(table, JsonLines):
        table = columns_or_rows(table, form.names)
    is_generic = form is not None and form.read is read_tensors
    responses = response_column(content_names(table)) if is_generic else {}
    if form is None or (is_generic and not responses):
        raise missing_columns_error(source, root, columns)
    mapping = columns or responses
    if is_generic:
        table = as_table(table)
    if mapping:
        check_kinds(as_table(table), mapping, source)
    try:
        batch = form.batch(table, source)
    except (AttributeError, TypeError) as error:
        # For example, an `.npz` with the keys of a JSON lines format.
        raise source.error(
            expected=f"{form.name}, as {form.framework} saves it in "
            + ", ".join(form.files),
            found=f"{describe_content(table)}, with values of other kinds",
            advice="Save it again with the program that wrote it.",
        ) from error
    check_used(batch, mapping, source)
    batch = without_padding_rows(batch)
    is_own = form.framework == "rounddiag"
    return form, batch if is_own else without_copied_rows(batch)


def _as_records(root: object, source: Source) -> object:
    """Return JSON in memory as its records, unless a framework takes it as it is."""
    form = find_format(content_names(root))
    is_needed = form is None or form.is_general or form.trajectories is not None
    return JsonLines(source, root) if is_needed and is_json_value(root) else root


def load(  # noqa: PLR0913 all but the path by keyword
    path: str | os.PathLike[str] | Any,  # noqa: ANN401 frames and data sets need not be installed
    *,
    columns: Mapping[str, str] | None = None,
    sample_by: str | Sequence[str] | None = None,
    order_by: str | None = None,
    stop_tokens: Collection[int] = (),
    fill_holes: bool = False,
    tokenizer: object | None = None,
    untrusted: bool = False,
    memory_limit: float = 4.0,
    time_limit: float = 60.0,
) -> Batch:
    """Open a saved batch. The format is detected from the content.

    - Nothing in the file is executed, and no framework needs to be installed.
    - Pixel values stay in the file until a screenshot is requested.
    - Files packed by gzip or zstd are unpacked while they are read.
    - `rounddiag.formats()` lists what can be opened.

    Parameters
    ----------
    path : path-like, mapping, list of mappings, frame or data set
        ==========================  ================================================
        a file                      one batch
        a folder or a glob          the files of one step, or trajectories of agents,
                                    joined end to end
        a mapping, frame, data set  the columns, one row per sample
        a list of mappings          the rows, one per sample
        ==========================  ================================================
    columns : mapping of str to str, optional
        Names of your own, as `{"old_log_probs": "my_name"}`: our name of a field or
        verl's, and the name in the table.

        ================  ==========================================================
        required          `response_ids`, `response_mask`
        of the engines    `rollout_log_probs`, `old_log_probs`
        one per token     `entropy`, `advantages`, `loss_mask`, `round_ids`,
                          `position_ids`, `token_level_scores`, further scores such
                          as `ref_log_probs`
        of the prompt     `prompt_ids`, `attention_mask` (prompt and response)
        one per sample    `rewards`, `group_ids`, `sample_ids`, `images`
        ================  ==========================================================

        A column of any other name is kept under its name if it has one plain value
        per sample or one number per token, and is then a column of every frame, filter
        and `by=`; else `meta["left_out"]` names it.
    sample_by : str or sequence of str, optional
        For files with one row per step: the columns that identify a trajectory. Its
        rows are joined into one sample.

        - Of the prompt of a later row, what is new becomes an observation.
          `Batch.context` returns all of it, `Batch.chains` the rounds that append, and
          the round columns `num_context_tokens`, `num_context_images`,
          `num_entered_tokens`, `num_left_tokens`, `num_left_images` and `is_rewritten`
          describe it.
        - Rounds are numbered through, and the round column `row` is the row in the
          file.
        - Pictures are distinguished by the round column `image_hashes`, else by their
          pixels: where these are more than 1 GB, by some rows of patches of each, as
          `meta["contexts"]` then says.
    order_by : str, optional
        With `sample_by`: the column with the step number, or `"row"` for the order of
        the file, which is not that of the steps if the trainer balanced the batch. By
        default the first of

        1. `turn_index_list`, `step_ids`, `step_idx`, `step`;
        2. `turn`, `turn_idx`, `turn_id`, `turn_index`, `step_index`, `step_id`,
           `env_step`, `round`, `round_idx`, if these are whole numbers and distinct
           within each trajectory;
        3. prompts that continue the prompt of the step before, or contain its response.

        `meta["rows"]` says which one was used. If none orders the steps, the rows are
        not joined, a check fails, and every figure says that the rounds are unknown.
    stop_tokens : collection of int
        Token ids that end a round where no observation separates two rounds.
    fill_holes : bool
        Put 1 into the holes that rejection of single tokens left in the mask. They are
        counted in `meta["holes"]` either way.
    tokenizer : object, optional
        Replaces the tokenizer found with the file, if any. It also finds the rounds of
        a file without `response_mask`, by its chat template.
    untrusted : bool
        Read the file in a child process with limits (Linux and macOS), for files from
        people you do not know. It starts in about 3 s.

        - Reaching a limit, and a crash inside a library, are a LoadError.
        - This process grows by at most `memory_limit`, of which the batch may take a
          quarter.
        - It returns within `time_limit` and 15 s.
        - Screenshots become JPEGs of at most 768 pixels, all in memory.
        - The file's tokenizer is used in the child only. The batch has the text of the
          tokens that occur in it.
    memory_limit, time_limit : float
        With `untrusted`: how much memory, in GB, and how many seconds reading may take.

    Notes
    -----
    A file cannot run code. Without `untrusted`, a forged one can fill the memory, take
    very long, or crash a library and with it this process.

    Examples
    --------
    >>> import rounddiag as rd
    >>> rd.load("sample_data/image_window_verl.pkl").meta["mask_source"]
    'response_mask'
    """
    options: dict[str, Any] = {
        "columns": columns,
        "sample_by": sample_by,
        "order_by": order_by,
        "stop_tokens": stop_tokens,
        "fill_holes": fill_holes,
        "tokenizer": tokenizer,
    }
    if untrusted:
        limits = Limits(memory=memory_limit, time=time_limit)
        # Only a name goes to the child: a tokenizer object stays in this process.
        if isinstance(tokenizer, os.PathLike):
            tokenizer = os.fspath(tokenizer)
        options["tokenizer"] = tokenizer if isinstance(tokenizer, str) else None
        decoder(tokenizer)
        batch = load_untrusted(path, limits, options, tokenizer)
        return _with_options(batch, {**options, "untrusted": True}, tokenizer)
    batch = read_batch(path, **options)
    return _with_options(batch, options, tokenizer)


def _with_options(
    batch: Batch, options: Mapping[str, Any], tokenizer: object | None
) -> Batch:
    """Keep in `meta` what else than its path opens a batch again, for the explorer."""
    name: Any = getattr(tokenizer, "name_or_path", tokenizer)
    if name is not None:  # "?" is one without a name
        name = os.fspath(name) if isinstance(name, str | os.PathLike) else "?"
    given = {
        **options,
        "tokenizer": name,
        "columns": dict(options["columns"] or {}),
        "stop_tokens": [*options["stop_tokens"]],
    }
    meta = {entry: fact for entry, fact in batch.meta.items() if entry != OPENED_WITH}
    opened = {option: value for option, value in given.items() if value}
    return batch.with_meta({**meta, **({OPENED_WITH: opened} if opened else {})})


def read_batch(
    path: Any,  # noqa: ANN401 as `load` takes it
    *,
    files: Sequence[Path] = (),
    columns: Mapping[str, str] | None = None,
    sample_by: str | Sequence[str] | None = None,
    order_by: str | None = None,
    stop_tokens: Collection[int] = (),
    fill_holes: bool = False,
    tokenizer: object | None = None,
) -> Batch:
    """Read a batch in this process as `load` does, without the checks.

    `files` are the files of one step, if the caller has resolved them already.
    """
    check_order(sample_by, order_by)
    decoder(tokenizer)  # fails here, and not in a view, if it cannot be opened
    if isinstance(path, str | os.PathLike):
        chosen = files or resolve_paths(path)
        batch = read_files(chosen, path, columns)
        if not files and (others := name_others(path, chosen)):
            reasons = [*batch.meta.get("not_opened", ()), f"{others}: {_OTHERS}"]
            batch = batch.with_meta({**batch.meta, "not_opened": reasons})
    else:
        batch = read_table(path, columns)
    batch = _with_tokenizer_note(batch, tokenizer)
    tokenizer = batch.tokenizer if tokenizer is None else tokenizer
    batch = with_template_mask(batch, tokenizer)
    if tokenizer is not batch.tokenizer:
        batch = replace(batch, tokenizer=tokenizer)
    batch = fill_mask_holes(batch, fill=fill_holes)
    if sample_by:
        batch = join_rows(batch, sample_by, order_by)
    else:
        batch = with_join_hint(batch)
    return split_after(batch, stop_tokens)


def _with_tokenizer_note(batch: Batch, tokenizer: object | None) -> Batch:
    """Say in `meta["text"]` that the file names a tokenizer that was not opened."""
    meta = {name: fact for name, fact in batch.meta.items() if name != "text"}
    name = meta.get("tokenizer")
    if tokenizer is None and batch.tokenizer is None and isinstance(name, str):
        meta["text"] = (
            f"token ids only: the file names the tokenizer {name:.200}, which is not in"
            " its folder; pass it as `tokenizer=`"
        )
    return batch.with_meta(meta)
