"""Text that was written by models and web pages stays text, in every part."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser

from rounddiag.figures._parts.labels import format_number
from tests.browser.contrast import pale_texts
from tests.browser.explorer_data import action, round_of, sample_of
from tests.browser.parts import PartsPage

SCRIPT = "<script>globalThis.ran = 1</script>"
IMAGE = "<img src=x onerror='globalThis.ran = 1'>"
PIECES = {
    SCRIPT: SCRIPT,
    IMAGE: IMAGE,
    "</pre></main>&lt;": "</pre></main>&lt;",
    "<|im_start|>": "<|im_start|>",
    "\u202eright to left": "⟨U+202E⟩right to left",
    "عربي": "عربي",
    "a\u200bb\ufeff": "a⟨U+200B⟩b⟨U+FEFF⟩",
    "e\u0301": "e\u0301",
    "\u0301": "⟨U+0301⟩",
    "Z" + "\u0335" * 5: "Z\u0335\u0335\u0335⟨U+0335⟩⟨U+0335⟩",
    "x" * 10_000: "x" * 10_000,
    "\n": "↵\n",
    "\r\n": "⟨U+000D⟩↵\n",
    "\t": "⇥",
    "  ": "··",
    " word ": " word·",
    "a  b": "a··b",
    "\x1b[1m": "⟨U+001B⟩[1m",
    "\u3164": "⟨U+3164⟩",
    "\u2028": "⟨U+2028⟩",
    "\U0001f469\u200d\U0001f4bb": "\U0001f469\u200d\U0001f4bb",
    "": "",
}
SHOW = """
globalThis.parts = {
  text: tokenText({onToken: say('token'), onObservation: async () => observed}),
  focus: focusPanel(), strip: roundStrip({onRound: say('round')}),
  screens: screenViewer({onWanted: say('wanted')}),
  lists: listDrawer({onRow: say('row'), request: async () => found}),
  controls: controlBar({onSet: say('set')}),
};
const {text, focus, strip, screens, lists, controls} = parts;
const main = document.querySelector('.rdx');
main.replaceChildren(...Object.values(parts).map(part => part.node));
text.show(sample, 0.1);
text.mark(0, 3);
focus.show(sample, 9);
strip.show(sample, shots);
screens.show(sample, 0, shots);
lists.toggle(true, 'tokens');
controls.show(head, options, state, counts);
controls.diagnose({verdict: 'broken', text: head.name, num_findings: 2});"""


def hostile(page: PartsPage) -> None:
    """Show hostile text wherever a part takes text."""
    pieces = [*PIECES]
    size = len(pieces)
    sample = sample_of(pieces, np.linspace(-2, 2, size))
    typed = action("type", label=f"{IMAGE}\u202e", text=SCRIPT * 20)
    sample["rounds"] = [
        round_of(0, pieces, sample["tokens"]["diff"], action=typed, screenshot=0)
    ]
    gap = {"start": -20, "stop": 0, "before": 0, "num_tokens": 20}
    ends = {"head": [SCRIPT, "x" * 999], "tail": ["\u202e"], "num_image_tokens": 9}
    page.keep("sample", {**sample, "gaps": [{**gap, **ends}], "name_a": IMAGE})
    page.keep("observed", {"pieces": pieces, "is_image": np.zeros(size, np.uint8)})
    page.keep("shots", [{"index": 0, "error": SCRIPT}])
    columns = [
        {
            "head": SCRIPT,
            "kind": "piece",
            "values": [[IMAGE, one, SCRIPT] for one in pieces],
        },
        {"head": IMAGE, "kind": "text", "values": pieces},
        {"head": "diff", "kind": "signed", "values": [0.5] * size},
    ]
    found = {"num_rows": size, "columns": columns, "caption": SCRIPT, "empty": ""}
    page.keep("found", {**found, "notes": [SCRIPT] * size})
    page.keep("head", head())
    page.keep("options", options())
    page.keep("state", state())
    page.keep("counts", dict.fromkeys(("num_tokens", "num_tokens_beyond"), 2))
    page.run("counts.num_samples_beyond = 1;" + SHOW)


def head() -> dict[str, Any]:
    chip = {"label": SCRIPT, "value": f"{IMAGE}{'y' * 2000}", "tone": "warn"}
    sizes = dict.fromkeys(("num_samples", "num_rounds", "num_tokens"), 1) | {
        "noun": "token"
    }
    names = {"name": f"{IMAGE}{'z' * 2000}", "step": 0, "failed": [SCRIPT]}
    return {**names, **sizes, "chips": [chip], "verdict": None}


def options() -> dict[str, Any]:
    known = {
        "metric": [[name, name, name] for name in ("abs_diff", "diff")],
        "order": ["worst"],
    }
    hostile = {name: [SCRIPT, IMAGE * 50] for name in ("scores", "by")}
    columns = [{"name": IMAGE * 50, "values": [SCRIPT, IMAGE * 50]}]
    lists = {"columns": columns, "correction": []}
    return {**known, **lists, **hostile}


def state() -> dict[str, Any]:
    chosen = {"metric": "diff", "threshold": 0.1, "order": "worst"}
    kept = {"text": SCRIPT, IMAGE: [IMAGE * 50]}
    return {
        **chosen,
        "a": SCRIPT,
        "b": SCRIPT,
        "by": None,
        "colors": "fixed",
        "filter": kept,
    }


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_hostile_text_is_shown_as_text_and_can_be_read(
    chromium: Browser, theme: str
) -> None:
    page = PartsPage(chromium, width=360, theme=theme)
    hostile(page)
    page.find(".rdx-gap button").click()
    page.find(".rdx-inside span").first.wait_for()
    assert page.texts(".rdx-chunk > span") == [*PIECES.values()]
    assert page.find(".rdx :is(script, img)").count() == 0
    for width in (360, 1000, 1600):
        page.page.set_viewport_size({"width": width, "height": 900})
        assert page.run("return document.documentElement.scrollWidth;") == width
        num_texts, pale = pale_texts(page.page, ".rdx *")
        assert num_texts > 100
        assert pale == []
    assert page.run("return globalThis.ran;") is None
    assert page.complaints == []
    page.close()


@pytest.mark.parametrize("sign", [-1, 1])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_tokens_of_every_strength_can_be_read(
    chromium: Browser, theme: str, sign: int
) -> None:
    page = PartsPage(chromium, width=600, theme=theme)
    diff = sign * np.geomspace(0.001, 3, 40)
    page.keep("sample", sample_of(["token"] * 40, diff))
    page.run("""const text = tokenText({});
      document.querySelector('.rdx').append(text.node);
      text.show(sample, Math.LN2);""")
    num_texts, pale = pale_texts(page.page, ".rdx-chunk *")
    assert (num_texts, pale) == (40, [])
    page.close()


def test_every_control_has_a_name_and_says_so(chromium: Browser) -> None:
    page = PartsPage(chromium, width=1000, theme="light")
    hostile(page)
    nameless = page.run("""
      const all = [...document.querySelectorAll('.rdx :is(button, input, select)')];
      const named = one => one.ariaLabel || one.textContent.trim() || one.title
        || one.labels?.[0]?.textContent.trim();
      return all.filter(one => !named(one)).map(one => one.outerHTML);""")
    assert nameless == []
    page.close()


# What figures and page write; a tie is rounded away from 0.
NUMBERS = {
    0.0: "0",
    -16.34: "−16.3",
    1.125: "1.13",
    -2.625: "−2.63",
    0.5: "0.5",
    100.0: "100",
    12345.0: "12,300",
    999499.0: "999,000",
    999500.0: "1e6",
    -2.5e22: "−2.5e22",
    1e-4: "0.0001",
    9.994e-5: "9.99e−5",
    -7.2449e-8: "−7.24e−8",
    1e-300: "1e−300",
}


def test_numbers_of_figures_have_true_minus_signs_and_separators() -> None:
    assert {value: format_number(value) for value in NUMBERS} == NUMBERS
    ends = [format_number(value) for value in (math.nan, math.inf, -math.inf)]
    assert ends == ["not finite", "∞", "−∞"]


def test_numbers_are_those_of_the_figures(chromium: Browser) -> None:
    page = PartsPage(chromium, width=400, theme="light")
    generator = np.random.default_rng(0)
    random = np.exp(generator.uniform(-20, 20, 2000)) * generator.choice([-1, 1], 2000)
    ends = [
        0.0,
        -0.0,
        999.5,
        999.4999,
        0.9995,
        99950.0,
        999500.0,
        1e-4,
        9.9995e-5,
        1e300,
    ]
    values = np.concatenate([random, ends])
    page.page.evaluate("values => { globalThis.values = values; }", values.tolist())
    assert page.run("return values.map(number);") == [
        format_number(one) for one in values
    ]
    page.page.evaluate("known => { globalThis.known = known; }", [*NUMBERS])
    assert page.run("return known.map(number);") == [*NUMBERS.values()]
    assert page.run("return [NaN, null, Infinity, -Infinity].map(number);") == [
        *("not finite", "not finite", "∞", "−∞")
    ]
    aligned = page.run('return alignDecimals(["−16.3", "0.12", "3", "2e−7"]);')
    assert aligned == ["−16.3\u2007", "0.12", "3\u2008\u2007\u2007", "2e−7"]
    page.close()
