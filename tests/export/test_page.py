"""The page of a batch: words without scripts, escaping, policy, atomic writing."""

from __future__ import annotations

import base64
import hashlib
import math
from pathlib import Path

import numpy as np
import pytest
import torch

import rounddiag as rd
from rounddiag import Batch
from rounddiag.errors import BatchError, FrameError, LoadError, OutputError
from rounddiag.export import page as page_module
from rounddiag.export.html import document
from tests.batches import hand_batch, padded
from tests.export.pages import Page, page_of
from tests.findings.small import arrays, made, shaken

HOSTILE = ["</script><script>alert(1)</script>", "<!--", '"><img src=x>', "\x00"]


def hostile_batch() -> Batch:
    def decode(ids: list[int]) -> str:
        return "".join(HOSTILE[i % 4] for i in ids)

    text, broken = HOSTILE[0], "\ud800"
    days = np.array(["2026-11-20"], "datetime64[s]")
    return padded(
        [[1] * 4],
        [[-1.0, -2.0, -3.0, -4.0]],
        [[-1.5] * 4],
        scores={"current": torch.tensor([[-2.0] * 4])},
        tokenizer=decode,
        sample_ids=[text],
        group_ids=[text],
        sample_columns={text: np.array([broken], object), "day": days},
        step=40,
        meta={
            "source": f"/x/{text}",
            "mask_source": broken,
            text: text,
            "facts": {"rollout_engine": "vllm", "parallel": {"nodes": 2}},
        },
    )


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Page:
    return page_of(hostile_batch(), tmp_path_factory.mktemp("page"), a="current")


def test_the_page_is_named_after_the_file_and_the_step(page: Page) -> None:
    assert page.headings == [(1, "script>, step 40")]  # the last part of the path
    assert "<title>script&gt;, step 40 - rounddiag</title>" in page.html
    assert '<html lang="en">' in page.html


def test_only_the_scripts_of_the_page_may_run(page: Page) -> None:
    own = [text for kind, text in page.scripts if kind == "module"]
    (digest,) = [hashlib.sha256(text.encode()).digest() for text in own]
    assert page.policy == (
        f"default-src 'none'; script-src 'sha256-{base64.b64encode(digest).decode()}'"
        " blob:; style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none';"
        " form-action 'none'"
    )
    assert {kind for kind, _ in page.scripts} == {"module", "text/plain"}


def test_hostile_text_is_in_no_tag(page: Page) -> None:
    assert set(page.tags) == {
        *("html", "head", "meta", "title", "style", "body", "main", "h1", "p"),
        *("strong", "code", "ol", "script"),
    }
    assert page.html.count("<script") == 1 + len(page.replies)
    assert "<img" not in page.html
    trajectory = page.replies["trajectory 0"]
    assert trajectory["tokens"]["piece"][1] == "<!--"
    assert trajectory["sample_id"] == HOSTILE[0]


def test_hostile_values_in_findings_are_escaped() -> None:
    parts = arrays()
    hostile = "</script><script>alert(1)</script>\x1b<img src=x>"
    rank = np.array([hostile, "b", "c", "d"])[np.arange(32) % 4]
    shaken(parts, (rank == hostile)[:, None] & (parts["mask"] > 0), 0.3)
    words = page_module._words(rd.diagnose(made(parts, sample_columns={"rank": rank})))
    shown = "rank &lt;/script&gt;&lt;script&gt;alert(1)"
    assert words.count(shown) == 2  # headline and finding
    assert "<script>alert" not in words
    assert "\x1b" not in words
    assert "<img" not in words


def test_the_head_has_the_facts_of_the_run(page: Page) -> None:
    chips = page.replies["overview"]["head"]["chips"]
    shown = [chip for chip in chips if "facts of the run" in str(chip)]
    assert "rollout_engine vllm, parallel (nodes 2)" in str(shown)


def test_dates_of_a_file_are_text(page: Page) -> None:
    columns = page.replies["overview"]["options"]["columns"]
    (day,) = [column for column in columns if column["name"] == "day"]
    assert day["values"][0] == "2026-11-20 00:00:00"


def test_it_shows_the_pair_that_was_asked_for(page: Page) -> None:
    state = page.replies["overview"]["state"]
    assert (state["a"], state["b"]) == ("current", "rollout")
    title = page.figure("rounds")["layout"]["meta"]["notes"][0]
    assert "current − rollout" in title


@pytest.mark.parametrize(
    ("batch", "chosen", "num_traces"),
    [
        (padded(torch.zeros(0, 3), torch.zeros(0, 3), torch.zeros(0, 3)), [], 0),
        (padded([[0, 0]], [[0.0, 0.0]], [[0.0, 0.0]]), [0], 0),
        # Cells, hatching, crosses and the colour bar.
        (padded([[1, 1]], [[math.nan] * 2], [[-1.0] * 2]), [0], 4),
    ],
    ids=["no samples", "no tokens", "all NaN"],
)
def test_a_batch_without_numbers_makes_a_page(
    batch: Batch, chosen: list[int], num_traces: int, tmp_path: Path
) -> None:
    page = page_of(batch, tmp_path)
    assert "not_measurable" in page.text
    assert page.replies["overview"]["samples"] == chosen
    assert len(page.figure("heatmap")["data"]) == num_traces


def test_an_existing_file_is_replaced_atomically(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    html = document("a page", "", style="", scripts=[])
    monkeypatch.setattr(page_module, "_explorer_page", lambda *_: html)
    file = tmp_path / "new" / "page.html"
    rd.report(hand_batch(), file)
    assert file.read_text(encoding="utf-8") == html

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OutputError, match=r"page.html: .*No space left.* MB free"):
        rd.report(hand_batch(), file, worst=0)
    assert [*file.parent.iterdir()] == [file]
    assert file.read_text(encoding="utf-8") == html


def test_what_is_no_batch_or_no_sample_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FrameError, match="expected a Batch or a DataFrame"):
        rd.report(3, tmp_path / "page.html")  # type: ignore[arg-type]
    with pytest.raises(LoadError, match="expected a file, a folder or a glob"):
        rd.report("step_40.pt", tmp_path / "page.html")
    with pytest.raises(BatchError, match="expected the id of one sample, or a number"):
        rd.report(hand_batch(), tmp_path / "page.html", samples=["x"])
    assert list(tmp_path.iterdir()) == []
