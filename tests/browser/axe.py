"""What axe-core says of a page: rules of WCAG 2.2."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest

from tests.browser.conftest import ROOT
from tests.browser.lab import ask

if TYPE_CHECKING:
    from playwright.sync_api import Page

_AXE = ROOT / ".venv" / "typescript" / "node_modules" / "axe-core" / "axe.min.js"
# The size of targets, 24 pixels or room around them, is off by default.
_RUN = """async within => {
  const rules = { 'target-size': { enabled: true } };
  const { violations, passes } = await axe.run(within, { rules });
  const grave = violations.filter(({ impact }) => /serious|critical/.test(impact));
  const places = ({ id, nodes }) => nodes.map(({ html }) => `${id} ${html}`);
  return { num: passes.length, grave: grave.flatMap(places) };
}"""


def grave_faults(page: Page, within: str) -> list[str]:
    """Return what is serious or critical in a part of a page, as rule and element."""
    if not _AXE.exists():
        why = "axe-core is not installed: `./tests/run` does it where npm is"
        (pytest.fail if os.environ.get("CI") and shutil.which("npm") else pytest.skip)(
            why
        )
    page.evaluate(_AXE.read_text(encoding="utf-8") + ";null")
    said = ask(page, _RUN, within)
    assert said["num"]
    found: list[str] = said["grave"]
    return found
