"""The replies of a report: what its page requests, answered when it is written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from tqdm.auto import tqdm

from rounddiag.batch import Batch
from rounddiag.errors import RounddiagError
from rounddiag.figures._parts.canvas import DARK, LIGHT, color_changes, opacity_changes
from rounddiag.findings import Diagnosis
from rounddiag.vision import Screenshot
from rounddiag.widgets.contexts import has_contexts
from rounddiag.widgets.lists import HEADS, PAGE, ranked_rows, sort_rows
from rounddiag.widgets.requests import FILE, RequestHandler, batch_name
from rounddiag.widgets.session import Session, evidence_place, first_with_tokens
from rounddiag.widgets.state import Cursor

# Above this, what needs all tokens once for each column takes too long.
_FEW_TOKENS = 1_000_000
# Stops of the threshold: powers of ten, and stops for each.
_STOPS = (-3, 1, 100)
# Columns that number things: a line for each value says nothing.
_NO_GROUPS = ("sample", "sample_id", "round", "token", "num_rounds", "num_tokens")
_LISTS = ("findings", "tokens", "rounds", "samples")
_SEED = 0
# Of screenshots that are stored in full width, in bytes; the others are thumbnails.
_PICTURES = 2 << 20
# Of prompts and observations of a sample; longer ones are stored as their ends.
_OBSERVED = 50_000
# Of contexts that are stored, in characters: those of the first rounds of each sample.
_CONTEXTS = 2 << 20


def collect_replies(
    batch: Batch,
    state: Mapping[str, Any],
    *,
    worst: int,
    samples: int | Sequence[int | str],
) -> tuple[Diagnosis, Iterator[tuple[str, object]]]:
    """Return the diagnosis of a batch, and every reply with its key."""
    session = Session(batch, state)
    diagnosis = session.diagnosis
    if len(diagnosis):
        first = first_with_tokens(diagnosis)
        session.change({"finding": first, "layout": {"list": "findings"}})
    chosen = samples_of_page(session, worst, samples)
    total = len(_metrics(session)) + len(_groups(session)) + len(chosen)
    return diagnosis, _with_progress(_replies(session, chosen), total)


# One for each metric, column of `by`, and sample: what takes long. How many screenshots
# fit is known at the end.
_PARTS = ("heatmap", "rounds", "trajectory")


def _with_progress(
    replies: Iterable[tuple[str, object]], total: int
) -> Iterator[tuple[str, object]]:
    with tqdm(desc="report", total=total, unit="part", leave=False, delay=1) as bar:
        for key, reply in replies:
            yield key, reply
            kind, *names = key.split()
            bar.update(kind in _PARTS and names[1:] != ["all"])


def samples_of_page(
    session: Session, worst: int, samples: int | Sequence[int | str]
) -> list[int]:
    """Return the samples of the evidence, the worst ones, and those drawn or named.

    Those with notes too; beside drawn ones, another attempt at the first one's task.
    """
    num = session.batch.num_samples
    if not num:
        return []
    first = [session.state.current, *filter(None, _evidence(session))]
    noted = [note["sample"] for note in session.state.notes]
    ranked = session.whole_batch.worst_samples["sample"].tolist()
    known = [*(place.sample for place in first), *ranked[: max(worst, 0)], *noted]
    if isinstance(samples, int):
        known += _rival(session, known[0])
        rest = np.setdiff1d(np.arange(num), known)
        random = np.random.default_rng(_SEED)
        drawn = random.choice(rest, min(max(samples, 0), len(rest)), replace=False)
        named = sorted(drawn.tolist())
    else:
        named = [_sample(session.batch, name) for name in samples]
    return [*dict.fromkeys([*known, *named])]


def _rival(session: Session, sample: int) -> list[int]:
    """Return another attempt at the task of a sample, if it can with another reward."""
    mates = session.own_columns.mates(sample)
    rewards = {mate["sample"]: mate.get("reward") for mate in mates}
    others = [mate for mate in rewards if mate != sample]
    return sorted(others, key=lambda mate: rewards[mate] == rewards[sample])[:1]


def _sample(batch: Batch, name: int | str) -> int:
    is_number = name not in (batch.sample_ids or ()) and str(name).isdecimal()
    return batch.sample_number(int(name) if is_number else name)


Ask: TypeAlias = "Callable[..., Any]"


def _replies(session: Session, chosen: list[int]) -> Iterator[tuple[str, object]]:
    requests = RequestHandler(session, lambda: None)

    def ask(name: str, /, **args: Any) -> Any:  # noqa: ANN401 any reply
        reply = requests(name, args)
        return reply() if callable(reply) else reply

    overview = ask("overview", theme="light")
    chips = overview["head"]["chips"]
    overview["head"]["chips"] = [chip for chip in chips if chip["label"] != FILE]
    yield from _figures(session, ask, overview.pop("figures"))
    yield (
        "overview",
        {
            **overview,
            **_thresholds(session),
            "samples": chosen,
            "source": _source(session.batch),
            "places": [place and vars(place) for place in _evidence(session)],
            "colors": [
                *color_changes(LIGHT, DARK).items(),
                *opacity_changes(LIGHT, DARK).items(),
            ],
        },
    )
    yield "diagnosis", {**ask("diagnosis"), "opens": None}
    yield from _lists(session, ask)
    for has_both in (False, True):
        axes = ask("token_axes", log_probs=has_both, theme="light")
        yield f"axes {has_both}".lower(), axes
    for index, finding in enumerate(session.diagnosis):
        view = finding.view
        own = finding.indices[np.isin(view.sample[finding.indices], chosen)]
        names = ("sample", "round", "token")
        yield f"marks {index}", {name: getattr(view, name)[own] for name in names}
    for sample in chosen:
        reply = ask("trajectory", sample=sample)
        yield f"trajectory {sample}", _without_diff(reply)
        gaps = reply["gaps"]
        if sum(gap["num_tokens"] for gap in gaps) <= _OBSERVED and gaps:
            low, high = gaps[0]["start"], gaps[-1]["stop"]
            seen = ask("observation", sample=sample, start=low, stop=high)
            yield f"seen {sample}", {"low": low, **seen}
    yield from _contexts(session.batch, chosen, ask)
    yield from _pictures(session.batch, chosen, ask)


def _contexts(
    batch: Batch, chosen: Sequence[int], ask: Ask
) -> Iterator[tuple[str, object]]:
    """Yield what the model saw before rounds, as far as there is room."""
    if not has_contexts(batch) or batch.lacks("text"):  # of a redacted file
        return
    room = _CONTEXTS
    for sample in chosen:
        for round_ in range(int((batch.rounds.sample == sample).sum())):
            reply = ask("context", sample=sample, round=round_)
            room -= sum(
                len(part.get("text", ""))
                for engine in reply["engines"]
                for part in (*engine["parts"], *engine["left"])
            )
            if room < 0:
                return
            yield f"context {sample} {round_}", reply


def _without_diff(reply: dict[str, Any]) -> dict[str, Any]:
    """Leave out what the page can compute: the difference of both log-probs."""
    tokens = {
        name: values for name, values in reply["tokens"].items() if name != "diff"
    }
    with np.errstate(invalid="ignore"):  # of two infinities
        diff = tokens["a"] - tokens["b"]
    is_same = np.array_equal(diff, reply["tokens"]["diff"], equal_nan=True)
    return {**reply, "tokens": tokens} if is_same else reply


def _evidence(session: Session) -> list[Cursor | None]:
    return [evidence_place(finding) for finding in session.diagnosis]


def _source(batch: Batch) -> str:
    source = batch.meta.get("source")
    return batch_name(batch) if isinstance(source, str) else "FILE"


def _metrics(session: Session) -> list[str]:
    return [name for name, *_ in session.options["metric"]]


def _figures(
    session: Session, ask: Ask, first: dict[str, bytes]
) -> Iterator[tuple[str, object]]:
    """Yield both figures of each metric; lines and bars of each `by` that are fast."""
    opened = session.state
    for metric in _metrics(session):
        figures = first
        if metric != opened.metric:
            session.change({"metric": metric})
            figures = ask("overview", theme="light")["figures"]
        yield f"rounds {metric} all", {"figure": figures["rounds"]}
        yield f"heatmap {metric}", {"figure": figures["heatmap"]}
    session.state = opened
    for index, by in _groups(session):
        session.change({"by": by})
        groups = ask("values", name=by)
        reply = {**ask("rounds", theme="light"), "groups": groups}
        yield f"rounds {opened.metric} {index}", reply
    session.state = opened


def _groups(session: Session) -> list[tuple[int, str]]:
    if session.batch.num_tokens > _FEW_TOKENS:
        return []
    names = enumerate(session.options["by"])
    return [(index, name) for index, name in names if name not in _NO_GROUPS]


def _thresholds(session: Session) -> dict[str, Any]:
    """Count tokens and samples beyond each stop of the threshold."""
    tokens = session.whole_batch.tokens
    size = np.nan_to_num(tokens["diff"].abs().to_numpy(), nan=-1)
    largest = tokens.assign(size=size).groupby("sample")["size"].max()
    low, high, each = _STOPS
    powers = np.arange(low * each, high * each + 1) / each
    stops = sorted(
        {session.state.threshold, *(float(f"{10**at:.3g}") for at in powers)}
    )
    counts = [
        len(values) - np.searchsorted(np.sort(values), np.array(stops), side="right")
        for values in (size, largest.to_numpy())
    ]
    return {"stops": stops, "beyond": np.stack(counts, axis=1).tolist()}


def _lists(session: Session, ask: Ask) -> Iterator[tuple[str, object]]:
    """Yield the lists: all findings and samples, and the first rows of the others."""
    for name in _LISTS:
        start, num = 0, 1
        while start < num:
            rows = ask("list", list=name, start=start)
            num = rows["num_rows"]
            sorts = rows.pop("sorts", [])
            if name == "samples":
                more = _sample_columns(session, rows)
                rows["columns"][-3:-3] = more
                rows["sorts"] = [*sorts, *(column["head"] for column in more)]
                if start == 0:
                    yield "orders samples", _orders(session, rows["sorts"])
            if name in ("tokens", "rounds") and num > PAGE:
                rows["caption"] += f"; the first {PAGE} of {num:,}"
                num = rows["num_rows"] = PAGE
            yield f"list {name} {start}", rows
            start += PAGE
    # A report has no filter.
    yield "list common 0", {**ask("list", list="common"), "conditions": []}
    yield "list selection 0", _no_rows("A selection needs Python")
    yield "list hits 0", _no_rows("A search in all samples needs Python")


def _sample_columns(session: Session, rows: dict[str, Any]) -> list[dict[str, Any]]:
    columns = session.own_columns
    shown = {HEADS["sample_id"], *(column["head"] for column in rows["columns"])}
    known = {"group_id", "num_rounds", *(session.batch.sample_columns or ())}
    places = pd.DataFrame(rows["places"], columns=["sample"]).assign(round=0, token=0)
    heads = {
        name: HEADS.get(name, name)
        for name in columns.names_of_samples()
        if name in known and HEADS.get(name, name) not in shown
    }
    return [
        {
            "head": head,
            "kind": "text",
            "values": [*map(str, columns.values_at(name, places))],
        }
        for name, head in heads.items()
    ]


def _orders(session: Session, heads: Sequence[str]) -> dict[str, Any]:
    """Return the order of all samples by each column, and the caption that says it."""
    ranked, _ = ranked_rows(session, "samples")
    orders = []
    for head, is_ascending in product(heads, (False, True)):
        order, caption = sort_rows(session, ranked, head, is_ascending=is_ascending)
        order = order.astype(np.int32)
        sort = {"head": head, "is_ascending": is_ascending}
        orders.append({**sort, "order": order, "caption": caption})
    return {"orders": orders}


def _no_rows(why: str) -> dict[str, Any]:
    advice = f"{why}: open the batch in a notebook with rounddiag.explore."
    return {"num_rows": 0, "empty": advice, "columns": [], "caption": ""}


def _pictures(
    batch: Batch, chosen: Sequence[int], ask: Ask
) -> Iterator[tuple[str, object]]:
    """Yield the screenshots of samples as thumbnails; those of the first ones in full.

    A full one that several samples or rounds have is stored once.
    """
    room, numbers = _PICTURES, dict[object, int | None]()
    for sample in chosen:
        shots = () if batch.images is None else batch.images[sample]
        small = ask("thumbnails", sample=sample, indices=[*range(len(shots))])
        for index, shot in enumerate(shots):
            data = getattr(shot, "data", None)
            content = data if isinstance(data, bytes) else (sample, index)
            if content not in numbers:
                full = _jpeg(shot) if room > 0 else None
                numbers[content] = None if full is None else len(numbers)
                if full is not None:
                    room -= len(full["bytes"])
                    yield f"image {numbers[content]}", full
            small["shots"][index]["full"] = numbers[content]
        yield f"shots {sample}", small


def _jpeg(shot: Screenshot) -> dict[str, Any] | None:
    try:
        width, height = shot.size
        data = shot.small_jpeg()
    except RounddiagError:
        return None
    return {"mime": "image/jpeg", "bytes": data, "width": width, "height": height}
