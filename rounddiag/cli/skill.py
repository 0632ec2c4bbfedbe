"""`rounddiag skill`: one page for coding agents, printed or copied."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from rounddiag.errors import RounddiagError


def read_skill() -> str:
    """Return the page.

    Examples
    --------
    >>> read_skill().splitlines()[1]
    'name: rounddiag'
    """
    return files("rounddiag").joinpath("SKILL.md").read_text(encoding="utf-8")


def copy_skill(folder: Path) -> Path:
    """Write the page to `rounddiag/SKILL.md` in a folder of skills; return its path.

    Raises
    ------
    RounddiagError
        If another page is there: it is never overwritten.
    """
    path, page = folder / "rounddiag" / "SKILL.md", read_skill()
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and path.read_text(encoding="utf-8") != page:
        raise RounddiagError.build(
            file=path,
            expected="no file, or this version of the page",
            found="another page",
            advice="Remove it, or choose another folder.",
        )
    path.write_text(page, encoding="utf-8")
    return path
