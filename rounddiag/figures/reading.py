"""The text of a sample, its tokens coloured by their diff."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rounddiag.checks.words import count
from rounddiag.errors import FrameError
from rounddiag.figures.coloring import (
    LEVELS,
    SCALE,
    UNDERLINED,
    style_name,
    style_sheet,
)
from rounddiag.figures.excerpt import excerpt
from rounddiag.figures.labels import number
from rounddiag.figures.sources import is_index, of_pair, trajectory_of
from rounddiag.figures.text_rounds import rounds_html
from rounddiag.schema import DIFF

if TYPE_CHECKING:
    from rounddiag.batch import Batch
    from rounddiag.figures.theme import ThemeName
    from rounddiag.schema import Pair

_OF_LONG = (
    "<br>{:,} of {:,} tokens are shown, of the rounds with the largest mean |diff|: ask"
    " for another one with <code>round=</code>"
)
NO_TEXT = "\N{WHITE SQUARE}"  # a token whose id was left out of a redacted file


@dataclass(frozen=True)
class TokenText:
    """Coloured text that a notebook shows.

    Attributes
    ----------
    html : str
        Self-contained, without a script; all text of the batch in it is escaped.
    """

    html: str = field(repr=False)

    def _repr_html_(self) -> str:
        return self.html


def token_text(
    batch: Batch,
    *,
    sample: int,
    round: int | None = None,  # noqa: A002 the word of the project
    a: str = "old",
    b: str = "rollout",
    max_tokens: int = 20_000,
    theme: ThemeName | None = None,
) -> TokenText:
    """Show what the model wrote in one sample or round, tokens coloured by diff.

    Parameters
    ----------
    batch : Batch
    sample : int
        Which sample, from 0.
    round : int, optional
        Which round of it, from 0; all when left out.
    a, b : str
        The scores to compare.
    max_tokens : int
        How many are shown at most: where there are more, those of the rounds with the
        largest mean |diff|, and it says what is left out.
    theme : {"light", "dark"}, optional
        The page's own colours when left out.

    Returns
    -------
    TokenText
        An object that a notebook shows as text.

    Raises
    ------
    FrameError
        If there is no such sample or round.
    BatchError
        If the batch has no such score.

    Notes
    -----
    How to read it: blue tokens are liked more by `a` (training), orange ones less; the
    strength is logarithmic, from 0.001 to 1 nat whatever the batch, so that texts can
    be compared. In a healthy batch most text is plain, some tokens are pale, and none
    has a line: one under a token says that `a` gives it less than half of the
    probability, one over it, more than twice. A dashed frame marks a diff that is not
    finite. Colour that is dense from one round on points to its context; a coloured
    first token of every round, to the template; coloured numbers in actions, to the
    screenshots. Hover a token for its numbers. Without a tokenizer, token ids stand for
    the text, and squares where a file was redacted.

    Examples
    --------
    >>> import rounddiag as rd
    >>> batch = rd.load("sample_data/image_window.parquet")
    >>> "<b>Sample 0</b>" in rd.token_text(batch, sample=0, round=0).html
    True
    """
    data, pair = of_pair(batch, a, b)
    tokens = trajectory_of(data, sample)
    if "text" not in tokens:
        tokens = tokens.assign(text=NO_TEXT)
    num_rounds = int(tokens["round"].max()) + 1 if len(tokens) else 0
    if round is not None and not is_index(round, num_rounds):
        raise FrameError.build(
            key="round",
            expected=f"a round from 0 to {num_rounds - 1}"
            if num_rounds
            else f"no round, as sample {sample} has no generated tokens",
            found=repr(round),
            advice="Leave it out for all rounds of the sample.",
        )
    asked = tokens if round is None else tokens[tokens["round"] == round]
    shown = excerpt(asked, max_tokens)
    is_cut = len(shown) < len(asked)
    end = int(batch.lengths[sample]) if round is None else None
    head = f"<b>Sample {sample}</b>, {count(num_rounds, 'round')}, "
    head += count(len(tokens), "generated token")
    head += _OF_LONG.format(len(shown), len(asked)) if is_cut else ""
    body = "".join(rounds_html(asked, shown, end, pair))
    return TokenText(
        f'<div class="rd-text {style_name(theme)}"><style>{style_sheet(theme)}</style>'
        f'<div class="k">{head}<br>{_key(pair)}</div>{body}</div>'
    )


def _key(pair: Pair) -> str:
    def ramp(sign: str) -> str:
        names = (f"{sign}{level}" for level in range(1, LEVELS + 1))
        return "".join(f'<span class="{name}">&nbsp;</span>' for name in names)

    low, high = number(SCALE.low), number(SCALE.high)
    return (
        f"{pair.label(DIFF)}: {ramp('p')} {low} to {high},"
        f" {pair.named('training likes the token more')};"
        f" {ramp('n')} -{low} to -{high}, less;"
        f' beyond {number(UNDERLINED)} (factor 2) <span class="p0 u">overlined</span>,'
        f' <span class="n0 u">underlined</span>;'
        f' <span class="x">framed</span> not finite'
    )
