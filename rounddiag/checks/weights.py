"""Whether the weights arrived, by digests, and whether the sampler was ahead.

`meta["weights"]` is what a Recorder knows when it records a step: `sent` and `received`
are lists of events, the latest last. An event has `version`, `tensors`, by name `norm`
and `digests` by dtype and shape; of those received also `worker`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from itertools import takewhile
from typing import Any

import numpy as np

from rounddiag.batch import Batch
from rounddiag.checks.contracts import Contract, Fault, UntestableError, fault_at
from rounddiag.core.versions import Versions
from rounddiag.wording import join_names, pluralize

_Event = Mapping[str, Any]
ADAPTER = "lora_"  # in the names of tensors of an adapter of PEFT


def _events(meta: Mapping[str, Any], kind: str) -> list[_Event]:
    stored = meta.get("weights")
    events = stored.get(kind) if isinstance(stored, dict) else None
    if not isinstance(events, list) or not events:
        needs = f"`weights_{kind}` of the Recorder"
        raise UntestableError(field="digests of weights", needs=needs)
    return events


def _compare(event: _Event, other: _Event) -> tuple[int, list[str]]:
    """Return how many tensors two events share in dtype and shape, and which differ.

    The first dtype is the tensor's own; float32 is also digested as what it is cast to.
    """
    num, differing = 0, []
    for name, tensor in event["tensors"].items():
        theirs = other["tensors"].get(name, {"digests": {}})["digests"]
        kind = next((kind for kind in tensor["digests"] if kind in theirs), None)
        num += kind is not None
        if kind is not None and theirs[kind] != tensor["digests"][kind]:
            differing.append(name)
    return num, differing


def _is_equal(event: _Event, other: _Event) -> bool:
    num, differing = _compare(event, other)
    return num > 0 and not differing


def _describe_arrival(received: _Event, sent: list[_Event]) -> str | None:
    """Say what a worker has instead of what was sent last; None if nothing compares."""
    newest, names = sent[-1], [*received["tensors"]]
    adapter = [name for name in newest["tensors"] if ADAPTER in name]
    if adapter and not any(ADAPTER in name for name in names):
        return f"the adapter was not delivered: {pluralize(len(adapter), 'tensor')}"
    num, differing = _compare(newest, received)
    if num and not differing:
        return ""
    older = (event for event in reversed(sent[:-1]) if _is_equal(event, received))
    had = next(older, received)["version"]
    if had is not None and had != newest["version"]:
        return (
            f"the sampler still has the weights of step {had}: those of step"
            f" {newest['version']} were sent {newest['seconds']:.3g} s before"
        )
    if not num:
        return None
    name = differing[0]
    norms = [event["tensors"][name]["norm"] for event in (newest, received)]
    return (
        f"{len(differing)} of {pluralize(num, 'tensor')} that the sampler received are"
        f" not those that were sent: {name}, of norm {norms[1]:.6g}, not {norms[0]:.6g}"
    )


def _not_arrived(meta: Mapping[str, Any]) -> str:
    sent = _events(meta, "sent")
    workers: dict[str, list[str]] = {}
    for event in _events(meta, "received"):
        text = _describe_arrival(event, sent)
        if text is not None:
            workers.setdefault(text, []).append(str(event["worker"]))
    if not workers:
        why = "no tensor was sent and received under one name, dtype and shape"
        raise UntestableError(field="digests of weights", why=why)
    is_one = len(workers) == 1
    workers.pop("", None)
    return "; ".join(
        text if is_one else f"{text}, on worker {join_names(names)}"
        for text, names in workers.items()
    )


def _not_changed(meta: Mapping[str, Any]) -> str:
    newest, *earlier = reversed(_events(meta, "sent"))
    earlier = [event for event in earlier if event["version"] != newest["version"]]
    if not earlier:
        why = "needs the weights that were sent after two updates"
        raise UntestableError(field="digests of weights", why=why)
    names = newest["tensors"].keys()  # an adapter may be sent later than its base
    alike = takewhile(lambda event: event["tensors"].keys() == names, earlier)
    equal = [*takewhile(partial(_is_equal, newest), alike)]
    if not equal:
        return ""
    num = pluralize(len(names), "recorded tensor")
    return (
        "the trainer's weights did not change between"
        f" {equal[-1]['version']} and {newest['version']}: {num} bitwise equal"
    )


def _fault(say: Callable[[Mapping[str, Any]], str], batch: Batch) -> Fault | None:
    text = say(batch.meta)
    return Fault(text, tuple(range(len(batch)))) if text else None


def describe_weights(meta: Mapping[str, Any]) -> str:
    """Say what is wrong with the weights of a step, or "as sent"; empty if unknown.

    Examples
    --------
    >>> describe_weights({})
    ''
    """
    texts = []
    for contract, say in ((ARRIVED, _not_arrived), (CHANGED, _not_changed)):
        with suppress(UntestableError, LookupError, TypeError):
            texts.append(say(meta) or "as sent" * (contract is ARRIVED))
    faults = [text.partition(":")[0] for text in texts if text not in ("", "as sent")]
    return "; ".join(faults or filter(None, texts))


def _versions(batch: Batch) -> Versions:
    versions = Versions.of(batch)
    if versions is None:
        needs = "`weight_version` of tokens, rounds or samples, as numbers"
        raise UntestableError(field="weight_version", needs=needs)
    return versions


def _ahead(batch: Batch) -> Fault | None:
    versions = _versions(batch)
    if not versions.is_trainer_known:
        needs = "`trainer_version`, or versions that are counted as steps are"
        raise UntestableError(field="trainer_version", needs=needs)
    index = (batch.response_mask != 0).nonzero()[:, 0].cpu()
    ahead = np.flatnonzero(versions.high > versions.trainer)
    if not len(ahead):
        return None
    newer, trainer = (v[ahead[0]] for v in (versions.high, versions.trainer))
    text = f"of version {newer:.15g} where the trainer has {trainer:.15g}"
    return fault_at(batch, index[ahead], text)


def _unknown(batch: Batch) -> Fault | None:
    versions = _versions(batch)
    samples = np.unique(versions.sample[np.isnan(versions.low)]).tolist()
    if not samples:
        return None
    count = f"{len(samples):,} of {pluralize(len(batch), 'sample')}"
    return Fault(f"versions unknown in {count}", tuple(samples))


ARRIVED = Contract(
    "the sampler has the weights that were sent",
    "digests of weights",
    partial(_fault, _not_arrived),
    kind="bug",
    cause="sync_broken",
    refutes="sync_broken",
    effect="weights did not arrive",
    advice="Look at what carries the weights to the sampler, before anything else.",
)
CHANGED = Contract(
    "the trainer's weights change",
    "digests of weights",
    partial(_fault, _not_changed),
    kind="update",
    cause="frozen_weights",
    effect="the update changes nothing",
    advice="Look at the learning rate, at which parameters the optimizer has, and at"
    " whether the weights that are sent are its own.",
)
NOT_AHEAD = Contract(
    "no token is of newer weights than the trainer's",
    "weight_version",
    _ahead,
    kind="bug",
    cause="newer_weights",
    effect="the lag is negative",
    advice="Look for a trainer that was resumed from an older checkpoint, and for"
    " versions that are counted otherwise than its steps.",
)
VERSIONS_KNOWN = Contract(
    "every token has a weight version",
    "weight_version",
    _unknown,
    effect="the lag of some tokens is unknown",
)
