"""The whole files that are damaged: one or more of every format."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
_LARGEST = 600_000  # bytes; larger ones say nothing more and take longer


@dataclass(frozen=True, kw_only=True)
class Seed:
    """Files that belong together, and which of them is opened."""

    name: str
    files: dict[str, bytes]
    opened: str


def corpus() -> list[Seed]:
    """Return every small file of `tests/data` and `sample_data`."""
    folders = (ROOT / "tests/data", ROOT / "sample_data")
    paths = sorted(path for folder in folders for path in folder.iterdir())
    return [
        Seed(name=path.name, files={path.name: path.read_bytes()}, opened=path.name)
        for path in paths
        if path.is_file()
        and path.suffix not in {".md", ".py", ".json"}
        and path.stat().st_size < _LARGEST
    ]
