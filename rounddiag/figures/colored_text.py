"""The text of a sample, its tokens coloured by their diff.

The explorer colours and marks tokens by the same rule.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from html import escape
from itertools import pairwise

import numpy as np
import pandas as pd

from rounddiag._typing import Array
from rounddiag.core.divergence import FACTOR_2, MEASURES
from rounddiag.errors import FrameError
from rounddiag.figures._parts.canvas import DARK, LIGHT, Theme, ThemeName, theme_of
from rounddiag.figures._parts.data import (
    find_sample,
    get_sample_tokens,
    is_index,
    note_unknown_rounds,
    short_pair,
)
from rounddiag.figures._parts.labels import format_number
from rounddiag.figures._parts.scales import LogScale
from rounddiag.schema import DIFF, Pair
from rounddiag.stats.inputs import Data, open_measured
from rounddiag.text import visible
from rounddiag.wording import pluralize

# Fixed, so that the texts of two samples, or two batches, can be compared.
SCALE = LogScale(low=0.003, high=3.0)
LEVELS = 8
NO_LEVEL = 127  # in place of a level
# Strongest background; text on it keeps a contrast of 4.5 in both themes.
STRONGEST = 0.5


def levels(diff: Array) -> Array:
    """Return how strong each diff's background is, with its sign."""
    finite = np.isfinite(diff)
    size = np.rint(LEVELS * SCALE.share(np.abs(np.where(finite, diff, 0))))
    return np.where(finite, np.sign(diff) * size, NO_LEVEL).astype(np.int8)


def token_classes(diff: Array) -> list[str]:
    """Name the CSS classes of each token: sign and strength, underline, not finite."""
    strength = levels(diff)
    names = {level: _class(level) for level in set(strength.tolist())}
    is_far = (np.abs(diff) > FACTOR_2) & (strength != NO_LEVEL)
    return [
        f"{names[level]} u" if far else names[level]
        for level, far in zip(strength.tolist(), is_far.tolist(), strict=True)
    ]


def _class(level: int) -> str:
    if level == NO_LEVEL:
        return "x"
    return f"{'p' if level > 0 else 'n'}{abs(level)}" if level else ""


def style_name(theme: ThemeName | None) -> str:
    """Name the CSS class of a text: texts of several themes may share a page."""
    kind = "page" if theme is None else "fixed"
    return f"rd-{kind}-{theme_of(theme).name}"


def style_sheet(theme: ThemeName | None) -> str:
    """Return the CSS of a token text.

    Without a theme the page's own colours are used, by JupyterLab's variables, and
    those of the default theme where a page has none.
    """
    chosen, page, root = theme_of(theme), theme is None, f".{style_name(theme)}"
    variables = (
        f"--rd-paper:{_color(chosen.paper, 'layout-color0', page=page)}",
        f"--rd-ink:{_color(chosen.text, 'ui-font-color0', page=page)}",
        f"--rd-dim:{_color(chosen.muted, 'ui-font-color2', page=page)}",
    )
    rules = [_RULES, f"{root}{{{';'.join(variables)}}}", *_backgrounds(root, chosen)]
    if page:
        for other, flag in ((LIGHT, "true"), (DARK, "false")):
            rules += _backgrounds(f'[data-jp-theme-light="{flag}"] {root}', other)
    return "".join(rules)


def _color(color: str, variable: str, *, page: bool) -> str:
    return f"var(--jp-{variable},{color})" if page else color


def _backgrounds(root: str, theme: Theme) -> list[str]:
    return [
        f"{root} .{sign}{level}{{background:{_rgba(color, level)}}}"
        for sign, color in (("p", theme.more), ("n", theme.less))
        for level in range(1, LEVELS + 1)
    ]


def _rgba(color: str, level: int) -> str:
    red, green, blue = (int(color[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{STRONGEST * level / LEVELS:.2f})"


# Rules for `pre.t` must be stronger than those of JupyterLab for any `pre`.
_RULES = """
.rd-text{background:var(--rd-paper);color:var(--rd-ink);padding:8px 12px;
font:13px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,Ubuntu,sans-serif}
.rd-text .k{color:var(--rd-dim);font-size:12px}
.rd-text .k b{color:var(--rd-ink)}
.rd-text pre.t{font:13px/1.75 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;
color:inherit;background:none;margin:2px 0 10px;padding:0;white-space:pre-wrap;
overflow-wrap:anywhere;content-visibility:auto;contain-intrinsic-size:auto 200px}
.rd-text pre span,.rd-text .k span{border-radius:2px;padding:1px 0}
.rd-text pre span:hover{outline:1px solid currentColor}
.rd-text .u{text-decoration:underline 2px;text-underline-offset:3px}
.rd-text [class^=p].u{text-decoration-line:overline}
.rd-text .x{outline:1px dashed currentColor}
.rd-text i{font-style:normal;opacity:.55}
.rd-text .o{display:inline-block;border:1px solid var(--rd-dim);border-radius:9px;
color:var(--rd-dim);font-size:12px;padding:0 8px;margin:2px 0}
"""


def excerpt(tokens: pd.DataFrame, max_tokens: int) -> pd.DataFrame:
    """Choose the rounds of a sample with the largest mean |diff|, in order.

    They have up to `max_tokens` in all. If the worst round alone has more, its first
    tokens are chosen.

    Examples
    --------
    >>> import pandas as pd
    >>> tokens = pd.DataFrame({"round": [0, 0, 1, 2], "diff": [0.5, 0.0, -1.0, 0.3]})
    >>> excerpt(tokens, 3)["round"].tolist()
    [1, 2]
    """
    if len(tokens) <= max_tokens:
        return tokens
    if "diff" not in tokens:
        return tokens.iloc[:max_tokens]
    rounds = tokens["round"].to_numpy()
    worst = _worst_first(tokens)
    sizes = np.bincount(rounds)[worst]
    num = max(1, int((np.cumsum(sizes) <= max_tokens).sum()))
    return tokens[np.isin(rounds, worst[:num])].iloc[:max_tokens]


def _worst_first(tokens: pd.DataFrame) -> Array:
    """Return the rounds, worst first; those without a finite diff come last."""
    size = tokens["diff"].abs()
    means = size[np.isfinite(size)].groupby(tokens["round"]).mean()
    every = means.reindex(tokens["round"].unique())
    order = every.sort_values(ascending=False, kind="stable", na_position="last")
    return order.index.to_numpy()


def chip(num_tokens: int) -> str:
    """Return a label in place of an observation, if there is one."""
    if num_tokens <= 0:
        return ""
    size = pluralize(num_tokens, "observation token")
    return f'<div><span class="o">{size}</span></div>'


def text_by_round(part: pd.DataFrame, pair: Pair) -> dict[int, str]:
    """Return the coloured text of each round, a span per token.

    Tokens that share a character share a span.
    """
    texts, rounds = part["text"].tolist(), part["round"].to_numpy()
    labels = {"diff": "diff", "old_log_prob": pair.a, "rollout_log_prob": pair.b}
    known = {name: label for name, label in labels.items() if name in part}
    values = list(part[[*known]].itertuples(index=False, name=None))
    is_start = np.diff(rounds, prepend=-1) != 0
    is_start |= np.array([text != "" for text in texts], dtype=bool)
    starts = np.flatnonzero(is_start).tolist()
    parts = [values[start:stop] for start, stop in pairwise([*starts, len(texts)])]
    names = [""] * len(parts)
    if "diff" in known:
        strongest = [
            max(
                (diff for diff, *_ in part),
                key=lambda diff: abs(diff) if np.isfinite(diff) else np.inf,
            )
            for part in parts
        ]
        names = token_classes(np.array(strongest))
    marks: defaultdict[int, list[str]] = defaultdict(list)
    for start, row, name in zip(starts, parts, names, strict=True):
        marks[int(rounds[start])].append(
            _span(texts[start], name, row, [*known.values()])
        )
    return {index: "".join(spans) for index, spans in marks.items()}


def _span(
    text: str, name: str, values: list[tuple[float, ...]], labels: list[str]
) -> str:
    style = f' class="{name}"' if name else ""
    # Safe as text, but an attribute ends at a quote.
    safe = [label.replace('"', "&quot;") for label in labels]
    title = "\n".join(
        ", ".join(
            f"{label} {format_number(value)}"
            for label, value in zip(safe, number, strict=True)
        )
        for number in values
    )
    return f'<span{style} title="{title}">{_escape_token(text)}</span>'


def _escape_token(text: str) -> str:
    """Escape a token; signs replace white space and what cannot be printed."""
    if not text.strip(" "):
        return f"<i>{'·' * len(text)}</i>"
    lines = text.split("\n")
    return "<i>↵</i>\n".join(escape(_printable(line)) for line in lines)


def _printable(line: str) -> str:
    return " ".join(visible(word) for word in line.split(" "))


def rounds_html(
    tokens: pd.DataFrame, part: pd.DataFrame, end: int | None, pair: Pair
) -> Iterator[str]:
    """Yield the text of the excerpt by round, with the size of what is left out.

    Observations are counted up to `end`; a single round has none.
    """
    if tokens.empty:
        yield '<div class="k">The response mask is 0 everywhere.</div>'
    texts = text_by_round(part, pair)
    num_shown = part["round"].value_counts()
    left_out: dict[int, int] = {}
    reached = 0
    rounds = tokens.groupby("round")["position"].agg(["first", "size"])
    for index, start, size in rounds.itertuples(name=None):
        if index in texts:
            yield _left_out(left_out)
            left_out = {}
            yield chip(start - reached) if end is not None else ""
            yield _round(index, size, int(num_shown[index]), texts[index])
        else:
            left_out[index] = size
        reached = start + size
    yield _left_out(left_out)
    yield chip(end - reached) if end is not None else ""


def _left_out(sizes: Mapping[int, int]) -> str:
    if not sizes:
        return ""
    first, last = min(sizes), max(sizes)
    names = f"round {first}" if first == last else f"rounds {first} to {last}"
    size = pluralize(sum(sizes.values()), "token")
    return f'<div class="k">Left out: {names}, {size}.</div>'


def _round(index: int, size: int, num_shown: int, text: str) -> str:
    first = f", the first {num_shown:,} of them" if num_shown < size else ""
    head = (
        f'<div class="k"><b>round {index}</b>, {pluralize(size, "token")}{first}</div>'
    )
    return f'{head}<pre class="t">{text}</pre>'


_SHOWN = (
    "<br>{:,} of {:,} tokens are shown, of the rounds with the largest mean |diff|:"
    " choose another round with <code>round=</code>"
)
NO_TEXT = "\N{WHITE SQUARE}"  # a token whose id was left out of a redacted file


@dataclass(frozen=True)
class TokenText:
    """Coloured text that a notebook shows.

    Attributes
    ----------
    html: Self-contained, without a script; all text of the batch in it is escaped.
    """

    html: str = field(repr=False)

    def _repr_html_(self) -> str:
        return self.html


def token_text(
    batch: Data,
    *,
    sample: int | str,
    round: int | None = None,  # noqa: A002 the word of the project
    a: str = "old",
    b: str = "rollout",
    max_tokens: int = 20_000,
    theme: ThemeName | None = None,
) -> TokenText:
    """Show what the model wrote in one sample or round, tokens coloured by diff.

    Without the log-probs of both engines the text is plain.

    Parameters
    ----------
    batch : Batch or path-like
    sample : int or str
        Which sample: its number, from 0, or its id.
    round : int, optional
        Which round of it, from 0; all when left out.
    max_tokens : int
        The most tokens to show. Of longer samples, the rounds with the largest mean
        |diff| are shown, and the text states what is left out.
    theme : {"light", "dark"}, optional
        The page's own colours when left out.
    a, b : as everywhere, see `help(rounddiag)`

    Returns
    -------
    TokenText
        An object that a notebook shows as text.

    Notes
    -----
    How to read it: blue tokens are more likely under `a` (training), orange ones less;
    the strength is logarithmic, from 0.003 to 3 nat in every batch, so that texts can
    be compared. In a healthy batch most text is plain, some tokens are pale, and
    none has a line. A line under a token means that `a` gives it less than half of the
    probability; a line over it, more than twice. A dashed frame marks a diff that is
    not finite. Dense colour from one round on points to its context; a coloured first
    token of every round, to the template; coloured numbers in actions, to the
    screenshots. Hover a token for its numbers. Without a tokenizer, token ids stand for
    the text, and squares where a file was redacted.

    Examples
    --------
    >>> import rounddiag as rd
    >>> batch = rd.load("sample_data/image_window.parquet")
    >>> "<b>Sample 0</b>" in rd.token_text(batch, sample=0, round=0).html
    True
    """
    data = open_measured(batch, a, b)
    batch, pair = data.require_batch(), short_pair(data.pair)
    sample = find_sample(data, sample)
    missing = batch.lacks("old", "rollout")
    tokens = get_sample_tokens(data, sample, None if missing else MEASURES["diff"])
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
    selected = tokens if round is None else tokens[tokens["round"] == round]
    part = excerpt(selected, max_tokens)
    is_cut = len(part) < len(selected)
    end = int(batch.lengths[sample]) if round is None else None
    head = "".join(f"{escape(note)}<br>" for note in note_unknown_rounds(data))
    head += f"<b>Sample {sample}</b>, {pluralize(num_rounds, 'round')}, "
    head += pluralize(len(tokens), "generated token")
    head += _SHOWN.format(len(part), len(selected)) if is_cut else ""
    key = escape(missing) if missing else _key(pair)
    body = "".join(rounds_html(selected, part, end, pair))
    return TokenText(
        f'<div class="rd-text mathjax_ignore {style_name(theme)}">'
        f"<style>{style_sheet(theme)}</style>"
        f'<div class="k">{head}<br>{key}</div>{body}</div>'
    )


def _key(pair: Pair) -> str:
    def ramp(sign: str) -> str:
        names = (f"{sign}{level}" for level in range(1, LEVELS + 1))
        return "".join(f'<span class="{name}">&nbsp;</span>' for name in names)

    low, high = format_number(SCALE.low), format_number(SCALE.high)
    return (
        f"{pair.label(DIFF)}: {ramp('p')} {low} to {high},"
        f" {pair.fill('more likely in {training}')};"
        f" {ramp('n')} -{low} to -{high}, less;"
        f" beyond {format_number(FACTOR_2)} (factor 2)"
        f' <span class="p0 u">overlined</span>,'
        f' <span class="n0 u">underlined</span>;'
        f' <span class="x">framed</span> not finite'
    )
