"""The page: its sections, escaping, scripts, and atomic writing."""

from __future__ import annotations

import base64
import hashlib
import math
import re
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

import rounddiag as rd
from tests.batches import hand_batch, padded
from tests.export.pages import Page, page_of
from tests.findings.small import arrays, made, shaken

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
        (2, "Noise or a bug"),
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


def test_sources_have_the_facts_of_the_run(tmp_path: Path) -> None:
    facts = {"rollout_engine": "vllm", "parallel": {"nodes": 2}}
    batch = padded([[1, 1]], [[-1.0, -1.0]], [[-1.0, -1.5]], meta={"facts": facts})
    html = page_of(batch, tmp_path).html.partition("<h2>Sources")[2]
    shown = "rollout_engine vllm, parallel (nodes 2)"
    assert f"facts of the run</th><td>{shown}" in re.sub(
        r" (style|class)=\"[^\"]*\"", "", html
    )


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
        *("A batch", "Noise or a bug", "Checks", "Sources", "Rounds"),
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


def test_the_verdict_and_the_findings_come_first(tmp_path: Path) -> None:
    batch = rd.load("sample_data/image_window.parquet")
    page = page_of(batch, tmp_path, worst=0)
    first, _, rest = page.html.partition('<section id="checks">')
    assert "<p><strong>broken</strong>: Not noise. " in first
    headings = re.findall('<th scope="col">(.*?)</th>', first)
    assert headings == [
        *("cause", "confidence", "share of the sum of |diff|", "where", "tokens"),
        "next step",
    ]
    assert re.findall("<td>(.*?)</td>", first)[0] == "image_window"
    assert page.plots[0].startswith("image_window. older images ")
    assert "orange diamonds belong to the finding" in first
    assert "orange diamonds belong to the finding" not in rest


def test_a_healthy_batch_has_a_sentence_and_no_table(tmp_path: Path) -> None:
    page = page_of(made(arrays()), tmp_path, worst=0)
    first, _, _ = page.html.partition('<section id="checks">')
    assert "<strong>healthy</strong>: Noise. " in first
    assert "<th" not in first
    assert page.plots[0].startswith("Mismatch per round")


def test_hostile_values_in_findings_are_escaped(tmp_path: Path) -> None:
    parts = arrays()
    hostile = "</script><script>alert(1)</script>\x1b<img src=x>"
    rank = np.array([hostile, "b", "c", "d"])[np.arange(32) % 4]
    shaken(parts, (rank == hostile)[:, None] & (parts["mask"] > 0), 0.3)
    page = page_of(made(parts, sample_columns={"rank": rank}), tmp_path, worst=0)
    first, _, _ = page.html.partition('<section id="checks">')
    shown = "`rank` = &lt;/script&gt;&lt;script&gt;alert(1)"
    assert first.count(shown) == 2  # the sentence and the table
    assert "<script>alert" not in page.html
    assert "\x1b" not in page.html
    assert page.tags.count("img") == 0
    assert page.plots[0].startswith("bad_worker. ")
