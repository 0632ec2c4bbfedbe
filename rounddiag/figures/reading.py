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
from rounddiag.figures.labels import number
from rounddiag.figures.sources import of_pair, trajectory_of
from rounddiag.figures.spans import chip, spans
from rounddiag.schema import DIFF

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd

    from rounddiag.batch import Batch
    from rounddiag.figures.theme import ThemeName
    from rounddiag.schema import Pair

# A browser shows so many spans at once.
_MAX_TOKENS = 20_000
_NO_TEXT = "\N{WHITE SQUARE}"  # a token whose id was left out of a redacted file


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
    is underlined: a line under a token says that the two probabilities differ by more
    than a factor of 2. A dashed frame marks a diff that is not finite. Colour that is
    dense from one round on points to its context; a coloured first token of every
    round, to the template; coloured numbers in actions, to the screenshots. Hover a
    token for its numbers. Without a tokenizer, token ids stand for the text, and
    squares where a file was redacted. Of a sample with more than 20,000 tokens the
    first rounds are shown, and it says so.

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
        tokens = tokens.assign(text=_NO_TEXT)
    num_rounds = int(tokens["round"].max()) + 1 if len(tokens) else 0
    if round is not None and not 0 <= round < num_rounds:
        raise FrameError.build(
            key="round",
            expected=f"a round from 0 to {num_rounds - 1}"
            if num_rounds
            else f"no round, as sample {sample} has no generated tokens",
            found=str(round),
            advice="Leave it out for all rounds of the sample.",
        )
    if round is not None:
        body = _round(round, tokens[tokens["round"] == round], pair)
    else:
        body = "".join(_rounds(tokens, int(batch.lengths[sample]), pair))
    head = f"<b>Sample {sample}</b>, {count(num_rounds, 'round')}, "
    head += count(len(tokens), "generated token")
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
        f' <span class="u">underlined</span> beyond {number(UNDERLINED)} (factor 2);'
        f' <span class="x">framed</span> not finite'
    )


def _rounds(tokens: pd.DataFrame, end: int, pair: Pair) -> Iterator[str]:
    """Give each round's text, and a chip for each stretch of observation."""
    if tokens.empty:
        yield '<div class="k">The response mask is 0 everywhere.</div>'
    reached = num_shown = 0
    for index, part in tokens.groupby("round"):
        if num_shown and num_shown + len(part) > _MAX_TOKENS:
            left_out = count(len(tokens) - num_shown, "token")
            yield f'<div class="k">Left out: {left_out} from round {index} on. '
            yield f"Ask for a round with <code>round={index}</code>.</div>"
            return
        start = int(part["position"].iloc[0])
        yield chip(start - reached) + _round(index, part, pair)
        num_shown += len(part)
        reached = start + len(part)
    yield chip(end - reached)


def _round(index: object, part: pd.DataFrame, pair: Pair) -> str:
    size = count(len(part), "token")
    head = f'<div class="k"><b>round {index}</b>, {size}</div>'
    return f'{head}<pre class="t">{"".join(spans(part, pair))}</pre>'
