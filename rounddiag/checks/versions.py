"""Weight versions: a row that several versions wrote is off-policy within itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rounddiag.checks.contract import Contract, Fault, UntestableError, joined
from rounddiag.checks.words import count

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rounddiag.batch import Batch

# Columns of samples that are the two ends of one range.
_ENDS = (("min_", "max_"), ("lowest_", "highest_"))
_UNKNOWN = {"", "None", "nan", "<NA>"}


def _mixed(batch: Batch) -> Fault | None:
    found = [*_of_samples(batch), *_of_rounds(batch)]
    if not found:
        raise UntestableError(
            field="min_global_steps",
            why="needs `weight_version` in `round_columns`, or `min_global_steps` and"
            " `max_global_steps` in `sample_columns`",
        )
    return joined(_fault(name, values) for name, values in found)


def _of_samples(batch: Batch) -> Iterator[tuple[str, Iterable[Iterable[object]]]]:
    """Give each pair of columns of versions, and the two versions of each sample."""
    columns = batch.sample_columns
    for low, high in _ENDS:
        for name in columns:
            other = high + name.removeprefix(low)
            if name.startswith(low) and _is_version(name) and other in columns:
                pairs = zip(columns[name], columns[other], strict=True)
                yield f"`{name}` and `{other}`", pairs


def _of_rounds(batch: Batch) -> Iterator[tuple[str, Iterable[Iterable[object]]]]:
    """Give each column of versions, and the versions of each sample's rounds."""
    for name, values in batch.round_columns.items():
        if _is_version(name):
            rows: dict[int, list[object]] = {i: [] for i in range(batch.num_samples)}
            samples = batch.round_columns["sample"].tolist()
            for sample, value in zip(samples, values, strict=True):
                rows.setdefault(sample, []).append(value)
            yield f"`{name}`", [rows[sample] for sample in range(batch.num_samples)]


def _is_version(name: str) -> bool:
    return "version" in name or "global_step" in name


def _fault(name: str, values: Iterable[Iterable[object]]) -> Fault | None:
    versions = [_distinct(row) for row in values]
    mixed = [sample for sample, known in enumerate(versions) if len(known) > 1]
    if not mixed:
        return None
    first = ", ".join(versions[mixed[0]])
    return Fault(
        f"{count(len(mixed), 'sample')} written by more than one version, a fact to"
        f" know ({name}): sample {mixed[0]} by {first}",
        tuple(mixed),
    )


def _distinct(values: Iterable[object]) -> list[str]:
    """Return the versions there are, in order; one that is not known is none."""
    names = dict.fromkeys(map(str, values))
    return [name for name in names if name not in _UNKNOWN]


ONE_VERSION = Contract("one weight version wrote each row", "weight_version", _mixed)
