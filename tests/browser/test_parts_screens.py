"""Screenshots and what was done on them: at their true place at every size."""

from __future__ import annotations

import io
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from PIL import Image
from playwright.sync_api import expect

from tests.browser.explorer_data import action, round_of, sample_of
from tests.browser.parts import PartsPage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser

SHOW = """
said.length = 0;
globalThis.screens = screenViewer({onWanted: say('wanted'), onFrame: say('frame'),
  onSample: say('sample')});
document.querySelector('.rdx').replaceChildren(screens.node);"""
# Where a shape is, as shares of the picture under it, and how wide in pixels.
PLACE = """selector => {
  const shape = document.querySelector(selector).getBoundingClientRect();
  const picture = document.querySelector(selector).closest('.rdx-picture')
    .querySelector('img').getBoundingClientRect();
  return {
    x: (shape.x + shape.width / 2 - picture.x) / picture.width,
    y: (shape.y + shape.height / 2 - picture.y) / picture.height,
    width: shape.width, height: shape.height, picture: picture.width,
  };
}"""
DOT = ".rdx-current .rdx-core-dot"
SIZE = (40, 100)  # of a phone: higher than wide


def jpeg(color: str) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", SIZE, color).save(buffer, format="JPEG")
    return buffer.getvalue()


def shot(index: int, color: str = "red", **others: Any) -> dict[str, Any]:
    width, height = SIZE
    known = {"index": index, "width": width, "height": height}
    return {**known, "jpeg": jpeg(color), **others}


def rounds_of(*actions: dict[str, Any], shots: list[int | None]) -> dict[str, Any]:
    """A sample with one token a round."""
    after = [new if new != old else None for old, new in pairwise([*shots, None])]
    rounds = [
        round_of(
            index, ["a"], [0.1], round=index, action=one, screenshot=seen, after=led
        )
        for index, (one, seen, led) in enumerate(
            zip(actions, shots, after, strict=True)
        )
    ]
    return sample_of(["a"] * len(rounds), rounds=rounds)


@pytest.fixture(scope="module")
def opened(chromium: Browser) -> Iterator[PartsPage]:
    page = PartsPage(chromium, width=600, theme="light")
    yield page
    assert page.complaints == []
    page.close()


@pytest.fixture
def page(opened: PartsPage) -> PartsPage:
    opened.page.set_viewport_size({"width": 600, "height": 900})
    opened.run(SHOW)
    return opened


def show(page: PartsPage, sample: dict[str, Any], round_: int, *shots: Any) -> None:
    page.keep("sample", sample)
    page.keep("shots", [*shots])
    page.run(f"screens.show(sample, {round_}, shots);")


@pytest.mark.parametrize("width", [360, 600, 1600])
def test_a_click_is_round_and_at_its_place_in_every_width(
    page: PartsPage, width: int
) -> None:
    page.page.set_viewport_size({"width": width, "height": 900})
    click = action("click", point=(0.25, 0.9))
    show(page, rounds_of(click, shots=[0]), 0, shot(0))
    place = page.page.evaluate(PLACE, DOT)
    assert (place["x"], place["y"]) == pytest.approx((0.25, 0.9), abs=0.005)
    assert place["width"] == place["height"]
    assert 0 < place["picture"] < width


def test_a_drag_is_a_line_with_an_arrow_at_its_end(page: PartsPage) -> None:
    drag = action("drag", point=(0.5, 0.2), end_point=(0.5, 0.8))
    show(page, rounds_of(drag, shots=[0]), 0, shot(0))
    line = page.page.evaluate(PLACE, ".rdx-current line.rdx-core")
    assert (line["x"], line["y"]) == pytest.approx((0.5, 0.5), abs=0.005)
    head = page.page.evaluate(PLACE, ".rdx-current path.rdx-core")
    assert head["x"] == pytest.approx(0.5, abs=0.005)
    assert head["y"] == pytest.approx(0.8, abs=0.05)
    assert head["width"] > head["height"]  # the arrow points down


def test_a_scroll_points_where_it_goes(page: PartsPage) -> None:
    scroll = action("scroll", direction="left", point=(0.5, 0.3))
    show(page, rounds_of(scroll, shots=[0]), 0, shot(0))
    heads = page.find(".rdx-current path.rdx-core")
    assert heads.count() == 3
    turned = page.find(".rdx-current .rdx-marker g").get_attribute("transform")
    assert turned == "rotate(180)"


def test_typed_text_is_on_the_picture_with_signs(page: PartsPage) -> None:
    typed = action("type", text="a\u202e<b>\n")
    show(page, rounds_of(typed, shots=[0]), 0, shot(0))
    assert page.texts(".rdx-typed") == ["a⟨U+202E⟩<b>↵"]


def test_a_click_without_a_place_says_so(page: PartsPage) -> None:
    show(page, rounds_of(action("click"), shots=[0]), 0, shot(0))
    assert page.find(".rdx-marker").count() == 0
    assert page.texts(".rdx-note") == ["coordinates unknown or outside the screenshot"]


def test_what_an_action_led_to_takes_its_place(page: PartsPage) -> None:
    first, second = action("click", point=(0.5, 0.5)), action("wait")
    show(page, rounds_of(first, second, shots=[0, 1]), 0, shot(0), shot(1, "blue"))
    names = page.find(".rdx-screens figure b").all_text_contents()
    assert names == ["round 0", "after round 0"]
    current, after = page.find(".rdx-current"), page.find(".rdx-after")
    assert after.locator(".rdx-marker").count() == 0
    assert (current.is_visible(), after.is_visible()) == (True, False)
    current.locator(".rdx-swap").click()
    assert (current.is_visible(), after.is_visible()) == (False, True)
    page.run("screens.swap();")
    assert (current.is_visible(), after.is_visible()) == (True, False)


@pytest.mark.parametrize(
    ("width", "arranged", "tall"),
    [
        # 300 pixels less a panel of 50, a caption of 24 and a gap of 6 leave 220.
        (600, "two", "220px"),  # side by side
        (400, "one", "220px"),  # of two, each had less room than a caption needs
        (225, "one", "150px"),  # 225 pixels over a ratio of 1.5; two are 98 high
    ],
)
def test_pictures_fill_the_pane(
    page: PartsPage, width: int, arranged: str, tall: str
) -> None:
    put_into_pane(page, width)
    sample = rounds_of(action("wait"), action("wait"), shots=[0, 1])
    size: dict[str, Any] = {"width": 240, "height": 240 if width > 300 else 160}
    show(page, sample, 0, shot(0, **size), shot(1, "blue", **size))
    screens = page.find(".rdx-screens")
    expect(screens).to_have_attribute("data-arranged", arranged)
    get = "node => node.style.getPropertyValue('--tall')"
    assert screens.evaluate(get) == tall
    assert page.find(".rdx-after").is_visible() == (arranged == "two")
    assert page.find(".rdx-swap").first.is_visible() == (arranged == "one")


def put_into_pane(page: PartsPage, width: int) -> None:
    page.run(f"""
      const pane = document.createElement('div');
      pane.style = 'width:{width}px; height:300px; overflow:auto';
      const panel = document.createElement('div');
      panel.style.height = '50px';
      pane.append(screens.node, panel);
      document.querySelector('.rdx').replaceChildren(pane);
      screens.fitInto(pane, panel);""")


def test_a_tall_picture_is_no_larger_than_it_was_and_opens_at_the_action(
    page: PartsPage,
) -> None:
    put_into_pane(page, 400)
    sample = rounds_of(action("click", point=[0.5, 0.5]), shots=[0])
    show(page, sample, 0, shot(0, width=200, height=600))
    picture = page.find(".rdx-current .rdx-picture")
    # In the middle of the 220 pixels that the panel and the caption leave.
    page.page.wait_for_function(
        "document.querySelector('.rdx > div').scrollTop === 190"
    )
    box = picture.bounding_box()
    assert box is not None
    assert (box["width"], box["height"]) == (200, 600)


def test_the_picture_that_a_round_led_to_is_there_without_one_before(
    page: PartsPage,
) -> None:
    sample = rounds_of(action("wait"), action("wait"), shots=[None, 0])
    show(page, sample, 0, shot(0))
    assert page.texts(".rdx-screens figure b") == ["after round 0"]


@pytest.mark.parametrize(
    ("sizes", "said", "clear"),
    [
        (None, "", None),  # one of the two is not known
        ([0] * 60, "nothing changed", None),
        ([0] * 11 + [9] + [0] * 48, "1.7 % changed", [11]),
        ([0] * 11 + [9, 9, 3] + [0] * 46, "5 % changed", [11, 12]),
    ],
)
def test_what_an_action_changed_is_clear_and_all_else_is_dim(
    page: PartsPage, sizes: list[int] | None, said: str, clear: list[int] | None
) -> None:
    changes = sizes and {"columns": 5, "sizes": sizes}
    shots = [shot(0), {**shot(1), "changes": changes}]
    show(page, rounds_of(action("wait"), action("wait"), shots=[0, 1]), 0, *shots)
    assert page.texts(".rdx-after .rdx-changed") == [said]
    veil = page.find(".rdx-after .rdx-veil")
    assert veil.count() == (clear is not None)
    if clear is None:
        return
    data = veil.evaluate("""one => [...one.getContext('2d')
      .getImageData(0, 0, one.width, one.height).data]""")
    assert data[:4] == [255, 255, 255, 255]  # the paper
    alphas = data[3::4]
    assert [at for at, alpha in enumerate(alphas) if not alpha] == clear
    assert len(alphas) == 60


def test_the_numbers_of_actions_are_read_in_another_frame(page: PartsPage) -> None:
    points = {"point": [20, 50], "end_point": None}
    click = action(
        "click",
        point=[0.5, 0.5],
        written_points=points,
        frame="pixels",
        size=SIZE,
    )
    show(page, rounds_of(click, shots=[0]), 0, shot(0))
    chip = page.find(".rdx-frame")
    assert chip.text_content() == "pixels"
    chip.click()
    assert page.said[-1] == ["frame", "thousand"]
    page.run("screens.setFrame('thousand');")
    place = page.page.evaluate(PLACE, DOT)
    assert (place["x"], place["y"]) == pytest.approx((0.02, 0.05), abs=0.005)
    assert chip.text_content() == "0 to 1000"
    assert "their grammar says pixels" in (chip.get_attribute("title") or "")
    page.run("screens.setFrame('unit');")
    assert page.find(".rdx-marker").count() == 0  # outside
    chip.click()
    assert page.said[-1] == ["frame", None]


def test_a_round_without_a_new_screenshot_says_so(page: PartsPage) -> None:
    sample = rounds_of(action("wait"), action("wait"), shots=[0, 0])
    show(page, sample, 1, shot(0))
    assert page.texts(".rdx-screens > .rdx-empty") == ["Same screenshot as round 0."]


def test_a_sample_without_screenshots_leads_to_one_that_has_some(
    page: PartsPage,
) -> None:
    sample = {**rounds_of(action("wait"), shots=[None]), "sample": 4}
    show(page, {**sample, "with_screenshots": [1, 7, 9]}, 0)
    said = page.find(".rdx-screens > .rdx-empty")
    assert said.text_content() == (
        "This sample has no screenshots; 3 others of the batch have some."
    )
    said.get_by_role("button", name="3 others of the batch").click()
    assert page.said == [["sample", 7]]  # the next one
    show_first = {**sample, "with_screenshots": [1]}
    show(page, show_first, 0)
    assert "1 other of the batch has some" in (said.text_content() or "")
    said.get_by_role("button").click()
    assert page.said == [["sample", 1]]


def test_screenshots_without_a_round_are_counted(page: PartsPage) -> None:
    sample = rounds_of(action("wait"), shots=[None])
    show(page, {**sample, "num_unplaced": 2}, 0, [])
    texts = page.texts(".rdx-screens > .rdx-empty")
    assert texts == ["2 screenshots, round unknown."]


@pytest.mark.parametrize(
    ("shots", "sentence"),
    [
        ([None, None], "This sample has no screenshots."),
        ([None, 1], "No screenshot before round 0."),
    ],
)
def test_rounds_without_screenshots_say_so(
    page: PartsPage, shots: list[int | None], sentence: str
) -> None:
    show(page, rounds_of(action("wait"), action("wait"), shots=shots), 0, shot(0))
    assert page.texts(".rdx-screens > .rdx-empty") == [sentence]


def test_a_screenshot_that_is_on_its_way_is_shown_when_it_comes(
    page: PartsPage,
) -> None:
    sample = rounds_of(action("wait"), action("wait"), shots=[0, 1])
    show(page, sample, 1)
    coming = page.find(".rdx-coming")
    assert coming.text_content() == "Loading screenshot 1…"
    # The room of what comes.
    assert coming.evaluate("one => one.clientWidth / one.clientHeight") == 1.5
    page.keep("shot", shot(1))
    page.run("shots.push(shot); screens.show(sample, 1, shots);")
    assert page.find(".rdx-screens img").count() == 1
    assert page.said == [["wanted", 1]]
    page.keep("shot", shot(0))
    page.run("shots.push(shot); screens.show(sample, 0, shots);")
    assert page.find(".rdx-screens img").count() == 2
    assert page.said == [["wanted", 0], ["wanted", 1]]


def test_pictures_that_cannot_be_shown_say_why(page: PartsPage) -> None:
    sample = rounds_of(action("wait"), shots=[0])
    show(page, sample, 0, {"index": 0, "error": "It is larger than 9 pixels."})
    sentence = page.find(".rdx-current .rdx-empty")
    assert sentence.text_content() == (
        "Screenshot 0 cannot be shown. It is larger than 9 pixels."
    )
    show(page, sample, 0, shot(0, jpeg=b"no picture"))
    sentence.wait_for()
    assert sentence.text_content() == (
        "Screenshot 0 cannot be shown. The browser cannot decode it."
    )


def test_the_full_picture_takes_the_place_of_the_small_one(page: PartsPage) -> None:
    show(page, rounds_of(action("wait"), shots=[4]), 0, shot(4))
    assert page.said == [["wanted", 4]]
    page.keep(
        "full",
        {"bytes": jpeg("blue"), "mime": "image/jpeg", "width": 40, "height": 100},
    )
    before = page.find(".rdx-current img").get_attribute("src")
    page.run("screens.put(4, full);")
    assert page.find(".rdx-current img").get_attribute("src") != before
    assert page.said == []


def test_it_steps_through_the_pictures_that_the_model_saw(page: PartsPage) -> None:
    sample = rounds_of(*[action("wait")] * 3, shots=[0, 1, 2])
    for round_, seen in zip(
        sample["rounds"], [[[0, 1]], [[0, 2]], [[1, 3]]], strict=True
    ):
        round_["pictures"] = seen
    show(page, sample, 1, shot(0), shot(1, "blue"))
    count = page.find(".rdx-current .rdx-stepper > span")
    head = page.find(".rdx-current figcaption b")
    assert (count.text_content(), head.text_content()) == ("2 of 2", "round 1")
    page.run("screens.step(-1);")
    assert count.text_content() == "1 of 2"
    assert head.text_content() == "picture 1 of 2, from round 0"
    assert page.find(".rdx-after").count() == 0
    page.run("screens.step(-1);")  # there is none before
    assert count.text_content() == "1 of 2"
    page.find("button[aria-label='Next picture (.)']").click()
    assert head.text_content() == "round 1"
    page.run("screens.step(-1); screens.show(sample, 2, shots);")
    assert "picture" not in "".join(page.texts(".rdx-current figcaption b"))
    page.run("screens.show(sample, 0, shots);")  # one picture needs no steps
    assert count.count() == 0


def test_a_picture_that_does_not_come_says_why(page: PartsPage) -> None:
    sample = rounds_of(action("wait"), shots=[0])
    show(page, sample, 0)
    page.run("screens.put(0, {error: 'It is not in this file.'});")
    sentence = page.find(".rdx-current .rdx-empty")
    expected = "Screenshot 0 cannot be shown. It is not in this file."
    assert sentence.text_content() == expected


def test_a_picture_is_large_by_mouse_and_small_again_by_key(page: PartsPage) -> None:
    click, wait = action("click", point=(0.5, 0.5)), action("wait")
    show(page, rounds_of(click, wait, shots=[0, 1]), 0, shot(0), shot(1, "blue"))
    page.find(".rdx-current .rdx-enlarge").click()
    small = page.find(".rdx-current img").bounding_box()
    large = page.find(".rdx-stage img").bounding_box()
    assert small is not None
    assert large is not None
    assert large["height"] > 1.5 * small["height"]
    assert page.find(".rdx-stage .rdx-marker").count() == 1
    page.find("text=After the action").click()
    assert page.find(".rdx-stage .rdx-marker").count() == 0
    assert page.texts(".rdx-stage-caption b") == ["after round 0"]
    page.run("screens.show(sample, 1, shots);")
    assert not page.find("text=After the action").is_visible()
    page.page.keyboard.press("Escape")
    page.page.wait_for_function("!screens.isLarge()")
    assert not page.find(".rdx-large").is_visible()
