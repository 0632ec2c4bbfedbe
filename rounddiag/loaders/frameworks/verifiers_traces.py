"""Episodes of verifiers, and prime-rl's annotations of their traces.

The nodes of an episode's traces have tokens, masks and the sampler's log-probabilities;
and the trainer's, as `trainer_logprobs`, if a trainer added them. prime-rl writes those
to files of their own, `monitors/file/traces/annotations/trainer/*.jsonl`, by trace and
branch. The episodes are beside them, in `stream/*.jsonl`. Files that a run has filled
or closed are packed: `*.jsonl.zst`. Before prime-rl split them, each stream was one
file: `annotations/trainer.jsonl`, with the episodes in `*.jsonl` beside that folder.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from rounddiag._typing import Array
from rounddiag.batch import Batch
from rounddiag.batch.turns import GENERATED
from rounddiag.loaders.assembly.trajectory_batch import REF, batch_of
from rounddiag.loaders.assembly.turns import GIVEN, Transcript
from rounddiag.loaders.format import Format
from rounddiag.loaders.json_lines import JsonLines
from rounddiag.loaders.outcome import outcome
from rounddiag.loaders.source import Source
from rounddiag.schema import SECONDS
from rounddiag.text.json_text import object_in, objects_in

_Node = Mapping[str, Any]
Branches = dict[int, Mapping[str, Any]]


_VERSION = 1
_OTHERS = "The annotations belong to other episodes: copy the folder again."
_META = {
    "mask_source": "mask",
    "prompt_source": "the tokens before the first 1 of `mask`",
}
_TRAINED = {**_META, "old_log_probs_source": "the training pass itself"}


def read_traces(lines: JsonLines, source: Source) -> Iterator[Transcript]:
    """Read the branches of the traces of episodes, or of lines that are a trace each.

    A token that branches share belongs to the first one. If a trainer added its
    log-probabilities to any node, only the branches with such nodes are samples.
    """
    branches: list[tuple[Transcript, bool]] = []
    for record in lines:
        for trace in objects_in(record.get("traces", [record])):
            known: set[int] = set()
            for index, path in enumerate(_branches(objects_in(trace.get("nodes")))):
                branch = _join_nodes(path, known, source)
                rows = _rows(path, branch, source)
                transcript = _trajectory(path, rows, trace, source, known)
                transcript.columns |= _columns(transcript, record, trace, index)
                branches.append((transcript, branch is not None))
                known |= {*map(id, path)}
    is_annotated = any(is_trained for _, is_trained in branches)
    for transcript, is_trained in branches:
        if is_trained >= is_annotated:
            yield transcript


def _read_episodes(lines: JsonLines, source: Source) -> Batch:
    samples = [*read_traces(lines, source)]
    turns = (turn for sample in samples for turn in sample.rounds)
    has_old = any("old_log_probs" in (turn.tokens or ()) for turn in turns)
    return batch_of(samples, source, **(_TRAINED if has_old else _META))


def _trajectory(
    path: Sequence[_Node],
    rows: dict[str, Array] | None,
    trace: _Node,
    source: Source,
    known: Collection[int] = (),
) -> Transcript:
    """Return a branch; its rounds are the nodes with tokens that it generated.

    Those of `known` nodes were generated in another branch.
    """
    transcript = Transcript(file=source.path, names={str(trace.get("id")): 0})
    calls = {str(call.get("node")): call for call in objects_in(trace.get("calls"))}
    numbers = {id(node): n for n, node in enumerate(objects_in(trace.get("nodes")))}
    start = 0
    for node in path:
        stop = start + _num(node, "token_ids")
        tokens = rows and {name: row[start:stop] for name, row in rows.items()}
        if tokens and id(node) in known:
            tokens["response_mask"] = np.zeros_like(tokens["response_mask"])
        start = stop
        message = object_in(node.get("message"))
        is_round = node.get("sampled") is True and id(node) not in known
        if tokens is not None:
            is_round = bool(tokens["response_mask"].any())
        role = (
            GENERATED if is_round else GIVEN if message.get("role") == GENERATED else ""
        )
        call = calls.get(str(numbers[id(node)]), {}) if is_round else {}
        columns = _call_columns(transcript, call)
        transcript.add(message, role, tokens=tokens or None, columns=columns)
        transcript.leave_out(node, *_OF_NODES, of="nodes")
    return transcript


_OF_NODES = (
    *("parent", "semantic_parents", "message", "sampled", "token_ids", "mask"),
    *("is_content", "logprobs", "trainer_logprobs", "entropies"),
    *("advantages", "reference_logprobs"),
)


def _call_columns(transcript: Transcript, call: Mapping[str, Any]) -> dict[str, object]:
    columns = transcript.plain(
        call, "node", "endpoint", "usage", "time", "error", of="calls"
    )
    usage = transcript.plain(call.get("usage"), of="calls.usage")
    facts = outcome(usage, num_generated="completion_tokens")
    transcript.leave_out(call.get("time"), "start", "end", of="calls.time")
    match call.get("time"):
        case {"start": float(start), "end": float(end)} if end:
            facts |= {"sampling_seconds": end - start, SECONDS.name: end - start}
    facts |= transcript.described(call, "error", "type", "message", of="calls")
    return transcript.merge(calls=columns, usage=usage, outcome=facts)


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
    unread = Transcript(file=source.path)
    wanted = _annotated(lines, unread)
    parents = source.path.absolute().parents
    annotations = next((part for part in parents if part.name == "annotations"), None)
    if annotations is None:
        raise source.error(
            expected="annotations in the folder `annotations` of their run",
            found=f"them in `{source.path.parent.name}`",
            advice="Copy the folder `traces` as a whole.",
        )
    orch = _files(annotations / "orch") or _files(annotations, "orch")
    steps = _ship_steps(orch, unread)
    samples: list[Transcript] = []
    for episodes in _episodes(annotations.parent, source):
        for episode in episodes:
            for trace in objects_in(episode.get("traces")):
                branches = wanted.get(str(trace.get("id")), {})
                paths = _branches(objects_in(trace.get("nodes"))) if branches else []
                for index, branch in branches.items():
                    if index >= len(paths):
                        raise source.error(
                            expected=f"branch {index} in trace {trace.get('id')!s:.80}",
                            found="fewer branches",
                            advice=_OTHERS,
                        )
                    rows = _rows(paths[index], branch, episodes.source)
                    sample = _trajectory(paths[index], rows, trace, source)
                    sample.columns |= _columns(sample, episode, trace, index)
                    if (step := steps.get(str(trace.get("id")))) is not None:
                        shipped = {"ship_step": step}
                        sample.columns = sample.merge(
                            trace=sample.columns, orch=shipped
                        )
                    samples.append(sample)
    if not samples:
        raise source.error(
            expected=f"annotations of the traces in {annotations.parent}",
            found="no trace of that name with `trainer_logprobs`",
            advice="Open the annotations of the trainer, in the folder of their run.",
        )
    samples[0].left_out |= unread.left_out
    return batch_of(samples, source, **_TRAINED)


def _annotated(lines: JsonLines, unread: Transcript) -> dict[str, Branches]:
    """Return the branches with log-probabilities by trace; the newest wins."""
    annotated: dict[str, Branches] = {}
    for record in lines:
        if record.get("version") != _VERSION:
            raise record.source.error(
                expected=f"`version` {_VERSION}",
                found=f"{record.get('version')!r:.40} in line {record.line}",
                advice="Update rounddiag: this one does not know the newer layout.",
            )
        unread.leave_out(record, "version", "trace_id", "branches", of="annotations")
        for branch in objects_in(record.get("branches")):
            unread.leave_out(branch, *_OF_BRANCHES, of="annotations.branches")
            index = branch.get("index")
            if isinstance(index, int) and index >= 0 and "trainer_logprobs" in branch:
                annotated.setdefault(str(record.get("trace_id")), {})[index] = branch
    return annotated


_OF_BRANCHES = ("index", "trainer_logprobs", "entropies", "is_masked")


def _files(folder: Path, name: str = "*") -> list[Path]:
    """Return the files of a stream in order; of a part that is being packed, one."""
    paths = [*folder.glob(f"{name}.jsonl.zst"), *folder.glob(f"{name}.jsonl")]
    parts = {path.name.removesuffix(".zst"): path for path in paths}
    return [parts[part] for part in sorted(parts)]


def _ship_steps(paths: Iterable[Path], unread: Transcript) -> dict[str, int]:
    steps = {}
    for path in paths:
        for record in JsonLines(Source.of_file(path)):
            info = object_in(record.get("info"))
            unread.leave_out(record, "version", "trace_id", "info", of="orch")
            unread.leave_out(info, "ship", of="orch.info")
            unread.leave_out(info.get("ship"), "step", of="orch.info.ship")
            match info:
                case {"ship": {"step": int(step)}}:
                    steps[str(record.get("trace_id"))] = step
    return steps


def _episodes(folder: Path, source: Source) -> Iterator[JsonLines]:
    paths = _files(folder / "stream") or _files(folder)
    if not paths:
        raise source.error(
            expected=f"the episodes of the run as {folder / 'stream' / '*.jsonl'}",
            found="none",
            advice="Copy the folder `traces` as a whole.",
        )
    yield from (JsonLines(Source.of_file(path)) for path in paths)


def _branches(nodes: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    size = len(nodes)
    parents = [_parent(node, size) for node in nodes]
    inner = {*parents}
    branches = []
    for leaf in (index for index in range(size) if index not in inner):
        path: dict[int, dict[str, Any]] = {}
        at: int | None = leaf
        while at is not None and at not in path:
            path[at] = nodes[at]
            at = parents[at]
        branches.append(list(reversed(path.values())))
    return branches


def _parent(node: Mapping[str, Any], size: int) -> int | None:
    parent = node.get("parent")
    return parent if isinstance(parent, int) and 0 <= parent < size else None


def _rows(
    nodes: Sequence[_Node], branch: Mapping[str, Any] | None, source: Source
) -> dict[str, Array] | None:
    """Return the values per token of a branch, as far as the trainer annotated it.

    None if its sampler returned no token ids.
    """
    if not all(_num(n, "token_ids") for n in nodes if n.get("sampled")) or not any(
        _num(n, "token_ids") for n in nodes
    ):
        return None
    ids = [_numbers(node, "token_ids", source) for node in nodes]
    masks = [
        _numbers(n, "mask", source, len(i)) for n, i in zip(nodes, ids, strict=True)
    ]
    written = np.concatenate(masks) == 1
    rollout = np.where(written, _spread(nodes, "logprobs", source), 0)
    rows: dict[str, Array] = {
        "response_ids": np.concatenate(ids).astype(np.int64),
        "response_mask": written.astype(np.int8),
        "rollout_log_probs": rollout.astype(np.float32),
    }
    for name, theirs in _OF_SAMPLED.items():
        if any(_num(node, theirs) for node in nodes):
            values = np.where(written, _spread(nodes, theirs, source), 0)
            rows[name] = values.astype(np.float32)
    return rows if branch is None else _annotated_rows(rows, branch, source)


_OF_SAMPLED = {"advantages": "advantages", REF: "reference_logprobs"}


def _num(node: _Node, name: str) -> int:
    values = node.get(name)
    return len(values) if isinstance(values, np.ndarray | list) else 0


def _spread(nodes: Iterable[_Node], name: str, source: Source) -> Array:
    """Return values of generated tokens at their places, NaN where there is none."""
    rows = []
    for node in nodes:
        mask = _numbers(node, "mask", source) == 1
        row = np.full(len(mask), np.nan)
        if mask.any() and _num(node, name):
            row[mask] = _numbers(node, name, source, int(mask.sum()))
        rows.append(row)
    return np.concatenate(rows)


def _annotated_rows(
    rows: dict[str, Array], branch: Mapping[str, Any], source: Source
) -> dict[str, Array]:
    """Return the tokens of a branch up to where the trainer annotated it."""
    old = _numbers(branch, "trainer_logprobs", source).astype(np.float32)
    size, num_tokens = len(old), len(rows["response_mask"])
    if size > num_tokens:
        raise source.error(
            expected=f"at most {num_tokens} annotations, one per token of a branch",
            found=f"{size}",
            advice=_OTHERS,
        )
    trained = ~np.isnan(old)
    rows = {name: row[:size] for name, row in rows.items()}
    rows["entropy"] = np.full(size, np.nan, dtype=np.float32)
    if "entropies" in branch:
        rows["entropy"] = _numbers(branch, "entropies", source, size)
        trained |= ~np.isnan(rows["entropy"])
    mask = (rows["response_mask"] & trained).astype(np.int8)
    clipped = np.zeros(size, dtype=bool)
    if "is_masked" in branch:
        clipped = _numbers(branch, "is_masked", source, size) == 1
    rows["old_log_probs"] = np.where(mask, old, 0).astype(np.float32)
    return {**rows, "response_mask": mask, "loss_mask": mask * ~clipped}


def _numbers(
    values: Mapping[str, Any], name: str, source: Source, size: int | None = None
) -> Array:
    row = values.get(name)
    if not isinstance(row, np.ndarray) or size not in {None, len(row)}:
        content = (
            f"{len(row)}" if isinstance(row, np.ndarray) else f"{type(row).__name__}"
        )
        raise source.error(
            expected=f"{'' if size is None else f'{size} '}numbers in `{name}`",
            found=content,
            advice="Only traces of a sampler that returns token ids can be compared.",
        )
    return row


def _join_nodes(
    nodes: list[dict[str, Any]], known: set[int], source: Source
) -> Mapping[str, Any] | None:
    """Return the trainer's values of a branch, None if no node adds any.

    They are NaN at nodes without values, and at those that an earlier branch has.
    """
    new = {id(n) for n in nodes if _num(n, "trainer_logprobs")} - known
    if not new:
        return None
    fresh = [node if id(node) in new else {"mask": node.get("mask")} for node in nodes]
    names = ("trainer_logprobs", "entropies")
    return {name: _spread(fresh, name, source) for name in names}


_OF_EPISODES = ("group", "run", "errors", "traces", "id", "version")
_OF_TRACES = (
    *("id", "version", "root_reply", "agent", "info", "errors", "rewards", "nodes"),
    "calls",
)


def _columns(
    transcript: Transcript,
    episode: Mapping[str, Any],
    trace: Mapping[str, Any],
    index: int,
) -> dict[str, object]:
    name = str(trace.get("id"))
    columns: dict[str, object] = {"trace_id": name, "branch": index}
    if episode is not trace:
        transcript.leave_out(episode, *_OF_EPISODES, of="episode")
        transcript.leave_out(episode.get("group"), "id", of="group")
        run = object_in(episode.get("run"))
        work = object_in(run.get("work"))
        transcript.leave_out(run, "id", "work", of="run")
        transcript.leave_out(work, "policy", of="run.work")
        transcript.leave_out(work.get("policy"), "start", "end", of="run.work.policy")
    info = object_in(trace.get("info"))
    transcript.leave_out(info, "prime_rl", of="info")
    match episode:
        case {"group": {"id": str(group)}}:
            columns["uid"] = group
    *before, last = objects_in(trace.get("errors")) or [{}]
    columns |= transcript.described({"error": last}, "error", "type", "message")
    transcript.left_out |= {"errors"} if before else set()
    match episode.get("run"):
        case {"work": {"policy": {"start": int(start), "end": int(end)}}}:
            columns |= {"min_weight_version": start, "max_weight_version": end}
    parts = {
        key: part if isinstance(part, dict) else {"score": part}
        for key, part in object_in(trace.get("rewards")).items()
    }
    for key, part in parts.items():
        columns |= transcript.plain({f"reward.{key}": part.get("score")})
        transcript.leave_out(part, "score", "weight", of=f"reward.{key}")
    # One that was not scored is null, and counts as nothing.
    known = [part for part in parts.values() if part.get("score") is not None]
    scores = [(part.get("score"), part.get("weight", 1)) for part in known]
    if scores and all(isinstance(x, int | float) for pair in scores for x in pair):
        columns["rewards"] = float(sum(score * weight for score, weight in scores))
    return transcript.merge(
        trace=transcript.plain(trace, *_OF_TRACES),
        agent=transcript.plain(trace.get("agent"), of="agent"),
        info=transcript.plain(info.get("prime_rl"), of="info"),
        outcome=columns,
    )


EPISODES = Format(
    name="episodes",
    framework="verifiers",
    files=("traces.jsonl",),
    keys=("env", "traces"),
    read=_read_episodes,
    trajectories=read_traces,
    verified="written by verifiers 0.4.0: its Episode, made by hand",
)
WIRE_TRACES = replace(
    EPISODES,
    name="rollouts of a step, one trace per line",
    framework="prime-rl",
    files=("train_rollouts.jsonl", "eval_rollouts.jsonl"),
    keys=("id", "nodes", "task"),
    verified="written by verifiers 0.4.0: its Trace, made by hand",
    in_parts=True,
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
