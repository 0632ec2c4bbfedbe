"""The requests that the page may send, and the payload of each reply."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from functools import lru_cache, partial
from pathlib import PurePath
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from plotly.offline import get_plotlyjs

from rounddiag.batch import Batch
from rounddiag.batch.html import describe_sources
from rounddiag.checks import check
from rounddiag.core.picture_changes import changed_shares, num_unread
from rounddiag.core.scores import AskedModel, require_answer
from rounddiag.figures._parts.canvas import ThemeName
from rounddiag.findings import Diagnosis
from rounddiag.findings.causes import NO_CAUSE
from rounddiag.schema import Pair
from rounddiag.stats.tail import overall
from rounddiag.widgets.answers import answer_payload
from rounddiag.widgets.contexts import context_payload
from rounddiag.widgets.corrections import chosen_correction, describe_correction
from rounddiag.widgets.figures import (
    empty_reason,
    filter_note,
    overview_figures,
    rounds_pane,
    token_axes,
)
from rounddiag.widgets.filters import OF_PICTURES
from rounddiag.widgets.images import full_screenshot, thumbnails
from rounddiag.widgets.lists import drawer_list
from rounddiag.widgets.sample_view import BatchCache, observed_tokens, sample_payload
from rounddiag.widgets.session import CHOSEN, Session, first_with_tokens
from rounddiag.widgets.state import parse_cells
from rounddiag.widgets.value_means import value_means
from rounddiag.wording import pluralize, printable

_NUM_DRAWN = 8  # overviews that are kept, so that undo is instant
# Lists that need more than a moment: of all tokens, or of the diagnosis.
_SLOW_LISTS = ("findings", "common", "hits", "rounds", "samples")


class RequestHandler:
    """Replies to the page from a session.

    Parameters
    ----------
    session : Session
    on_select : callable
        Called when the page selected another token, or other cells.
    answer : AskedModel, optional
        What a model has answered about the batch.
    """

    def __init__(
        self,
        session: Session,
        on_select: Callable[[], None],
        answer: AskedModel | None = None,
    ) -> None:
        self._session = session
        self._on_select = on_select
        if answer is not None:
            answer = require_answer(answer).fit(session.full_batch)
        self._answer = answer
        self._cache = BatchCache(session.full_batch)

        # By the entries of the state that the figures show. Without a reference to the
        # handler: nothing has to wait for a collector.
        @lru_cache(_NUM_DRAWN)
        def draw(_: str, theme: ThemeName) -> dict[str, bytes]:
            return overview_figures(session, theme)

        self._draw = draw

    def __call__(self, name: str, args: Mapping[str, Any]) -> object:
        """Return the payload of one reply, or a function that takes long to return it.

        Such a function only reads: it may run beside other requests.
        """
        # Before 0.3.0 a request had the number of its batch.
        own = {key: value for key, value in args.items() if key != "batch"}
        return REQUESTS[name][0](self, **own)

    def clear_cache(self) -> None:
        """Free all frames and figures; they are made again when they are needed."""
        self._session.clear_cache()
        self._draw.cache_clear()

    def _overview(self, theme: ThemeName) -> dict[str, Any]:
        session, state = self._session, self._session.state
        if unread := _num_unread(session, state.metric):
            return {"num_unread": unread}
        filtered = session.filtered_batch
        shown = state.as_dict()
        drawn = {key: shown[key] for key in shown.keys() - CHOSEN - {"layout"}}
        known = session.known_diagnosis
        drawn["has_onset"] = has_onset = bool(known and known.onset)
        return {
            "head": describe_batch(session.batch, session.whole_batch.tokens),
            "options": session.options,
            "state": shown,
            "figures": self._draw(json.dumps(drawn, sort_keys=True), theme),
            "has_onset": has_onset,
            "note": filter_note(state) if len(filtered.tokens) else "",
            "groups": None if state.by is None else value_means(session, state.by),
            "corrected": self._corrected(),
            "counts": {
                **filtered.count_beyond(state.threshold),
                "empty_reason": empty_reason(filtered),
            },
            **self._count_selected(),
        }

    def _set(self, changes: Mapping[str, Any], theme: ThemeName) -> dict[str, Any]:
        """Change the state, unless the result cannot be drawn."""
        before = self._session.state
        if unread := _num_unread(self._session, changes.get("metric")):
            return {"num_unread": unread}
        self._session.change(changes)
        try:
            return self._overview(theme)
        except Exception:
            self._session.state = before
            raise

    def _select(self, changes: Mapping[str, Any]) -> dict[str, Any]:
        self._session.change(changes)
        if changes.get("cells"):
            place = self._session.worst_token(self._session.selected_cells)
            self._session.change({"current": place})
        if CHOSEN & set(changes):
            self._on_select()
        return {"state": self._session.state.as_dict(), **self._count_selected()}

    def _count_selected(self) -> dict[str, int]:
        tokens = self._session.selection
        rounds = tokens.drop_duplicates(["sample", "round"])
        return {"num_tokens": len(tokens), "num_rounds": len(rounds)}

    def _diagnosis(self) -> dict[str, Any]:
        """Return the verdict, and the first finding unless the user has navigated."""
        session = self._session
        diagnosis = session.diagnosis
        opens = None if session.is_placed else first_with_tokens(diagnosis)
        lacks = session.batch.lacks("old", "rollout")
        first, *others = [lacks] if lacks else diagnosis.sentences
        return {
            "verdict": diagnosis.verdict,
            "is_update": bool(diagnosis.updates),
            "text": lacks or diagnosis.text,
            "first": first,
            "others": "" if lacks else (diagnosis.caveat + " ".join(others)).rstrip(),
            "num_findings": len(diagnosis),
            **_what_tests(diagnosis),
            "usual": diagnosis.reference.usual,
            "has_onset": diagnosis.onset is not None,
            "opens": opens,
        }

    def _list(self, list: str, start: int = 0, **more: Any) -> object:  # noqa: A002, ANN401 as the page says
        work = partial(drawer_list, self._session, list, start, **more)
        return work if list in _SLOW_LISTS else work()

    def _marks(self, sample: int) -> dict[str, Any]:
        finding = self._session.finding
        if finding is None:
            return {"round": [], "token": []}
        view = finding.view
        own = finding.indices[view.sample[finding.indices] == sample]
        return {"round": view.round[own], "token": view.token[own]}

    def _trajectory(self, sample: int) -> dict[str, Any]:
        session, state = self._session, self._session.state
        columns = session.own_columns
        payload = sample_payload(
            session.full_batch,
            sample,
            state.a,
            state.b,
            self._cache,
            columns.known_roles(sample),
        )
        answer = self._answer and answer_payload(self._answer, sample)
        return {
            **payload,
            "facts": columns.facts(sample),
            "mates": columns.mates(sample),
            "answer": answer,
            "can_ask": answer is None and not session.batch.lacks("ids"),
        }

    def _kept(self, sample: int) -> dict[str, Any]:
        tokens, columns = self._session.filtered_batch.tokens, self._session.own_columns
        own, all_own = tokens[tokens["sample"] == sample], columns.tokens_of(sample)
        is_kept = np.zeros(all_own.stop - all_own.start, dtype=bool)
        is_kept[columns.flat_index(own) - all_own.start] = True
        return {"is_kept": is_kept}

    def _fates(self, sample: int) -> dict[str, Any]:
        fates = self._session.fates
        own = self._session.own_columns.tokens_of(sample)
        return {"fate": None if fates is None else fates[own]}

    def _corrected(self) -> dict[str, Any] | None:
        session, state = self._session, self._session.state
        correction = chosen_correction(state.correction, state.limit)
        fates = session.fates
        if correction is None or fates is None:
            return None
        pair = Pair(state.a, state.b)
        return describe_correction(session.full_batch, correction, fates, pair)

    def _beyond(self) -> dict[str, Any]:
        tokens = self._session.filtered_batch.tokens
        is_beyond = tokens["diff"].abs() > self._session.state.threshold
        return {"samples": tokens["sample"][is_beyond].unique()}


def _num_unread(session: Session, metric: str | None) -> int:
    """Return of how many rounds the pictures must be read for a metric."""
    return num_unread(session.full_batch) if metric == OF_PICTURES else 0


def _read_pictures(session: Session) -> None:
    changed_shares(session.full_batch, range(session.full_batch.num_rounds))


# What replies to a request, called with a handler and the arguments; and on what the
# replies in a report depend: arguments, and entries of the state. None if its page has
# no such reply, or makes it of others.
_Request: TypeAlias = tuple[Callable[..., object], tuple[str, ...] | None]
# ruff: noqa: SLF001 the methods of the handler above
REQUESTS: dict[str, _Request] = {
    # In a thread, after a reply that has `num_unread`: then that is asked again.
    "pictures": (lambda self: partial(_read_pictures, self._session), None),
    "plotly": (lambda _: {"code": get_plotlyjs().encode()}, None),
    "overview": (RequestHandler._overview, ("metric", "theme")),
    "set": (RequestHandler._set, None),
    "select": (RequestHandler._select, None),
    # The token that selecting these cells goes to.
    "worst": (
        lambda self, cells: asdict(self._session.worst_token(parse_cells(cells))),
        None,
    ),
    "rounds": (
        lambda self, theme: {"figure": rounds_pane(self._session, theme)},
        ("by", "theme"),
    ),
    "values": (lambda self, name: value_means(self._session, name), None),
    "diagnosis": (lambda self: self._diagnosis, ()),
    "list": (RequestHandler._list, ("list", "start")),
    "token_axes": (
        lambda self, **args: token_axes(self._session, **args),
        ("log_probs", "theme"),
    ),
    "marks": (RequestHandler._marks, ("finding", "sample")),
    "trajectory": (RequestHandler._trajectory, ("sample",)),
    "observation": (
        lambda self, **args: observed_tokens(
            self._session.full_batch, cache=self._cache, **args
        ),
        ("sample", "start", "stop"),
    ),
    "context": (
        lambda self, **args: context_payload(self._session.full_batch, **args),
        ("sample", "round"),
    ),
    "thumbnails": (
        lambda self, **args: {"shots": thumbnails(self._session.full_batch, **args)},
        ("sample",),
    ),
    "image": (
        lambda self, **args: full_screenshot(self._session.full_batch, **args),
        None,
    ),
    "kept": (RequestHandler._kept, None),
    "fates": (RequestHandler._fates, None),
    "beyond": (RequestHandler._beyond, None),
}


def describe_batch(batch: Batch, tokens: pd.DataFrame) -> dict[str, Any]:
    """Return the payload of the head line: name, sizes, failed checks, verdict."""
    diff = tokens["diff"].to_numpy()
    return {
        "name": batch_name(batch),
        "step": batch.step,
        "num_samples": batch.num_samples,
        "num_rounds": batch.num_rounds,
        "num_tokens": batch.num_tokens,
        "noun": batch.token_noun,
        "chips": [*_facts(batch, diff)],
        "failed": _failures(batch),
        "lacks": batch.lacks("old", "rollout"),
        "verdict": _verdict(batch, diff),
    }


def _failures(batch: Batch) -> list[str]:
    checks = check(batch, fast=True)
    return [f"{result.name}: {result.detail}" for result in checks.failed]


def batch_name(batch: Batch) -> str:
    """Return the name of a batch's file, or "batch" for one that was never saved."""
    source = batch.meta.get("source")
    return printable(PurePath(source).name) if isinstance(source, str) else "batch"


FILE = "file"  # its path, which a report leaves out
_SOURCES = ("mask", "old log-probs", "sampling", "facts of the run")


def _facts(batch: Batch, diff: np.ndarray[Any, Any]) -> Iterator[dict[str, Any]]:
    sizes = (
        (batch.num_samples, "sample"),
        (batch.num_rounds, "round"),
        (batch.num_tokens, batch.token_noun),
        (sum(map(len, batch.images or ())), "screenshot"),
    )
    columns = [*batch.sample_columns, *batch.round_columns, *batch.token_columns]
    about = {
        FILE: str(batch.meta.get("source", "")),
        "has": ", ".join(pluralize(num, noun) for num, noun in sizes if num),
        "columns": ", ".join(dict.fromkeys(columns)),
    }
    for label, value in about.items():
        if value:
            yield {"label": label, "value": value, "tone": "plain"}
    for label, value in describe_sources(batch.meta).items():
        if label in _SOURCES:
            yield {"label": label, "value": value, "tone": "plain"}
    capture = batch.meta.get("capture")
    if isinstance(capture, dict) and capture.get("num_saved"):
        counts = (capture["num_saved"], capture.get("num_samples"))
        texts = [f"{num:,}" if isinstance(num, int) else "?" for num in counts]
        share = f"{' of '.join(texts)} samples"
        yield {"label": "saved", "value": share, "tone": "warn"}
    if batch.lacks("old", "rollout"):
        return
    num = int((~np.isfinite(diff)).sum())
    tone = "warn" if num else "plain"
    yield {"label": "not finite", "value": pluralize(num, "token"), "tone": tone}


def _what_tests(diagnosis: Diagnosis) -> dict[str, Any]:
    first = next((finding for finding in diagnosis if finding.prove_call), None)
    if first is None:
        return {"families": [], "prove": ""}
    families = [*first.families] if first.cause == NO_CAUSE else []
    return {"families": families, "prove": first.prove_command or first.prove_call}


def _verdict(batch: Batch, diff: np.ndarray[Any, Any]) -> dict[str, Any]:
    """Return the signed mean, and the share of tokens with a large |diff|.

    Large differences are no warning by themselves: the diagnosis judges them.
    """
    if missing := batch.lacks("old", "rollout"):
        return {"value": missing, "tone": "plain"}
    if mismatch := overall(diff):
        return {"value": mismatch, "tone": "plain"}
    return {"value": "no token has both log-probs", "tone": "warn"}
