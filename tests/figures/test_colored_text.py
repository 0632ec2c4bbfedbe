"""Coloured text: escaped, whole, with its scale printed, in every page's colours."""

from __future__ import annotations

import math
import re
from html.parser import HTMLParser

import pytest
import torch

from rounddiag import Batch, token_text
from rounddiag.errors import FrameError
from tests.batches import hand_batch, padded, redacted

NAN = math.nan
HOSTILE = ["<script>", "&amp;", '"><img src=x>', "a  b", "\n", "  "]


class Shown(HTMLParser):
    """What a browser would show: tags, titles, and text by class."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.spans: list[tuple[str, str, str]] = []
        self.text = ""
        self.in_pre = False
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.in_pre = self.in_pre or tag == "pre"
        if tag == "span" and self.in_pre:
            known = dict(attrs)
            self.spans.append((known.get("class") or "", known["title"] or "", ""))

    def handle_endtag(self, tag: str) -> None:
        self.in_pre = self.in_pre and tag != "pre"

    def handle_data(self, data: str) -> None:
        if self.tags[-1:] != ["style"]:
            self.text += data
        if self.in_pre:
            name, title, text = self.spans[-1]
            self.spans[-1] = (name, title, text + data)


def hostile(ids: list[int]) -> str:
    return "".join(HOSTILE[i % 6] for i in ids)


def of_row(mask: list[int], diffs: list[float], tokenizer: object = None) -> Batch:
    return padded([mask], [diffs], [[0.0] * len(mask)], tokenizer=tokenizer)


def test_a_notebook_shows_the_html() -> None:
    text = token_text(hand_batch(), sample=0)
    assert text._repr_html_() == text.html
    assert text.html.startswith(
        '<div class="rd-text mathjax_ignore rd-page-light"><style>'
    )


def test_hostile_tokens_are_text_and_no_tags() -> None:
    html = token_text(of_row([1] * 6, [0.0] * 6, hostile), sample=0).html
    assert {"script", "img"}.isdisjoint(Shown(html).tags)
    texts = [text for _, _, text in Shown(html).spans]
    assert texts == ["<script>", "&amp;", '"><img src=x>', "a  b", "↵\n", "··"]


def test_sign_strength_and_line_of_a_token_tell_its_diff() -> None:
    diffs = [0.0005, 0.03, -0.03, 0.6, -0.7, 50.0, NAN, -math.inf]
    spans = Shown(token_text(of_row([1] * 8, diffs), sample=0).html).spans
    # Steps of 8 log10(size / 0.003) / 3: 2.7, 6.1 and 6.3 for 0.03, 0.6 and 0.7.
    names = ["", "p3", "n3", "p6", "n6 u", "p8 u", "x", "x"]
    assert [name for name, _, _ in spans] == names


def test_hovering_a_token_gives_both_log_probs() -> None:
    spans = Shown(token_text(hand_batch(), sample=0).html).spans
    assert spans[0][1:] == ("diff 0.5, old −0.5, rollout −1", "⟨0⟩")


def test_tokens_of_one_character_share_its_span_and_keep_their_numbers() -> None:
    def decode(ids: list[int]) -> str:
        return bytes([*"é".encode(), *b"a"][i] for i in ids).decode(errors="replace")

    spans = Shown(token_text(of_row([1] * 3, [0.01, -1.0, 0.0], decode), sample=0).html)
    (name, title, text), last = spans.spans
    assert (name, text, last[2]) == ("n7 u", "é", "a")
    assert title == "diff 0.01, old 0.01, rollout 0\ndiff −1, old −1, rollout 0"


def test_observations_are_collapsed_to_their_size() -> None:
    mask = [0] * 1024 + [1, 0, 1, 0, 0]
    text = Shown(token_text(of_row(mask, [0.0] * len(mask)), sample=0).html).text
    sizes = re.findall(r"([\d,]+) observation tokens?", text)
    assert sizes == ["1,024", "1", "2"]
    assert "⟨1024⟩" in text
    assert "⟨1025⟩" not in text


def test_one_round_is_shown_alone() -> None:
    text = Shown(token_text(hand_batch(), sample=1, round=1).html).text
    assert "round 1, 1 token" in text
    assert "round 0" not in text
    assert "observation" not in text


def test_the_scale_is_printed() -> None:
    text = Shown(token_text(hand_batch(), sample=0).html).text.replace("\xa0", "")
    assert (
        "old − rollout log-prob [nat]:  0.003 to 3, more likely in training;"
        "  -0.003 to -3, less; beyond 0.693 (factor 2) overlined, underlined;"
        " framed not finite"
    ) in text


def test_the_page_gives_the_colours_unless_a_theme_is_asked_for() -> None:
    page = token_text(hand_batch(), sample=0).html
    assert "var(--jp-layout-color0,#ffffff)" in page
    assert '[data-jp-theme-light="false"] .rd-page-light .p8' in page
    dark = token_text(hand_batch(), sample=0, theme="dark").html
    assert "--rd-paper:#111111" in dark
    assert "--jp" not in dark
    assert ".rd-fixed-dark .p8" in dark


def test_of_a_long_sample_the_worst_rounds_are_shown_and_it_says_so() -> None:
    mask = [1, 0, 1, 1, 0, 1, 0, 0, 1, 1]
    diffs = [0.0, 9.0, 0.0, 0.5, 9.0, NAN, 9.0, 9.0, 0.5, -0.5]
    html = token_text(of_row(mask, diffs), sample=0, max_tokens=4).html
    text = Shown(html).text
    assert [name for name, _, _ in Shown(html).spans] == ["", "p6", "p6", "n6"]
    assert "4 of 6 tokens are shown, of the rounds with the largest mean |diff|" in text
    notes = re.findall(r"Left out: .*?\.|round \d, |\d observation", text)
    assert notes == [
        *("Left out: round 0, 1 token.", "1 observation", "round 1, "),
        *("Left out: round 2, 1 token.", "2 observation", "round 3, "),
    ]


def test_neighbours_that_are_left_out_are_named_together() -> None:
    batch = of_row([1, 0, 1, 1, 0, 1], [0.0, 9.0, 0.1, 0.1, 9.0, 1.0])
    text = Shown(token_text(batch, sample=0, max_tokens=1).html).text
    assert "Left out: rounds 0 to 1, 3 tokens." in text


def test_of_a_round_that_is_too_long_the_first_tokens_are_shown() -> None:
    batch = of_row([1, 1, 1, 0, 1], [-0.5, 0.0, 0.5, 9.0, 0.1])
    for index in (None, 0):
        html = token_text(batch, sample=0, round=index, max_tokens=2).html
        assert [name for name, _, _ in Shown(html).spans] == ["n6", ""]
        assert "round 0, 3 tokens, the first 2 of them" in Shown(html).text


def test_unknown_rounds_are_said_first() -> None:
    note = "the rounds are unknown: `rd.check(batch)` says why"
    unknown = hand_batch(meta={"rounds": "unknown"})

    text = Shown(token_text(unknown, sample=0).html).text
    assert text.index(note) < text.index("Sample 0")
    assert note not in Shown(token_text(hand_batch(), sample=0).html).text


def test_a_sample_without_tokens_says_why() -> None:
    text = Shown(token_text(of_row([0, 0], [0.0, 0.0]), sample=0).html).text
    assert "The response mask is 0 everywhere." in text
    assert "2 observation tokens" in text


@pytest.mark.parametrize(
    ("mask", "expected"),
    [
        ([1, 0, 1], "a round from 0 to 1"),
        ([0, 0, 0], "no round, as sample 0 has no generated tokens"),
    ],
)
def test_an_unknown_round_is_refused(mask: list[int], expected: str) -> None:
    message = (
        f"`round`: expected {expected}; found 2. Leave it out for all rounds of the"
        " sample."
    )
    with pytest.raises(FrameError, match=f"^{re.escape(message)}$"):
        token_text(of_row(mask, [0.0] * 3), sample=0, round=2)


def test_an_unknown_sample_is_refused() -> None:
    message = (
        "`sample`: expected a sample from 0 to 2; found 3."
        " Count samples from 0, as in `rounddiag.sample_frame(batch)`."
    )
    with pytest.raises(FrameError, match=f"^{re.escape(message)}$"):
        token_text(hand_batch(), sample=3)


def test_tokens_of_a_redacted_batch_are_squares() -> None:
    batch = redacted(hand_batch())
    spans = Shown(token_text(batch, sample=0).html).spans
    assert [text for *_, text in spans] == ["\N{WHITE SQUARE}"] * 3


def test_another_pair_is_named_in_the_key_and_on_hover() -> None:
    batch = hand_batch(scores={'a"b': torch.full((3, 6), -1.5)})
    page = Shown(token_text(batch, sample=0, a='a"b').html)
    assert page.spans[0][1] == 'diff −0.5, a"b −1.5, rollout −1'
    text = page.text.replace("\xa0", "")
    assert 'a"b − rollout log-prob [nat]:  0.003 to 3, more likely in a"b;' in text
