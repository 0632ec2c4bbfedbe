"""Screenshots and actions in files of agents, for `attach`: any format of turns."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from rounddiag._typing import Array
from rounddiag.batch import Batch
from rounddiag.batch.picture_places import with_pictures
from rounddiag.errors import BatchError
from rounddiag.loaders.assembly.turns import Transcript
from rounddiag.loaders.containers import open_container
from rounddiag.loaders.detection import content_names, describe_content, find_format
from rounddiag.loaders.source import Source, inside, load_errors
from rounddiag.vision import Screenshot
from rounddiag.wording import format_names, pluralize

# Sample columns that may have the name of a trajectory, besides the sample's id.
_NAMES = ("trace_id", "session_id", "trajectory_id", "request_id")
_ACTION = "action"


def _shots(transcript: Transcript, num_rounds: int) -> list[Screenshot]:
    fits, index = len(transcript.rounds) == num_rounds, 0
    shots = []
    for turn in transcript.turns:
        round_ = index if fits and index < num_rounds else None
        shots += [replace(shot, round=round_) for shot in turn.images]
        index += turn.is_round
    return shots


def _is_part_of(transcript: Transcript, other: Transcript) -> bool:
    """Return whether it is a sub-agent's, by the other's references."""
    own = {name for name, rank in transcript.names.items() if rank == 0}
    own.add(str(transcript.file))
    return transcript is not other and not other.parts.isdisjoint(own)


def attach_trajectories(batch: Batch, path: str | os.PathLike[str]) -> Batch:
    """Add the screenshots and actions of trajectories to the samples of their names."""
    if not isinstance(path, str | os.PathLike):
        raise BatchError.build(
            key="source",
            expected="the path of trajectories",
            found=f"a {type(path).__name__}",
            advice="Save them to a file, and pass its path.",
        )
    trajectories, others = _read_trajectories(Path(path))
    names = _names_of_samples(batch)
    if not trajectories:
        raise BatchError.build(
            key="source",
            expected="trajectories of agents, as `rounddiag.formats()` lists them",
            found="; ".join(others) or "no file",
            advice="Pass the file or the folder that has the turns of the episodes.",
        )
    rows = _match(trajectories, names)
    if not any(rows):
        ranked = [
            min((rank, n) for n, rank in transcript.names.items())
            for transcript in trajectories
        ]
        raise BatchError.build(
            key="sample_id",
            expected=f"trajectories of its samples: {format_names(names[0][:1])}, ...",
            found=f"those of {format_names(name for _, name in ranked[:4])}",
            advice="Name the samples by their ids, or by a sample column `session_id`"
            " with the session id of each trajectory.",
        )
    sizes = np.bincount(
        batch.rounds.sample.cpu().numpy(), minlength=len(batch)
    ).tolist()
    pairs = [*zip(rows, sizes, strict=True)]
    pictures = [
        _shots(transcript, size) if transcript else [] for transcript, size in pairs
    ]
    actions = {
        (sample, turn): written.action
        for sample, (transcript, size) in enumerate(pairs)
        if transcript is not None and len(transcript.rounds) == size
        for turn, written in enumerate(transcript.rounds)
    }
    num_others = sum(
        transcript is not None and len(transcript.rounds) != size
        for transcript, size in pairs
    )
    note = f"{pluralize(sum(map(bool, rows)), 'sample')} of {len(batch):,}"
    if num_others:
        sizes_differ = pluralize(num_others, "sample")
        note += f"; {sizes_differ} with another number of rounds than turns"
    if unread := sum(transcript.num_unread for transcript in rows if transcript):
        note += f"; {pluralize(unread, 'picture')} missing or outside the folder"
    batch = with_pictures(batch, pictures)
    columns = _with_actions(batch.round_columns, actions)
    meta = {**batch.meta, "trajectories": note}
    return replace(batch, round_columns=columns, meta=meta)


def _match(
    trajectories: Sequence[Transcript], names: Sequence[Sequence[str]]
) -> list[Transcript | None]:
    """Return the trajectory of each sample; several of one name are an error.

    Not those of sub-agents, which can have the session id of their agent. Names of a
    lower rank count first.
    """
    by_name: dict[str, list[Transcript]] = {}
    for transcript in trajectories:
        for name in transcript.names:
            by_name.setdefault(name, []).append(transcript)
    rows: list[Transcript | None] = []
    for row in names:
        known = [(each, name) for name in row for each in by_name.get(name, [])]
        lowest = min((each.names[name] for each, name in known), default=0)
        lowest_ranked = (each for each, name in known if each.names[name] == lowest)
        named = [*{id(each): each for each in lowest_ranked}.values()]
        best = [each for each in named if not any(_is_part_of(each, o) for o in named)]
        if len(best) > 1:
            raise BatchError.build(
                key="source",
                expected=f"one trajectory for the sample {format_names(row[:1])}",
                found=format_names(transcript.file.name for transcript in best),
                advice="Pass one of the files, or give the batch a sample column"
                " `trajectory_id`.",
            )
        rows.append(best[0] if best else None)
    return rows


def _names_of_samples(batch: Batch) -> list[list[str]]:
    columns = [batch.sample_columns[n] for n in _NAMES if n in batch.sample_columns]
    ids = [] if batch.sample_ids is None else [batch.sample_ids]
    rows = zip(*ids, *columns, strict=True)
    names = [[str(name) for name in row] for row in rows]
    return names or [[] for _ in range(len(batch))]


def _with_actions(
    columns: Mapping[str, Array], actions: Mapping[tuple[int, int], str | None]
) -> Mapping[str, Array]:
    if _ACTION in columns or not any(actions.values()):
        return columns
    if not columns:
        keys = np.array([*actions], dtype=np.int32)
        columns = {"sample": keys[:, 0], "round": keys[:, 1]}
    pairs = zip(columns["sample"].tolist(), columns["round"].tolist(), strict=True)
    values = [actions.get(pair) for pair in pairs]
    return {**columns, _ACTION: np.array(values, dtype=object)}


def _read_trajectories(path: Path) -> tuple[list[Transcript], list[str]]:
    """Read a file, or the files of a folder at any depth; of branches, the first.

    Also describes the first files that are something else.
    """
    path = path.resolve()
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    folder = path if path.is_dir() else path.parent
    transcripts: list[Transcript] = []
    others: list[str] = []
    for file in files:
        if file.is_dir() and not file.is_symlink():
            continue
        if path.is_dir() and not _SUFFIXES & {*file.suffixes}:
            continue
        source = Source.of_file(inside(folder, file.relative_to(folder)))
        with load_errors(source):
            root = open_container(source)
            form = find_format(content_names(root))
            if form is not None and form.trajectories is not None:
                transcripts += form.trajectories(root, source)
                continue
        if len(others) < _MAX_OTHERS:
            others.append(f"{file.name} with {describe_content(root)}")
    first = [each for each in transcripts if each.columns.get("branch", 0) == 0]
    return first, others


_SUFFIXES = {".json", ".jsonl", ".eval", ".zst"}
_MAX_OTHERS = 4  # files in a message
