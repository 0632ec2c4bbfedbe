"""The page of a batch: words without scripts, escaping, policy, atomic writing."""

from __future__ import annotations

import base64
import hashlib
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import rounddiag as rd
from rounddiag import Batch
from rounddiag.errors import BatchError, FrameError, LoadError, OutputError
from tests.batches import hand_batch, padded
from tests.export.pages import Page, page_of
from tests.findings.small import arrays, made, shaken

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
        sample_columns={text: np.array([broken], object)},
        meta={"source": f"/x/{text}", "mask_source": broken, text: text},
    )


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Page:
    batch = hand_batch(meta={"source": "/data/step_40.pt"}, step=40)
    return page_of(batch, tmp_path_factory.mktemp("page"))


def test_the_page_is_named_after_the_file_and_the_step(page: Page) -> None:
    assert page.headings == [(1, "step_40.pt, step 40")]
    assert "<title>step_40.pt, step 40 - rounddiag</title>" in page.html
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


def test_hostile_text_is_in_no_tag(tmp_path: Path) -> None:
    page = page_of(hostile_batch(), tmp_path)
    assert set(page.tags) == {
        *("html", "head", "meta", "title", "style", "body", "main", "h1", "p"),
        *("strong", "ol", "script"),
    }
    assert page.html.count("<script") == 1 + len(page.replies)
    assert "<img" not in page.html
    assert page.headings == [(1, "script>")]  # the last part of the path
    trajectory = page.replies["trajectory 0"]
    assert trajectory["tokens"]["piece"][1] == "<!--"
    assert trajectory["sample_id"] == HOSTILE[0]


@pytest.mark.slow
def test_hostile_values_in_findings_are_escaped(tmp_path: Path) -> None:
    parts = arrays()
    hostile = "</script><script>alert(1)</script>\x1b<img src=x>"
    rank = np.array([hostile, "b", "c", "d"])[np.arange(32) % 4]
    shaken(parts, (rank == hostile)[:, None] & (parts["mask"] > 0), 0.3)
    page = page_of(made(parts, sample_columns={"rank": rank}), tmp_path, worst=0)
    shown = "rank &lt;/script&gt;&lt;script&gt;alert(1)"
    assert page.html.count(shown) == 2  # headline and finding
    assert "<script>alert" not in page.html
    assert "\x1b" not in page.html
    assert "<img" not in page.html


def test_the_head_has_the_facts_of_the_run(tmp_path: Path) -> None:
    facts = {"rollout_engine": "vllm", "parallel": {"nodes": 2}}
    batch = padded([[1, 1]], [[-1.0, -1.0]], [[-1.0, -1.5]], meta={"facts": facts})
    chips = page_of(batch, tmp_path).replies["overview"]["head"]["chips"]
    shown = [chip for chip in chips if "facts of the run" in str(chip)]
    assert "rollout_engine vllm, parallel (nodes 2)" in str(shown)


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
    assert len(page.figure("heatmap abs_diff")["data"]) == num_traces


@pytest.mark.slow
def test_an_existing_file_is_replaced_atomically(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "new" / "page.html"
    rd.report(hand_batch(), file)
    whole = file.read_bytes()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OutputError, match=r"page.html: .*No space left.* MB free"):
        rd.report(hand_batch(), file, worst=0)
    assert file.read_bytes() == whole
    assert list(file.parent.iterdir()) == [file]


def test_what_is_no_batch_or_no_sample_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FrameError, match="expected a Batch or a DataFrame"):
        rd.report(3, tmp_path / "page.html")  # type: ignore[arg-type]
    with pytest.raises(LoadError, match="expected a file, a folder or a glob"):
        rd.report("step_40.pt", tmp_path / "page.html")
    with pytest.raises(BatchError, match="expected the id of one sample, or a number"):
        rd.report(hand_batch(), tmp_path / "page.html", samples=["x"])
    assert list(tmp_path.iterdir()) == []


def test_a_report_on_a_file_shows_the_pair_that_was_asked_for(tmp_path: Path) -> None:
    batch = hand_batch()
    rd.save(
        replace(batch, scores={"current": batch.log_probs("old") - 0.25}),
        tmp_path / "batch.parquet",
    )
    page = page_of(tmp_path / "batch.parquet", tmp_path, a="current", worst=1)
    state = page.replies["overview"]["state"]
    assert (state["a"], state["b"]) == ("current", "rollout")
    title = page.figure("rounds abs_diff all")["layout"]["meta"]["notes"][0]
    assert "current − rollout" in title
