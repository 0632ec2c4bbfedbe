"""Digests of the weights that were sent and received, shared by Recorders of a folder.

A trainer sends weights in one process and a sampler receives them in others. Each
writes what it saw to a small hidden file of the folder, and the process that records a
step reads them all.
"""

from __future__ import annotations

import json
import os
import platform
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import Tensor

from rounddiag.checks.weights import ADAPTER
from rounddiag.errors import BatchError
from rounddiag.loaders.paths import is_url
from rounddiag.text.json_text import JsonError, parse_json

NamedTensors: TypeAlias = (
    "Mapping[str, Tensor | dict[str, Any]] | Iterable[tuple[str, Tensor]]"
)
# Tensors of the model, and of an adapter: those whose names have the lowest hashes, so
# that every process chooses the same ones. About 80 of 1,000
# are digested on the way.
_NUM_TENSORS = 16
_NUM_VALUES = 1 << 14  # evenly spaced ones of a tensor: 64 kB of float32
_NUM_VERSIONS = 8  # that a step file has
_FILES = ".weights_"
_HOST = platform.node().replace(".", "-")
_DAY = 86_400.0  # seconds
_EVENT = {
    "version": int | None,
    "tensors": dict,
    "time": float,
    "worker?": int | str,
    "adapter?": dict,
}
# What Qwen, Gemma, LLaVA and their like call the parts that see.
_SEES = re.compile(r"(^|\.)(visual|vision_\w+|multi_modal_projector|mm_projector)\.")


def digest_weights(named_tensors: NamedTensors) -> dict[str, dict[str, Any]]:
    """Return the norm and the digests of a few tensors, as plain values.

    Where weights are received by another process than the one with the Recorder, such
    as a worker of vLLM, return it from there, and pass it to `weights_received`.

    Parameters
    ----------
    named_tensors : mapping of str to Tensor, or pairs of these
        Whole tensors, of any dtype and device; no shards.

    Returns
    -------
    dict
        By name, of up to 16 tensors and 16 of an adapter: `norm`, and `digests` by
        dtype and shape. Both are of at most 16,384 values, evenly spaced. A tensor of
        float32 also has the digests of what it is cast to on its way to the sampler.

    Examples
    --------
    >>> weights = {"norm.weight": torch.ones(4)}
    >>> digest_weights(weights)["norm.weight"]["norm"]
    2.0
    """
    digests: dict[str, dict[str, Any]] = {}
    pairs = (
        named_tensors.items() if isinstance(named_tensors, Mapping) else named_tensors
    )
    for name, tensor in pairs:
        add_digest(digests, name, tensor)
    return digests


def add_digest(digests: dict[str, dict[str, Any]], name: str, tensor: Any) -> None:  # noqa: ANN401 a tensor, or what another process made of it
    """Add a tensor whose name is among the lowest of its kind; drop the highest."""
    alike = [other for other in digests if (ADAPTER in other) == (ADAPTER in name)]
    if name in digests or len(alike) < _NUM_TENSORS:
        digests[name] = tensor if isinstance(tensor, dict) else _digest(name, tensor)
        return
    highest = max(alike, key=_rank)
    if _rank(name) < _rank(highest):
        del digests[highest]
        add_digest(digests, name, tensor)


def _rank(name: str) -> bytes:
    return blake2b(name.encode(), digest_size=8).digest()


def _digest(name: str, tensor: Tensor) -> dict[str, Any]:
    if hasattr(tensor, "full_tensor"):
        raise BatchError.build(
            key=name,
            expected="whole tensors, as they are sent",
            found="a shard of a DTensor",
            advice="Pass what `full_tensor()` returns.",
        )
    flat = tensor.detach().flatten()
    values = flat[:: max(-(-len(flat) // _NUM_VALUES), 1)].cpu().contiguous()
    is_long = values.dtype in (torch.float32, torch.float64)
    dtypes = [values.dtype, *([torch.bfloat16, torch.float16] if is_long else [])]
    shape = "x".join(map(str, tensor.shape))
    return {
        "norm": float(values.double().norm()),
        "digests": {
            f"{str(dtype).removeprefix('torch.')} {shape}": blake2b(
                values.to(dtype).view(torch.uint8).numpy().tobytes(), digest_size=8
            ).hexdigest()
            for dtype in dtypes
        },
    }


def describe_adapter(adapter: object, names: Iterable[str]) -> dict[str, Any]:
    """Return its name, id and path, and whether it has parts of the vision tower.

    By these vLLM 0.32 knows an adapter: the prefix cache by name and path, the cache of
    encoded pictures by name, the weights by the id.
    """
    if not isinstance(adapter, Mapping) or not {"name", "path"} <= adapter.keys():
        raise BatchError.build(
            key="adapter",
            expected="its `name`, `id` and `path`, as the sampler was given them",
            found=f"{adapter!r:.80}",
            advice="Pass what the request to load it said.",
        )
    known = {"name": adapter["name"], "id": adapter.get("id")}
    has_vision = any(map(_SEES.search, names))
    return {**known, "path": str(adapter["path"]), "has_vision": has_vision}


class WeightLog:
    """The events of this process, and those that others wrote to the same folder.

    Of object storage, only those of this process are known.
    """

    def __init__(self, folder: str) -> None:
        self._folder, self._started = folder, time.time()
        self._own: dict[str, list[dict[str, Any]]] = {}

    def add(
        self,
        kind: str,
        digests: Mapping[str, Any],
        version: object,
        worker: object,
        adapter: Mapping[str, Any] | None = None,
    ) -> None:
        """Add what was sent, or received by a worker; buckets of a version are one."""
        name = f"{_FILES}{kind}{'' if worker is None else f'_{worker}'}.json"
        events = self._own.get(name, [])
        is_bucket = bool(events) and events[-1]["version"] == version
        known = events[-1]["tensors"] if is_bucket else None
        tensors = dict(known or {})
        for key, digest in digests.items():
            add_digest(tensors, key, digest)
        if tensors == known:
            return  # of a bucket none of whose tensors is among the few
        event = {"version": version, "tensors": tensors, "time": time.time()}
        event |= {} if worker is None else {"worker": worker}
        if adapter:
            text = json.dumps(tensors, sort_keys=True).encode()
            digest = blake2b(text, digest_size=8).hexdigest()
            event["adapter"] = {**adapter, "digest": digest}
        # Steps that wait to be written have the older list, and its events.
        events = [*(events[:-1] if is_bucket else events), event][-_NUM_VERSIONS:]
        self._own[name] = events
        if self._folder and not is_url(self._folder):
            path = Path(self._folder) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            partial = path.with_name(f"{name}.{_HOST}.{os.getpid()}")
            partial.write_text(json.dumps(events), encoding="utf-8")
            partial.replace(path)

    def events(self) -> dict[str, list[dict[str, Any]]]:
        """Return what was sent, the latest last, and what each worker received last."""
        known = {**dict(self._others()), **self._own}
        files = {name: events for name, events in sorted(known.items()) if events}
        sent, received = f"{_FILES}sent", f"{_FILES}received"
        return {
            "sent": [
                {**event, "seconds": time.time() - event["time"]}
                for name, events in files.items()
                for event in events
                if name.startswith(sent)
            ],
            "received": [
                events[-1]
                for name, events in files.items()
                if name.startswith(received)
            ],
        }

    def _others(self) -> Iterator[tuple[str, list[dict[str, Any]]]]:
        """Yield the files of this training; those of an earlier one are older."""
        if not self._folder or is_url(self._folder):
            return
        for path in Path(self._folder).glob(f"{_FILES}*.json"):
            with suppress(OSError, JsonError):
                if path.stat().st_mtime >= self._started:
                    events = parse_json(path.read_bytes(), [_EVENT])
                    if all(
                        _is_digest(d) for e in events for d in e["tensors"].values()
                    ):
                        yield path.name, events


def _is_digest(value: object) -> bool:
    match value:
        case {"norm": float(), "digests": dict(digests)}:
            return {*map(type, digests.values())} <= {str}
    return False


def remove_partial_files(folder: Path) -> None:
    """Remove what writers left behind: those of this host that ended, others of old."""
    for file in folder.glob(f"{_FILES}*.json.*"):
        host, _, process = file.name.partition(".json.")[2].rpartition(".")
        with suppress(OSError):
            has_ended = host == _HOST and process.isdecimal() and not _is_alive(process)
            if has_ended or file.stat().st_mtime < time.time() - _DAY:
                file.unlink()


def _is_alive(process: str) -> bool:
    with suppress(PermissionError, OverflowError):
        try:
            os.kill(int(process), 0)  # asks, and sends no signal
        except ProcessLookupError:
            return False
    return True
