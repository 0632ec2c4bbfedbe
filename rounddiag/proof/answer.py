"""`Answer`: what a model would have written at places, and where it looked."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from rounddiag.batch import Batch
from rounddiag.core import token_frame
from rounddiag.errors import BatchError
from rounddiag.proof.alternatives import as_frame
from rounddiag.proof.saving import read_answer, write_answer
from rounddiag.schema import ALTERNATIVES, LISTED, SIGHT, TILES, TOKENS
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
    model: What was asked.
    notes: What was left out, and why; what was sent.
    """

    alternatives: pd.DataFrame
    sight: pd.DataFrame
    tiles: pd.DataFrame
    statements: tuple[tuple[int, int, str], ...]
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

    def require_fit(self, batch: Batch) -> None:
        """Raise a BatchError unless the sampled tokens are those of a batch."""
        known = self.alternatives[self.alternatives["is_sampled"]]
        own = token_frame(batch, ["token_id"]).rename(columns={"token_id": "own"})
        both = known.merge(own, "left", on=[*TOKENS.keys])
        wrong = both.loc[both["token_id"] != both["own"], [*TOKENS.keys]]
        if len(wrong):
            raise BatchError.build(
                key="answer",
                expected="an answer about this batch",
                found=f"another token at {wrong.iloc[0].to_dict()}",
                advice="Pass the batch that was asked about.",
            )


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
        made = Answer(**{**fields, **frames}, batch=batch)
        repr(made)  # it cannot be printed with fields of other types
        return made

    answer = read_answer(path, make)
    if batch is not None:
        answer.require_fit(batch)
    return answer


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


def say_sight(sight: pd.DataFrame, tiles: pd.DataFrame) -> str:
    """Say what the tokens of a round lose without their picture."""
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
    if best["drop"] <= noise:
        return f"{text}; no tile alone makes them less likely."
    box = f"{best['x0']:.0f}, {best['y0']:.0f} to {best['x1']:.0f}, {best['y1']:.0f}"
    return f"{text}; the tile at {box} alone takes {best['drop']:.2g} nat."
