"""`ask`: what a model would write at places of a batch, and whether it looks."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
import torch
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
    read_round,
)
from rounddiag.proof.answer import AIM, TABLES, Answer, say_alternatives, say_sight
from rounddiag.proof.engines.client import ServerError
from rounddiag.proof.engines.opening import FunctionEngine, open_engine
from rounddiag.proof.hypotheses.hypothesis import Hypothesis, all_registered
from rounddiag.proof.proof import ENGINE_NAMES, Proof
from rounddiag.proof.sight import NUM_PASSES, AskedRound, look_at
from rounddiag.proof.trajectory import Samples
from rounddiag.schema import ORIGINAL_SAMPLE, SIGHT, TILES
from rounddiag.wording import capitalize, pluralize

MOST_ROUNDS = 8  # of the evidence, unless places are named
_Places = dict[tuple[int, int], set[int]]
"""From sample and round to tokens; none are all."""


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
        As of `prove`: pictures go to a server only if its address is passed here.
    at : str or list of str, optional
        Places such as `task-04/2 / r3` or `task-04/2 / r3 / t2`: a token, all tokens of
        a round, or all rounds of a sample. By default the evidence of the first
        findings, at most 8 rounds.
    proof : Proof, optional
        Of this batch. An engine that it has reproduced is called by its name; else
        sentences are about "the model".
    device, trust_remote_code
        As of `prove`.
    budget_s : float
        After so many seconds, with loading, nothing more is begun.

    Returns
    -------
    Answer
        After Ctrl-C, at the end of the budget, or when a server fails, with what is
        known by then.

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
    places = _evidence(batch) if at is None else _find_places(batch, at)
    named = {} if proof is None else _reproduced(proof, batch)
    opened: Any = open_engine(
        engine, device=device, trust_remote_code=trust_remote_code
    )
    if isinstance(opened, FunctionEngine):
        raise BatchError.build(
            expected="a model, or the address of a server",
            found="a function, which gives the log-probs of sampled tokens only",
            advice="Pass the folder of the model.",
        )
    chat, count = getattr(opened, "chat", None), getattr(opened, "count_tokens", None)
    if batch.tokenizer is None and chat is not None:
        batch = replace(batch, tokenizer=chat.tokenizer)
    samples = Samples(split_chains(batch), opened.prepare, chat, count)
    return _Question(batch, opened, samples, named, begin, budget_s).answer(places)


def _find_places(batch: Batch, at: str | Sequence[str]) -> _Places:
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
    for finding in () if batch.lacks("old", "rollout") else diagnose(batch):
        if finding.kind != "level":
            tokens = finding.tokens()
            size = tokens["diff"].abs().groupby([tokens["sample"], tokens["round"]])
            for key in size.sum().sort_values(ascending=False, kind="stable").index:
                places.setdefault((int(key[0]), int(key[1])), set())
    if not places:
        raise BatchError.build(
            key="at",
            expected="a place to ask about, since no finding has one",
            found="none",
            advice=f"Name a round, such as `{Address.of(batch, 0, 0)}`.",
        )
    return dict([*places.items()][:MOST_ROUNDS])


def _reproduced(
    proof: Proof, batch: Batch
) -> dict[str, tuple[Hypothesis | None, float]]:
    """Return the engines that a proof has reproduced, as what, and with which residual.

    Those whose hypothesis is no change of what is read, or holds in a part only, are
    left out.
    """
    own = batch.sample_columns.get(ORIGINAL_SAMPLE.name, range(len(batch)))
    row_of = {int(number): row for row, number in enumerate(own)}
    rows = [row_of.get(n) for n in proof.batch.sample_columns[ORIGINAL_SAMPLE.name]]
    if None in rows or not torch.equal(
        batch[[row for row in rows if row is not None]].require_ids().cpu(),
        proof.batch.require_ids().cpu(),
    ):
        raise BatchError.build(
            key="proof",
            expected="a proof of this batch",
            found="one of other samples or token ids",
            advice="Pass what `rounddiag.prove(batch, model)` returned.",
        )
    named: dict[str, tuple[Hypothesis | None, float]] = {
        name: (None, opinion.residual)
        for name, opinion in proof.base.items()
        if opinion.residual_to_noise <= proof.noise_limit
    }
    known = {each.name: each for each in all_registered() if each.edit is not None}
    for conclusion in proof.conclusions:
        named.pop(conclusion.engine, None)
        last = conclusion.opinions[-1]
        is_whole = proof.verdict == "proved" and last.where == "all"
        if is_whole and conclusion.name in known:
            named[conclusion.engine] = known[conclusion.name], last.residual
    return named


@dataclass(eq=False)
class _Question:
    """Places of a batch while a model is asked about them.

    Attributes
    ----------
    named: The engines that a proof has reproduced.
    begin: Of `time.perf_counter`.
    frames: The rows so far.
    """

    batch: Batch
    engine: Any
    samples: Samples
    named: dict[str, tuple[Hypothesis | None, float]]
    begin: float
    budget_s: float
    frames: dict[str, list[pd.DataFrame]] = field(
        default_factory=lambda: {name: [] for name in TABLES}
    )
    told: list[tuple[int, int, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def answer(self, places: _Places) -> Answer:
        """Ask about all places, as far as the budget reaches."""
        total, why = len(places) * (NUM_PASSES + 1), ""
        with tqdm(total=total, unit="pass", leave=False, delay=1) as bar:
            try:
                for done, (place, tokens) in enumerate(places.items(), start=1):
                    share = self.budget_s * done / len(places)
                    self._ask(*place, tokens, share, bar)
                    if done < len(places) and self._spent >= self.budget_s:
                        why = f"the budget of {self.budget_s:g} s ended"
                        break
            except (KeyboardInterrupt, ServerError, BatchError) as error:
                if not self.told:
                    raise
                why = str(error).rstrip(".") or "it was interrupted"
        if why:
            asked = len({told[:2] for told in self.told})
            of = pluralize(len(places), "round")
            self.notes.append(f"Asked about {asked} of {of}: {why}.")
        if sent := getattr(self.engine, "sent", ()):
            shown = pluralize(len(sent), "picture")
            self.notes.append(f"Sent: {shown} to {self.engine.name}.")
        frames = {
            name: pd.concat(parts, ignore_index=True)
            if parts
            else as_frame(TABLES[name], {})
            for name, parts in self.frames.items()
        }
        return Answer(
            **frames,
            told=tuple(self.told),
            model=self.engine.name,
            seconds=self._spent,
            notes=tuple(self.notes),
            batch=self.batch,
        )

    @property
    def _spent(self) -> float:
        return time.perf_counter() - self.begin

    def _ask(
        self,
        sample: int,
        number: int,
        tokens: set[int],
        share: float,
        bar: Any,  # noqa: ANN401 of tqdm
    ) -> None:
        """Ask about one round; what is known when it stops stays."""
        asked = AskedRound.find(self.samples, sample, number)
        readings = {
            engine: read_round(self.engine, asked, self.samples, hypothesis)
            for engine, (hypothesis, _) in {"": (None, 0.0), **self.named}.items()
            if not engine or hypothesis is not None
        }
        bar.update()
        plain = readings[""]
        self._add_alternatives(asked, readings, [*(tokens or plain.tokens.tolist())])
        why = ""
        if not asked.trajectory.shots:
            why = "the batch has no pictures here"
        elif "pictures" not in self.engine.abilities:
            why = f"{self.engine.name} is a model of text"
        elif asked.index < 0:
            why = "no picture comes before the round"
        if why:
            self._tell(asked, f"Sight was not measured: {why}.")
            return
        self._add_sight(asked, plain, share, bar)
        for engine, reading in readings.items():
            if engine and not asked.shows(reading.requests):
                name, residual = ENGINE_NAMES.get(engine, engine), self.named[engine][1]
                text = (
                    f"{capitalize(name)} never saw this picture: {reading.hypothesis}"
                    f" reproduces it (residual {residual:.2g} nat), so its map is flat"
                    " by construction."
                )
                self._tell(asked, text)

    def _tell(self, asked: AskedRound, text: str) -> None:
        self.told.append((asked.sample, asked.round, text))

    def _add_alternatives(
        self, asked: AskedRound, readings: dict[str, RoundReading], chosen: list[int]
    ) -> None:
        plain = readings[""]
        kl = np.full(len(plain.tokens), np.nan)
        sampling, training = (readings.get(n, plain) for n in ("rollout", "old"))
        if {"rollout", "old"} <= {*self.named} and sampling is not training:
            kl = sampling.divergence(training)
        plainly = [name for name in self.named if name not in readings]
        for engine, reading in readings.items():
            frame = alternatives_frame(asked, reading, chosen, kl, self.batch.tokenizer)
            self.frames["alternatives"].append(frame)
            names = [engine] if engine else plainly
            how = reading.hypothesis or "the model as it is"
            subject = " and ".join(
                f"{ENGINE_NAMES.get(name, name)} ({how}, residual"
                f" {self.named[name][1]:.2g} nat)"
                for name in names
            )
            place = Address.of(self.batch, asked.sample, asked.round)
            text = say_alternatives(subject or "the model", frame)
            self._tell(asked, f"{place}: {text}")
        mine = kl[np.isin(plain.tokens, chosen)]
        if sampling is not training and not sampling.readouts:
            text = f"KL is not known: {self.engine.name} gives the likeliest only."
            self._tell(asked, text)
        if np.isfinite(mine).any():
            text = f"KL(sampling || training) is {np.nanmean(mine):.2g} nat"
            if len(mine) > 1:
                text += f" on average, {np.nanmax(mine):.2g} at most"
            self._tell(asked, f"{text}.")

    def _add_sight(
        self,
        asked: AskedRound,
        plain: RoundReading,
        share: float,
        bar: Any,  # noqa: ANN401 of tqdm
    ) -> None:
        role = self._roles(asked)[plain.tokens]
        aim = role == AIM
        try:
            sight = look_at(
                self.engine,
                asked,
                self.samples,
                plain.top.own,
                aim if aim.any() else np.ones_like(aim),
                may_go_on=lambda refines: (
                    self._spent < (share if refines else self.budget_s)
                ),
                advance=bar.update,
            )
        finally:
            if hasattr(self.engine, "eyes"):
                self.engine.eyes.forget_looks("mean")
        keys = {"sample": asked.sample, "round": asked.round}
        drops = {
            "token": plain.tokens,
            "role": role,
            "log_prob": plain.top.own,
            "log_prob_blind": sight.blind,
            "drop": plain.top.own - sight.blind,
            "noise": sight.noise,
        }
        edges = dict(zip(("x0", "y0", "x1", "y1"), sight.boxes.T, strict=True))
        frame = as_frame(SIGHT, {**keys, **drops})
        tiles = {**keys, "picture": asked.picture, **edges, "drop": sight.drops}
        self.frames["sight"].append(frame)
        self.frames["tiles"].append(as_frame(TILES, tiles))
        self._tell(asked, say_sight(frame, self.frames["tiles"][-1]))
        if not sight.is_whole:
            self._tell(asked, f"Tiles are missing: {self.budget_s:g} s were over.")

    def _roles(self, asked: AskedRound) -> Array:
        if self.batch.tokenizer is None:
            return np.full(asked.stop - asked.begin, "", dtype=object)
        frame = token_frame(self.batch[[asked.sample]], ["role"])
        return frame.loc[frame["round"] == asked.round, "role"].to_numpy(dtype=object)
