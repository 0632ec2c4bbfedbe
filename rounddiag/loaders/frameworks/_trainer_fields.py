"""Fields that a line pasted into a trainer saves under the trainer's own names."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from rounddiag.errors import LoadError
from rounddiag.loaders.fields.columns import SAME_PROMPT, prompt_group
from rounddiag.loaders.tabular.arrays import table_of
from rounddiag.loaders.tabular.table import LazyFields, Table, batch_from_table

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import Tensor

    from rounddiag.batch import Batch
    from rounddiag.loaders.source import Source

    Fields = dict[str, list[Tensor]]
    # From a trainer's fields and the name of their source to fields under verl's names.
    ToVerl = Callable[[Mapping[str, Any], object], Fields]


def trainer_reader(mask_source: str, to_verl: ToVerl) -> Callable[[Any, Source], Batch]:
    """Return a `Format.read` for fields under a trainer's own names.

    Samples with the same prompt tokens are one group if the file has no groups.

    Parameters
    ----------
    mask_source : str
        What the mask is computed from, for `meta["mask_source"]`.
    to_verl : callable
        Returns the fields under verl's names.
    """
    return partial(_read, mask_source, to_verl)


def _read(
    mask_source: str,
    to_verl: ToVerl,
    root: Table | Mapping[Any, object],
    source: Source,
) -> Batch:
    table = table_of(root, source)
    saved = LazyFields.watch(table.fields)
    fields = to_verl(saved, source.path)
    groups = {}
    if "prompts" in fields and not {"uid", "group_ids"} & {*table.columns}:
        groups = {"uid": [prompt_group(prompt) for prompt in fields["prompts"]]}
    renamed = Table(
        fields=fields,
        columns={**table.columns, **groups},
        info={**table.info, "old_log_probs_source": "a pass of its own"},
        left_out=saved.left_out,
    )
    batch = batch_from_table(renamed, source)
    origin = {"mask_source": mask_source, **(SAME_PROMPT if groups else {})}
    return replace(batch, meta={**batch.meta, **origin})


def require_log_probs(
    fields: Mapping[str, Any],
    names: Mapping[str, str],
    advice: Mapping[str, str],
    source: object,
) -> None:
    """Check that a file has the log-probabilities of both engines.

    Parameters
    ----------
    fields : mapping of str to rows
    names : mapping of str to str
        The trainer's name of each field, and verl's.
    advice : mapping of str to str
        How to make the trainer compute a field, by the trainer's name of it.
    source : path-like
        Named in messages.

    Raises
    ------
    LoadError
        If one of the two is missing.
    """
    present = tuple(fields)  # `in` may read a whole field
    engines = {"rollout_log_probs": "sampling", "old_log_probs": "training"}
    for theirs, ours in names.items():
        if ours in engines and theirs not in present:
            raise LoadError.build(
                file=source,
                key=theirs,
                expected=f"the log-probabilities of the {engines[ours]} engine",
                found="none",
                advice=advice[theirs],
            )
