"""The values that are not per sample: JSON in the metadata of the file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rounddiag._version import __version__
from rounddiag.batch import Batch
from rounddiag.errors import LoadError
from rounddiag.loaders.parquet.columns import resave_error, to_json
from rounddiag.loaders.source import inside
from rounddiag.text.json_text import JsonError, parse_json

KEY = b"rounddiag"
# A reader refuses a higher version, which it would misread. A higher revision only adds
# columns and entries that an older reader leaves out.
VERSION = 2  # in version 1, the struct of a picture had its round
REVISION = 2  # 1 adds `token:NAME`, 2 `contexts`
# Of a file with some samples of its step.
PARTIAL_NOTE = "totals of the step are missing: all numbers are of the saved samples"


@dataclass(frozen=True, kw_only=True)
class Footer:
    """The values for the whole batch."""

    step: int | None = None
    tokenizer: str | None = None
    meta: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> str:
        """Return the footer as JSON, with the versions of this layout and package."""
        facts = {
            "version": VERSION,
            "revision": REVISION,
            "rounddiag": __version__,
            "step": self.step,
            "tokenizer": self.tokenizer,
            "meta": dict(self.meta),
        }
        return to_json("meta", facts)

    def meta_with_source(self, file: Path) -> dict[str, Any]:
        """Return `meta` with the file as `source`; the old one is `original_source`."""
        known = dict(self.meta)
        if "source" in known:
            known.setdefault("original_source", known["source"])
        return {**known, "source": str(file)}

    @classmethod
    def from_metadata(cls, metadata: Mapping[bytes, bytes] | None) -> Footer:
        """Read the footer of a file."""
        if KEY not in (metadata or {}):
            expected = "this entry in the metadata, as `rounddiag.save` writes it"
            raise resave_error(KEY.decode(), expected, "a Parquet file without it")
        facts = _parse((metadata or {})[KEY])
        meta = _without_totals(facts["meta"])
        return cls(step=facts["step"], tokenizer=facts["tokenizer"], meta=meta)


def _without_totals(meta: dict[str, Any]) -> dict[str, Any]:
    """Leave out the totals of the step that former versions of the Recorder wrote."""
    capture = meta.get("capture")
    if not isinstance(capture, dict) or "rounds" not in capture:
        return meta
    own = {n: v for n, v in capture.items() if n not in ("rounds", "saved_rounds")}
    return {**meta, "capture": {**own, "note": PARTIAL_NOTE}}


def tokenizer_name(batch: Batch, folder: Path) -> str | None:
    """Return the path of the tokenizer relative to `folder`, if it is inside."""
    if not isinstance(batch.tokenizer, str | os.PathLike):
        return None
    path, folder = Path(batch.tokenizer).absolute(), folder.absolute()
    is_there = path.is_relative_to(folder) and path.is_file()
    return path.relative_to(folder).as_posix() if is_there else None


def find_tokenizer(footer: Footer, folder: Path) -> Path | None:
    """Return the tokenizer's file if it exists inside `folder`, else None.

    A name that leads out of the folder is ignored: a file must not make us read other
    places.
    """
    for name in (footer.tokenizer, footer.meta.get("tokenizer")):
        if isinstance(name, str):
            with suppress(LoadError):
                inside(folder, name)
                return folder / name
    return None


def _parse(text: bytes) -> dict[str, Any]:
    try:
        facts = parse_json(text)
    except JsonError as error:
        raise _not_ours(error) from error
    if isinstance(facts, dict) and type(facts.get("version")) is int:
        if facts["version"] > VERSION:
            raise LoadError.build(
                key="rounddiag",
                expected=f"version {VERSION} of the layout",
                found=f"version {facts['version']}",
                advice="Update rounddiag to read it.",
            )
        if _is_footer(facts):
            return facts
    raise _not_ours(facts)


def _is_footer(facts: dict[str, Any]) -> bool:
    step, tokenizer = facts.get("step"), facts.get("tokenizer")
    return (
        (step is None or type(step) is int)
        and (tokenizer is None or isinstance(tokenizer, str))
        and isinstance(facts.get("meta"), dict)
        and {"step", "tokenizer"} <= facts.keys()
    )


def _not_ours(content: object) -> LoadError:
    expected = "JSON with `version`, `step`, `tokenizer` and `meta`"
    return resave_error(KEY.decode(), expected, str(content)[:200])
