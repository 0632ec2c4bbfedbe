"""The values that are not per sample: JSON in the metadata of the file."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from torch import Tensor

from rounddiag._typing import Array
from rounddiag._version import __version__
from rounddiag.batch import Batch
from rounddiag.core.scores import pair_of
from rounddiag.errors import LoadError
from rounddiag.loaders.json_text import JsonError, parse_json
from rounddiag.loaders.parquet.columns import real_values, to_json
from rounddiag.loaders.source import inside

KEY = b"rounddiag"
# A reader refuses a higher version, which it would misread. A higher revision only adds
# columns and entries that an older reader leaves out.
VERSION = 2  # in version 1, the struct of a picture had its round
REVISION = 1  # adds `token:NAME`


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
            raise LoadError.build(
                key="rounddiag",
                expected="this entry in the metadata, as `rounddiag.save` writes it",
                found="a Parquet file without it",
                advice="Save the batch with `rounddiag.save`.",
            )
        facts = _parse((metadata or {})[KEY])
        return cls(step=facts["step"], tokenizer=facts["tokenizer"], meta=facts["meta"])


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


def _not_ours(found: object) -> LoadError:
    return LoadError.build(
        key="rounddiag",
        expected="JSON with `version`, `step`, `tokenizer` and `meta`",
        found=str(found)[:200],
        advice="Save the batch with `rounddiag.save` again.",
    )


# Numbers under such names identify something of the user's, as a request or a prompt.
# In any spelling: `user_id`, `userId`, `userid`, `session-uuid`; not `valid`, `grid`.
_IDENTIFIER = re.compile(
    r"(^|_)([ug]?u?ids?|hash(es)?|digest)(_|$)"
    r"|(user|session|request|task|trace|sample|group|prompt|episode|run|job|trial"
    r"|rollout|trajectory|instance|worker|host|device|account|client|message|item"
    r"|token|image)(u?u?ids?|hash(es)?)(_|$)",
    re.IGNORECASE,
)
# Names of columns that say nothing of a task; the others are numbered.
KNOWN_COLUMNS = frozenset(
    {
        *("sample", "round", "rank", "dp_rank", "micro_batch", "replica", "row"),
        *("num_rows", "step_part", "num_turns", "__num_turns__", "turns", "version"),
        *("weight_version", "min_weight_version", "max_weight_version", "won", "acc"),
        *("min_global_steps", "max_global_steps", "num_tokens", "num_images"),
        *("kl", "clipped", "weight", "value", "advantage", "entropy"),
        *("prompt_length", "cached_tokens", "reward", "score", "round_reward"),
    }
)
_Values = TypeVar("_Values")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[^A-Za-z0-9]+")
_NUMBERS = "biuf"
_PLAIN = (bool, int, float, type(None))
# Values of `meta` that only this package writes.
_WORDS = {
    "mask_source": (
        *("response_mask", "loss_mask", "attention_mask", "the chat template"),
        "attention_mask without image tokens",
    ),
    "rounds": ("unknown", "from the chat template"),
}


def redact_batch(batch: Batch) -> Batch:
    """Return the batch as `save(..., redact=True)` writes it; see `save`."""
    return replace(
        batch,
        response_ids=None,
        turns=None,
        pieces=None,
        prompt_ids=None,
        prompt_offsets=None,
        rollout_ids=None,
        images=None,
        tokenizer=None,
        sample_ids=_number_names(batch.sample_ids),
        group_ids=_number_names(batch.group_ids),
        sample_columns=_numbers(batch.sample_columns),
        round_columns=_numbers(batch.round_columns),
        token_columns=_number_columns(
            {
                name: flat
                for name, flat in batch.token_columns.items()
                if not _is_identifier(name)
                and not _may_be_ids(real_values(flat, batch.offsets, batch.lengths))
            }
        ),
        meta={**_meta(batch.meta), **_pair(batch)},
    )


def _number_names(names: Sequence[str] | None) -> tuple[str, ...] | None:
    """Replace names by numbers, in order of first occurrence."""
    if names is None:
        return None
    numbers = {name: str(number) for number, name in enumerate(dict.fromkeys(names))}
    return tuple(numbers[name] for name in names)


def _numbers(columns: Mapping[str, Array]) -> dict[str, Array]:
    return _number_columns(
        {
            name: values
            for name, values in columns.items()
            if not _is_identifier(name) and values.ndim == 1 and _holds_numbers(values)
        }
    )


def _number_columns(columns: Mapping[str, _Values]) -> dict[str, _Values]:
    """Replace names that are not known by numbers, in their order."""
    return {
        name if name in KNOWN_COLUMNS else f"column_{number}": values
        for number, (name, values) in enumerate(columns.items())
    }


def _is_identifier(name: str) -> bool:
    """Return whether a name is that of ids or hashes.

    Examples
    --------
    >>> [_is_identifier(name) for name in ("userId", "USER-ID", "userid", "uid")]
    [True, True, True, True]
    >>> [_is_identifier(name) for name in ("valid", "grid", "num_tokens")]
    [False, False, False]
    """
    return _IDENTIFIER.search(_HUMP.sub("_", name)) is not None


def _may_be_ids(values: Tensor) -> bool:
    """Return whether all finite values are whole numbers, and not only 0 and 1."""
    known = values[values.isfinite()]
    is_flag = (known == 0) | (known == 1)
    return not bool(is_flag.all()) and bool((known == known.trunc()).all())


def _holds_numbers(values: Array) -> bool:
    if values.dtype == object:
        return all(isinstance(value, _PLAIN) for value in values)
    return values.dtype.kind in _NUMBERS


def _meta(meta: Mapping[str, Any]) -> dict[str, Any]:
    """Keep counts, numbers of the sampler, and values that only this package writes."""
    counts = {k: v for k, v in meta.items() if k.startswith("num_") and _is_number(v)}
    words = {k: meta.get(k) for k, known in _WORDS.items() if meta.get(k) in known}
    sampling = meta.get("sampling")
    settings = sampling if isinstance(sampling, dict) else {}
    numbers = {k: v for k, v in settings.items() if _is_number(v)}
    return {**words, **counts, "sampling": numbers, "redacted": True}


def _pair(batch: Batch) -> dict[str, Any]:
    """Keep the pair that is compared: names of scores are not redacted."""
    pair = pair_of(batch)
    is_known = {pair.a, pair.b} <= {"old", "rollout", *batch.scores}
    return {"pair": [pair.a, pair.b]} if is_known and not pair.is_standard else {}


def _is_number(value: object) -> bool:
    return isinstance(value, int | float)
