"""prime-rl's trace annotations: `monitors/file/traces/annotations/trainer/*.jsonl`.

They have the trainer's log-probabilities by trace and branch. The tokens, masks and the
sampler's log-probabilities are in the episodes beside them, in `stream/*.jsonl`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rounddiag.loaders.format import Format
from rounddiag.loaders.frameworks._token_records import TokenRecords
from rounddiag.loaders.source import Source
from rounddiag.loaders.tabular.json_lines import JsonLines

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from rounddiag._typing import Array
    from rounddiag.batch import Batch

    Branches = dict[int, Mapping[str, Any]]

_VERSION = 1


def read_annotations(lines: JsonLines, source: Source) -> Batch:
    """Build a batch from the annotated branches of all traces.

    - A sample is a branch of a trace: its nodes from the root to the leaf.
    - A token is generated if its node's `mask` says so and the trainer annotated it.
      Tokens that another branch trained have nulls. A log-probability of null beside an
      entropy was NaN or infinite; it becomes NaN.
    - The batch's `loss_mask` is also 0 at tokens that the loss masked (`is_masked`).
    - The file has all steps of the run. The sample column `ship_step` has the step to
      which the orchestrator sent a trace, where `annotations/orch` names it.
    """
    wanted = _annotated(lines)
    folder = source.path.absolute().parent.parent.parent
    steps = _ship_steps(folder / "annotations" / "orch")
    samples = TokenRecords(source, "mask")
    count = 0
    for episodes in _stream(folder / "stream", source):
        for episode in episodes:
            for trace in _objects(episode.get("traces")):
                branches = wanted.get(str(trace.get("id")), {})
                paths = _branches(_objects(trace.get("nodes"))) if branches else []
                for index, branch in branches.items():
                    if index >= len(paths):
                        raise _no_such_branch(source, trace, index)
                    rows = _rows(paths[index], branch, episodes.source)
                    columns = _columns(trace, index, steps)
                    samples.add(rows, columns)
                    count += 1
    if not count:
        raise source.error(
            expected=f"annotations of the traces in {folder / 'stream'}",
            found="no trace of that name with `trainer_logprobs`",
            advice="Open a file of `annotations/trainer`, in the folder of its run.",
        )
    return samples.batch({"old_log_probs_source": "the training pass itself"})


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
        for branch in _objects(record.get("branches")):
            index = branch.get("index")
            if isinstance(index, int) and index >= 0 and "trainer_logprobs" in branch:
                found.setdefault(str(record.get("trace_id")), {})[index] = branch
    return found


def _ship_steps(folder: Path) -> dict[str, int]:
    """Return the step that a trace was sent to, where the orchestrator says so."""
    steps = {}
    for path in sorted(folder.glob("*.jsonl")):
        for record in JsonLines(Source.of_file(path)):
            match record.get("info"):
                case {"ship": {"step": int(step)}}:
                    steps[str(record.get("trace_id"))] = step
    return steps


def _stream(folder: Path, source: Source) -> Iterator[JsonLines]:
    """Yield the files of episodes in order."""
    paths = sorted(folder.glob("*.jsonl"))
    if not paths or any(folder.glob("*.jsonl.zst")):
        raise source.error(
            expected=f"the episodes of the run as {folder / '*.jsonl'}",
            found="sealed ones" if any(folder.glob("*.zst")) else "none",
            advice="Copy the folder `traces` as a whole, and unpack it with"
            " `zstd -d --rm stream/*.zst`.",
        )
    yield from (JsonLines(Source.of_file(path)) for path in paths)


def _objects(value: object) -> list[dict[str, Any]]:
    items = value if isinstance(value, list) else []
    return [one for one in items if isinstance(one, dict)]


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


def _columns(
    trace: Mapping[str, Any], index: int, steps: Mapping[str, int]
) -> dict[str, object]:
    name = str(trace.get("id"))
    columns: dict[str, object] = {"trace_id": name, "branch": index}
    if name in steps:
        columns["ship_step"] = steps[name]
    rewards = trace.get("rewards")
    parts = _objects([*rewards.values()]) if isinstance(rewards, dict) else []
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


PRIME_RL_TRACES = Format(
    name="trace annotations",
    framework="prime-rl",
    files=("annotations/trainer/*.jsonl",),
    keys=("version", "trace_id", "branches"),
    read=read_annotations,
    in_parts=True,
)
