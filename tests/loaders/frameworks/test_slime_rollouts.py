"""slime's rollout file, beside its train file and alone."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pytest

from rounddiag import round_frame
from rounddiag.batch import Batch
from rounddiag.errors import LoadError
from rounddiag.loaders import load
from tests.loaders.slime_writer import (
    rollouts,
    shards,
    trained_samples,
    write_payload,
    write_rank,
    write_rollouts,
    write_train_file,
)


def loaded(folder: Path, samples: list[dict[str, Any]] | None = None) -> Batch:
    """Return the two trained samples, with these rollouts beside them."""
    write_rollouts(folder, rollouts() if samples is None else samples)
    return load(write_train_file(folder, trained_samples(), shards()))


def test_a_weight_version_a_call_is_a_column_of_rounds(tmp_path: Path) -> None:
    first, *others = rollouts()
    batch = loaded(tmp_path, [first | {"weight_versions": ["9", "10"]}, *others])

    assert round_frame(batch)["weight_version"].tolist() == ["9", "10", "9"]
    # Three calls for two rounds, as of a rollout that was aborted and resumed.
    other = round_frame(loaded(tmp_path))["weight_version"]
    assert other.fillna("-").tolist() == ["-", "-", "9"]


def test_the_spans_of_miles_are_versions_of_tokens(tmp_path: Path) -> None:
    first, second, *others = rollouts()
    start = len(first["tokens"]) - first["response_length"]
    stop = len(first["tokens"])
    spans = [
        [{"version": "9", "abs_start": start, "abs_end": start + 2}],
        [
            {"version": "10", "abs_start": start + 2, "abs_end": stop - 1},
            {"version": "11", "abs_start": stop, "abs_end": stop + 99},
        ],
    ]
    rows: list[dict[str, Any]] = [{"weight_versions": spans}, {"weight_versions": []}]
    batch = loaded(tmp_path, [first | rows[0], second | rows[1], *others])
    versions = batch.token_columns["weight_versions"][: stop - start].tolist()
    assert versions[:2] == [9.0, 9.0]
    assert versions[2:-1] == [10.0] * (stop - start - 3)
    assert math.isnan(versions[-1])
    assert batch.sample_columns["min_weight_version"].tolist() == ["9", None]


@pytest.mark.parametrize(("newest", "trainer"), [("4", 4), ("9", None), ("3", None)])
def test_the_first_weights_are_version_1_of_rollout_0(
    tmp_path: Path, newest: str, trainer: int | None
) -> None:
    samples = [row | {"weight_versions": ["3", newest]} for row in rollouts()]
    batch = loaded(tmp_path, samples)
    assert batch.step == 3
    assert batch.meta.get("trainer_version") == trainer


def test_one_weight_version_a_sample_needs_no_list(tmp_path: Path) -> None:
    samples = [row | {"weight_versions": ["7"]} for row in rollouts()]

    assert "weight_versions" not in loaded(tmp_path, samples).sample_columns


def test_meta_tells_the_file_and_what_is_not_taken_from_it(tmp_path: Path) -> None:
    meta = loaded(tmp_path).meta

    assert meta["rollout_file"] == str(tmp_path / "rollout_data" / "3.pt")
    assert meta["num_other_rollouts"] == 1
    assert meta["left_out"] == ["metadata.steps", "returns"]


def test_the_token_ids_of_the_sampler_are_kept(tmp_path: Path) -> None:
    first, *others = rollouts()
    tokens = {"tokens": [1, 9, 9, 3, 4, 55, 6, 6], "response_length": 4}
    batch = loaded(tmp_path, [first | tokens, *others])

    assert batch.rollout_ids is not None
    assert [row.tolist() for row in batch.rollout_ids] == [[4, 55, 6, 6], [7, 8]]
    assert batch.require_ids().tolist() == [4, 5, 6, 7, 8]


@pytest.mark.parametrize("change", [{"tokens": ["a"]}, {"response_length": 99}])
def test_token_ids_that_are_none_are_not_kept(
    change: dict[str, Any], tmp_path: Path
) -> None:
    first, *others = rollouts()
    batch = loaded(tmp_path, [first | change, *others])

    assert batch.rollout_ids is None
    assert batch.sample_columns["status"].tolist() == ["completed", "truncated"]


def test_older_samples_are_found_by_their_index(tmp_path: Path) -> None:
    write_rollouts(tmp_path, rollouts())
    part = shards()[0]
    del part["partition"]
    batch = load(write_rank(tmp_path, part))

    assert batch.sample_columns["response"].tolist() == ["response 12"]
    assert batch.meta["num_other_rollouts"] == 2


@pytest.mark.parametrize("indices", [[10, 12, 12], [10, None, 11]])
def test_older_samples_of_no_index_of_their_own_are_not_found(
    indices: list[int | None], tmp_path: Path
) -> None:
    pairs = zip(rollouts(), indices, strict=True)
    write_rollouts(tmp_path, [row | {"index": index} for row, index in pairs])
    part = shards()[0] | {"sample_indices": [12 if None not in indices else None]}
    del part["partition"]
    batch = load(write_rank(tmp_path, part))

    assert "found other samples" in str(batch.meta["rollout_file"])


def test_a_rollout_file_opens_the_train_file_beside_it(tmp_path: Path) -> None:
    write_train_file(tmp_path, trained_samples(), shards())

    batch = load(write_rollouts(tmp_path, rollouts()))

    assert batch.meta["source"] == str(tmp_path / "train_data" / "3.pt")
    assert batch.group_ids == ("0", "1")


def test_a_rollout_file_alone_is_no_batch(tmp_path: Path) -> None:
    path = write_rollouts(tmp_path, rollouts())
    message = (
        f"{path}: expected slime's train file beside this rollout file, which has no"
        " log-probabilities of the training engine; found no ../train_data/3.pt. Run"
        " slime with `--dump-details`, which writes both. Of miles, pass the files of"
        " the ranks: train_data/{rollout_id}_*.pt."
    )
    with pytest.raises(LoadError, match=f"^{re.escape(message)}$"):
        load(path)


def test_a_dump_folder_is_its_train_file(tmp_path: Path) -> None:
    write_rollouts(tmp_path, rollouts())
    write_train_file(tmp_path, trained_samples(), shards())

    assert load(tmp_path).group_ids == ("0", "1")


FOREIGN = " Keep `train_data` and `rollout_data` of one run together."


@pytest.mark.parametrize(
    ("payload", "found"),
    [
        ([1], "something else"),
        ({"rollout_id": 4, "samples": rollouts()}, "rollout 4"),
        ({"rollout_id": 3, "samples": rollouts()[:2]}, "other samples"),
        ({"rollout_id": 3, "samples": rollouts()[::-1]}, "other samples"),
    ],
)
def test_a_file_of_other_rollouts_is_not_used(
    payload: object, found: str, tmp_path: Path
) -> None:
    place = write_payload(tmp_path / "rollout_data" / "3.pt", payload)
    batch = load(write_train_file(tmp_path, trained_samples(), shards()))

    assert batch.meta["rollout_file"] == (
        f"not used: {place}: expected the rollouts that the train file was made of;"
        f" found {found}.{FOREIGN}"
    )
    assert "response" not in batch.sample_columns
    assert batch.num_rounds == 3


@pytest.mark.parametrize("content", [b"", b"PK\3\4", b"\x80\2cos\nsystem\n)R."])
def test_a_file_that_cannot_be_read_is_not_used(content: bytes, tmp_path: Path) -> None:
    place = write_rollouts(tmp_path, rollouts())
    place.write_bytes(content)
    batch = load(write_train_file(tmp_path, trained_samples(), shards()))

    assert str(batch.meta["rollout_file"]).startswith(f"not used: {place}: expected ")
    assert batch.num_rounds == 3


def test_a_link_that_leads_out_of_the_dump_is_not_followed(tmp_path: Path) -> None:
    outside = write_rollouts(tmp_path / "other", rollouts())
    inside = tmp_path / "dump" / "rollout_data" / "3.pt"
    inside.parent.mkdir(parents=True)
    inside.symlink_to(outside)
    batch = load(write_train_file(tmp_path / "dump", trained_samples(), shards()))

    assert batch.meta["rollout_file"] == (
        f"not used: {tmp_path / 'dump'}: expected the name of a file in this folder;"
        " found 'rollout_data/3.pt', which is outside. Copy the file into the folder."
    )


@pytest.mark.parametrize("rollout_id", ["../../3", -3, 3.0, None, 1 << 70])
def test_only_a_number_is_taken_for_the_name_of_a_file(
    rollout_id: object, tmp_path: Path
) -> None:
    write_rollouts(tmp_path, rollouts())
    batch = load(write_rank(tmp_path, shards()[1], rollout_id=rollout_id))

    assert "rollout_file" not in batch.meta
