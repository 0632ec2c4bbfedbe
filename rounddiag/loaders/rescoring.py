"""Scores of another engine: samples are written for it, `attach` reads what it says."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from tqdm.auto import tqdm

from rounddiag._typing import Array
from rounddiag.batch import Batch
from rounddiag.batch.batch import require_batch
from rounddiag.batch.chains import split_chains
from rounddiag.batch.sample_sequence import known_sequence
from rounddiag.checks.contracts import locate_token
from rounddiag.errors import BatchError, LoadError, RounddiagError
from rounddiag.loaders.containers import open_container
from rounddiag.loaders.detection import describe_content
from rounddiag.loaders.json_lines import JsonLines
from rounddiag.loaders.memory import in_memory
from rounddiag.loaders.output import (
    FileKind,
    make_folder,
    output_errors,
    write_atomically,
)
from rounddiag.loaders.parquet.columns import BROKEN
from rounddiag.loaders.score_files import Entries, read_entries
from rounddiag.loaders.source import Source, load_errors
from rounddiag.loaders.tables import Table, as_table
from rounddiag.loaders.trajectory_files import attach_trajectories
from rounddiag.vision import Screenshot


def _check_entries(batch: Batch, entries: Entries) -> None:
    flat = entries.flat_positions(batch)
    _check_ids(batch, entries, flat)
    counts = np.bincount(flat, minlength=batch.num_positions)
    twice = np.flatnonzero(counts > 1)
    if len(twice):
        raise BatchError.build(
            expected=f"one value for {locate_token(batch, int(twice[0]))}",
            found=f"{counts[twice[0]]}",
            advice="Remove the duplicate rows.",
        )
    _check_complete(batch, counts)


def _check_ids(batch: Batch, entries: Entries, flat: Array) -> None:
    expected = batch.require_ids().cpu().numpy()[flat]
    differs = np.flatnonzero(entries.token_ids != expected)
    if len(differs):
        first = differs[0]
        place = locate_token(batch, int(flat[first]))
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
        token = batch.require_ids()[first].item()
        place = locate_token(batch, int(first))
        raise BatchError.build(
            expected=f"a value for token id {token} at {place}",
            found=f"none, nor for {len(missing) - 1} other generated tokens",
            advice="Rescore all samples, or attach to a selection of the batch.",
        )


def attach(batch: Batch, name: str, source: Any) -> Batch:  # noqa: ANN401 frames of several libraries
    """Add log-probabilities that another engine computed for the tokens of a batch.

    Or, with the name "trajectories", the screenshots and actions that an agent
    framework saved.

    A third score of identical tokens shows which of two engines is wrong: compare with
    `token_frame(batch, a="rescored", b="rollout")`. Every token id is checked against
    the batch, so that scores of other tokens are rejected.

    Parameters
    ----------
    batch : Batch
    name : str
        The name of the score in `batch.scores`; an existing one is replaced. The name
        "trajectories" is for files of agents: see `source`.
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

        For "trajectories": a file of agents that `rounddiag.formats()` lists, such as
        ATIF, episodes of verifiers or a run of OSWorld, or a folder of them. Each goes
        to the samples whose id, or whose sample column `trace_id`, `session_id`,
        `trajectory_id` or `request_id`, is its name: its session id, its trajectory id,
        its trace id, or the name of its file or folder. Actions become the round column
        `action` where a sample has a round for each turn of the agent.

    Returns
    -------
    Batch
        The batch with one more score; NaN at tokens without a value, such as
        observations.

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
    require_batch(batch)
    batch.require_ids()
    if name == "trajectories":
        return attach_trajectories(batch, source)
    if not isinstance(source, str | os.PathLike):
        return _with_score(batch, name, in_memory(source)[0])
    path = Path(source).absolute()
    try:
        return _with_score(batch, name, _read_table(path))
    except BatchError as error:
        raise LoadError(f"{path}: {error}") from error


def _with_score(batch: Batch, name: str, table: Table) -> Batch:
    chains = split_chains(batch)
    try:
        score = chains.to_joined(_read_score(chains.batch, table))
    except BatchError:
        if batch.contexts is None:
            raise
        score = _read_score(batch, table)  # scores of whole samples
    return replace(batch, scores={**batch.scores, name: score})


def _read_score(batch: Batch, table: Table) -> Tensor:
    entries = read_entries(batch, table)
    _check_entries(batch, entries)
    values = np.full(batch.num_positions, np.nan, entries.log_probs.dtype)
    values[entries.flat_positions(batch)] = entries.log_probs
    return torch.from_numpy(values).to(batch.offsets.device)


def _read_table(path: Path) -> Table:
    if not path.is_file():
        raise LoadError.build(
            file=path,
            expected="a file of JSON lines or Parquet",
            found="nothing",
            advice="Pass the path of the scores.",
        )
    source = Source.of_file(path)
    with load_errors(source):
        root = open_container(source)
        if isinstance(root, JsonLines | Table):
            return as_table(root)
    raise source.error(
        expected="JSON lines or a Parquet file of scores",
        found=describe_content(root),
        advice="See `rounddiag.attach` for the columns: one row per sample or per"
        " token.",
    )


def _record(batch: Batch, sample: int, folder: Path) -> dict[str, Any]:
    start = int(batch.offsets[sample])
    real = slice(start, start + int(batch.lengths[sample]))
    shots = () if batch.images is None else batch.images[sample]
    pictures = [
        _write_screenshot(shot, folder, f"images/{sample:05}-{index:03}.png")
        for index, shot in enumerate(shots)
    ]
    num_prompt, ids = known_sequence(batch, sample)
    saved = None if batch.position_ids is None else batch.position_ids[sample]
    return {
        "sample": sample,
        "sample_id": None if batch.sample_ids is None else batch.sample_ids[sample],
        "prompt_ids": None if batch.prompt_ids is None else ids[:num_prompt].tolist(),
        "response_ids": ids[num_prompt:].tolist(),
        "response_mask": (batch.response_mask[real] != 0).int().tolist(),
        "images": [name for name, _ in pictures],
        "image_positions": [shot.position for shot in shots],
        "image_errors": [error for _, error in pictures],
        "image_sizes": [shot.seen_size or _size(shot) for shot in shots],
        "position_ids": None if saved is None else saved.tolist(),
    }


def _size(shot: Screenshot) -> tuple[int, int] | None:
    try:
        return shot.size
    except (RounddiagError, *BROKEN):
        return None


def _write_screenshot(
    shot: Screenshot, folder: Path, name: str
) -> tuple[str | None, str | None]:
    try:
        shot.image()  # `png` passes stored PNG bytes on without decoding them
        data = shot.png()
    except (RounddiagError, *BROKEN) as error:
        return None, f"{error!s:.300}"
    (folder / name).write_bytes(data)
    return name, None


def export_rescore(batch: Batch, folder: str | os.PathLike[str]) -> None:
    """Write exact token ids and screenshots, for another engine to score.

    Only a third score of identical tokens shows which of two engines is wrong. Ids are
    written as numbers and never pass through text, so they stay the same.

    `samples.jsonl` has one record per sample; of samples joined from rows that are
    steps, one per chain of contexts (`Batch.chains`), numbered through:

    ===================  =========================================================
    `sample`             index in the batch
    `sample_id`          null if the batch has none
    `prompt_ids`         null if the batch has none
    `response_ids`
    `response_mask`
    `images`             names of PNG files under `images/`, one per screenshot;
                         null for a screenshot that could not be written
    `image_positions`    of the first image token in the response; negative in the
                         prompt (-1 is its last token), null if unknown
    `image_errors`       why a screenshot could not be written, else null
    `image_sizes`        width and height at which the model saw it
    `position_ids`       null if the batch has none
    ===================  =========================================================

    Screenshots are written as the batch has them: `capture.save_batch` stores them
    smaller than the model saw them.

    Parameters
    ----------
    batch : Batch
        All of a batch, or a selection such as `batch[:8]`.
    folder : path-like
        A new or empty folder.

    See Also
    --------
    attach : Adds the scores. `rounddiag recipe rescore-vllm` and `rescore-transformers`
        print complete scripts.
    rounddiag.prove : Scores with a model or a server, also under hypotheses.

    Examples
    --------
    >>> import tempfile
    >>> import rounddiag as rd
    >>> batch = rd.load("sample_data/healthy.parquet")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     export_rescore(batch[:2], folder)
    ...     print(*sorted(file.name for file in Path(folder).iterdir()))
    images samples.jsonl
    """
    require_batch(batch)
    batch.require_ids()
    path = Path(folder)
    batch = split_chains(batch).batch
    _check_folder(path)
    make_folder(path)
    pictures = path / "images"
    numbers = tqdm(range(batch.num_samples), unit="sample", leave=False, delay=1)
    try:
        with (
            output_errors(path),
            write_atomically(path / "samples.jsonl", _NEW) as partial,
            partial.open("w", encoding="utf-8") as lines,
        ):
            pictures.mkdir()
            for number in numbers:
                lines.write(f"{json.dumps(_record(batch, number, path))}\n")
    except BaseException:
        shutil.rmtree(pictures, ignore_errors=True)  # so that it can be tried again
        raise


_NEW = FileKind("an empty file", lambda _: False)


def _check_folder(folder: Path) -> None:
    with output_errors(folder):
        has_files = folder.is_dir() and any(folder.iterdir())
        is_other = os.path.lexists(folder) and not folder.is_dir()
    if has_files or is_other:
        raise BatchError.build(
            file=folder,
            expected="a folder that is new or empty",
            found="one with files" if has_files else "a file",
            advice="Pass another folder: nothing is overwritten.",
        )
