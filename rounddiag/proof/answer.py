"""`Answer`: what a model would have written at places, and where it looked."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from rounddiag.batch import Batch
from rounddiag.batch.address import Address
from rounddiag.core import token_frame
from rounddiag.errors import BatchError
from rounddiag.proof.alternatives import LISTED, as_frame
from rounddiag.proof.proof import ENGINE_NAMES
from rounddiag.proof.reproduced import ReproducedEngine
from rounddiag.proof.saving import SAVED_ANSWER, read_result, write_result
from rounddiag.schema import (
    ALTERNATIVES,
    ASKED_ROUNDS,
    DIVERGENCES,
    ORIGINAL_SAMPLE,
    SIGHT,
    TILES,
    TOKENS,
)
from rounddiag.wording import capitalize, pluralize, printable

TABLES = {
    "alternatives": ALTERNATIVES,
    "sight": SIGHT,
    "tiles": TILES,
    "rounds": ASKED_ROUNDS,
    "divergences": DIVERGENCES,
}


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Answer:
    """The result of `rounddiag.ask`.

    Attributes
    ----------
    alternatives: One row per place and likely token: `sample, round, token, rank,
        token_id, text, log_prob, hypothesis, is_sampled`; the ten likeliest, and the
        token of the batch. `hypothesis` is empty for the model as it is.
    sight: One row per token: `sample, round, token, role, log_prob, log_prob_blind,
        drop`; blind is with the last picture before the round in its mean colour.
    tiles: One row per tile of a picture: `sample, round, picture, x0, y0, x1, y1,
        drop`, in pixels of the picture; a mean over the coordinates of the round, else
        over all its tokens. The quarters of a refined tile follow it.
    rounds: One row per round: `sample, round, address, aim, noise, unseen_by,
        no_sight`.
    divergences: KL(sampling || training) of each token, where both engines were
        reproduced and differ: `sample, round, token, kl`.
    engines: What the proof has reproduced, as which hypothesis.
    model: What was asked.
    notes: What was left out, and why.
    num_sent: How many pictures were sent to a server.
    """

    alternatives: pd.DataFrame
    sight: pd.DataFrame
    tiles: pd.DataFrame
    rounds: pd.DataFrame
    divergences: pd.DataFrame
    model: str
    seconds: float
    engines: tuple[ReproducedEngine, ...] = ()
    notes: tuple[str, ...] = ()
    num_sent: int = 0
    batch: Batch | None = field(default=None, repr=False)

    def __repr__(self) -> str:
        lines = [line for row in self.rounds.itertuples() for line in self._about(row)]
        lines += self.notes
        if self.num_sent:
            sent = pluralize(self.num_sent, "picture")
            lines.append(f"Sent: {sent} to {self.model}.")
        return "\n".join(map(printable, lines))

    def _repr_html_(self) -> str:
        body = "<br>".join(escape(line) for line in repr(self).split("\n"))
        return f'<div class="mathjax_ignore"><p>{body}</p></div>'

    def sentences(self, sample: int, number: int) -> list[str]:
        """Return what is said of a round; nothing of one that was not asked about."""
        own = self.rounds[_is_at(self.rounds, sample, number)]
        return [line for row in own.itertuples() for line in self._about(row)]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to a file, which `rounddiag.load_answer` reads on any machine."""
        fields = {name: value for name, value in vars(self).items() if name != "batch"}
        samples = self.rounds["sample"].unique().tolist()
        fields["samples"] = samples
        write_result(SAVED_ANSWER, fields, self.require_batch()[samples], Path(path))

    def require_batch(self) -> Batch:
        """Return the batch with its pictures; an error if it was not passed."""
        if self.batch is None:
            raise BatchError.build(
                expected="an answer with its batch",
                found="one from a file",
                advice="Pass the batch: `rounddiag.load_answer(path, batch)`.",
            )
        return self.batch

    def require_fit(self, batch: Batch) -> None:
        """Raise a BatchError unless the sampled tokens are those of a batch."""
        known = self.alternatives[self.alternatives["is_sampled"]]
        own = token_frame(batch, ["token_id"]).rename(columns={"token_id": "own"})
        both = known.merge(own, "left", on=[*TOKENS.keys])
        wrong = both[both["token_id"] != both["own"]]
        if len(wrong):
            row = wrong.iloc[0]
            place = f"sample {row['sample']} / r{row['round']} / t{row['token']}"
            raise BatchError.build(
                key="answer",
                expected="an answer about this batch",
                found=f"another token at {place}",
                advice="Ask again: `rounddiag.ask(batch, model)`.",
            )

    def _about(self, row: Any) -> Iterator[str]:  # noqa: ANN401 a row of a frame
        mine = self.alternatives[_is_at(self.alternatives, row.sample, row.round)]
        named = {each.hypothesis: each for each in reversed(self.engines)}
        for hypothesis, own in mine.groupby("hypothesis", sort=False):
            engine = named.get(str(hypothesis))
            subject = "the model" if engine is None else _call(engine)
            yield f"{row.address}: {_would_write(subject, own)}"
        kl = self.divergences[_is_at(self.divergences, row.sample, row.round)]
        if len(kl):
            worst = kl.iloc[int(kl["kl"].argmax())]
            mean = f"{kl['kl'].mean():.2g} nat"
            at = f", at most {worst['kl']:.2g} at t{int(worst['token'])}"
            yield f"KL(sampling || training) is {mean}{at if len(kl) > 1 else ''}."
        yield self._sight_line(row)
        for name in filter(None, row.unseen_by.split(",")):
            engine = next(each for each in self.engines if each.engine == name)
            yield (
                f"{capitalize(ENGINE_NAMES.get(name, name))} never saw this picture:"
                f" {engine.hypothesis} reproduces it (residual"
                f" {engine.residual:.2g} nat), so its map is flat by construction."
            )

    def _sight_line(self, row: Any) -> str:  # noqa: ANN401 a row of a frame
        if row.no_sight:
            return f"Sight was not measured: {row.no_sight}."
        sight = self.sight[_is_at(self.sight, row.sample, row.round)]
        if sight["drop"].abs().max() <= row.noise:
            return (
                "The model does not use the picture here: in its mean colour no token"
                f" moves by more than with equal pixels ({row.noise:.2g} nat). That is"
                " the model, and no fault of an engine."
            )
        has_aim = row.aim != "tokens"
        aimed = sight[sight["role"] == row.aim] if has_aim else sight
        drop = aimed["drop"].mean()
        noun = pluralize(len(aimed), "token") + (f" of {row.aim}" if has_aim else "")
        verb = "lose" if drop > 0 else "gain"
        whole = f"With the picture in its mean colour {noun} {verb} {abs(drop):.2g} nat"
        whole += " on average" if len(aimed) > 1 else ""
        tiles = self.tiles[_is_at(self.tiles, row.sample, row.round)]
        if not len(tiles):
            return f"{whole}."
        best = tiles.iloc[int(tiles["drop"].argmax())]
        if best["drop"] <= row.noise:
            return f"{whole}; no tile alone makes them less likely."
        box = (
            f"{best['x0']:.0f}, {best['y0']:.0f} to {best['x1']:.0f}, {best['y1']:.0f}"
        )
        return f"{whole}; the tile at {box} alone takes {best['drop']:.2g} nat."


def load_answer(path: str | os.PathLike[str], batch: Batch | None = None) -> Answer:
    """Read an answer that `Answer.save` or `rounddiag ask ... -o` wrote.

    Parameters
    ----------
    path : path-like
    batch : Batch, optional
        The batch that it is about: without it there are the frames, and no pictures.

    Examples
    --------
    >>> import tempfile
    >>> import rounddiag as rd
    >>> batch = rd.load("sample_data/image_window.parquet")
    >>> answer = rd.ask(batch, "sample_data/model", at="task-04/2 / r3 / t2")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     answer.save(f"{folder}/answer.json")
    ...     again = rd.load_answer(f"{folder}/answer.json", batch)
    >>> repr(again) == repr(answer)
    True
    """

    def make(batch: Batch, samples: tuple[int, ...], **fields: Any) -> Answer:  # noqa: ANN401 of a file
        frames = {name: as_frame(TABLES[name], fields[name]) for name in TABLES}
        answer = Answer(**{**fields, **frames})
        own = batch.sample_columns[ORIGINAL_SAMPLE.name].tolist()
        if given is not None:
            answer = _renumbered(answer, given, dict(zip(samples, own, strict=True)))
        repr(answer)  # it cannot be printed with fields of other types
        return answer

    given = batch
    return read_result(SAVED_ANSWER, path, batch, (ReproducedEngine,), make)


def _renumbered(answer: Answer, batch: Batch, original: Mapping[int, int]) -> Answer:
    """Return an answer about a batch that has its samples under other numbers."""
    own = batch.sample_columns.get(ORIGINAL_SAMPLE.name, range(len(batch)))
    row_of = {int(number): row for row, number in enumerate(own)}
    new = {asked: row_of[number] for asked, number in original.items()}
    frames = {
        name: frame.assign(sample=frame["sample"].map(new).astype(np.int32))
        for name in TABLES
        for frame in [getattr(answer, name)]
    }
    rounds = frames["rounds"]
    addresses = [
        str(Address.of(batch, sample, number))
        for sample, number in zip(rounds["sample"], rounds["round"], strict=True)
    ]
    frames["rounds"] = rounds.assign(address=addresses)
    return replace(answer, batch=batch, **frames)


def _is_at(frame: pd.DataFrame, sample: int, number: int) -> pd.Series[bool]:
    return (frame["sample"] == sample) & (frame["round"] == number)


def _call(engine: ReproducedEngine) -> str:
    how = engine.hypothesis or "the model as it is"
    name = ENGINE_NAMES.get(engine.engine, engine.engine)
    return f"{name} ({how}, residual {engine.residual:.2g} nat)"


def _would_write(subject: str, own: pd.DataFrame) -> str:
    """Say how often the sampled token is the likeliest, and where it is least so."""
    listed = own[own["rank"].between(1, LISTED)]
    sampled = own[own["is_sampled"]].set_index("token")
    first = listed[listed["rank"] == 1].set_index("token").loc[sampled.index]
    mass = np.exp(listed["log_prob"]).groupby(listed["token"]).sum().min()
    tail = f"The {LISTED} likeliest hold {mass:.3g}"
    num, same = len(sampled), int((sampled["rank"] == 1).sum())
    tail += " at least." if num > 1 else "."
    gap = first["log_prob"] - sampled["log_prob"]
    at = int(gap.argmax())
    token, top, mine = gap.index[at], first.iloc[at], sampled.iloc[at]
    written = f'"{top["text"]}" ({np.exp(top["log_prob"]):.2g})'
    if same == num:
        would = f"would write {'the sampled token' if num == 1 else 'the same'}"
        each = f" at t{token}: {written}" if num == 1 else f" at all {num} places"
        return f"{subject} {would}{each}. {tail}"
    rank = f"rank {mine['rank']}" if mine["rank"] > 0 else "of unknown rank"
    other = f'"{mine["text"]}" ({np.exp(mine["log_prob"]):.2g}, {rank})'
    often = f"would write the same at {same} of {num} places; " if num > 1 else ""
    rather = (
        f"would write {written}, not {other}" if num == 1 else f"{written}, not {other}"
    )
    place = f"at t{token} " if num > 1 else ""
    return f"{subject} {often}{place}{rather}. {tail}"
