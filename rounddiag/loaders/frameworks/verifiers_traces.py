"""Episodes of verifiers, and prime-rl's annotations of their traces.

The nodes of an episode's traces have tokens, masks and the sampler's log-probabilities;
and the trainer's, as `trainer_logprobs`, if a trainer added them. prime-rl writes those
to files of their own, `monitors/file/traces/annotations/trainer/*.jsonl`, by trace and
branch. The episodes are beside them, in `stream/*.jsonl`. Files that a run has filled
or closed are packed: `*.jsonl.zst`. Before prime-rl split them, each stream was one
file: `annotations/trainer.jsonl`, with the episodes in `*.jsonl` beside that folder.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rounddiag.loaders.assembly.images import read_picture, with_pictures
from rounddiag.loaders.format import Format
from rounddiag.loaders.frameworks._token_records import TokenRecords
from rounddiag.loaders.json_lines import JsonLines, objects_in
from rounddiag.loaders.source import Source

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from rounddiag._typing import Array
    from rounddiag.batch import Batch
    from rounddiag.vision import Screenshot

    Branches = dict[int, Mapping[str, Any]]

_VERSION = 1
_INFO = {"old_log_probs_source": "the training pass itself"}


def read_episodes(lines: JsonLines, source: Source) -> Batch:
    """Build a batch from the branches whose nodes have `trainer_logprobs`.

    Samples are as in `read_annotations`. A token that branches share belongs to the
    first one.
    """
    samples = TokenRecords(source, "mask")
    pictures: list[list[Screenshot]] = []
    for episode in lines:
        for trace in objects_in(episode.get("traces")):
            known: set[int] = set()
            for index, path in enumerate(_branches(objects_in(trace.get("nodes")))):
                branch = _join_nodes(path, known, source)
                if branch is not None:
                    rows = _rows(path, branch, source)
                    samples.add(rows, _columns(episode, trace, index, {}))
                    pictures.append(_pictures(path, rows["response_mask"]))
    if not pictures:
        raise source.error(
            expected="episodes whose nodes have `trainer_logprobs`",
            found="the sampler's log-probs, without the trainer's",
            advice="With prime-rl, open `annotations/trainer/*.jsonl` beside the"
            " folder `stream`.",
        )
    return with_pictures(samples.batch(_INFO), pictures)


def read_annotations(lines: JsonLines, source: Source) -> Batch:
    """Build a batch from the annotated branches of all traces.

    - A sample is a branch of a trace: its nodes from the root to the leaf.
    - A token is generated if its node's `mask` says so and the trainer annotated it.
      Tokens that another branch trained have nulls. A log-probability of null beside an
      entropy was NaN or infinite; it becomes NaN.
    - The batch's `loss_mask` is also 0 at tokens that the loss masked (`is_masked`).
    - The file has all steps of the run. The sample column `ship_step` has the step to
      which the orchestrator sent a trace, where `annotations/orch` names it.
    - Both log-probabilities are rounded, by default to 4 decimals: tokens whose
      log-probabilities are equal here need not be bitwise equal.
    """
    wanted = _annotated(lines)
    path = source.path.absolute()
    annotations = next(part for part in path.parents if part.name == "annotations")
    steps = _ship_steps(_files(annotations / "orch") or _files(annotations, "orch"))
    samples = TokenRecords(source, "mask")
    pictures: list[list[Screenshot]] = []
    for episodes in _episodes(annotations.parent, source):
        for episode in episodes:
            for trace in objects_in(episode.get("traces")):
                branches = wanted.get(str(trace.get("id")), {})
                paths = _branches(objects_in(trace.get("nodes"))) if branches else []
                for index, branch in branches.items():
                    if index >= len(paths):
                        raise _no_such_branch(source, trace, index)
                    rows = _rows(paths[index], branch, episodes.source)
                    columns = _columns(episode, trace, index, steps)
                    samples.add(rows, columns)
                    pictures.append(_pictures(paths[index], rows["response_mask"]))
    if not pictures:
        raise source.error(
            expected=f"annotations of the traces in {annotations.parent}",
            found="no trace of that name with `trainer_logprobs`",
            advice="Open the annotations of the trainer, in the folder of their run.",
        )
    return with_pictures(samples.batch(_INFO), pictures)


def _annotated(lines: JsonLines) -> dict[str, Branches]:
    """Return the branches with log-probabilities by trace; the newest wins."""
    found: dict[str, Branches] = {}
    for record in lines:
        if record.get("version") != _VERSION:
            raise record.source.error(
                expected=f"`version` {_VERSION}",
                found=f"{record.get('version')!r:.40} in line {record.line}",
                advice="Update rounddiag: this one does not know the newer layout.",
            )
        for branch in objects_in(record.get("branches")):
            index = branch.get("index")
            if isinstance(index, int) and index >= 0 and "trainer_logprobs" in branch:
                found.setdefault(str(record.get("trace_id")), {})[index] = branch
    return found


def _files(folder: Path, name: str = "*") -> list[Path]:
    """Return the files of a stream in order; of a part that is being packed, one."""
    paths = [*folder.glob(f"{name}.jsonl.zst"), *folder.glob(f"{name}.jsonl")]
    parts = {path.name.removesuffix(".zst"): path for path in paths}
    return [parts[part] for part in sorted(parts)]


def _ship_steps(paths: Iterable[Path]) -> dict[str, int]:
    """Return the step that a trace was sent to, where the orchestrator says so."""
    steps = {}
    for path in paths:
        for record in JsonLines(Source.of_file(path)):
            match record.get("info"):
                case {"ship": {"step": int(step)}}:
                    steps[str(record.get("trace_id"))] = step
    return steps


def _episodes(folder: Path, source: Source) -> Iterator[JsonLines]:
    """Yield the files of episodes in order."""
    paths = _files(folder / "stream") or _files(folder)
    if not paths:
        raise source.error(
            expected=f"the episodes of the run as {folder / 'stream' / '*.jsonl'}",
            found="none",
            advice="Copy the folder `traces` as a whole.",
        )
    yield from (JsonLines(Source.of_file(path)) for path in paths)


def _branches(nodes: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Return the nodes from the root to each leaf, in the order of the leaves."""
    size = len(nodes)
    parents = [_parent(node, size) for node in nodes]
    inner = {*parents}
    found = []
    for leaf in (index for index in range(size) if index not in inner):
        path: dict[int, dict[str, Any]] = {}
        at: int | None = leaf
        while at is not None and at not in path:
            path[at] = nodes[at]
            at = parents[at]
        found.append(list(reversed(path.values())))
    return found


def _parent(node: Mapping[str, Any], size: int) -> int | None:
    parent = node.get("parent")
    return parent if isinstance(parent, int) and 0 <= parent < size else None


def _rows(
    nodes: list[dict[str, Any]], branch: Mapping[str, Any], source: Source
) -> dict[str, Array]:
    """Return the values per token of a branch, as far as the trainer annotated it."""
    ids = [_numbers(node, "token_ids", source) for node in nodes]
    sampled = [
        _numbers(node, "mask", source, len(row)) == 1
        for node, row in zip(nodes, ids, strict=True)
    ]
    written, token_ids = np.concatenate(sampled), np.concatenate(ids)
    rollout = np.zeros(len(written), dtype=np.float32)
    rollout[written] = np.concatenate(
        [
            _numbers(node, "logprobs", source, int(mask.sum()))
            if mask.any()
            else np.empty(0)
            for node, mask in zip(nodes, sampled, strict=True)
        ]
    )
    old = _numbers(branch, "trainer_logprobs", source).astype(np.float32)
    size = len(old)
    if size > len(written):
        raise source.error(
            expected=f"at most {len(written)} annotations, one per token of a branch",
            found=f"{size}",
            advice="The annotations belong to other episodes: copy the folder again.",
        )
    trained = ~np.isnan(old)
    rows = {"token_ids": token_ids[:size], "rollout_log_probs": rollout[:size]}
    rows["entropy"] = np.full(size, np.nan, dtype=np.float32)
    if "entropies" in branch:
        rows["entropy"] = _numbers(branch, "entropies", source, size)
        trained |= ~np.isnan(rows["entropy"])
    mask = (written[:size] & trained).astype(np.int8)
    clipped = np.zeros(size, dtype=bool)
    if "is_masked" in branch:
        clipped = _numbers(branch, "is_masked", source, size) == 1
    rows["old_log_probs"] = np.where(mask, old, 0).astype(np.float32)
    return {**rows, "response_mask": mask, "loss_mask": mask * ~clipped}


def _numbers(
    values: Mapping[str, Any], name: str, source: Source, size: int | None = None
) -> Array:
    """Return a list of numbers, of this length."""
    row = values.get(name)
    if not isinstance(row, np.ndarray) or size not in {None, len(row)}:
        found = (
            f"{len(row)}" if isinstance(row, np.ndarray) else f"{type(row).__name__}"
        )
        raise source.error(
            expected=f"{'' if size is None else f'{size} '}numbers in `{name}`",
            found=found,
            advice="Only traces of a sampler that returns token ids can be compared.",
        )
    return row


def _join_nodes(
    nodes: list[dict[str, Any]], known: set[int], source: Source
) -> Mapping[str, Any] | None:
    """Return the trainer's values of a branch, None if no node adds any.

    They are NaN at nodes without values, and at those that an earlier branch has.
    """
    parts: dict[str, list[Array]] = {"trainer_logprobs": [], "entropies": []}
    has_any = False
    for node in nodes:
        is_new = id(node) not in known and "trainer_logprobs" in node
        known.add(id(node))
        has_any |= is_new
        mask = _numbers(node, "mask", source) == 1
        for name, rows in parts.items():
            row = np.full(len(mask), np.nan)
            if is_new and name in node:
                row[mask] = _numbers(node, name, source, int(mask.sum()))
            rows.append(row)
    joined = {name: np.concatenate(rows) for name, rows in parts.items()}
    return joined if has_any else None


def _pictures(nodes: Iterable[Mapping[str, Any]], mask: Array) -> list[Screenshot]:
    """Return the pictures in the messages of a branch, with the round that follows."""
    found: list[tuple[Screenshot, int]] = []
    start = num_rounds = 0
    for node in nodes:
        message = node.get("message")
        content = message.get("content") if isinstance(message, dict) else None
        for part in objects_in(content):
            url = part.get("image_url")
            picture = read_picture(url.get("url") if isinstance(url, dict) else None)
            if picture is not None:
                found.append((picture, num_rounds))
        stop = start + len(node["token_ids"])
        num_rounds += bool(mask[start:stop].any())
        start = stop
    return [
        replace(picture, round=after if after < num_rounds else None)
        for picture, after in found
    ]


def _columns(
    episode: Mapping[str, Any],
    trace: Mapping[str, Any],
    index: int,
    steps: Mapping[str, int],
) -> dict[str, object]:
    name = str(trace.get("id"))
    columns: dict[str, object] = {"trace_id": name, "branch": index}
    match episode.get("run"):
        case {"work": {"policy": {"start": int(start), "end": int(end)}}}:
            columns |= {"min_weight_version": start, "max_weight_version": end}
    if name in steps:
        columns["ship_step"] = steps[name]
    rewards = trace.get("rewards")
    parts = objects_in([*rewards.values()]) if isinstance(rewards, dict) else []
    scores = [(one.get("score"), one.get("weight", 1)) for one in parts]
    if scores and all(isinstance(x, int | float) for pair in scores for x in pair):
        columns["rewards"] = float(sum(score * weight for score, weight in scores))
    return columns


def _no_such_branch(source: Source, trace: Mapping[str, Any], index: int) -> Exception:
    return source.error(
        expected=f"branch {index} in trace {trace.get('id')!s:.80}",
        found="fewer branches",
        advice="The annotations belong to other episodes: copy the folder again.",
    )


EPISODES = Format(
    name="episodes with trainer_logprobs",
    framework="verifiers",
    files=("traces.jsonl",),
    keys=("env", "traces"),
    read=read_episodes,
    verified="written by verifiers' Episode, made by hand",
)
PRIME_RL_TRACES = Format(
    name="trace annotations",
    framework="prime-rl",
    files=(
        "annotations/trainer/*.jsonl",
        "annotations/trainer/*.jsonl.zst",
        "annotations/trainer.jsonl",
    ),
    keys=("version", "trace_id", "branches"),
    read=read_annotations,
    verified="written by prime-rl's AnnotationWriter, on a micro batch made by hand,"
    " beside episodes of verifiers",
    in_parts=True,
)
