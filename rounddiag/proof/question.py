"""`ask`: what a model would write at places of a batch, and whether it looks."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
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
    read_round,
)
from rounddiag.proof.answer import (
    AIM,
    TABLES,
    Answer,
    identify,
    say_alternatives,
    say_sight,
)
from rounddiag.proof.engines.client import ServerError
from rounddiag.proof.engines.opening import FunctionEngine, open_engine
from rounddiag.proof.hypotheses.hypothesis import Hypothesis, all_registered
from rounddiag.proof.proof import ENGINE_NAMES, Proof
from rounddiag.proof.saving import with_scores
from rounddiag.proof.scorer import require_seconds
from rounddiag.proof.sight import NUM_PASSES, AskedRound, look_at
from rounddiag.proof.trajectory import Samples
from rounddiag.schema import SIGHT, TILES
from rounddiag.wording import capitalize, pluralize

MOST_ROUNDS = 8  # of the evidence, unless places are named
_Places = dict[tuple[int, int], set[int | None]]
"""From sample and round to tokens; None is all of them."""


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
    require_seconds(budget_s)
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


def _find_places(batch: Batch, at: object) -> _Places:
    places: _Places = {}
    for text in at if isinstance(at, Iterable) and not isinstance(at, str) else [at]:
        sample, number, token = Address.parse(text).locate(batch)
        own = batch.rounds.round[batch.rounds.sample == sample].tolist()
        for each in own if number is None else [number]:
            places.setdefault((sample, each), set()).add(token)
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
                places.setdefault((int(key[0]), int(key[1])), {None})
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

    Not by a hypothesis that changes more than what is read, or holds in a part only;
    nor an engine that divides logits, since the model is asked as it is.
    """
    if not isinstance(proof, Proof):
        raise BatchError.build(
            key="proof",
            expected="a Proof",
            found=f"a {type(proof).__name__}",
            advice="Pass what `rounddiag.prove(batch, model)` returns.",
        )
    with_scores("proof", batch, proof.batch)  # an error where it is of another batch
    if proof.temperature != 1:
        return {}
    named: dict[str, tuple[Hypothesis | None, float]] = {
        name: (None, opinion.residual)
        for name, opinion in proof.base.items()
        if proof.verdict != "scorer_differs"
        and opinion.residual_to_noise <= proof.noise_limit
    }
    known = {
        each.name: each
        for each in all_registered()
        if each.edit is not None and "weights" not in each.needs
    }
    for conclusion in proof.conclusions:
        named.pop(conclusion.engine, None)
        last = conclusion.opinions[-1]
        is_whole = proof.verdict == "proved" and last.where == "all"
        if is_whole and conclusion.name in known:
            named[conclusion.engine] = known[conclusion.name], last.residual
    return named


@dataclass(eq=False)
class _Question:
    """Places of a batch while a model is asked about them."""

    batch: Batch
    engine: Any
    samples: Samples
    named: dict[str, tuple[Hypothesis | None, float]]
    begin: float
    budget_s: float
    frames: dict[str, list[pd.DataFrame]] = field(default_factory=dict)
    statements: list[tuple[int, int, str]] = field(default_factory=list)

    def answer(self, places: _Places) -> Answer:
        """Ask about all places; what is known when it stops stays."""
        self.frames = {name: [] for name in TABLES}
        total, why, notes = len(places) * (NUM_PASSES + 1), "", []
        with tqdm(total=total, unit="pass", leave=False, delay=1) as self.bar:
            try:
                for done, (place, tokens) in enumerate(places.items(), start=1):
                    self._ask(*place, tokens, self.budget_s * done / len(places))
                    if done < len(places) and self._spent() >= self.budget_s:
                        why = f"the budget of {self.budget_s:g} s ended"
                        break
            except (KeyboardInterrupt, ServerError, BatchError) as error:
                if not self.statements:
                    raise
                why = str(error).rstrip(".") or "it was interrupted"
        if why:
            num = len({statements[:2] for statements in self.statements})
            notes = [f"Asked about {num} of {pluralize(len(places), 'round')}: {why}."]
        if sent := getattr(self.engine, "sent", ()):
            shown = pluralize(len(sent), "picture")
            notes.append(f"Sent: {shown} to {self.engine.name}.")
        frames = {
            name: pd.concat(parts or [as_frame(TABLES[name], {})], ignore_index=True)
            for name, parts in self.frames.items()
        }
        keys = frames["alternatives"][["sample", "round"]].drop_duplicates()
        asked = keys.itertuples(index=False, name=None)
        return Answer(
            **frames,
            statements=tuple(self.statements),
            asked=tuple(identify(self.batch, *place) for place in asked),
            model=self.engine.name,
            seconds=self._spent(),
            notes=tuple(notes),
            batch=self.batch,
        )

    def _spent(self) -> float:
        return time.perf_counter() - self.begin

    def _ask(
        self, sample: int, number: int, tokens: set[int | None], share: float
    ) -> None:
        """Ask about one round, of whose seconds it has a share to refine its map."""
        asked = AskedRound.find(self.samples, sample, number)
        hypotheses = {n: h for n, (h, _) in self.named.items() if h is not None}
        readings = {
            engine: read_round(self.engine, asked, self.samples, hypothesis)
            for engine, hypothesis in {"": None, **hypotheses}.items()
        }
        self.bar.update()
        plain, place = readings[""], str(Address.of(self.batch, sample, number))
        chosen = plain.tokens[[None in tokens or t in tokens for t in plain.tokens]]
        if not len(chosen):
            raise BatchError.build(
                key="at",
                expected="tokens that follow others, which a model reads",
                found=f"the first token of a sample without a prompt, at {place}",
                advice="Name a later token, or load prompts with the batch.",
            )
        statements = [
            f"{place}: {each}" for each in self._alternatives(asked, readings, chosen)
        ]
        self.statements += [(sample, number, text) for text in statements]
        why = ""
        if not asked.trajectory.shots:
            why = "the batch has no pictures here"
        elif "pictures" not in self.engine.abilities:
            why = f"{self.engine.name} is a model of text"
        elif asked.index < 0:
            why = "no picture comes before the round"
        statements = (
            [f"Sight was not measured: {why}."]
            if why
            else self._sight(asked, plain, share)
        )
        for engine, reading in readings.items():
            if engine and not why and not asked.shows(reading.requests):
                statements.append(
                    f"{capitalize(ENGINE_NAMES.get(engine, engine))} never saw this"
                    f" picture: {reading.hypothesis} reproduces it (residual"
                    f" {self.named[engine][1]:.2g} nat), so its map is flat by"
                    " construction."
                )
        self.statements += [(sample, number, text) for text in statements]

    def _alternatives(
        self, asked: AskedRound, readings: dict[str, RoundReading], chosen: Array
    ) -> Iterator[str]:
        plain = readings[""]
        kl = np.full(len(plain.tokens), np.nan)
        sampling, training = (readings.get(n, plain) for n in ("rollout", "old"))
        if {"rollout", "old"} <= {*self.named} and sampling is not training:
            kl = sampling.divergence(training)
        for engine, reading in readings.items():
            frame = alternatives_frame(asked, reading, chosen, kl, self.batch.tokenizer)
            self.frames["alternatives"].append(frame)
            how = reading.hypothesis or "the model as it is"
            names = [engine] if engine else [n for n in self.named if n not in readings]
            subject = " and ".join(
                f"{ENGINE_NAMES.get(name, name)} ({how}, residual"
                f" {self.named[name][1]:.2g} nat)"
                for name in names
            )
            yield say_alternatives(subject or "the model", frame)
        mine = kl[np.isin(plain.tokens, chosen)]
        if np.isfinite(mine).any():
            most = (
                f" on average, {np.nanmax(mine):.2g} at most" if len(mine) > 1 else ""
            )
            yield f"KL(sampling || training) is {np.nanmean(mine):.2g} nat{most}."
        elif sampling is not training:
            yield f"KL is not known: {self.engine.name} gives the likeliest only."

    def _sight(self, asked: AskedRound, plain: RoundReading, share: float) -> list[str]:
        role = np.full(asked.stop - asked.begin, "", dtype=object)
        if self.batch.tokenizer is not None:
            frame = token_frame(self.batch[[asked.sample]], ["role"])
            role = frame["role"].to_numpy(dtype=object)[frame["round"] == asked.round]
        role = role[plain.tokens]
        aim = role == AIM
        try:
            drops, tiles, num_tiles = look_at(
                self.engine,
                asked,
                self.samples,
                plain.top.own,
                aim if aim.any() else np.ones_like(aim),
                has_time=lambda refines: (
                    self._spent() < (share if refines else self.budget_s)
                ),
                advance=self.bar.update,
            )
        finally:
            if hasattr(self.engine, "eyes"):
                self.engine.eyes.forget_looks("mean")
        keys = {"sample": asked.sample, "round": asked.round}
        own = {"token": plain.tokens, "role": role, "log_prob": plain.top.own}
        sight = as_frame(SIGHT, {**keys, **own, **drops})
        maps = as_frame(TILES, {**keys, "picture": asked.picture, **tiles})
        self.frames["sight"].append(sight)
        self.frames["tiles"].append(maps)
        late = f"Tiles are missing: {self.budget_s:g} s were over."
        is_whole = len(maps) >= num_tiles
        return [say_sight(sight, maps, num_tiles), *([] if is_whole else [late])]
