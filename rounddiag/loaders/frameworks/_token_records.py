"""JSON lines with one whole sequence a record: what NeMo-RL and prime-rl share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rounddiag.loaders.tabular.json_lines import others

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from rounddiag._typing import Array
    from rounddiag.loaders.tabular.json_lines import Record, SampleRecords


def split_record(
    samples: SampleRecords,
    record: Record,
    names: Mapping[str, str],
    used: Collection[str] = (),
) -> tuple[dict[str, Array], dict[str, object]]:
    """Split a record into its values per token and its values per sample.

    Fields that a Batch has no place for are added to `samples.left_out`.

    Parameters
    ----------
    samples : SampleRecords
    record : Record
    names : mapping of str to str
        Required fields with one value a token, and verl's names for them.
    used : collection of str
        Fields that the caller reads itself.

    Raises
    ------
    LoadError
        If a required field is missing or has another number of tokens.
    """
    num_tokens = len(record.row("token_ids"))
    optional, columns, left_out = others(record, {*names, *used}, num_tokens)
    samples.left_out |= left_out
    rows = {ours: record.row(theirs, num_tokens) for theirs, ours in names.items()}
    return {**rows, **optional}, columns
