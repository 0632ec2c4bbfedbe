"""The page: its sections, escaping, scripts, and atomic writing."""

from __future__ import annotations

import base64
import hashlib
import math
import re
from typing import TYPE_CHECKING

import pytest
import torch

import rounddiag as rd
from tests.batches import hand_batch, padded
from tests.export.pages import Page, page_of

if TYPE_CHECKING:
    from pathlib import Path

    from rounddiag import Batch

HOSTILE = ["</script><script>alert(1)</script>", "<!--", '"><img src=x>', "\x00"]


def hostile_batch() -> Batch:
    def decode(ids: list[int]) -> str:
        return "".join(HOSTILE[i % 4] for i in ids)

    text, broken = HOSTILE[0], "\ud800"
    return padded(
        [[1] * 4],
        [[-1.0, -2.0, -3.0, -4.0]],
        [[-1.5] * 4],
        tokenizer=decode,
        sample_ids=[text],
        group_ids=[text],
        meta={"source": f"/x/{text}", "mask_source": broken, text: text},
    )


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Page:
    batch = hand_batch(meta={"source": "/data/step_40.pt"}, step=40)
    return page_of(batch, tmp_path_factory.mktemp("page"), worst=2)


def test_sections_are_in_order_and_linked(page: Page) -> None:
    assert page.headings == [
        (1, "step_40.pt, step 40"),
        (2, "Checks"),
        (2, "Sources"),
        (2, "Rounds"),
        (2, "Samples and rounds"),
        (2, "Worst samples"),
        (3, "Sample 2"),
        (3, "Sample 1"),
    ]
    assert [link.removeprefix("#") for link in page.links] == page.ids
    assert "<title>step_40.pt, step 40 - rounddiag</title>" in page.html
    assert '<html lang="en">' in page.html


def test_every_figure_has_a_description_and_both_themes(page: Page) -> None:
    starts = [words.split(".")[0] for words in page.plots]
    assert starts == [
        "Mismatch per round",
        "Mismatch per sample and round",
        "Sample 2, token by token",
        "Sample 1, token by token",
    ]
    for stored in page.figures:
        at = {tuple(path): value for path, value in stored["dark"]}
        paper = ("layout", "template", "layout", "paper_bgcolor")
        assert stored["figure"]["layout"]["template"]["layout"]["paper_bgcolor"] == (
            "#ffffff"
        )
        assert at[paper] == "#111111"
    assert page.text.count("How to read it") == 4


def test_the_rounds_say_who_is_left(page: Page) -> None:
    assert "at round 0, the samples that reach each round" in page.plots[0]


def test_hostile_text_is_escaped(tmp_path: Path) -> None:
    page = page_of(hostile_batch(), tmp_path)
    assert page.tags.count("script") == 2 + 3
    assert page.tags.count("img") == 0
    assert "<!--" not in re.sub("(?s)<script>.*?</script>", "", page.html)
    assert page.text.count("</script><script>alert(1)</script>") >= 6
    assert r"\ud800" in page.text


def test_only_the_scripts_of_the_page_may_run(page: Page) -> None:
    own = [text for kind, text in page.scripts if kind is None]
    digests = [hashlib.sha256(text.encode()).digest() for text in own]
    hashes = [f"'sha256-{base64.b64encode(one).decode()}'" for one in digests]
    assert len(own) == 2
    assert page.policy == (
        f"default-src 'none'; script-src {' '.join(hashes)}; style-src 'unsafe-inline';"
        " img-src data: blob:; base-uri 'none'; form-action 'none'"
    )


def test_failed_checks_come_first(tmp_path: Path) -> None:
    positive = padded([[1, 1]], [[0.5, -1.0]], [[-1.0, -1.0]])
    page = page_of(positive, tmp_path)
    assert page.html.index("1 check failed.") < page.html.index("<h2>Sources")
    assert "1 token whose old log-prob is above 0" in page.text
    assert "0 checks failed." not in page.text


def test_sources_say_what_is_known_and_what_was_left_out(tmp_path: Path) -> None:
    batch = padded(
        [[1, 1]],
        [[math.nan, -1.0]],
        [[-1.0, -1.5]],
        meta={"mask_source": "`loss_mask`", "num_dropped_rows": 3},
    )
    html = page_of(batch, tmp_path).html.partition("<h2>Sources")[2]
    rows = re.findall("<tr><th[^>]*>(.*?)</th><td[^>]*>(.*?)</td></tr>", html)[:8]
    assert rows == [
        ("samples", "1"),
        ("rounds", "1"),
        ("generated tokens", "2"),
        ("mask", "<code>loss_mask</code>"),
        ("old log-probs", "not recorded"),
        ("sampling", "not recorded"),
        ("number of dropped rows", "3"),
        ("tokens left out because diff is not finite", "1"),
    ]


@pytest.mark.parametrize(
    ("batch", "text"),
    [
        (padded(torch.zeros(0, 3), torch.zeros(0, 3), torch.zeros(0, 3)), "0 of 0"),
        (padded([[0, 0]], [[0.0, 0.0]], [[0.0, 0.0]]), "1 sample has no finite diff."),
        (padded([[1, 1]], [[math.nan] * 2], [[-1.0] * 2]), "1 sample has no finite"),
    ],
    ids=["no samples", "no tokens", "all NaN"],
)
def test_a_batch_without_numbers_makes_a_page_that_says_so(
    batch: Batch, text: str, tmp_path: Path
) -> None:
    page = page_of(batch, tmp_path)
    assert text in page.text
    assert page.titles == [
        *("A batch", "Checks", "Sources", "Rounds"),
        *("Samples and rounds", "Worst samples"),
    ]
    assert len(page.figures) == 2


def test_an_existing_file_is_replaced_atomically(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "new" / "page.html"
    rd.report(hand_batch(), file)
    whole = file.read_bytes()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        rd.report(hand_batch(), file, worst=0)
    assert file.read_bytes() == whole
    assert list(file.parent.iterdir()) == [file]
