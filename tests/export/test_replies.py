"""The replies in a report: which samples, which figures, and how much of each."""

from __future__ import annotations

import io
import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tqdm.auto import tqdm

import rounddiag as rd
from rounddiag.export import replies
from rounddiag.export.replies import (
    StoredReplies,
    collect_replies,
    samples_of_page,
)
from rounddiag.figures._parts.canvas import DARK, LIGHT, color_changes, opacity_changes
from rounddiag.vision import EncodedScreenshot
from rounddiag.widgets.requests import RequestHandler
from rounddiag.widgets.session import Session
from tests.batch.test_forged_contexts import saved
from tests.batches import hand_batch
from tests.export.pages import Page, page_of

pytestmark = pytest.mark.slow  # a report draws every figure


@pytest.fixture(scope="module")
def batch() -> rd.Batch:
    return rd.load("sample_data/image_window.parquet")


@pytest.fixture(scope="module")
def page(batch: rd.Batch, tmp_path_factory: pytest.TempPathFactory) -> Page:
    return page_of(batch, tmp_path_factory.mktemp("page"), worst=3, samples=2)


def test_it_has_the_evidence_the_worst_and_the_drawn_samples(
    batch: rd.Batch, page: Page
) -> None:
    chosen = page.replies["overview"]["samples"]
    evidence, *others = chosen
    finding = rd.diagnose(batch)[0]
    assert (
        evidence
        == finding.view.sample[
            finding.indices[np.argmax(finding.view.abs_diff[finding.indices])]
        ]
    )
    ranked = rd.stats.worst_samples(rd.token_frame(batch), num=3)["sample"].tolist()
    worst = [one for one in ranked if one != evidence]
    assert others[: len(worst)] == worst
    # And another attempt at the task of the first one, to compare it with.
    assert batch.group_ids is not None
    assert batch.group_ids[chosen[1 + len(worst)]] == batch.group_ids[evidence]
    assert len(chosen) == len(set(chosen)) == 1 + len(worst) + 1 + 2
    kept = {key for key in page.replies if key.startswith("trajectory ")}
    assert kept == {f"trajectory {sample}" for sample in chosen}


def test_without_scripts_it_has_the_verdict_and_the_findings(
    batch: rd.Batch, page: Page
) -> None:
    found = rd.diagnose(batch)
    said = " ".join(found.text.replace("`", "").split())  # that is code
    place = f"place: {found[0].location}"
    assert f"broken: {said} {place} All else" in " ".join(page.text.split())


def test_samples_are_named_by_number_or_id(batch: rd.Batch) -> None:
    session = Session(batch, {})
    assert batch.sample_ids is not None
    named: list[int | str] = [7, "9", batch.sample_ids[11]]
    assert samples_of_page(session, 0, named)[-3:] == [7, 9, 11]


def test_drawn_samples_are_the_same_each_time(batch: rd.Batch) -> None:
    session = Session(batch, {})
    chosen = samples_of_page(session, 2, 5)
    assert chosen == samples_of_page(session, 2, 5)
    assert len(chosen) == len(samples_of_page(session, 2, 0)) + 5
    assert len(samples_of_page(session, 0, 1000)) == batch.num_samples


def test_it_opens_at_the_evidence_with_the_findings(page: Page) -> None:
    overview = page.replies["overview"]
    assert overview["state"]["finding"] == 0
    assert overview["state"]["current"] == overview["places"][0]
    assert overview["state"]["layout"]["list"] == "findings"
    assert page.replies["diagnosis"]["verdict"] == "broken"
    assert page.replies["list findings 0"]["num_rows"] == 1


def test_a_sample_is_as_the_explorer_has_it(batch: rd.Batch, page: Page) -> None:
    sample = page.replies["overview"]["samples"][0]
    tokens = rd.token_frame(batch[sample], ["text", "old_log_prob"])
    stored = page.replies[f"trajectory {sample}"]["tokens"]
    assert "diff" not in stored
    old, rollout = np.float32(stored["a"]), np.float32(stored["b"])
    np.testing.assert_array_equal(old, tokens["old_log_prob"])
    np.testing.assert_array_equal(old - rollout, tokens["diff"])
    assert stored["piece"] == tokens["text"].tolist()
    gaps = page.replies[f"trajectory {sample}"]["gaps"]
    low, high = gaps[0]["start"], gaps[-1]["stop"]
    seen = page.replies[f"observation {sample} {low} {high}"]
    gap = gaps[1]
    pieces = seen["pieces"][gap["start"] - low : gap["stop"] - low]
    assert len(pieces) == gap["num_tokens"]
    assert pieces[0] + pieces[1] == "\n<|im_start|>"
    assert gap["turns"] == [{"role": "user", "text": "", "num_images": 1, "error": ""}]


def test_every_metric_and_every_column_is_drawn(batch: rd.Batch, page: Page) -> None:
    metrics = [name for name, *_ in page.replies["overview"]["options"]["metric"]]
    assert metrics == ["abs_diff", "diff"]
    for metric in metrics:
        assert page.figure("rounds", metric)["data"]
        assert page.figure("heatmap", metric)["data"]
    options = page.replies["overview"]["options"]["by"]
    numbers = {"sample", "sample_id", "round", "token", "num_rounds", "num_tokens"}
    groups = [index for index, name in enumerate(options) if name not in numbers]
    assert {f"rounds {group} light" for group in groups} == {
        key for key in page.replies if key.startswith("rounds ")
    }
    by_reward = page.replies[f"rounds {options.index('reward')} light"]["groups"]
    tokens = rd.token_frame(batch)
    rewards = np.asarray(batch.rewards)[tokens["sample"]]
    means = tokens["diff"].abs().astype(float).groupby(rewards).mean()
    found = {float(one["text"]): one["mean"] for one in by_reward["rows"]}
    assert found == pytest.approx(means.to_dict(), rel=1e-6)
    heads = [one["head"] for one in page.replies["list samples 0"]["columns"]]
    assert {"sample", "group", "reward", *batch.sample_columns} <= {*heads}
    assert len(page.replies["list samples 0"]["places"]) == batch.num_samples


def test_beyond_each_threshold_tokens_and_samples_are_counted(
    batch: rd.Batch, page: Page
) -> None:
    overview = page.replies["overview"]
    tokens = rd.token_frame(batch)
    for threshold in (0.001, overview["state"]["threshold"], 1.0, 10.0):
        beyond = tokens[tokens["diff"].abs() > threshold]
        at = overview["stops"].index(threshold)
        assert overview["beyond"][at] == [len(beyond), beyond["sample"].nunique()]
    assert len(overview["stops"]) == 402


def test_dark_figures_are_light_ones_with_other_colours(batch: rd.Batch) -> None:
    session = Session(batch, {})
    requests = RequestHandler(session, lambda: None)
    dark = color_changes(LIGHT, DARK) | opacity_changes(LIGHT, DARK)
    for metric, *_ in session.options["metric"]:
        session.change({"metric": metric})
        drawn: list[Any] = [
            requests("overview", {"theme": theme}) for theme in ("light", "dark")
        ]
        for name in ("rounds", "heatmap"):
            light, other = (json.loads(one["figures"][name]) for one in drawn)
            text = json.dumps(light)
            for color in dark:
                text = text.replace(color, f"<{color}>")
            for color, instead in dark.items():
                text = text.replace(f"<{color}>", instead)
            assert json.loads(text) == other


def test_marks_are_those_of_the_samples_in_the_file(
    batch: rd.Batch, page: Page
) -> None:
    finding = rd.diagnose(batch)[0]
    chosen = page.replies["overview"]["samples"]
    own = np.isin(finding.view.sample[finding.indices], chosen)
    marks = [page.replies[f"marks 0 {sample}"]["token"] for sample in chosen]
    assert 0 < sum(map(len, marks)) == own.sum() < len(own)


def shot(color: str = "red", *, round_: int = 0) -> EncodedScreenshot:
    buffer = io.BytesIO()
    Image.new("RGB", (1536, 40), color).save(buffer, format="PNG")
    return EncodedScreenshot(data=buffer.getvalue(), round=round_)


def pictures_of(*images: tuple[EncodedScreenshot, ...]) -> dict[str, Any]:
    session = Session(hand_batch(images=images), {})
    return dict(StoredReplies(session, [*range(len(images))]))


def test_a_screenshot_is_stored_once() -> None:
    stored = pictures_of((shot(), shot(round_=1)), (shot("blue"),), ())
    assert len([key for key in stored if key.startswith("image ")]) == 2
    first, second = stored["thumbnails 0"]["shots"]
    assert (first["round"], second["round"]) == (0, 1)
    assert first["full"] == second["full"]
    image = stored[f"image {first['full']}"]
    assert (image["width"], image["height"]) == (1536, 40)
    assert Image.open(io.BytesIO(image["bytes"])).size == (768, 20)
    assert Image.open(io.BytesIO(first["jpeg"])).size == (160, 4)


def test_beyond_a_size_screenshots_are_thumbnails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(replies, "_PICTURES", 1)
    stored = pictures_of((shot(), shot("green", round_=1)), (shot("blue"),), ())
    samples = [stored[f"thumbnails {sample}"] for sample in range(3)]
    shots = [shot for sample in samples for shot in sample["shots"]]
    assert [shot["full"] for shot in shots] == [0, None, None]
    assert all(shot["jpeg"] for shot in shots)


def test_a_damaged_screenshot_says_why() -> None:
    broken = EncodedScreenshot(data=b"<script>", round=1)
    (shot,) = pictures_of((broken,), (), ())["thumbnails 0"]["shots"]
    assert shot["full"] is None
    assert "expected a picture" in shot["error"]
    assert "b'<script>'" in shot["error"]


def test_what_takes_long_of_many_tokens_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    session = Session(hand_batch(group_ids=("a", "b", "b")), {})
    assert "group_id" in replies._groups(session)
    assert "sample" not in replies._groups(session)
    monkeypatch.setattr(replies, "_FEW_TOKENS", 1)
    assert replies._groups(session) == []


def test_the_progress_of_a_report_ends_at_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bars: list[tqdm[Any]] = []

    def bar(**options: Any) -> tqdm[Any]:
        bars.append(tqdm(**options))
        return bars[-1]

    monkeypatch.setattr(replies, "tqdm", bar)
    assert [*collect_replies(hand_batch(), {}, worst=3, samples=2)[1]]
    (shown,) = bars
    assert shown.total is not None
    assert shown.n == shown.total > 5  # 2 metrics, 3 samples, and columns


def test_a_report_opens_what_the_explorer_opens(tmp_path: Path) -> None:
    rd.report("sample_data/run", tmp_path / "run.html")
    assert "Rounds over steps" in (tmp_path / "run.html").read_text()
    path = "sample_data/healthy.parquet"
    pairs: tuple[Any, ...] = ([path, path], {"before": path, "after": path})
    for pair in pairs:
        for open_it in (rd.explore, partial(rd.report, path=tmp_path / "two.html")):
            with pytest.raises(
                rd.errors.FrameError, match=r"of 2\. `rounddiag\.plot_co"
            ):
                open_it(pair)
    assert not (tmp_path / "two.html").exists()


@pytest.mark.parametrize("kind", ["ids", "texts"])
def test_a_redacted_file_of_steps_has_a_report_without_contexts(
    kind: str, tmp_path: Path
) -> None:
    batch = rd.load(saved(kind, tmp_path, redact=True))
    replies = dict(collect_replies(batch, {}, worst=1, samples=1)[1])
    assert any("trajectory" in key for key in replies)
    assert not [key for key in replies if " context " in key]
