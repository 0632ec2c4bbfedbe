"""Screenshots and actions in the trajectory files of agent frameworks, for `attach`.

These are trajectories in ATIF, which Harbor and NeMo Gym write, and episodes of
verifiers. They have texts and pictures, and at most the sampler's log-probabilities.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rounddiag.errors import BatchError
from rounddiag.loaders.assembly.images import read_picture, with_pictures
from rounddiag.loaders.source import Source, format_names
from rounddiag.loaders.tabular.json_lines import JsonLines, objects_in
from rounddiag.wording import pluralize

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from rounddiag._typing import Array
    from rounddiag.batch import Batch
    from rounddiag.vision import Screenshot


# Sample columns that may have the name of a trajectory, besides the sample's id.
_NAMES = ("trace_id", "session_id", "trajectory_id", "request_id")
_ACTION = "action"


@dataclass(kw_only=True)
class Trajectory:
    """The screenshots and actions of a trajectory.

    Attributes
    ----------
    names : tuple of str
        What the file calls it.
    pictures : list of Screenshot and int
        Each with the number of turns before it.
    actions : list of str or None
        One per turn of the agent; None where it called no tool.
    """

    names: tuple[str, ...]
    pictures: list[tuple[Screenshot, int]] = field(default_factory=list)
    actions: list[str | None] = field(default_factory=list)

    def add_pictures(self, content: object, folder: Path | None = None) -> None:
        """Add the pictures in a message, before the next turn."""
        for part in objects_in(content):
            picture = _read_part(part, folder)
            if picture is not None:
                self.pictures.append((picture, len(self.actions)))

    def shots(self, num_rounds: int) -> list[Screenshot]:
        """Return the pictures with their rounds, if a turn is a round."""
        fits = len(self.actions) == num_rounds
        rounds = [
            turn if fits and turn < num_rounds else None for _, turn in self.pictures
        ]
        pairs = zip(self.pictures, rounds, strict=True)
        return [replace(picture, round=round_) for (picture, _), round_ in pairs]


def attach_trajectories(batch: Batch, path: Path) -> Batch:
    """Add the screenshots and actions of trajectories to the samples of their names."""
    found: dict[str, Trajectory] = {}
    for trajectory in _read_trajectories(path):
        found |= dict.fromkeys(trajectory.names, trajectory)
    names = _names_of_samples(batch)
    rows = [next((found[n] for n in row if n in found), None) for row in names]
    if not any(rows):
        raise BatchError.build(
            key="sample_id",
            expected=f"trajectories of its samples: {format_names(names[0][:1])}, ...",
            found=f"those of {format_names([*found][:4])}",
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
    batch = with_pictures(batch, pictures)
    columns = _with_actions(batch.round_columns, actions)
    meta = {**batch.meta, "trajectories": note}
    return replace(batch, round_columns=columns, meta=meta)


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
    files = sorted(path.rglob("*.json*")) if path.is_dir() else [path]
    for file in files:
        source = Source.of_file(file)
        if file.suffix != ".json":
            for episode in JsonLines(source):
                yield from _read_episode(episode)
            continue
        try:
            document = json.loads(source.whole().read())
        except (ValueError, RecursionError) as error:
            raise source.damage_error(found=f"no JSON: {error!s:.80}") from error
        if isinstance(document, dict) and isinstance(document.get("steps"), list):
            yield _read_atif(document, file)


def _read_atif(document: dict[str, Any], file: Path) -> Trajectory:
    keys = ("session_id", "trajectory_id")
    named = [str(document[key]) for key in keys if document.get(key)]
    trajectory = Trajectory(names=(*named, file.stem, file.parent.name))
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
    return trajectory


def _read_episode(episode: Mapping[str, Any]) -> Iterator[Trajectory]:
    """Read the traces of an episode; of branches, the first."""
    for trace in objects_in(episode.get("traces")):
        trajectory = Trajectory(names=(str(trace.get("id")),))
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
    file, home = (folder / name).resolve(), folder.resolve()
    return read_picture(file.read_bytes()) if _is_in(file, home) else None


def _is_in(file: Path, folder: Path) -> bool:
    return file.is_relative_to(folder) and file.is_file()
