"""The payload of one sample: its rounds, its tokens, and the observations between."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

from rounddiag._typing import Array
from rounddiag.batch import Batch
from rounddiag.batch.sample_sequence import SampleSequence, known_sequence
from rounddiag.batch.turns import piece_texts, prompt_pieces
from rounddiag.checks.contracts import UntestableError
from rounddiag.checks.images import image_token
from rounddiag.core import round_and_token_frames
from rounddiag.core.loss_ratio import correction_settings
from rounddiag.core.measured import Measured
from rounddiag.core.picture_changes import last_seen_screenshots, screenshots_after
from rounddiag.core.scores import has_pair, pair_of, select_scores
from rounddiag.errors import FrameError
from rounddiag.figures._parts.data import check_sample
from rounddiag.figures.colored_text import NO_LEVEL, NO_TEXT, levels
from rounddiag.text import pieces, roles, special_tokens
from rounddiag.vision import Screenshot
from rounddiag.widgets.columns import token_columns_of
from rounddiag.widgets.contexts import context_labels, context_pictures
from rounddiag.widgets.episode import (
    describe_episode,
    read_turns,
    recorded_actions,
    round_costs,
    round_facts,
    said_between,
    task_of,
)
from rounddiag.widgets.images import describe_actions
from rounddiag.widgets.outcomes import successes
from rounddiag.wording import pluralize


class BatchCache:
    """Properties of a whole batch that each sample needs, computed on first use.

    Parameters
    ----------
    batch : Batch
    """

    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        self._sorted: dict[tuple[str, str], Array] = {}

    @cached_property
    def image_token(self) -> int | None:
        """The token id of image tokens; None if it is not known."""
        if self._batch.lacks("ids"):
            return None
        try:
            return image_token(self._batch)
        except UntestableError:
            return None

    @cached_property
    def special(self) -> dict[int, str]:
        """The tokenizer's special tokens, id to text; empty without ids."""
        batch = self._batch
        return {} if batch.lacks("ids") else special_tokens(batch.tokenizer)

    @cached_property
    def with_screenshots(self) -> list[int]:
        """The samples that have screenshots."""
        shots = self._batch.images or ()
        return [sample for sample, own in enumerate(shots) if own]

    @cached_property
    def successes(self) -> list[bool | None]:
        """Whether each sample's reward says that it succeeded."""
        return successes(self._batch)

    def ranks(self, diff: Array, a: str, b: str) -> Array:
        """Rank tokens by |diff| among all tokens of the batch."""
        sizes = self._sorted_sizes(a, b)
        ranks = len(sizes) + 1 - np.searchsorted(sizes, np.abs(diff), side="right")
        return np.where(np.isfinite(diff), ranks, 0).astype(np.int32)

    def _sorted_sizes(self, a: str, b: str) -> Array:
        if (a, b) not in self._sorted:
            diff = Measured.of(self._batch, a, b).diff
            self._sorted[a, b] = np.sort(np.abs(diff[np.isfinite(diff)]))
        return self._sorted[a, b]


def ranks_in_rounds(ranks: Array, counts: Array) -> Array:
    """Rank the tokens of each round among themselves, by their ranks in the batch."""
    last = int(ranks.max(initial=0)) + 1
    index = np.repeat(np.arange(len(counts)), counts)
    keys = index * (last + 1) + np.where(ranks > 0, ranks, last)
    first = (np.cumsum(counts) - counts)[index]
    in_round = np.searchsorted(np.sort(keys), keys) - first + 1
    return np.where(ranks > 0, in_round, 0).astype(np.int32)


# Tokens of an observation that are sent as words: what a pane shows, and where tools
# write their errors.
_NUM_HEAD, _NUM_TAIL = 512, 128


@dataclass(frozen=True, kw_only=True)
class TokenSequence:
    """Prompt and response of a sample as one sequence.

    Attributes
    ----------
    ids: The token ids of both; None if they are not known.
    texts: The pieces of both, of a batch of texts alone.
    num_prompt, num_response: How many tokens each has.
    is_image: Which of them are image tokens.
    fragments: Where an observation goes on behind text that it does not have.
    """

    ids: Array | None
    texts: list[str]
    num_prompt: int
    num_response: int
    is_image: Array
    fragments: frozenset[int]
    batch: Batch

    @classmethod
    def of(cls, batch: Batch, sample: int, cache: BatchCache) -> TokenSequence:
        """Build it for one sample."""
        num_response = int(batch.lengths[sample])
        ids, texts, num_prompt = None, [], 0
        if batch.pieces is not None:
            prompt = prompt_pieces(batch, sample)
            texts, num_prompt = prompt + piece_texts(batch, sample), len(prompt)
        elif batch.response_ids is not None:
            num_prompt, ids = known_sequence(batch, sample)
        token, size = cache.image_token, num_prompt + num_response
        is_image = np.zeros(size, dtype=bool)
        if token is not None and ids is not None:
            is_image = ids == token
        return cls(
            ids=ids,
            texts=texts,
            num_prompt=num_prompt,
            num_response=num_response,
            is_image=is_image,
            fragments=SampleSequence(batch, sample).fragment_starts,
            batch=batch,
        )

    def gaps(
        self, starts: Array, counts: Array, special: Collection[str]
    ) -> list[dict[str, Any]]:
        """Describe the observations before, between and after the rounds."""
        begins = [-self.num_prompt, *(starts + counts).tolist()]
        ends = [*starts.tolist(), self.num_response]
        spans = [
            (start, stop, before if before < len(starts) else None)
            for before, (start, stop) in enumerate(zip(begins, ends, strict=True))
            if start < stop
        ]
        words = [self._words(start, stop) for start, stop, _ in spans]
        texts = self.texts_at([word for pair in words for word in pair])
        edges = np.array([span[:2] for span in spans], dtype=np.int64).reshape(-1, 2)
        before_edges = np.cumsum(np.r_[0, self.is_image])[edges + self.num_prompt]
        num_images = np.diff(before_edges).ravel().tolist()
        return [
            {
                "start": start,
                "stop": stop,
                "before": before,
                "num_tokens": stop - start,
                "num_image_tokens": num_image_tokens,
                "turns": self._read(head, texts[2 * at], special),
                "rest": self._read(tail, texts[2 * at + 1], special),
            }
            for at, (
                (start, stop, before),
                num_image_tokens,
                (head, tail),
            ) in enumerate(zip(spans, num_images, words, strict=True))
        ]

    def _words(self, start: int, stop: int) -> tuple[Array, Array]:
        """Return the places of a gap's first and last words: of a picture, one token.

        The last ones are those behind a part that is left out.
        """
        begin, end = start + self.num_prompt, stop + self.num_prompt
        image = self.is_image[begin:end]
        is_first = image & ~np.r_[False, image[:-1]]
        places = begin + np.flatnonzero(~image | is_first)
        if len(places) <= _NUM_HEAD + _NUM_TAIL:
            return places, places[:0]
        return places[:_NUM_HEAD], places[-_NUM_TAIL:]

    def texts_at(self, parts: Sequence[Array]) -> list[list[str]]:
        """Return the text of tokens, given by their places in prompt and response."""
        if self.texts:
            return [[self.texts[at] for at in part.tolist()] for part in parts]
        ends = np.cumsum([0, *map(len, parts)]).tolist()
        if self.ids is None:
            texts = [NO_TEXT] * ends[-1]
        else:
            ids = self.ids[np.concatenate([np.empty(0, np.int64), *parts])]
            texts = pieces(ids, self.batch.tokenizer, starts=ends[:-1])
        return [texts[begin:end] for begin, end in pairwise(ends)]

    def _read(
        self, places: Array, texts: Sequence[str], special: Collection[str]
    ) -> list[dict[str, Any]]:
        if self.batch.lacks("text", "tokenizer"):
            return []
        words: list[str] = []
        is_image: list[bool] = []
        for place, text in zip(places.tolist(), texts, strict=True):
            if place in self.fragments:
                words.append(" … ")
                is_image.append(False)
            words.append(text)
            is_image.append(bool(self.is_image[place]))
        return read_turns(words, is_image, special)


_MEANS = ("mean_abs_diff", "mean_diff")


def _round_records(
    sample: Batch, rounds: pd.DataFrame, tokens: Mapping[str, Any]
) -> list[dict[Any, Any]]:
    stops = rounds["num_tokens"].cumsum().to_numpy()
    strength = np.copysign(*(rounds[name].to_numpy() for name in _MEANS))
    level = levels(strength)
    level[level == NO_LEVEL] = 0
    table = rounds[["round", "start", "num_tokens", "num_nonfinite", *_MEANS]].assign(
        first=stops - rounds["num_tokens"],
        level=level,
    )
    shots = _shots(sample)
    seen = last_seen_screenshots(shots, len(rounds))
    texts = [
        "".join(tokens["piece"][first:stop])
        for first, stop in zip(table["first"], stops, strict=True)
    ]
    recorded = recorded_actions(sample, len(rounds))
    before = [None if i is None else shots[i] for i in seen]
    actions = describe_actions(texts, before, recorded)
    if sample.lacks("text", "tokenizer"):  # not that there is no action
        nothing = {"label": "no text", "line": "no text", "written": "", "why": ""}
        actions = [
            action if own else {**action, **nothing}
            for action, own in zip(actions, recorded, strict=True)
        ]
    columns = {
        "action": actions,
        "screenshot": seen,
        "after": screenshots_after(shots, seen),
        "facts": round_facts(sample, len(rounds)),
        "costs": round_costs(sample, len(rounds)),
        "context": context_labels(sample, len(rounds)),
        "pictures": context_pictures(sample, len(rounds)),
    }
    others = zip(*columns.values(), strict=True)
    rows = zip(table.to_dict("records"), others, strict=True)
    return [{**row, **dict(zip(columns, more, strict=True))} for row, more in rows]


def _shots(sample: Batch) -> Sequence[Screenshot]:
    return () if sample.images is None else sample.images[0]


def sample_payload(
    batch: Batch,
    sample: int,
    a: str = "old",
    b: str = "rollout",
    cache: BatchCache | None = None,
    known_roles: pd.Categorical[str] | None = None,
) -> dict[str, Any]:
    """Return everything that the page shows of one sample."""
    check_sample(sample, batch.num_samples)
    cache, own = cache or BatchCache(batch), select_scores(batch[sample], a, b)
    rounds, frame = round_and_token_frames(own, _available_columns(own))
    if not has_pair(own):  # no diff is known, and none is missing
        rounds = rounds.assign(num_nonfinite=0, **dict.fromkeys(_MEANS, np.nan))
        frame = frame.assign(diff=np.full(len(frame), np.nan, dtype=np.float32))
    counts = rounds["num_tokens"].to_numpy()
    tokens = _token_columns(own, frame, cache)
    tokens |= _ranks(own, tokens, counts, cache)
    if not has_pair(own):
        tokens["level"] = np.zeros_like(tokens["level"])
        if (engine := _only_engine(own)) is not None:
            tokens["surprise"] = -tokens["a" if engine == "old" else "b"]
    if not own.lacks("text", "tokenizer"):
        tokens["role"] = known_roles
        if known_roles is None:  # it takes long
            special, starts = {*cache.special.values()}, np.cumsum(counts) - counts
            names = roles(tokens["piece"], starts=starts, special=special)
            tokens["role"] = pd.Categorical(names)
    gaps = _gaps(batch, sample, rounds, cache)
    records = _round_records(own, rounds, tokens)
    prompt = [turn for gap in gaps if gap["before"] == 0 for turn in gap["turns"]]
    if not has_pair(own):
        for record in records:
            record["value"] = _value_of(own, record, tokens.get("surprise"))
    return {
        "sample": sample,
        "lacks": None if has_pair(own) else own.lacks("old", "rollout"),
        "sample_id": own.sample_ids and own.sample_ids[0],
        "group_id": own.group_ids and own.group_ids[0],
        "reward": None if own.rewards is None else float(own.rewards[0]),
        "num_tokens": len(frame),
        "noun": own.token_noun,
        "text_note": str(own.meta.get("text", "")),
        "with_screenshots": [
            other for other in cache.with_screenshots if other != sample
        ],
        "num_unplaced": sum(shot.round is None for shot in _shots(own)),
        "name_a": pair_of(own).a,
        "name_b": pair_of(own).b,
        "weight_limit": weight_limit(batch),
        "task": task_of(own, prompt),
        "end": describe_episode(
            own,
            records[-1]["action"] if records else None,
            success=cache.successes[sample],
        ),
        "rounds": records,
        "gaps": gaps,
        "tokens": tokens,
    }


def _ranks(
    own: Batch, tokens: Mapping[str, Any], counts: Array, cache: BatchCache
) -> dict[str, Array]:
    """Return the ranks of tokens by |diff|; 0 without a pair of log-probs."""
    ranks = np.zeros(counts.sum(), dtype=np.int32)
    if has_pair(own):
        pair = pair_of(own)
        ranks = cache.ranks(tokens["diff"], pair.a, pair.b)
    return {"rank_in_batch": ranks, "rank_in_round": ranks_in_rounds(ranks, counts)}


def _gaps(
    batch: Batch, sample: int, rounds: pd.DataFrame, cache: BatchCache
) -> list[dict[str, Any]]:
    sequence, special = TokenSequence.of(batch, sample, cache), cache.special
    starts, counts = (rounds[name].to_numpy() for name in ("start", "num_tokens"))
    gaps = sequence.gaps(starts, counts, {*special.values()})
    if (said := said_between(batch, sample, len(rounds))) is not None:
        for gap in gaps:
            at = len(rounds) if gap["before"] is None else gap["before"]
            gap |= {"turns": said[at], "rest": []}
    return gaps


def last_action(batch: Batch, sample: int, cache: BatchCache) -> dict[str, Any] | None:
    """Return the action of the last round of a sample, as `sample_payload` has it."""
    rounds = Measured.of(batch).rounds
    own = rounds[rounds["sample"].to_numpy() == sample]
    if own.empty:
        return None
    text = ""
    if not batch.lacks("text", "tokenizer"):
        sequence = TokenSequence.of(batch, sample, cache)
        start = sequence.num_prompt + own["start"].iloc[-1]
        places = np.arange(start, start + own["num_tokens"].iloc[-1])
        text = "".join(sequence.texts_at([places])[0])
    recorded = recorded_actions(batch[sample], len(own))[-1:]
    return describe_actions([text], [None], recorded)[0]


def prompt_turns(batch: Batch, sample: int, cache: BatchCache) -> list[dict[str, Any]]:
    """Return the messages before the first round of a sample."""
    rounds = Measured.of(batch).rounds
    own = rounds[rounds["sample"].to_numpy() == sample]
    if batch.turns is None:
        own = own[:1]  # what follows is not asked for
    gaps = _gaps(batch, sample, own, cache)
    return [turn for gap in gaps if gap["before"] == 0 for turn in gap["turns"]]


def _only_engine(batch: Batch) -> str | None:
    return next(
        (engine for engine in ("rollout", "old") if not batch.lacks(engine)), None
    )


def _value_of(sample: Batch, record: Mapping[Any, Any], surprise: Array | None) -> str:
    if surprise is None:
        return pluralize(record["num_tokens"], sample.token_noun)
    own = surprise[record["first"] : record["first"] + record["num_tokens"]]
    finite = own[np.isfinite(own)]
    return f"surprise {finite.mean():.3g} nat" if len(finite) else "surprise unknown"


def weight_limit(batch: Batch) -> float | None:
    """Return the importance weight at which training truncates, where that is known."""
    facts = correction_settings(batch)
    limit = facts.get("rollout_is_threshold")
    is_on = facts.get("rollout_is") not in (None, "null")
    return float(limit) if is_on and isinstance(limit, int | float) else None


def _available_columns(batch: Batch) -> list[str]:
    numbers = [name for name in token_columns_of(batch) if name != "importance_weight"]
    needs = {
        "old_log_prob": "old",
        "rollout_log_prob": "rollout",
        "text": "text",
        "token_id": "ids",
    }
    known = [name for name, need in needs.items() if not batch.lacks(need)]
    return ["position", *known, *numbers, *_names_of_file(batch)]


def _names_of_file(batch: Batch) -> list[str]:
    return [name for name in batch.columns.extra_names if name in batch.token_columns]


def _token_columns(
    batch: Batch, frame: pd.DataFrame, cache: BatchCache
) -> dict[str, Any]:
    diff, unknown = frame["diff"].to_numpy(), np.full(len(frame), np.nan)
    ids = frame["token_id"].to_numpy() if "token_id" in frame else np.zeros(len(frame))
    columns: dict[str, Any] = {
        "piece": frame["text"].tolist() if "text" in frame else [NO_TEXT] * len(frame),
        "diff": diff,
        "a": frame["old_log_prob"].to_numpy() if "old_log_prob" in frame else unknown,
        "b": frame["rollout_log_prob"].to_numpy()
        if "rollout_log_prob" in frame
        else unknown,
        "level": levels(diff),
        "is_special": np.isin(ids, [*cache.special]).astype(np.uint8),
    }
    for name in (*("position", "round", "token_id"), *token_columns_of(batch)):
        if name in frame:
            columns[name] = frame[name].to_numpy()
    names = _names_of_file(batch)
    if names:
        columns["of_file"] = {name: frame[name].to_numpy() for name in names}
    return columns


def observed_tokens(
    batch: Batch, sample: int, start: int, stop: int, cache: BatchCache | None = None
) -> dict[str, Any]:
    r"""Return a span of a sample's prompt and response, token by token."""
    check_sample(sample, batch.num_samples)
    sequence = TokenSequence.of(batch, sample, cache or BatchCache(batch))
    low, high = -sequence.num_prompt, sequence.num_response
    if not low <= start <= stop <= high:
        raise FrameError.build(
            key="start, stop",
            expected=f"positions from {low} to {high}, the lower one first",
            found=f"{start}, {stop}",
            advice="Positions count from the start of the response; in the prompt they"
            " are negative.",
        )
    (texts,) = sequence.texts_at([np.arange(start - low, stop - low)])
    is_image = sequence.is_image[start - low : stop - low]
    return {"pieces": texts, "is_image": is_image.astype(np.uint8)}
