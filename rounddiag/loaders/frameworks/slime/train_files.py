"""Train files of slime and of miles as batches.

miles writes one file per rank. Tensor-parallel ranks write the same samples again: a
sample has the same `sample_id` in all files, so that copies can be dropped.
"""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from typing import Any

from rounddiag.batch import Batch
from rounddiag.columns.sources import row_list
from rounddiag.errors import LoadError
from rounddiag.loaders.format import Format
from rounddiag.loaders.frameworks.slime.rollout_files import (
    sibling_file,
    with_rollouts,
    with_weight_versions,
)
from rounddiag.loaders.frameworks.slime.samples import (
    Columns,
    columns_from_rank,
    columns_from_samples,
    token_fields,
    whole_numbers,
)
from rounddiag.loaders.source import Source, damage_error, load_errors
from rounddiag.loaders.tables import Table, batch_from_table, column_values, table_of
from rounddiag.loaders.torch_file import read_torch

_VERSION = 2


def read_samples(root: Mapping[str, object], source: Source) -> Batch:
    """Build a batch from a train file of all ranks."""
    if root["format_version"] != _VERSION:
        raise source.error(
            expected=f"slime's train data in `format_version` {_VERSION}",
            found=f"{reprlib.repr(root['format_version']):.40}",
            advice="Update rounddiag, or dump the step with the slime that it knows.",
        )
    columns, left_out = columns_from_samples(root)
    return _batch(root, columns, left_out, root.get("raw_reward"), source)


def read_rank(root: Mapping[str, Any], source: Source) -> Batch:
    """Build a batch from the columns of one rank, which has whole samples."""
    size = root["cp_size"]
    if not isinstance(size, int) or not isinstance(root["rollout_data"], dict):
        raise damage_error(found=f"`cp_size` {reprlib.repr(size):.40}")
    if size > 1:
        raise source.error(
            expected="whole samples",
            found=f"slices of samples, of one of {size} context-parallel ranks",
            advice="Dump a step with `--context-parallel-size 1`: such a file opens.",
        )
    columns, left_out = columns_from_rank(root["rollout_data"])
    left_out += [str(name) for name in root if name not in _OF_RANKS]
    columns["rank"] = [root["rank"]] * len(columns.get("response_lengths", ()))
    rewards = root["rollout_data"].get("raw_reward")
    return _batch(root, columns, left_out, rewards, source)


_OF_RANKS = {
    *("rollout_id", "rank", "rollout_data", "cp_size", "cp_rank", "qkv_format"),
}
_DASHBOARD_LISTS = {
    "tokens": "tokens",
    "loss_mask": "loss_masks",
    "rollout_log_probs": "rollout_log_probs",
}
_DASHBOARD_NUMBERS = {
    "response_length": "response_lengths",
    "sample_index": "sample_index",
}


def _kind_error(name: str, expected: str, table: Table, source: Source) -> LoadError:
    return source.error(
        key=name,
        expected=f"{expected} per sample",
        found="a column of another type" if name in table.names else "no such column",
        advice="Pass a file of `dashboard_columns` that miles wrote.",
    )


def read_dashboard(table: Table, source: Source) -> Batch:
    """Build a batch from the columns of miles' dashboard: the sampler's log-probs."""
    columns: Columns = {}
    for theirs, ours in _DASHBOARD_LISTS.items():
        if theirs not in table.fields:
            raise _kind_error(theirs, "a list of numbers", table, source)
        columns[ours] = [*row_list(table.fields[theirs])]
    for theirs, ours in _DASHBOARD_NUMBERS.items():
        if theirs not in table.columns:
            raise _kind_error(theirs, "one number", table, source)
        columns[ours] = [*column_values(table.columns[theirs])]
    number = source.path.stem.rpartition("_")[2]
    root = {"rollout_id": int(number) if number.isdecimal() else None}
    return _batch(root, columns, [], None, source)


def _read_rollouts(root: Mapping[str, object], source: Source) -> Batch:
    path = sibling_file(source.path, "train_data", root["rollout_id"])
    if path is not None:
        train_file = Source.of_file(path)
        with load_errors(train_file):
            train = read_torch(train_file.whole())
            if isinstance(train, dict) and {*TRAIN_DATA.keys} <= train.keys():
                return read_samples(train, train_file)
    raise source.error(
        expected="slime's train file beside this rollout file, which has no"
        " log-probabilities of the training engine",
        found=f"no ../train_data/{reprlib.repr(root['rollout_id']):.40}.pt",
        advice="Run slime with `--dump-details`, which writes both. Of miles, pass the"
        " files of the ranks: train_data/{rollout_id}_*.pt.",
    )


def _batch(
    root: Mapping[str, object],
    columns: Columns,
    left_out: list[str],
    raw_reward: object,
    source: Source,
) -> Batch:
    if not columns.get("response_lengths"):
        raise source.error(
            expected="samples that were trained on",
            found="none",
            advice="Pass the file of a rank that has some.",
        )
    fields = token_fields(columns, source)
    rewards = [*column_values(raw_reward)]
    left_out += _take_raw_reward(columns, rewards)
    versions = columns.pop("weight_versions", [])
    inputs = columns.pop("multimodal_train_inputs", None)
    table = table_of(columns)
    others = dict(table.columns)
    if inputs is not None:
        others["multi_modal_inputs"] = inputs
    indices = whole_numbers(columns.get("sample_index", []))
    if indices and None not in indices:
        others["sample_ids"] = indices
    (step,) = whole_numbers([root["rollout_id"]])
    left_out += [*table.left_out, *table.fields]
    table = Table(
        fields=fields,
        columns=others,
        info={"step": step},
        left_out=left_out,
        facts={"mask_source": "loss_masks"},
    )
    table = table if inputs is not None else table.with_prompt_groups()
    batch = with_weight_versions(batch_from_table(table, source), versions)
    return with_rollouts(batch, root["rollout_id"], rewards, source)


def _take_raw_reward(columns: Columns, rewards: list[Any]) -> list[str]:
    """Use the environment's rewards as `rewards`; return the names left out.

    slime's own `rewards` are normalised by group, or shaped in other ways for training.
    The file has the environment's rewards of all rollouts, including those not trained
    on. `rollout_position` selects; without it, there must be one reward per sample.
    """
    count = len(next(iter(columns.values()), ()))
    default = [*range(count)] if len(rewards) == count else []
    positions = whole_numbers(columns.get("rollout_position", default))
    valid = [at for at in positions if at is not None and 0 <= at < len(rewards)]
    if not rewards or len(valid) < max(count, 1):
        return ["raw_reward"] if rewards else []
    if "rewards" in columns:
        columns["normalized_reward"] = columns["rewards"]
    columns["rewards"] = [rewards[at] for at in valid]
    return []


TRAIN_DATA = Format(
    name="train data",
    framework="slime, vime",
    files=("train_data/*.pt",),
    keys=("format_version", "rollout_id", "samples"),
    read=read_samples,
    verified="written by the payload functions of slime and vime, on rollouts made by"
    " hand",
)
RANK = Format(
    name="train data of a rank",
    framework="miles",
    files=("train_data/*_*.pt",),
    keys=("rollout_id", "rank", "rollout_data", "cp_size"),
    read=read_rank,
    verified="written by miles' own functions, on rollouts made by hand",
    in_parts=True,
)
DASHBOARD = Format(
    name="columns of the dashboard",
    framework="miles",
    files=("dashboard_columns/*.parquet",),
    keys=("sample_index", "response_length", "total_length", "tokens", "loss_mask"),
    read=read_dashboard,
)
ROLLOUTS = Format(
    name="rollout data, with train data beside",
    framework="slime, vime",
    files=("rollout_data/*.pt",),
    keys=("rollout_id", "samples"),
    read=_read_rollouts,
    verified=TRAIN_DATA.verified,
)
