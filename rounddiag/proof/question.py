"""`ask`: what a model would write at places of a batch, and whether it looks."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
from tqdm.auto import tqdm

from rounddiag._typing import Array
from rounddiag.batch import Batch
from rounddiag.batch.address import Address
from rounddiag.batch.batch import require_batch
from rounddiag.batch.chains import split_chains
from rounddiag.core import token_frame
from rounddiag.errors import BatchError
from rounddiag.findings import diagnose
from rounddiag.proof.alternatives import (
    RoundReading,
    alternatives_frame,
    as_frame,
    divergence_frame,
    read_round,
)
from rounddiag.proof.answer import TABLES, Answer
from rounddiag.proof.asked_round import AskedRound
from rounddiag.proof.engines.client import ServerError
from rounddiag.proof.engines.opening import FunctionEngine, open_engine
from rounddiag.proof.proof import Proof
from rounddiag.proof.reproduced import (
    ReproducedEngine,
    find_hypothesis,
    reproduced_engines,
)
from rounddiag.proof.sight import NUM_PASSES, Box, SightMap, drawn_size, look_at
from rounddiag.proof.trajectory import Samples
from rounddiag.schema import ASKED_ROUNDS, SIGHT, TILES
from rounddiag.wording import pluralize

MOST_ROUNDS = 8  # of the evidence, unless places are named
_STOPPED = (KeyboardInterrupt, ServerError)
_BUDGET = "the budget of {:g} s ended"
AIM = "coordinates"  # the role of the tokens that a picture decides


def ask(
    batch: Batch,
    engine: Any,  # noqa: ANN401 a name, an address or an engine
    *,
    at: str | Sequence[str] | None = None,
    proof: Proof | None = None,
    device: str = "auto",
    budget_s: float = 60.0,
    trust_remote_code: bool = False,
) -> Answer:
    """Ask a model what it would have written, and whether it looked at the screen.

    Parameters
    ----------
    batch : Batch
        With token ids; pictures as the processor got them, for a model that sees.
    engine : str, path-like or LocalEngine
        As of `prove`: a folder or name that transformers opens, or the address of a
        running vLLM or SGLang. Pictures go to a server only if its address is passed
        here.
    at : str or list of str, optional
        Places such as `task-04/2 / r3` or `task-04/2 / r3 / t2`: a token, all tokens of
        a round, or all rounds of a sample. By default the evidence of the first
        findings, at most 8 rounds.
    proof : Proof, optional
        Of this batch. An engine that it has reproduced is called by its name; others
        are "the model".
    device : str
        Of a model in this process; `auto` is a GPU if there is one.
    budget_s : float
        After so many seconds, with loading, nothing more is begun.
    trust_remote_code : bool
        Whether code of the model's repository may run.

    Returns
    -------
    Answer
        Its frames are `alternatives`, `sight` and `tiles`. After Ctrl-C, at the end of
        the budget, or when a server fails, those of the rounds that were finished.

    Examples
    --------
    >>> import rounddiag as rd
    >>> batch = rd.load("sample_data/image_window.parquet")
    >>> answer = rd.ask(batch, "sample_data/model", at="task-04/2 / r3 / t2")
    >>> answer.alternatives["rank"].tolist()
    [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]
    """
    require_batch(batch)
    batch.require_ids()
    begin = time.perf_counter()
    places = _find_places(batch, at)
    opened = open_engine(engine, device=device, trust_remote_code=trust_remote_code)
    if isinstance(opened, FunctionEngine):
        raise BatchError.build(
            expected="a model, or the address of a server",
            found="a function, which gives the log-probs of sampled tokens only",
            advice="Pass the folder of the model.",
        )
    chat, count = getattr(opened, "chat", None), getattr(opened, "count_tokens", None)
    if batch.tokenizer is None and chat is not None:
        batch = replace(batch, tokenizer=chat.tokenizer)
    engines, notes = reproduced_engines(proof, batch)
    question = Question(
        batch=batch,
        engine=opened,
        samples=Samples(split_chains(batch), opened.prepare, chat, count),
        engines=engines,
        begin=begin,
        budget_s=budget_s,
    )
    return question.answer(places, notes)


_Places = dict[tuple[int, int], set[int]]
"""From sample and round to tokens; none are all."""


def _find_places(batch: Batch, at: str | Sequence[str] | None) -> _Places:
    if at is None:
        return _evidence(batch)
    places: _Places = {}
    for text in [at] if isinstance(at, str) else at:
        sample, number, token = Address.parse(text).locate(batch)
        own = batch.rounds.round[batch.rounds.sample == sample].tolist()
        for each in own if number is None else [number]:
            tokens = places.setdefault((sample, each), set())
            tokens |= set() if token is None else {token}
    if not places:
        raise BatchError.build(
            key="at",
            expected="a place with generated tokens",
            found="none",
            advice="`rounddiag.round_frame(batch)` lists places.",
        )
    return places


def _evidence(batch: Batch) -> _Places:
    """Return the rounds of the first findings, the largest sum of |diff| first."""
    places: _Places = {}
    findings = [] if batch.lacks("old", "rollout") else [*diagnose(batch)]
    for finding in findings:
        if finding.kind != "level":
            tokens = finding.tokens()
            size = tokens["diff"].abs().groupby([tokens["sample"], tokens["round"]])
            for key in size.sum().sort_values(ascending=False, kind="stable").index:
                places.setdefault((int(key[0]), int(key[1])), set())
    if not places:
        first = Address.of(batch, 0, 0)
        raise BatchError.build(
            key="at",
            expected="a place to ask about, since no finding has one",
            found="none",
            advice=f"Name a round, such as `{first}`.",
        )
    return dict([*places.items()][:MOST_ROUNDS])


@dataclass(eq=False, kw_only=True)
class Question:
    """_Places of a batch while a model is asked about them.

    Attributes
    ----------
    begin: Of `time.perf_counter`.
    notes: What was left out, and why.
    frames: The rows so far, by the table that they belong to.
    """

    batch: Batch
    engine: Any
    samples: Samples
    engines: list[ReproducedEngine]
    begin: float
    budget_s: float
    notes: list[str] = field(default_factory=list)
    frames: dict[str, list[pd.DataFrame]] = field(
        default_factory=lambda: {name: [] for name in TABLES}
    )

    def answer(self, places: _Places, notes: list[str]) -> Answer:
        """Ask about all places, as far as the budget reaches."""
        self.notes, why = [*notes], ""
        total = len(places) * (NUM_PASSES + 1)
        with tqdm(total=total, unit="pass", leave=False, delay=1) as bar:
            for done, ((sample, number), tokens) in enumerate(places.items()):
                if done and self._spent >= self.budget_s:
                    why = _BUDGET.format(self.budget_s)
                    break
                share = self.budget_s * (done + 1) / len(places)
                try:
                    self._ask_round(sample, number, tokens, share, bar)
                except BatchError as error:  # of this sample alone
                    if len(places) == 1:
                        raise
                    self.notes.append(f"Not asked about: {error}")
                except _STOPPED as error:
                    if not self.frames["rounds"]:
                        raise
                    why = _say(error)
                    break
        if why:
            asked, of = len(self.frames["rounds"]), pluralize(len(places), "round")
            self.notes.append(f"Asked about {asked} of {of}: {why}.")
        frames = {
            name: pd.concat(parts, ignore_index=True)
            if parts
            else as_frame(TABLES[name], {})
            for name, parts in self.frames.items()
        }
        return Answer(
            **frames,
            model=self.engine.name,
            seconds=self._spent,
            engines=tuple(self.engines),
            notes=tuple(self.notes),
            num_sent=len(getattr(self.engine, "sent", ())),
            batch=self.batch,
        )

    @property
    def _spent(self) -> float:
        return time.perf_counter() - self.begin

    def _ask_round(
        self,
        sample: int,
        number: int,
        tokens: set[int],
        share: float,
        bar: Any,  # noqa: ANN401 of tqdm
    ) -> None:
        """Ask about one round; what is known when it stops stays."""
        asked = AskedRound.find(self.samples, sample, number)
        readings = self._read(asked)
        bar.update()
        plain = readings[""]
        chosen = tokens or {*plain.tokens.tolist()}
        tokenizer = self.batch.tokenizer
        rows = {
            "alternatives": [
                alternatives_frame(asked, reading, chosen, tokenizer)
                for reading in readings.values()
            ],
            "divergences": self._divergences(asked, readings, chosen),
        }
        role = self._roles(asked)[plain.tokens]
        aim = role == AIM
        address = str(Address.of(self.batch, sample, number))
        no_sight, sight, stopped = self._why_blind(asked), None, None
        if not no_sight:
            aimed = aim if aim.any() else np.ones_like(aim)
            try:
                sight = self._look(asked, plain, aimed, share, bar)
            except _STOPPED as error:
                no_sight, stopped = _say(error), error
        if sight is not None:
            rows["sight"] = [_sight_frame(asked, plain, role, sight)]
            rows["tiles"] = [_tile_frame(asked, sight.tiles)]
            if not sight.is_whole:
                why = _BUDGET.format(self.budget_s)
                self.notes.append(f"Tiles are missing at {address}: {why}.")
        unseen = [
            each.engine
            for each in self.engines
            if asked.index is not None
            and not asked.is_seen_in(readings[each.hypothesis].requests)
        ]
        rows["rounds"] = [
            as_frame(
                ASKED_ROUNDS,
                {
                    "sample": [sample],
                    "round": number,
                    "address": address,
                    "aim": AIM if aim.any() else "tokens",
                    "noise": np.nan if sight is None else sight.noise,
                    "unseen_by": ",".join(unseen),
                    "no_sight": no_sight,
                },
            )
        ]
        for name, frames in rows.items():
            self.frames[name] += frames
        if stopped is not None:
            raise stopped

    def _read(self, asked: AskedRound) -> dict[str, RoundReading]:
        """Read a round as the model is, and as each reproduced engine read it."""
        readings = {"": read_round(self.engine, asked, self.samples)}
        for name in dict.fromkeys(each.hypothesis for each in self.engines):
            hypothesis = find_hypothesis(name) if name else None
            if hypothesis is not None:
                readings[name] = read_round(
                    self.engine, asked, self.samples, hypothesis
                )
        return readings

    def _divergences(
        self, asked: AskedRound, readings: dict[str, RoundReading], chosen: set[int]
    ) -> list[pd.DataFrame]:
        named = {each.engine: each.hypothesis for each in self.engines}
        sampling, training = named.get("rollout"), named.get("old")
        if sampling is None or training is None or sampling == training:
            return []
        frame = divergence_frame(asked, readings[sampling], readings[training])
        return [] if frame is None else [frame[frame["token"].isin(chosen)]]

    def _roles(self, asked: AskedRound) -> Array:
        if self.batch.tokenizer is None:
            return np.full(len(asked.token_ids), "", dtype=object)
        frame = token_frame(self.batch[[asked.sample]], ["role"])
        return frame.loc[frame["round"] == asked.round, "role"].to_numpy(dtype=object)

    def _why_blind(self, asked: AskedRound) -> str:
        """Return why there is no sight to measure; empty if there is."""
        if not asked.trajectory.shots:
            return "the batch has no pictures here"
        if "pictures" not in self.engine.abilities:
            return f"{self.engine.name} is a model of text"
        if asked.index is None:
            return "no picture comes before the round"
        return ""

    def _look(
        self,
        asked: AskedRound,
        plain: RoundReading,
        aim: Array,
        share: float,
        bar: Any,  # noqa: ANN401 of tqdm
    ) -> SightMap:
        try:
            return look_at(
                self.engine,
                asked,
                self.samples,
                plain.top.own,
                aim,
                may_go_on=lambda: self._spent < self.budget_s,
                may_refine=lambda: self._spent < share,
                advance=bar.update,
            )
        finally:
            if hasattr(self.engine, "eyes"):
                self.engine.eyes.forget_looks("mean")


def _say(error: BaseException) -> str:
    return str(error).rstrip(".") or "it was interrupted"


def _sight_frame(
    asked: AskedRound, plain: RoundReading, role: Array, sight: SightMap
) -> pd.DataFrame:
    own = plain.top.own
    return as_frame(
        SIGHT,
        {
            "sample": asked.sample,
            "round": asked.round,
            "token": plain.tokens,
            "role": role,
            "log_prob": own,
            "log_prob_blind": sight.blind,
            "drop": own - sight.blind,
        },
    )


def _tile_frame(asked: AskedRound, tiles: list[tuple[Box, float]]) -> pd.DataFrame:
    """Return the tiles in pixels of the stored picture."""
    assert asked.shot is not None  # noqa: S101 tiles are of a picture
    size, drawn = asked.shot.size, drawn_size(asked.shot)
    scale = np.array(size * 2) / np.array(drawn * 2)
    boxes = np.array([box for box, _ in tiles], dtype=float).reshape(-1, 4) * scale
    edges = dict(zip(("x0", "y0", "x1", "y1"), boxes.round().T, strict=True))
    return as_frame(
        TILES,
        {
            "sample": asked.sample,
            "round": asked.round,
            "picture": asked.picture,
            **edges,
            "drop": [drop for _, drop in tiles],
        },
    )
