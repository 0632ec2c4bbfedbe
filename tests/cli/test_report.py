"""`rounddiag report FILE`: where the page goes, and errors in one line."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from tqdm.auto import tqdm

import rounddiag as rd
from rounddiag.cli import main
from tests.batches import hand_batch


@pytest.fixture
def saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Save a batch in another folder than the one where the user is."""
    file = tmp_path / "data" / "step_40.parquet"
    rd.save(hand_batch(), file)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    # A slow machine would show a progress bar on standard error.
    monkeypatch.setattr("rounddiag.export.replies.tqdm", partial(tqdm, disable=True))
    return file


def test_the_page_is_written_where_the_user_is(
    saved: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = Path("step_40.html")
    for note in ("", ", replacing an existing file"):
        assert main(["report", str(saved)]) == 0
        size = f"{page.stat().st_size / 1e6:.1f} MB"
        assert capsys.readouterr() == (f"wrote step_40.html ({size}){note}\n", "")
        assert "<h1>step_40.parquet</h1>" in page.read_text(encoding="utf-8")


@pytest.mark.usefixtures("drawn_once")
def test_the_page_is_written_where_it_is_asked_for(
    saved: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(saved), "-o", "pages/one.html"]) == 0
    assert capsys.readouterr().out.startswith("wrote pages/one.html (")
    assert [path.name for path in Path().rglob("*")] == ["pages", "one.html"]


def test_samples_are_named_or_drawn(
    saved: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []

    def written(_: object, page: Path, samples: object) -> None:
        asked.append(samples)
        page.write_text("")

    monkeypatch.setattr("rounddiag.export.report", written)
    for text in ("0, x", "+7", "12"):
        assert main(["report", str(saved), "--samples", text]) == 0
    assert main(["report", str(saved)]) == 0
    assert asked == [["0", "x"], 7, ["12"], 4]
    assert capsys.readouterr().err == ""
