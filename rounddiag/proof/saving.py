"""A proof or an answer in a file: made where the model is, read elsewhere."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, is_dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pandas as pd
import torch

from rounddiag.batch import Batch
from rounddiag.batch.layout import real_rows
from rounddiag.errors import LoadError, RounddiagError
from rounddiag.loaders.output import FileKind, write_atomically
from rounddiag.schema import ORIGINAL_SAMPLE
from rounddiag.text.json_text import parse_json

_Made = TypeVar("_Made")
_VERSION = "1"
_NONE: Mapping[str, type] = {}
_TOKENS = ("response_ids", "response_mask", "old_log_probs", "rollout_log_probs")


@dataclass(frozen=True)
class _ResultKind(FileKind):
    """A file with a result, and the command that writes one."""

    key: str
    command: str

    @classmethod
    def of(cls, name: str, key: str, command: str) -> _ResultKind:
        """Describe the file of a result: it begins with the version of its format."""
        start = json.dumps({f"rounddiag_{key}": ""})[:-3].encode()
        return cls(name, lambda file: file.read(64).startswith(start), key, command)

    def error(self, path: object, content: str) -> LoadError:
        """Return the error of a file that is none."""
        command = f"rounddiag {self.command} ... -o {self.key}.json"
        return LoadError.build(
            file=path,
            expected=f"{self.name}, as `{command}` writes it",
            found=content.rstrip(" .:"),
            advice="Pass the path of that file.",
        )

    def write(self, path: Path, **facts: Any) -> None:  # noqa: ANN401 of JSON
        """Write a result."""
        text = json.dumps({f"rounddiag_{self.key}": _VERSION, **facts}, allow_nan=False)
        with write_atomically(path, self) as partial:
            partial.write_text(text, encoding="utf-8")

    def read(
        self, path: object, make: Callable[[dict[str, Any]], _Made], *keys: str
    ) -> _Made:
        """Make a result of what lies at some keys of a file."""
        shape = {f"rounddiag_{self.key}": str, **dict.fromkeys(keys, dict)}
        try:
            facts = parse_json(Path(str(path)).read_bytes(), shape)
            self._require_version(path, facts[f"rounddiag_{self.key}"])
            return make(facts)
        except LoadError:
            raise
        except RounddiagError as error:
            content = "tokens and scores that do not fit each other"
            raise self.error(path, content) from error
        except OSError as error:
            content = error.strerror or "a file that cannot be read"
            raise self.error(path, content) from error
        except Exception as error:
            content = f"{type(error).__name__}: {error!s:.200}"
            raise self.error(path, content) from error

    def _require_version(self, path: object, version: str) -> None:
        if version != _VERSION:
            raise self.error(path, f"one of version {version!r:.20}")


PROOF = _ResultKind.of("a proof", "proof", "prove")
SAVED_ANSWER = _ResultKind.of("an answer", "answer", "ask")


def write_proof(fields: Mapping[str, Any], batch: Batch, path: Path) -> None:
    """Write the fields of a proof as JSON, with the tokens and scores it is about."""
    PROOF.write(path, proof=_encode(dict(fields)), batch=_of_batch(batch))


def read_proof(
    path: object, batch: Batch | None, kinds: Sequence[type], make: Callable[..., _Made]
) -> _Made:
    """Make a proof of the fields in a file, some of which are of these kinds."""
    by_name = {kind.__name__: kind for kind in kinds}

    def decode(facts: dict[str, Any]) -> _Made:
        small = _to_batch(facts["batch"])
        if batch is not None:
            small = with_scores(path, batch, small)
        return make(**_decode(facts["proof"], by_name), batch=small)

    return PROOF.read(path, decode, "proof", "batch")


def write_answer(fields: Mapping[str, Any], path: Path) -> None:
    """Write the fields of an answer as JSON."""
    SAVED_ANSWER.write(path, answer=_encode(dict(fields)))


def read_answer(path: object, make: Callable[[dict[str, Any]], _Made]) -> _Made:
    """Make an answer of the fields in a file."""
    return SAVED_ANSWER.read(
        path, lambda facts: make(_decode(facts["answer"])), "answer"
    )


def _encode(value: Any) -> Any:  # noqa: ANN401, PLR0911 one line a type
    """Return what JSON holds; `type` tells what is no plain value."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, list | tuple):
        return [_encode(each) for each in value]
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else _tagged("float", str(value))
    if isinstance(value, np.ndarray):
        return _tagged("array", value.tolist())
    if isinstance(value, Mapping):
        return _tagged("mapping", [[str(name), value[name]] for name in value])
    if is_dataclass(value):
        return _tagged(type(value).__name__, vars(value))
    return _tagged("frame", {name: column.tolist() for name, column in value.items()})


def _tagged(kind: str, value: Any) -> dict[str, Any]:  # noqa: ANN401 of many types
    return {"type": kind, "value": _encode(value)}


def _decode(value: Any, kinds: Mapping[str, type] = _NONE) -> Any:  # noqa: ANN401 of many types
    if isinstance(value, list):
        return tuple(_decode(each, kinds) for each in value)
    if not isinstance(value, dict):
        return value
    name, known = value["type"], _decode(value["value"], kinds)
    return kinds[name](**known) if name in kinds else _READERS[name](known)


def _read_frame(columns: dict[str, tuple[Any, ...]]) -> pd.DataFrame:
    return pd.DataFrame({name: list(each) for name, each in columns.items()})


_READERS: dict[str, Callable[[Any], Any]] = {
    "float": float,
    "array": np.array,
    "mapping": dict,
    "frame": _read_frame,
}


def _of_batch(batch: Batch) -> dict[str, Any]:
    def rows_of(values: torch.Tensor) -> list[Any]:
        return [_encode(row.tolist()) for row in real_rows(batch, values)]

    flat = {name: getattr(batch, name) for name in _TOKENS}
    return {
        "samples": numbers_in_whole(batch),
        **{
            name: rows_of(values) for name, values in flat.items() if values is not None
        },
        "scores": {
            name: rows_of(values)
            for name, values in batch.scores.items()
            if name not in {"old", "rollout"}
        },
    }


def _to_batch(facts: Mapping[str, Any]) -> Batch:
    rows: dict[str, Any] = {
        name: [torch.tensor(_decode(row)) for row in facts[name]]
        for name in _TOKENS
        if name in facts
    }
    whole = Batch.from_rows(**rows)
    scores = {
        str(name): torch.cat([torch.tensor(_decode(row)).float() for row in values])
        for name, values in facts["scores"].items()
    }
    numbers = np.array(facts["samples"], dtype=np.int64)
    return replace(
        whole,
        scores={**whole.scores, **scores},
        sample_columns={ORIGINAL_SAMPLE.name: numbers},
    )


def numbers_in_whole(batch: Batch) -> list[int]:
    """Return the number of each sample in the batch that a batch is a part of."""
    own = batch.sample_columns.get(ORIGINAL_SAMPLE.name, range(len(batch)))
    return [int(number) for number in own]


def rows_of_whole(batch: Batch) -> dict[int, int]:
    """Return the row of each of these numbers."""
    return {number: row for row, number in enumerate(numbers_in_whole(batch))}


def with_scores(path: object, batch: Batch, small: Batch) -> Batch:
    """Return the samples of a batch that a proof is about, with its scores."""
    wanted = small.sample_columns[ORIGINAL_SAMPLE.name].tolist()
    row_of = rows_of_whole(batch)
    if any(number not in row_of for number in wanted):
        raise PROOF.error(path, f"one of samples that this batch lacks: {wanted}")
    mine = batch[[row_of[number] for number in wanted]]
    places = torch.arange(mine.num_positions)
    at = torch.cat([places[:0], *real_rows(mine, places)])
    if not torch.equal(mine.require_ids().cpu()[at], small.require_ids()):
        raise PROOF.error(path, "one of a batch with other token ids")
    scores = dict(mine.scores)
    for name, values in small.scores.items():
        if name not in {"old", "rollout"}:
            flat = torch.full((mine.num_positions,), torch.nan)
            flat[at] = values
            scores[name] = flat
    return replace(mine, scores=scores)
