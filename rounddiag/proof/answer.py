"""`Answer`: what a model would have written at places, and where it looked."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from hashlib import sha256
from html import escape
from itertools import chain
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pandas as pd
import torch

from rounddiag.batch import Batch
from rounddiag.errors import BatchError
from rounddiag.proof.alternatives import as_frame
from rounddiag.proof.saving import (
    numbers_in_whole,
    read_answer,
    rows_of_whole,
    write_answer,
)
from rounddiag.schema import ALTERNATIVES, LISTED, SIGHT, TILES
from rounddiag.wording import pluralize, printable

TABLES = {"alternatives": ALTERNATIVES, "sight": SIGHT, "tiles": TILES}
AIM = "coordinates"  # the role of the tokens that a picture decides


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Answer:
    """The result of `rounddiag.ask`.

    Attributes
    ----------
    alternatives: One row per place and likely token: `sample, round, token, rank,
        token_id, text, log_prob, hypothesis, is_sampled, kl`; the ten likeliest, and
        the token of the batch. `hypothesis` is empty for the model as it is; `kl` is
        KL(sampling || training) at the place, where a proof has reproduced both.
    sight: One row per token: `sample, round, token, role, log_prob, log_prob_blind,
        drop, noise`; blind is with the last picture before the round in its mean
        colour, and `noise` the difference that equal pixels make.
    tiles: One row per tile of a picture: `sample, round, picture, x0, y0, x1, y1,
        drop, is_divided`, in pixels of the picture; a mean over the coordinates of the
        round, else over all its tokens. The quarters of a divided tile are last.
    statements: What is said: sample, round and sentence.
    asked: The rounds: sample, round, number of the sample in the batch that its batch
        is a part of, its id or nothing, and a digest of all tokens to its end.
    model: What was asked.
    notes: What was left out, and why; what was sent.
    """

    alternatives: pd.DataFrame
    sight: pd.DataFrame
    tiles: pd.DataFrame
    statements: tuple[tuple[int, int, str], ...]
    asked: tuple[tuple[int, int, int, str, str], ...]
    model: str
    seconds: float
    notes: tuple[str, ...] = ()
    batch: Batch | None = field(default=None, repr=False)

    def __repr__(self) -> str:
        lines = [*(text for _, _, text in self.statements), *self.notes]
        return "\n".join(map(printable, lines))

    def _repr_html_(self) -> str:
        body = "<br>".join(escape(line) for line in repr(self).split("\n"))
        return f'<div class="mathjax_ignore"><p>{body}</p></div>'

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to a file, which `rounddiag.load_answer` reads on any machine."""
        fields = {name: value for name, value in vars(self).items() if name != "batch"}
        write_answer(fields, Path(path))

    def require_batch(self) -> Batch:
        """Return the batch with its pictures; an error if it was not passed."""
        if self.batch is None:
            raise BatchError.build(
                expected="an answer with its batch",
                found="one from a file",
                advice="Pass the batch: `rounddiag.load_answer(path, batch)`.",
            )
        return self.batch

    def fit(self, batch: Batch) -> Answer:
        """Return it with the numbers of a batch; an error if it is of another.

        Samples of a part keep the number in the whole batch.
        """
        numbers, rows, row_of = numbers_in_whole(batch), rows_of_whole(batch), {}
        for sample, number, whole, name, digest in self.asked:
            place = f"{name or f'sample {whole}'} / r{number}"
            if whole not in rows:
                _fail(place, f"no sample {whole} in this batch")
            is_there = numbers[sample : sample + 1] == [whole]  # also one of equals
            row_of[sample] = row = sample if is_there else rows[whole]
            _, _, _, own_name, own_digest = identify(batch, row, number)
            if name and own_name and name != own_name:
                _fail(place, f"sample {own_name}")
            if digest != own_digest:
                _fail(place, "other tokens there or before it")
            said = self.alternatives.query(
                "is_sampled and sample == @sample and round == @number"
            )
            own = dict(enumerate(_own_ids(batch, row, number).tolist()))
            if (said["token"].map(own) != said["token_id"]).any():
                _fail(f"{place} as it was sampled", "other tokens")
        frames: dict[str, Any] = {}
        for table in TABLES:
            frame = getattr(self, table)
            samples = frame["sample"].map(row_of).astype(frame["sample"].dtype)
            frames[table] = frame.assign(sample=samples)
        if batch.images is not None:
            for tile in frames["tiles"].itertuples():
                if not 0 <= tile.picture < (num := len(batch.images[tile.sample])):
                    _fail(
                        f"picture {tile.picture} of sample {tile.sample}",
                        pluralize(num, "picture"),
                    )
        statements = tuple(
            (
                row_of[sample],
                number,
                text.replace(f"sample {sample} / ", f"sample {row_of[sample]} / ", 1),
            )
            for sample, number, text in self.statements
        )
        asked = tuple((row_of[sample], *rest) for sample, *rest in self.asked)
        changes: dict[str, Any] = {**frames, "statements": statements, "asked": asked}
        return replace(self, **changes, batch=batch)


def _fail(expected: str, found: str) -> NoReturn:
    raise BatchError.build(
        key="answer",
        expected=f"an answer about this batch, with {expected}",
        found=found,
        advice="Pass the batch that was asked about.",
    )


def identify(batch: Batch, sample: int, number: int) -> tuple[int, int, int, str, str]:
    """Return what tells a round from all others, as in `Answer.asked`."""
    whole, digest = numbers_in_whole(batch)[sample], ""
    name = batch.sample_ids[sample] if batch.sample_ids else ""
    if len(own := _own_ids(batch, sample, number)):
        ids = torch.cat([batch.context(sample, number).ids.cpu(), own])
        digest = sha256(ids.numpy().astype("<i8").tobytes()).hexdigest()
    return sample, number, whole, name, digest


def _own_ids(batch: Batch, sample: int, number: int) -> torch.Tensor:
    """Return the ids of a round, of which a sample has one or none."""
    rounds = batch.rounds
    at = (rounds.sample == sample) & (rounds.round == number)
    start, num = (int(column[at].sum()) for column in (rounds.start, rounds.num_tokens))
    return batch.require_ids()[start : start + num].cpu().long()


def load_answer(path: str | os.PathLike[str], batch: Batch | None = None) -> Answer:
    """Read an answer that `Answer.save` or `rounddiag ask -o` wrote.

    Parameters
    ----------
    path : path-like
    batch : Batch, optional
        The batch that was asked about: without it there are the frames, and no
        pictures.

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

    def make(fields: dict[str, Any]) -> Answer:
        frames = {name: as_frame(TABLES[name], fields[name]) for name in TABLES}
        made = Answer(**{**fields, **frames})
        _require_types("model and seconds", ((made.model, made.seconds),), str, float)
        _require_types("notes", (made.notes,), *(str for _ in made.notes))
        _require_types("statements", made.statements, int, int, str)
        _require_types("asked", made.asked, int, int, int, str, str)
        keys = [f[["sample", "round"]].itertuples(index=False) for f in frames.values()]
        asked = {each[:2] for each in made.asked}
        for sample, number, *_ in chain(made.statements, *keys):
            if (sample, number) not in asked:
                msg = f"sample {sample}, round {number}, that was not asked about"
                raise ValueError(msg)
        return made

    answer = read_answer(path, make)
    return answer if batch is None else answer.fit(batch)


def _require_types(name: str, rows: Any, *kinds: type) -> None:  # noqa: ANN401 of a file
    """Raise a ValueError unless these are rows of such types."""
    wanted = (tuple, *kinds)
    if type(rows) is not tuple or any(
        (type(row), *map(type, row)) != wanted for row in rows
    ):
        msg = f"`{name}`: {rows!r:.80} of other types"
        raise ValueError(msg)


def say_alternatives(subject: str, own: pd.DataFrame) -> str:
    """Say how often the sampled token is the likeliest, and where it is least so."""
    listed = own[own["rank"].between(1, LISTED)]
    sampled = own[own["is_sampled"]].set_index("token")
    first = listed[listed["rank"] == 1].set_index("token").loc[sampled.index]
    mass = np.exp(listed["log_prob"]).groupby(listed["token"]).sum().min()
    num, same = len(sampled), int((sampled["rank"] == 1).sum())
    at = int((first["log_prob"] - sampled["log_prob"]).argmax())
    top, mine = first.iloc[at], sampled.iloc[at]
    would = f'"{top["text"]}" ({np.exp(top["log_prob"]):.2g})'
    if mine["rank"] != 1:
        rank = f"rank {mine['rank']}" if mine["rank"] > 0 else "of unknown rank"
        would += f', not "{mine["text"]}" ({np.exp(mine["log_prob"]):.2g}, {rank})'
    if num > 1:
        where = f"; at t{sampled.index[at]} {would}" if same < num else ""
        would = f"the same at {same} of {num} places{where}"
    least = f"The {LISTED} likeliest hold {mass:.3g}{' at least' if num > 1 else ''}"
    return f"{subject} would write {would}. {least}."


def say_sight(sight: pd.DataFrame, tiles: pd.DataFrame, num_tiles: int) -> str:
    """Say what the tokens of a round lose without their picture, of so many tiles."""
    noise = sight["noise"].max()
    if sight["drop"].abs().max() <= noise:
        return (
            "The model does not use the picture here: in its mean colour no token moves"
            f" by more than with equal pixels ({noise:.2g} nat). That is the model, and"
            " no fault of an engine."
        )
    aimed = sight[sight["role"] == AIM]
    noun = pluralize(len(aimed), "token") + f" of {AIM}"
    if not len(aimed):
        aimed, noun = sight, pluralize(len(sight), "token")
    drop = aimed["drop"].mean()
    verb = "lose" if drop > 0 else "gain"
    text = f"With the picture in its mean colour {noun} {verb} {abs(drop):.2g} nat"
    text += " on average" if len(aimed) > 1 else ""
    if not len(tiles):
        return f"{text}."
    best = tiles.iloc[int(tiles["drop"].argmax())]
    if len(tiles) < num_tiles:
        text += f"; {len(tiles)} of {num_tiles} tiles are measured"
    if best["drop"] <= noise:
        which = "no tile" if len(tiles) >= num_tiles else "none of these"
        return f"{text}; {which} alone makes them less likely."
    box = f"{best['x0']:.0f}, {best['y0']:.0f} to {best['x1']:.0f}, {best['y1']:.0f}"
    which = "the tile" if len(tiles) >= num_tiles else "of these the one"
    return f"{text}; {which} at {box} alone takes {best['drop']:.2g} nat."
