"""The lists of the drawer: findings, worst tokens, rounds and samples, selection."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal

import numpy as np
import pandas as pd

from rounddiag._typing import Array
from rounddiag.core import token_frame
from rounddiag.core.columns import span_texts
from rounddiag.core.divergence import FACTOR_2
from rounddiag.core.picture_changes import changed_shares
from rounddiag.core.scores import has_pair
from rounddiag.errors import FrameError
from rounddiag.figures.colored_text import NO_TEXT
from rounddiag.findings import CAUSES, Finding, View
from rounddiag.findings.causes import describe_families
from rounddiag.findings.place import clusters, find_places
from rounddiag.schema import COST, METRICS, SECONDS, STATUS
from rounddiag.stats.intervals import MIN_CLUSTERS
from rounddiag.widgets.actions import has_actions
from rounddiag.widgets.columns import BatchColumns, value_text
from rounddiag.widgets.figures import empty_reason, ordered_samples
from rounddiag.widgets.filters import filter_of_place, kept_tokens
from rounddiag.widgets.session import Session, evidence_place, worst_of
from rounddiag.widgets.trajectory_columns import (
    TrajectoryTexts,
    domain_column,
    scores_by,
)
from rounddiag.wording import capitalize, percent, pluralize

# Rows of one reply; the page asks for more as its list is scrolled.
PAGE = 200
_NUM_CONTEXT = 20  # characters at either side of a token
_KEYS = ("sample", "round", "token")


def drawer_list(
    session: Session,
    name: str,
    start: int = 0,
    **more: Any,  # noqa: ANN401 of the list
) -> dict[str, Any]:
    """Return some rows of a list."""
    return _LISTS[name](session, start, **more)


def _payload(
    num_rows: int,
    columns: Sequence[tuple[str, str, Any]],
    *,
    caption: str,
    empty: str = "",
    **others: list[Any],
) -> dict[str, Any]:
    return {
        "caption": caption if num_rows else "",
        "empty": "" if num_rows else empty,
        "num_rows": num_rows,
        "columns": [
            {"head": head, "kind": kind, "values": values}
            for head, kind, values in columns
        ],
        **others,
    }


def _findings(session: Session, start: int) -> dict[str, Any]:
    diagnosis = session.diagnosis
    rows = list(diagnosis)[start:]
    places = [evidence_place(finding) for finding in rows]
    kinds = [
        "wrong update" if finding.severity == "update" else finding.kind
        for finding in rows
    ]
    causes = diagnosis.causes
    columns = [
        *([("cause", "text", causes[start:])] if any(causes) else []),
        ("where", "wide", [finding.location for finding in rows]),
        ("of sum |diff|", "share", [finding.share for finding in rows]),
        ("kind", "text", kinds),
    ]
    return _payload(
        len(diagnosis),
        columns,
        caption="largest share first; a row goes to its evidence",
        empty=diagnosis.headline,
        notes=[_explain(finding) for finding in rows],
        places=[place and vars(place) for place in places],
        findings=[*range(start, start + len(rows))],
    )


def _explain(finding: Finding) -> str:
    row = CAUSES.get(finding.cause)
    meaning = row.meaning if row else ""
    names = describe_families(finding.candidates)
    call = finding.prove_command or finding.prove_call
    parts = [
        f"{capitalize(meaning)}." if meaning else "",
        finding.shown,
        f"Possible: {'; '.join(names)}." if names else "",
        f"By chance: p = {finding.p:.2g}." if finding.p is not None else "",
        f"`{call}` tests them." if call else f"Next: {finding.next_step}",
    ]
    return " ".join(filter(None, parts))


def _tokens(session: Session, start: int) -> dict[str, Any]:
    filtered = session.filtered_batch
    return _of_tokens(
        session,
        filtered.worst_tokens,
        start,
        caption="by |diff|",
        empty=empty_reason(filtered) or "No token has a finite diff.",
    )


def _selection(session: Session, start: int) -> dict[str, Any]:
    if not has_pair(session.batch):
        return _tokens(session, start)
    chosen = session.selection
    size = chosen["diff"].abs().to_numpy()
    order = np.argsort(-np.nan_to_num(size, nan=np.inf), kind="stable")
    state, num = session.state, pluralize(len(chosen), "token")
    tokens = "selected" if state.cells or not state.filter else "that the filter keeps"
    return _of_tokens(
        session,
        chosen.iloc[order],
        start,
        has_scores=True,
        caption=f"{num} {tokens}, the largest |diff| first:"
        " explorer.selection in Python",
        empty="Nothing is selected: no token is kept in these cells.",
    )


def _of_tokens(
    session: Session,
    tokens: pd.DataFrame,
    start: int,
    *,
    has_scores: bool = False,
    **said: Any,  # noqa: ANN401 of `_payload`
) -> dict[str, Any]:
    rows, state = tokens.iloc[start : start + PAGE], session.state
    columns = session.own_columns
    used = [name for name in ("role", state.by) if name in columns.names]
    scores: list[tuple[str, str, Any]] = []
    if has_scores:
        engines = {"old_log_prob": state.a, "rollout_log_prob": state.b}
        both = token_frame(session.batch, [*engines]).iloc[columns.flat_index(rows)]
        scores = [(name, "number", both[k].to_numpy()) for k, name in engines.items()]
    shown = [
        ("text", "piece", token_context(columns, rows)),
        *(
            (name, "text", [str(value) for value in columns.values_at(name, rows)])
            for name in dict.fromkeys(used)
        ),
        *((name, "count", rows[name].to_numpy()) for name in _KEYS),
        *scores,
        ("diff [nat]", "signed", rows["diff"].to_numpy()),
    ]
    places = rows[[*_KEYS]].to_dict("records")
    return _payload(len(tokens), shown, **said, places=places)


def _means(
    session: Session,
    start: int,
    sort: Mapping[str, Any] | None = None,
    *,
    kind: Literal["rounds", "samples"],
) -> dict[str, Any]:
    ranked, caption = ranked_rows(session, kind)
    if sort:
        order, caption = sort_rows(session, ranked, **sort)
        ranked = ranked.iloc[order]
    rows = ranked.iloc[start : start + PAGE]
    columns = _of_rows(session, kind, rows, ranked.iloc[:PAGE])
    size = f"{session.batch.token_noun}s"
    columns.append((size, "count", rows["num_tokens"].to_numpy()))
    why = ""
    if has_pair(session.batch):
        mean = rows["mean_abs_diff"].to_numpy()
        columns.append(("mean |diff| [nat]", "number", mean))
        columns.append(("at least", "bound", rows["low"].to_numpy()))
        why = "Nothing is finite."
    else:
        columns[-1:-1] = _happened(session, kind, rows)
        columns = [
            (head, _NARROW.get(kind_of, kind_of), values)
            for head, kind_of, values in columns
        ]
        metric = METRICS[session.state.mean_metric]
        name = metric.mean_column.name
        if name in rows and metric.of != "round":
            columns.append((metric.short, "number", rows[name].to_numpy()))
    keys = [name for name in ("sample", "round") if name in rows]
    return _payload(
        len(ranked),
        columns,
        caption=caption,
        empty=empty_reason(session.filtered_batch) or why,
        places=rows[keys].to_dict("records"),
        sorts=_sortable(session, columns),
        scores=_scores(session, ranked["sample"]) if kind == "samples" else [],
    )


def _happened(
    session: Session, kind: str, rows: pd.DataFrame
) -> list[tuple[str, str, Any]]:
    """Return the columns of what happened, as far as anything is known."""
    kinds = {"action": "wide", "error": "text"}
    columns: list[tuple[str, str, Any]] = [
        (head, kinds.get(head, "part"), [*map(_text, rows[name])])
        for head, name in _HAPPENED[kind].items()
        if name in rows and (rows[name].notna() & (rows[name] != "")).any()
    ]
    if kind == "rounds":
        at = session.own_columns.round_index(rows)
        shares = changed_shares(session.full_batch, at.tolist())
        if not np.isnan(shares).all():
            texts = ["" if np.isnan(share) else percent(share) for share in shares]
            columns.append(("changed", "part", texts))
    return columns


def _scores(session: Session, samples: pd.Series[int]) -> list[dict[str, Any]]:
    columns, rewards = session.own_columns, session.batch.rewards
    name = domain_column(columns)
    if has_pair(session.batch) or rewards is None or name is None:
        return []
    first = pd.DataFrame({"sample": samples, "round": 0, "token": 0})
    known = rewards.double().cpu().numpy()[samples]
    return scores_by(known, columns.values_at(name, first))


def ranked_rows(
    session: Session, kind: Literal["rounds", "samples"]
) -> tuple[pd.DataFrame, str]:
    """Return rounds or samples in their own order, and the caption that says it.

    Without a pair of log-probs nothing is compared: they have the order of the heatmap,
    and what happened in them.
    """
    filtered = session.filtered_batch
    if has_pair(session.batch):
        worst = getattr(filtered, f"worst_{kind}")
        return worst, "by a lower confidence bound, shrunk for cells of few tokens"
    name, cells = METRICS[session.state.mean_metric].mean_column.name, filtered.cells
    ranked = cells[["sample", "round", "num_tokens", name]]
    has_known = has_actions(session.full_batch)
    if kind == "rounds" and has_known:
        ranked = ranked.merge(session.actions, on=["sample", "round"])
    if kind == "samples":
        sizes = ranked[["sample", "num_tokens"]]
        ranked = sizes.groupby("sample", as_index=False).sum()
        if has_known:
            ranked = ranked.assign(**_sums(session, ranked["sample"]))
    order = pd.Series(ordered_samples(session))
    rank = pd.Series(order.index, index=order)
    rows = rank[ranked["sample"]].to_numpy()
    caption = _ORDERS.get(session.state.order, f"by {session.state.order}")
    return ranked.iloc[np.argsort(rows, kind="stable")], f"{caption}, as the heatmap"


def _sums(session: Session, samples: pd.Series[int]) -> dict[str, Array]:
    """Return what happened in the rounds of samples; seconds and cost if recorded."""
    rows = session.actions
    known = rows.groupby("sample")[["is_repeated", "seconds", "cost"]].sum(min_count=1)
    sums = {
        "num_errors": session.trajectory_texts.errors(rows)[samples],
        "num_repeats": known["is_repeated"].reindex(samples).to_numpy(),
    }
    own = session.own_columns
    for name in ("seconds", "cost"):
        if name not in own.sample_names:
            sums[name] = known[name].reindex(samples).to_numpy()
    return sums


_ORDERS = {
    "reward": "the highest reward first",
    "rounds": "the most rounds first",
    "sample": "in the order of the batch",
    "group": "by group",
    "worst": "the largest means first",
}
# Beside tasks, numbers have less room and names have more.
_NARROW = {"part": "few", "text": "name"}
# What happened in samples and rounds: columns by their heads.
_HAPPENED = {
    "samples": {
        "errors": "num_errors",
        "repeats": "num_repeats",
        "seconds": "seconds",
        "cost": "cost",
    },
    "rounds": {"action": "label", "error": "error", "seconds": "seconds"},
}
# Of a column: its head in a list.
HEADS = {"sample_id": "id", "group_id": "group", "num_rounds": "rounds"}
# Columns of a ranking by their heads, where no column of samples has the name.
_RANKED = {
    **_HAPPENED["samples"],
    **_HAPPENED["rounds"],
    **dict.fromkeys(("tokens", "words"), "num_tokens"),
    "mean |diff| [nat]": "mean_abs_diff",
    "at least": "low",
}
# What is read of the samples of a list, by its head.
_READ = {"outcome": TrajectoryTexts.outcomes, "task": TrajectoryTexts.tasks}


def _name_of(session: Session, head: str) -> str | None:
    """Return the column that a head of a list stands for; None for what is made."""
    names = {shown: name for name, shown in HEADS.items()}
    name = names.get(head, head)
    return name if name in session.own_columns.names else None


def _sortable(session: Session, columns: Sequence[tuple[str, str, Any]]) -> list[str]:
    heads = [head for head, _, _ in columns]
    known = (*_RANKED, *_READ)
    return [head for head in heads if head in known or _name_of(session, head)]


def sort_rows(
    session: Session, ranked: pd.DataFrame, head: str, *, is_ascending: bool = False
) -> tuple[Array, str]:
    """Return the order of rows by a column, unknown values last, and its caption."""
    name = _name_of(session, head)
    if _RANKED.get(head) in ranked:
        values = ranked[_RANKED[head]].to_list()
    elif name is not None:
        first = ranked.assign(token=0, round=ranked.get("round", 0))
        values = session.own_columns.values_at(name, first)
    elif head in _READ:
        values = _READ[head](session.trajectory_texts, ranked["sample"].tolist())
    else:
        raise FrameError.build(
            key="sort",
            expected="the head of a column that can be sorted",
            found=repr(head),
            advice="Choose another column.",
        )
    column, ways = pd.Series(values), ("the highest first", "the lowest first")
    if column.dtype.kind == "O":
        ways = ("from Z to A", "from A to Z")
        texts = column.astype(str)
        column = texts.where(column.notna() & (texts != ""))
    order = column.sort_values(ascending=is_ascending, kind="stable").index
    return order.to_numpy(), f"by {head}, {ways[is_ascending]}"


def _of_rows(
    session: Session, kind: str, rows: pd.DataFrame, first_page: pd.DataFrame
) -> list[tuple[str, str, Any]]:
    own, by = session.own_columns, session.state.by
    first = rows.assign(token=0, round=rows.get("round", 0))
    columns: list[tuple[str, str, Any]] = [
        (name, "count", rows[name].to_numpy())
        for name in ("sample", "round")
        if name in rows
    ]
    names = [by] if by and own.scope(by) in (kind[:-1], "sample") else []
    if kind == "samples":
        is_plain = not has_pair(session.batch)
        domain = [domain_column(own) or ""] if is_plain else []
        group = [] if session.batch.sample_ids is not None else ["group_id"]
        sums = [SECONDS.name, *([COST.name] if is_plain else [])]
        names = [*own.first_names, *domain, "sample_id", *names, *group, "num_rounds"]
        names += [name for name in sums if name in own.sample_names]
    columns += [
        _own_column(name, own.values_at(name, first))
        for name in dict.fromkeys(names)
        if name in own.names and name not in ("sample", "round")
    ]
    if kind == "samples":
        at = 1 + len(own.first_names)
        columns[at:at] = session.trajectory_texts.columns(
            rows["sample"].tolist(),
            first_page["sample"].tolist(),
            has_status=STATUS.name in own.first_names,
        )
    return columns


def _own_column(name: str, values: Sequence[object]) -> tuple[str, str, list[str]]:
    are_numbers = all(isinstance(value, int | float) for value in values)
    kind = "part" if are_numbers else "text"
    return HEADS.get(name, name), kind, [*map(_text, values)]


def _text(value: object) -> str:
    return "" if value != value else value_text(value)  # noqa: PLR0124 NaN: unknown


def _common(session: Session, start: int) -> dict[str, Any]:
    view = session.view
    places = find_places(view)
    rows = places[start:]
    num_large = int((view.abs_diff > FACTOR_2).sum())
    num_samples, total = len(view.num_per_sample), view.abs_diff.sum()
    table = [
        {
            ("where", "wide"): place.text,
            ("tokens", "count"): place.num_tokens,
            ("> factor 2", "part"): f"{place.num_large:,} of {num_large:,}",
            ("samples", "part"): f"{place.num_samples:,} of {num_samples:,}",
            ("times the usual", "number"): place.ratio,
            ("of sum |diff|", "share"): view.abs_diff[place.tokens].sum() / total,
        }
        for place in rows
    ]
    columns = [(*key, [row[key] for row in table]) for key in (table or [{}])[0]]
    filters = [filter_of_place(session.own_columns, place, view) for place in rows]
    part = "; counts are of the tokens that were judged" if view.is_thinned else ""
    return _payload(
        len(places),
        columns,
        caption="where tokens differ more than equally likely tokens elsewhere, best"
        f" first{part}; a row goes to its evidence, and filters by its conditions",
        empty=_no_place(view),
        places=[vars(worst_of(view, np.flatnonzero(place.over))) for place in rows],
        conditions=[None if isinstance(keep, str) else keep for keep in filters],
        notes=[
            f"Not a filter: no column says “{keep}”." if isinstance(keep, str) else ""
            for keep in filters
        ],
    )


def _no_place(view: View) -> str:
    if len(np.unique(clusters(view))) < MIN_CLUSTERS:
        return f"Fewer than {MIN_CLUSTERS} samples or groups: nothing to compare with."
    return "Tokens differ nowhere more than equally likely tokens elsewhere."


def _hits(
    session: Session, start: int, text: str = "", *, is_regex: bool = False
) -> dict[str, Any]:
    if not text:
        return _payload(0, [], caption="", empty="Type a text into the search box.")
    columns = session.own_columns
    tokens = session.whole_batch.tokens
    condition = {"regex": text} if is_regex else text
    is_hit = kept_tokens(columns, {"text": condition})
    # A match of several tokens is one row, as is one that begins where another ends.
    is_new = is_hit & ~np.r_[False, is_hit[:-1] & (tokens["token"].to_numpy()[1:] > 0)]
    matches = tokens[is_new]
    samples = pluralize(matches["sample"].nunique(), "sample")
    return _of_tokens(
        session,
        matches,
        start,
        caption=f"{text!r:.60} in {samples}, whatever the filter keeps",
        empty=f"No sample has {text!r:.60}.",
    )


_LISTS: dict[str, Callable[..., dict[str, Any]]] = {
    "findings": _findings,
    "tokens": _tokens,
    "rounds": partial(_means, kind="rounds"),
    "samples": partial(_means, kind="samples"),
    "common": _common,
    "selection": _selection,
    "hits": _hits,
}


def token_context(columns: BatchColumns, rows: pd.DataFrame) -> list[list[str]]:
    """Return the text before, of and after each token, within its round."""
    batch = columns.batch
    if batch.lacks("text"):
        return [["", NO_TEXT, ""]] * len(rows)
    at = columns.round_index(rows)
    token, sizes = rows["token"].to_numpy(), columns.round_sizes[at]
    first = batch.rounds.start.cpu().numpy()[at]
    before = np.minimum(token, _NUM_CONTEXT)
    after = np.minimum(sizes - token - 1, _NUM_CONTEXT)
    texts = span_texts(batch, first + token - before, before + 1 + after)
    return [
        [
            "".join(pieces[:num])[-_NUM_CONTEXT:],
            pieces[num],
            "".join(pieces[num + 1 :])[:_NUM_CONTEXT],
        ]
        for pieces, num in zip(texts, before.tolist(), strict=True)
    ]
