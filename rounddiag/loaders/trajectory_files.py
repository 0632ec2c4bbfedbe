"""Screenshots and actions in the trajectory files of agent frameworks, for `attach`.

These are trajectories in ATIF, which Harbor and NeMo Gym write, and episodes of
verifiers. They have texts and pictures, and at most the sampler's log-probabilities.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rounddiag.errors import BatchError, LoadError
from rounddiag.loaders.assembly.images import read_picture, with_pictures
from rounddiag.loaders.json_lines import JsonLines, objects_in
from rounddiag.loaders.json_text import JsonError, parse_json
from rounddiag.loaders.paths import inside
from rounddiag.loaders.source import Source, format_names
from rounddiag.wording import pluralize

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rounddiag._typing import Array
    from rounddiag.batch import Batch
    from rounddiag.vision import Screenshot


# Sample columns that may have the name of a trajectory, besides the sample's id.
_NAMES = ("trace_id", "session_id", "trajectory_id", "request_id")
_ACTION = "action"
_MOST_BYTES = 1 << 29  # of a picture: raw RGBA of the most pixels that Pillow decodes


@dataclass(kw_only=True)
class Trajectory:
    """The screenshots and actions of a trajectory.

    Attributes
    ----------
    names: What the file calls it, with a rank: 0 for the trajectory's own id, 1 for
        that of its session, which others can share, 2 for its file, 3 for its folder.
    pictures: Each with the number of turns before it.
    actions: One per turn of the agent; None where it called no tool.
    parts: Files, and trajectory ids, of its sub-agents.
    num_unread: Pictures in files that are missing, outside the folder, or too large.
    """

    file: Path
    names: dict[str, int]
    pictures: list[tuple[Screenshot, int]] = field(default_factory=list)
    actions: list[str | None] = field(default_factory=list)
    parts: set[str] = field(default_factory=set)
    num_unread: int = 0

    def add_pictures(self, content: object, folder: Path | None = None) -> None:
        """Add the pictures in a message, before the next turn."""
        for part in objects_in(content):
            try:
                picture = _read_part(part, folder)
            except LoadError:
                self.num_unread += 1
                continue
            if picture is not None:
                self.pictures.append((picture, len(self.actions)))

    def is_part_of(self, other: Trajectory) -> bool:
        """Return whether it is a sub-agent's, by the other's references."""
        own = {name for name, rank in self.names.items() if rank == 0}
        return self is not other and not other.parts.isdisjoint({*own, str(self.file)})

    def shots(self, num_rounds: int) -> list[Screenshot]:
        """Return the pictures with their rounds, if a turn is a round."""
        fits = len(self.actions) == num_rounds
        rounds = [
            turn if fits and turn < num_rounds else None for _, turn in self.pictures
        ]
        pairs = zip(self.pictures, rounds, strict=True)
        return [replace(picture, round=round_) for (picture, _), round_ in pairs]


def attach_trajectories(batch: Batch, path: str | os.PathLike[str]) -> Batch:
    """Add the screenshots and actions of trajectories to the samples of their names."""
    if not isinstance(path, str | os.PathLike):
        raise BatchError.build(
            key="source",
            expected="the path of trajectories",
            found=f"a {type(path).__name__}",
            advice="Save them to a file, and pass its path.",
        )
    trajectories = [*_read_trajectories(Path(path))]
    names = _names_of_samples(batch)
    rows = _match(trajectories, names)
    if not any(rows):
        found = [
            min((rank, n) for n, rank in one.names.items()) for one in trajectories
        ]
        raise BatchError.build(
            key="sample_id",
            expected=f"trajectories of its samples: {format_names(names[0][:1])}, ...",
            found=f"those of {format_names(name for _, name in found[:4])}",
            advice="Give the batch `sample_ids`, or a sample column `session_id`, with"
            " the session id of each trajectory.",
        )
    sizes = np.bincount(
        batch.rounds.sample.cpu().numpy(), minlength=len(batch)
    ).tolist()
    pairs = [*zip(rows, sizes, strict=True)]
    pictures = [one.shots(size) if one else [] for one, size in pairs]
    actions = {
        (sample, turn): action
        for sample, (one, size) in enumerate(pairs)
        if one is not None and len(one.actions) == size
        for turn, action in enumerate(one.actions)
    }
    others = sum(one is not None and len(one.actions) != size for one, size in pairs)
    note = f"{pluralize(sum(map(bool, rows)), 'sample')} of {len(batch):,}"
    if others:
        note += (
            f"; {pluralize(others, 'sample')} with another number of rounds than turns"
        )
    if unread := sum(one.num_unread for one in rows if one):
        note += f"; {pluralize(unread, 'picture')} missing or outside the folder"
    batch = with_pictures(batch, pictures)
    columns = _with_actions(batch.round_columns, actions)
    meta = {**batch.meta, "trajectories": note}
    return replace(batch, round_columns=columns, meta=meta)


def _match(
    trajectories: Sequence[Trajectory], names: Sequence[Sequence[str]]
) -> list[Trajectory | None]:
    """Return the trajectory of each sample; several of one name are an error.

    Not those of sub-agents, which can have the session id of their agent. Names of a
    lower rank count first.
    """
    found: dict[str, list[Trajectory]] = {}
    for one in trajectories:
        for name in one.names:
            found.setdefault(name, []).append(one)
    rows: list[Trajectory | None] = []
    for row in names:
        known = [(one.names[n], id(one), one) for n in row for one in found.get(n, [])]
        lowest = min(known, default=(0,))[0]
        best = [*{key: one for rank, key, one in known if rank == lowest}.values()]
        best = [one for one in best if not any(map(one.is_part_of, best))]
        if len(best) > 1:
            raise BatchError.build(
                key="source",
                expected=f"one trajectory for the sample {format_names(row[:1])}",
                found=format_names(one.file.name for one in best),
                advice="Pass one of the files, or give the batch a sample column"
                " `trajectory_id`.",
            )
        rows.append(best[0] if best else None)
    return rows


def _names_of_samples(batch: Batch) -> list[list[str]]:
    """Return what a trajectory of each sample may be called."""
    columns = [batch.sample_columns[n] for n in _NAMES if n in batch.sample_columns]
    ids = [] if batch.sample_ids is None else [batch.sample_ids]
    rows = zip(*ids, *columns, strict=True)
    found = [[str(name) for name in row] for row in rows]
    return found or [[] for _ in range(len(batch))]


def _with_actions(
    columns: Mapping[str, Array], actions: Mapping[tuple[int, int], str | None]
) -> Mapping[str, Array]:
    """Return the columns of rounds with the actions, unless they have some already."""
    if _ACTION in columns or not any(actions.values()):
        return columns
    if not columns:
        keys = np.array([*actions], dtype=np.int32)
        columns = {"sample": keys[:, 0], "round": keys[:, 1]}
    pairs = zip(columns["sample"].tolist(), columns["round"].tolist(), strict=True)
    values = [actions.get(pair) for pair in pairs]
    return {**columns, _ACTION: np.array(values, dtype=object)}


def _read_trajectories(path: Path) -> Iterator[Trajectory]:
    """Read a file, or the files of a folder at any depth."""
    path = path.resolve()
    files = sorted(path.rglob("*.json*")) if path.is_dir() else [path]
    folder = path if path.is_dir() else path.parent
    for file in files:
        if file.is_dir() and not file.is_symlink():
            continue
        source = Source.of_file(inside(folder, file.relative_to(folder)))
        if file.suffix != ".json":
            for episode in JsonLines(source):
                yield from _read_episode(episode, file)
            continue
        try:
            document = parse_json(source.whole().read())
        except JsonError as error:
            raise source.damage_error(found=str(error)) from error
        if isinstance(document, dict) and isinstance(document.get("steps"), list):
            yield _read_atif(document, file)


def _read_atif(document: dict[str, Any], file: Path) -> Trajectory:
    ids = [document.get(key) for key in ("trajectory_id", "session_id")]
    ranked = [*enumerate([*ids, file.stem, file.parent.name])]
    names = {str(name): rank for rank, name in reversed(ranked) if name}
    trajectory = Trajectory(file=file, names=names)
    for step in objects_in(document["steps"]):
        if step.get("is_copied_context"):
            continue
        if step.get("source") == "agent":
            trajectory.actions.append(_describe_calls(step.get("tool_calls")))
        else:
            trajectory.add_pictures(step.get("message"), file.parent)
        observation = step.get("observation")
        results = observation.get("results") if isinstance(observation, dict) else None
        for result in objects_in(results):
            trajectory.add_pictures(result.get("content"), file.parent)
            for part in objects_in(result.get("subagent_trajectory_ref")):
                name = str(part.get("trajectory_path"))
                trajectory.parts |= {
                    str(file.parent / name),
                    str(part.get("trajectory_id")),
                }
    return trajectory


def _read_episode(episode: Mapping[str, Any], file: Path) -> Iterator[Trajectory]:
    """Read the traces of an episode; of branches, the first."""
    for trace in objects_in(episode.get("traces")):
        trajectory = Trajectory(file=file, names={str(trace.get("id")): 0})
        at = 0
        for index, node in enumerate(objects_in(trace.get("nodes"))):
            parent = node.get("parent")
            if index and not (isinstance(parent, int) and parent == at):
                continue
            at = index
            message = node.get("message")
            message = message if isinstance(message, dict) else {}
            if node.get("sampled") is True:
                trajectory.actions.append(_describe_calls(message.get("tool_calls")))
            else:
                trajectory.add_pictures(message.get("content"))
        yield trajectory


def _describe_calls(calls: object) -> str | None:
    """Return the tools that a turn calls, with their arguments, as text."""
    texts = []
    for call in objects_in(calls):
        arguments = call.get("arguments", "")
        if isinstance(arguments, dict):
            arguments = ", ".join(f"{k}={v!r}" for k, v in arguments.items())
        texts.append(f"{call.get('function_name', call.get('name'))}({arguments})")
    return "; ".join(texts) or None


def _read_part(part: Mapping[str, Any], folder: Path | None) -> Screenshot | None:
    """Return the picture of a part of a message: in it, or in a file beside it."""
    url, source = part.get("image_url"), part.get("source")
    if isinstance(url, dict):
        return read_picture(url.get("url"))
    name = source.get("path") if isinstance(source, dict) else None
    if not isinstance(name, str) or folder is None:
        return None
    if name.startswith("data:"):
        return read_picture(name)
    # A trajectory must not make us read files of other folders.
    file = inside(folder, name, most_bytes=_MOST_BYTES)
    return read_picture(Source.of_file(file).whole())
