"""The replies of a report: what its page requests, answered when it is written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from tqdm.auto import tqdm

from rounddiag.batch import Batch
from rounddiag.core.scores import AskedModel, require_answer
from rounddiag.errors import RounddiagError
from rounddiag.figures._parts.canvas import DARK, LIGHT, color_changes, opacity_changes
from rounddiag.findings import Diagnosis
from rounddiag.vision import Screenshot
from rounddiag.widgets.contexts import has_contexts
from rounddiag.widgets.filters import OF_PICTURES
from rounddiag.widgets.images import changes_of
from rounddiag.widgets.lists import HEADS, PAGE, ranked_rows, sort_rows
from rounddiag.widgets.requests import FILE, REQUESTS, RequestHandler, batch_name
from rounddiag.widgets.session import Session, evidence_place, first_with_tokens
from rounddiag.widgets.state import Cursor

# Above this, what needs all tokens once for each column takes too long.
_FEW_TOKENS = 1_000_000
# Stops of the threshold: powers of ten, and stops for each.
_STOPS = (-3, 1, 100)
# Columns that number things: a line for each value says nothing.
_NO_GROUPS = ("sample", "sample_id", "round", "token", "num_rounds", "num_tokens")
_LISTS = ("findings", "tokens", "rounds", "samples", "common")
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
    answer: AskedModel | None = None,
) -> tuple[Diagnosis, Iterator[tuple[str, object]]]:
    """Return the diagnosis of a batch, and every reply with its key."""
    session = Session(batch, state)
    metrics = session.options["metric"]
    session.options["metric"] = [m for m in metrics if m[0] != OF_PICTURES]
    diagnosis = session.diagnosis
    if len(diagnosis):
        first = first_with_tokens(diagnosis)
        session.change({"finding": first, "layout": {"list": "findings"}})
    chosen = samples_of_page(session, worst, samples)
    if answer is not None:
        answer = require_answer(answer).fit(batch)
        asked = answer.alternatives["sample"].tolist()
        chosen = [*dict.fromkeys([*chosen, *asked])]
    total = len(_metrics(session)) + len(_groups(session)) + len(chosen)
    return diagnosis, _with_progress(StoredReplies(session, chosen, answer), total)


# One for each metric, column of `by`, and sample: what takes long. How many screenshots
# fit is known at the end.
_PARTS = ("overview", "rounds", "trajectory")


def _with_progress(
    replies: Iterable[tuple[str, object]], total: int
) -> Iterator[tuple[str, object]]:
    with tqdm(desc="report", total=total, unit="part", leave=False, delay=1) as bar:
        for key, reply in replies:
            yield key, reply
            kind, *names = key.split()
            bar.update(kind in _PARTS and len(names) > 0)


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


# Of what replies depend on, the entries of the state.
_STATE = {"metric", "by", "finding"}


class StoredReplies:
    """The replies to `REQUESTS`, for all arguments that the page of a report has.

    Parameters
    ----------
    session : Session
    chosen : list of int
        The samples that the page shows token by token.
    answer : AskedModel, optional
        What a model has answered about the batch.
    """

    def __init__(
        self, session: Session, chosen: list[int], answer: AskedModel | None = None
    ) -> None:
        self._session, self._batch, self._chosen = session, session.batch, chosen
        self._handler = RequestHandler(session, lambda: None, answer)
        self._gaps: dict[int, list[dict[str, Any]]] = {}
        self._sorts: list[str] = []
        self._images: dict[str, object] = {}
        self._numbers: dict[object, int | None] = {}  # of images, by their content
        self._room = {"contexts": _CONTEXTS, "pictures": _PICTURES}
        # What an argument can be, by those before it.
        self._values: dict[str, Callable[[Mapping[str, Any]], Iterable[object]]] = {
            "theme": lambda _: ["light"],
            "metric": lambda _: _metrics(session),
            "by": lambda _: _groups(session),
            "list": lambda _: _LISTS,
            "log_probs": lambda _: [False, True],
            "finding": lambda _: range(len(session.diagnosis)),
            "sample": lambda _: chosen,
            "round": self._rounds,
            "start": self._starts,
            "stop": lambda args: [self._gaps[args["sample"]][-1]["stop"]],
        }
        # Replies of which the page needs less or more; None is left out.
        self._own: dict[str, Callable[..., object]] = {
            "overview": lambda **args: self._ask("overview", **args)["figures"],
            "rounds": self._groups,
            "list": self._list,
            "trajectory": self._trajectory,
            "context": self._context,
            "thumbnails": self._thumbnails,
        }

    def _ask(self, name: str, /, **args: Any) -> Any:  # noqa: ANN401 any reply
        reply = self._handler(name, args)
        return reply() if callable(reply) else reply

    def __iter__(self) -> Iterator[tuple[str, object]]:
        session, opened = self._session, self._session.state
        yield "overview", self._overview()
        for name, (_, stored) in REQUESTS.items():
            for args in self._arguments(stored):
                if state := {key: args[key] for key in _STATE & args.keys()}:
                    session.change(state)
                own = {key: args[key] for key in args.keys() - _STATE}
                answer = self._own.get(name) or partial(self._ask, name)
                reply = answer(**own)
                session.state = opened
                if reply is not None:
                    yield self._key(name, args), reply
        yield from self._images.items()
        yield "orders samples", _orders(session, self._sorts)
        yield "list selection 0", _no_rows("A selection needs Python")
        yield "list hits 0", _no_rows("A search in all samples needs Python")

    def _arguments(self, names: Sequence[str] | None) -> list[dict[str, Any]]:
        arguments: list[dict[str, Any]] = [] if names is None else [{}]
        for name in names or ():
            arguments = [
                {**args, name: value}
                for args in arguments
                for value in self._values[name](args)
            ]
        return arguments

    def _key(self, name: str, args: Mapping[str, Any]) -> str:
        known = self._session.options["by"]
        words = [known.index(v) if k == "by" else v for k, v in args.items()]
        return " ".join([name, *(str(word).lower() for word in words)])

    def _rounds(self, args: Mapping[str, Any]) -> range:
        batch = self._batch
        if not has_contexts(batch) or batch.lacks("text"):  # of a redacted file
            return range(0)
        return range(int((batch.rounds.sample == args["sample"]).sum()))

    def _starts(self, args: Mapping[str, Any]) -> Iterable[int]:
        if "list" in args:
            is_whole = args["list"] == "samples"
            num = len(ranked_rows(self._session, "samples")[0]) if is_whole else 1
            return range(0, max(num, 1), PAGE)
        gaps = self._gaps[args["sample"]]
        fits = 0 < sum(gap["num_tokens"] for gap in gaps) <= _OBSERVED
        return [gaps[0]["start"]] if fits else []

    def _overview(self) -> dict[str, Any]:
        """Return the first overview, with what the page needs to make others of it."""
        session = self._session
        overview = self._ask("overview", theme="light")
        del overview["figures"]
        chips = overview["head"]["chips"]
        overview["head"]["chips"] = [chip for chip in chips if chip["label"] != FILE]
        return {
            **overview,
            **_thresholds(session),
            "samples": self._chosen,
            "source": _source(self._batch),
            "places": [place and vars(place) for place in _evidence(session)],
            "colors": [
                *color_changes(LIGHT, DARK).items(),
                *opacity_changes(LIGHT, DARK).items(),
            ],
        }

    def _groups(self, theme: str) -> object:
        groups = self._ask("values", name=self._session.state.by)
        return {**self._ask("rounds", theme=theme), "groups": groups}

    def _list(self, **args: object) -> object:
        """Return all findings and samples, and the first rows of the other lists."""
        rows: dict[str, Any] = self._ask("list", **args)
        sorts, num = rows.pop("sorts", []), rows["num_rows"]
        if args["list"] == "samples":
            more = _sample_columns(self._session, rows)
            heads = [column["head"] for column in rows["columns"]]
            at = heads.index(HEADS["num_rounds"])  # before the numbers
            rows["columns"][at:at] = more
            rows["sorts"] = self._sorts = [*sorts, *(column["head"] for column in more)]
        elif args["list"] == "common":
            rows["conditions"] = []  # a report has no filter
        elif args["list"] != "findings" and num > PAGE:
            rows["caption"] += f"; the first {PAGE} of {num:,}"
            rows["num_rows"] = PAGE
        return rows

    def _trajectory(self, sample: int) -> object:
        reply = self._ask("trajectory", sample=sample)
        self._gaps[sample] = reply["gaps"]
        return _without_diff(reply)

    def _context(self, **args: int) -> object:
        """Return what the model saw before a round, as far as there is room."""
        if self._room["contexts"] < 0:
            return None
        reply = self._ask("context", **args)
        self._room["contexts"] -= sum(
            len(part.get("text", ""))
            for engine in reply["engines"]
            for part in (*engine["parts"], *engine["left"])
        )
        return None if self._room["contexts"] < 0 else reply

    def _thumbnails(self, sample: int) -> object:
        """Return the screenshots of a sample; those of the first ones also in full.

        A full one that several samples or rounds have is stored once.
        """
        small = self._ask("thumbnails", sample=sample)
        shots = () if self._batch.images is None else self._batch.images[sample]
        changes = changes_of(self._batch, sample, range(len(shots)))
        for index, shot in enumerate(shots):
            data = getattr(shot, "data", None)
            content = data if isinstance(data, bytes) else (sample, index)
            if content not in self._numbers:
                full = _jpeg(shot) if self._room["pictures"] > 0 else None
                self._numbers[content] = None if full is None else len(self._images)
                if full is not None:
                    self._room["pictures"] -= len(full["bytes"])
                    self._images[f"image {len(self._images)}"] = full
            small["shots"][index] |= {
                **changes[index],
                "full": self._numbers[content],
            }
        return small


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


def _groups(session: Session) -> list[str]:
    if session.batch.num_tokens > _FEW_TOKENS:
        return []
    return [name for name in session.options["by"] if name not in _NO_GROUPS]


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


def _jpeg(shot: Screenshot) -> dict[str, Any] | None:
    try:
        width, height = shot.size
        data = shot.small_jpeg()
    except RounddiagError:
        return None
    return {"mime": "image/jpeg", "bytes": data, "width": width, "height": height}
