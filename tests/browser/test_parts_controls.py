"""The controls of the explorer's page: what each says when it is used."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, expect

import rounddiag as rd
from rounddiag.widgets.columns import BatchColumns
from rounddiag.widgets.requests import describe_batch
from rounddiag.widgets.state import State, available_options
from tests.browser.parts import PartsPage

SHOW = """
said.length = 0;
globalThis.controls = controlBar({onSet: say('set')});
document.querySelector('.rdx').replaceChildren(controls.node);
controls.show(head, options, state, counts);"""
COUNTS = {"num_tokens": 200, "num_tokens_beyond": 5, "num_samples_beyond": 1}


@pytest.fixture(scope="module")
def batch() -> rd.Batch:
    return rd.load("sample_data/image_window.parquet")


@pytest.fixture(scope="module")
def opened(chromium: Browser, batch: rd.Batch) -> Iterator[PartsPage]:
    page = PartsPage(chromium, width=1200, theme="light")
    page.keep("head", describe_batch(batch, rd.token_frame(batch)))
    page.keep(
        "options",
        {**available_options(BatchColumns(batch)), "scores": ["old", "rollout", "ref"]},
    )
    yield page
    assert page.complaints == []
    page.close()


@pytest.fixture
def page(opened: PartsPage) -> PartsPage:
    opened.keep("counts", COUNTS)
    opened.keep("state", State().as_dict())
    opened.run(SHOW)
    return opened


# Its panel is open then, and no other one, as after a click.
_OPEN = """node => {
  for (const one of document.querySelectorAll('.rdx-dropdown'))
    one.open = one.contains(node);
}"""


def field(page: PartsPage, label: str) -> Locator:
    found = page.page.get_by_label(label, exact=True)
    if found.count():
        found.evaluate(_OPEN)
    return found


def test_the_head_tells_which_batch_and_how_much(page: PartsPage) -> None:
    assert page.texts(".rdx-name > *") == [
        "image_window.parquet",
        "step 1584",
        "64 samples · 4,143 tokens",
    ]
    assert "mask response_mask" in page.texts(".rdx-chips > li")
    assert not page.page.get_by_label("Failed checks").is_visible()


def test_the_verdict_is_the_mean_until_there_is_a_diagnosis(page: PartsPage) -> None:
    verdict = page.page.get_by_label("Verdict", exact=True).locator("summary")
    page.run("controls.diagnose(undefined, 'diagnosing…');")
    text = verdict.text_content() or ""
    assert text.startswith("mean diff ")
    assert text.endswith(" · diagnosing…")
    found = "{verdict: 'not_measurable', text: 'No <b>.', num_findings: 0}"
    page.run(f"controls.diagnose({found});")
    assert verdict.text_content() == "not measurableNo <b>."
    assert verdict.get_attribute("title") == "No <b>."
    assert page.find(".rdx-verdict button").count() == 0
    assert page.find(".rdx-verdict .rdx-note").count() == 0  # no mean is measured
    assert page.find(".rdx-verdict[data-bad]").count() == 0
    lines = "text: 'Judged. No. Nor.', first: 'No.', others: 'Judged. Nor.'"
    page.run(f"controls.diagnose({{verdict: 'broken', {lines}, num_findings: 2}});")
    assert page.texts(".rdx-verdict > summary > *") == ["brokenNo.", "Judged. Nor."]
    assert verdict.get_attribute("title") == "Judged. No. Nor."
    assert page.find(".rdx-verdict[data-bad]").count() == 1
    assert page.texts(".rdx-verdict button") == ["2 findings"]
    test = page.page.get_by_role("button", name="Copy the test")
    assert not test.is_visible()
    families = "families: ['ids', 'context'], prove: 'rounddiag prove F'"
    text = "'No.\\nCause not known; possible: ids and template (clue)'"
    page.run(f"controls.diagnose({{verdict: 'broken', text: {text}, {families}}});")
    words = page.texts(".rdx-verdict > summary > div")
    assert words == ["Cause not known; possible: ids, context"]
    assert "template (clue)" in "".join(page.texts(".rdx-verdict > .rdx-panel"))
    assert test.get_attribute("title") == "rounddiag prove F"
    for is_update, num_bad in (("false", 0), ("true", 1)):
        update = f"is_update: {is_update}, num_findings: 1"
        page.run(f"controls.diagnose({{verdict: 'healthy', text: 'No.', {update}}});")
        assert page.find(".rdx-verdict[data-bad]").count() == num_bad


def test_failed_checks_are_in_the_head_line(page: PartsPage) -> None:
    failed = [f"check {index}: <b>\u202e" for index in range(5)]
    page.run(f"controls.show({{...head, failed: {failed}}}, options, state, counts);")
    button = page.page.get_by_label("Failed checks", exact=True)
    assert button.locator("summary").text_content() == "✗ 5 checks failed"
    assert page.texts(".rdx-failed li")[0] == "check 0: <b>⟨U+202E⟩"
    button.locator("summary").click()
    expect(page.find(".rdx-failed li:visible")).to_have_count(5)


def test_the_metric_is_chosen_by_mouse_and_by_arrow_keys(page: PartsPage) -> None:
    assert field(page, "|diff|").is_checked()
    field(page, "signed").click()
    field(page, "signed").press("ArrowRight")
    assert page.said == [["set", {"metric": "diff"}], ["set", {"metric": "abs_diff"}]]
    metrics = page.find("[aria-label='Metric'] label")
    assert metrics.all_text_contents() == ["|diff|", "signed"]


def test_a_new_answer_leaves_the_focus_where_it_is(page: PartsPage) -> None:
    field(page, "|diff|").press("ArrowRight")
    page.run("controls.show(head, options, {...state, metric: 'diff'}, counts);")
    assert page.run("return document.activeElement.value;") == "diff"
    assert field(page, "signed").is_checked()


def test_the_threshold_is_a_number_and_a_logarithmic_slider(page: PartsPage) -> None:
    number, slider = field(page, "threshold"), field(page, "Threshold, logarithmic")
    assert number.input_value() == "0.693"
    assert page.texts(".rdx-beyond") == ["5 beyond · 2.5 % · 1 sample · of 200 tokens"]
    slider.press("End")
    assert number.input_value() == "10"
    slider.press("Home")
    number.fill("0.25")
    number.press("Enter")
    chosen = [["set", {"threshold": value}] for value in (10, 0.001, 0.25)]
    assert page.said == chosen


@pytest.mark.parametrize("typed", ["0", "-1", ""])
def test_an_invalid_threshold_is_not_sent(page: PartsPage, typed: str) -> None:
    number, line = field(page, "threshold"), page.find(".rdx-threshold > .rdx-wrong")
    number.fill(typed)
    number.press("Enter")
    assert page.said == []
    why = "threshold: must be above 0; unchanged at 0.693 nat"
    assert line.text_content() == why
    assert number.get_attribute("aria-invalid") == "true"
    number.press("Tab")
    assert number.input_value() == "0.693"
    assert number.get_attribute("aria-invalid") == "false"
    assert line.is_visible()
    number.fill("0.5")
    number.press("Enter")
    assert page.said == [["set", {"threshold": 0.5}]]
    assert not line.is_visible()


@pytest.mark.parametrize(
    ("label", "choice", "changes"),
    [
        ("order", "highest reward", {"order": "reward"}),
        ("compare", "ref", {"a": "ref"}),
        ("compare with", "ref", {"b": "ref"}),
        ("by", "status", {"by": "status"}),
    ],
)
def test_a_choice_from_a_list_is_sent(
    page: PartsPage, label: str, choice: str, changes: dict[str, Any]
) -> None:
    field(page, label).select_option(choice)
    assert page.said == [["set", changes]]


def test_what_is_not_chosen_is_none(page: PartsPage) -> None:
    page.run("controls.show(head, options, {...state, by: 'status'}, counts);")
    field(page, "by").select_option("nothing")
    assert page.said == [["set", {"by": None}]]


@pytest.mark.parametrize(
    ("typed", "changes"),
    [
        ({"text": "a (b"}, {"text": "a (b"}),
        ({"sample": "7"}, {"sample": [7]}),
        ({"sample": "38, task-08/3"}, {"sample": [38, "task-08/3"]}),
        ({"group_id": "task-03"}, {"group_id": ["task-03"]}),
        ({"num_tokens from": "50"}, {"num_tokens": {"from": 50, "to": None}}),
        ({"num_tokens to": "2"}, {"num_tokens": {"from": None, "to": 2}}),
    ],
)
def test_a_typed_filter_is_sent(
    page: PartsPage, typed: dict[str, str], changes: dict[str, Any]
) -> None:
    (column,) = changes
    if column != "text":
        field(page, "column").select_option(column)
    for label, text in typed.items():
        field(page, label).fill(text)
        field(page, label).press("Enter")
    assert page.said == [["set", {"filter": changes}]]


def test_few_values_are_check_boxes(page: PartsPage) -> None:
    field(page, "column").select_option("status")
    boxes = page.find(".rdx-condition input")
    assert page.texts(".rdx-condition label") == ["failed", "solved", "truncated"]
    boxes.nth(2).check()
    boxes.nth(0).check()
    boxes.nth(2).uncheck()
    assert page.said == [
        ["set", {"filter": {"status": ["truncated"]}}],
        ["set", {"filter": {"status": ["failed", "truncated"]}}],
        ["set", {"filter": {"status": ["failed"]}}],
    ]


def test_an_invalid_range_is_not_sent_and_says_why(page: PartsPage) -> None:
    field(page, "column").select_option("num_tokens")
    low, high = field(page, "num_tokens from"), field(page, "num_tokens to")
    high.fill("1")
    low.fill("3")
    low.press("Enter")
    # One end is enough, and was reported when it was left.
    assert page.said == [["set", {"filter": {"num_tokens": {"from": None, "to": 1}}}]]
    line = page.find(".rdx-filter > .rdx-wrong")
    assert line.text_content() == "num_tokens: the lower end comes first"
    for end in (low, high):
        assert end.get_attribute("aria-invalid") == "true"
        assert end.get_attribute("aria-describedby") == line.get_attribute("id")
    high.fill("4")
    high.press("Enter")
    assert not line.is_visible()
    assert low.get_attribute("aria-invalid") == "false"
    assert page.said == [["set", {"filter": {"num_tokens": {"from": 3, "to": 4}}}]]


def test_words_can_be_an_expression_and_the_filter_can_be_cleared(
    page: PartsPage,
) -> None:
    clear = page.find("text=Clear filter")
    assert not clear.is_visible()
    page.run("""controls.show(head, options,
      {...state, filter: {text: 'a|b', round: {from: 1, to: 2}}}, counts);""")
    assert field(page, "text").input_value() == "a|b"
    chips = page.texts(".rdx-filter-chips > button > span")
    assert chips == ["text: a|b", "round: 1 to 2"]
    page.find(".rdx-filter .rdx-toggle input").click()
    clear.click()
    page.find(".rdx-filter-chips > button").last.click()
    rounds = {"round": {"from": 1, "to": 2}}
    assert page.said == [
        ["set", {"filter": {**rounds, "text": {"regex": "a|b"}}}],
        ["set", {"filter": {}}],
        ["set", {"filter": {"text": "a|b"}}],
    ]


def test_an_answer_takes_nothing_away_that_is_being_written(page: PartsPage) -> None:
    field(page, "column").select_option("num_tokens")
    field(page, "num_tokens from").fill("1")
    page.run("controls.show(head, options, state, counts);")
    assert field(page, "num_tokens from").input_value() == "1"
    field(page, "column").select_option("sample")
    field(page, "sample").fill("3")
    page.run("controls.show(head, options, state, counts);")
    assert field(page, "sample").input_value() == "3"
    assert not page.find(".rdx-wrong:visible").count()
    page.said  # noqa: B018 the range was left, and so reported
    field(page, "sample").press("Enter")
    assert page.said == [["set", {"filter": {"sample": [3]}}]]


def test_typed_text_is_sent_after_a_pause_and_never_twice_at_once(
    page: PartsPage,
) -> None:
    page.run("""[globalThis.sent, globalThis.answers] = [[], []];
      globalThis.controls = controlBar({onSet: (changes) => {
        sent.push(changes.filter.text);
        return new Promise((done) => answers.push(done));
      }});
      document.querySelector('.rdx').replaceChildren(controls.node);
      controls.show(head, options, state, counts);""")
    text, busy = field(page, "text"), page.find(".rdx-applying")
    text.press_sequentially("cli", delay=20)
    assert text.input_value() == "cli"
    page.page.wait_for_function("sent.length === 1")
    assert busy.text_content() == "applying…"
    for typed in ("click", "click("):
        text.fill(typed)
        page.page.wait_for_timeout(400)
    page.run("answers.shift()();")
    page.page.wait_for_function("sent.length === 2")
    text.press("Enter")
    page.run("answers.shift()();")
    page.page.wait_for_function(
        "document.querySelector('.rdx-applying').textContent === ''"
    )
    assert page.run("return sent;") == ["cli", "click("]


def test_a_score_is_not_offered_beside_itself(page: PartsPage) -> None:
    offered = {
        label: field(page, label).locator("option").all_text_contents()
        for label in ("compare", "compare with")
    }
    assert offered == {"compare": ["old", "ref"], "compare with": ["rollout", "ref"]}


def test_what_python_refuses_is_said_at_its_field(page: PartsPage) -> None:
    error = "{message: '`group_id`: expected one of `x`; found <b>.'}"
    assert page.run(f"return controls.showError({error});") is True
    assert page.texts(".rdx-filter > .rdx-wrong") == [
        "group_id: expected one of x; found <b>."
    ]
    assert field(page, "group_id").get_attribute("aria-invalid") == "true"
    assert page.run("return controls.showError({message: '`layers`: no'});") is False
    page.run("controls.show(head, options, state, counts);")
    assert not page.find(".rdx-filter > .rdx-wrong").is_visible()


def test_enter_reports_a_refused_expression_again(page: PartsPage) -> None:
    text, line = field(page, "text"), page.find(".rdx-filter > .rdx-wrong")
    text.fill("(")
    page.page.wait_for_function("said.length === 1")
    page.run("controls.showError({message: '`text`: no'});")
    assert line.text_content() == "text: no"
    text.press("Enter")
    request = ["set", {"filter": {"text": "("}}]
    assert page.said == [request, request]


def test_what_a_batch_lacks_is_not_offered(page: PartsPage) -> None:
    page.run("""controls.show(head, {...options, by: [], columns: [],
      order: ['sample', 'worst']}, state,
      {...counts, num_tokens: 0, empty_reason: 'the filter keeps no token'});""")
    for label in ("by", "column"):
        assert not field(page, label).is_visible()
    choices = field(page, "order").locator("option").all_text_contents()
    assert choices == ["number", "worst first"]
    assert page.texts(".rdx-beyond") == ["the filter keeps no token"]
