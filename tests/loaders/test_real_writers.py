"""What real writers make of ordinary columns: wider arrays, views, floats, mirrors."""

from __future__ import annotations

import io
import json
import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from pyarrow import feather

import rounddiag as rd
from rounddiag.errors import LoadError
from tests.loaders.facts import has
from tests.loaders.table_cases import COLUMNS, check

DATA = Path(__file__).parents[1] / "data"
LOG_PROBS = {
    "rollout_log_probs": [[-0.5, -1.0]] * 2,
    "old_log_probs": [[-0.5, -2.0]] * 2,
}
ROWS: dict[str, Any] = {
    "responses": [[5, 6], [7, 8]],
    "response_mask": [[1, 1], [1, 1]],
    **LOG_PROBS,
}


def test_views_of_texts_are_texts_and_those_of_bytes_are_pictures(
    tmp_path: Path,
) -> None:
    buffer = io.BytesIO()
    Image.new("RGB", (4, 3), "red").save(buffer, format="PNG")
    views = {
        "uid": pa.array(["g", "h"], pa.string_view()),
        "images": pa.array([buffer.getvalue()] * 2, pa.binary_view()),
    }
    feather.write_feather(pa.table({**ROWS, **views}), tmp_path / "a.feather")

    batch = rd.load(tmp_path / "a.feather")

    assert batch.group_ids == ("g", "h")
    assert [[shot.size for shot in row] for row in batch.images] == [[(4, 3)]] * 2


@given(
    shape=st.lists(st.integers(1, 3), min_size=2, max_size=4),
    kind=st.sampled_from([str, dict, float]),
)
def test_arrays_of_objects_are_the_lists_that_they_were_made_of(
    shape: list[int], kind: Any
) -> None:
    size = int(np.prod(shape))
    items = [{"a": n} if kind is dict else kind(n) for n in range(size)]
    array = np.empty(size, dtype=object)
    array[:] = items
    array = array.reshape(shape)
    data = io.BytesIO()
    np.savez(data, tags=array, allow_pickle=True)

    from rounddiag.loaders.containers import open_container
    from rounddiag.loaders.source import Source

    whole = data.getvalue()
    opened: Any = open_container(Source(path=Path("a"), size=len(whole), data=whole))
    assert opened["tags"] == array.tolist()


def test_numbers_of_one_size_are_pictures(tmp_path: Path) -> None:
    pixels = np.arange(72).reshape(2, 1, 3, 4, 3).astype(object)
    path = tmp_path / "a.pkl"
    path.write_bytes(pickle.dumps({**ROWS, "images": pixels}))

    batch = rd.load(path)

    shown = [np.asarray(shot.image()) for row in batch.images for shot in row]
    assert np.array_equal(np.stack(shown), pixels[:, 0].astype(np.uint8))


@pytest.mark.parametrize("name", ["response_ids", "prompt_ids"])
def test_ids_may_be_whole_floats(name: str, tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    whole = [[float(id_) for id_ in row] for row in COLUMNS[name]]
    pq.write_table(pa.table({**COLUMNS, name: whole}), path)
    check(rd.load(path))


def test_rewards_of_tokens_go_by_either_of_verl_s_names() -> None:
    scores, rewards = [[0.0, 1.0], [0.0, 2.0]], [[-0.5, 1.0], [0.0, 1.5]]
    has(rd.load({**ROWS, "token_level_rewards": rewards}), {"rewards": [0.5, 1.5]})
    both = {"token_level_scores": scores, "token_level_rewards": rewards}
    other = {"token.token_level_rewards": [-0.5, 1.0, 0.0, 1.5]}
    has(rd.load({**ROWS, **both}), {"rewards": [1.0, 2.0], **other})


@pytest.mark.parametrize("name", ["screenshots", "screenshot"])
def test_screenshots_of_a_table_are_pictures_and_paths_a_column(name: str) -> None:
    picture: Any = Image.new("RGB", (4, 3), "red")
    cell = [picture] if name == "screenshots" else picture
    batch = rd.load({**ROWS, name: [cell, cell]})
    assert [[shot.size for shot in row] for row in batch.images] == [[(4, 3)]] * 2

    batch = rd.load({**ROWS, name: ["a.png", "b.png"]})
    assert batch.images is None
    assert batch.sample_columns[name].tolist() == ["a.png", "b.png"]


def test_a_mask_with_1s_in_the_padding_opens_and_a_check_fails(tmp_path: Path) -> None:
    fields = {
        "responses": torch.tensor([[5, 6, 7, 0, 0], [5, 6, 7, 8, 9]]),
        "attention_mask": torch.tensor([[1, 1, 1, 0, 0], [1] * 5]),
        "response_mask": torch.ones(2, 5, dtype=torch.int64),
        "rollout_log_probs": torch.full((2, 5), -0.5),
    }
    torch.save(fields, tmp_path / "a.pt")
    batch = rd.load(tmp_path / "a.pt")

    assert batch.lengths.tolist() == [3, 5]
    assert batch.response_mask.tolist() == [1, 1, 1, 0, 0, *[1] * 5]
    for part, samples in ((batch, (0,)), (batch[1:], ()), (batch[:1], (0,))):
        failed = {c.name: c.samples for c in rd.check(part) if c.status == "failed"}
        wanted = failed.get("the mask covers only what the model wrote", ())
        assert wanted == samples


def test_the_mirror_that_miles_writes_is_no_second_batch(tmp_path: Path) -> None:
    source = DATA / "miles"
    shutil.copytree(source, tmp_path / "run")
    expected = rd.load(tmp_path / "run")
    step = next((tmp_path / "run" / "train_data").iterdir()).stem.partition("_")[0]
    mirror = tmp_path / "run" / "dashboard_columns" / f"rollout_{step}.parquet"
    mirror.parent.mkdir(exist_ok=True)
    columns = {name: [1] for name in ("sample_index", "response_length")}
    columns |= {"total_length": [2]}
    lists = {name: [[1]] for name in ("tokens", "loss_mask", "rollout_log_probs")}
    pq.write_table(pa.table({**columns, **lists}), mirror)

    batch = rd.load(tmp_path / "run")

    assert torch.equal(batch.require_ids(), expected.require_ids())
    mirror.rename(mirror.with_name("rollout_99.parquet"))
    with pytest.raises(LoadError, match=r"batches: .*rollout_99"):
        rd.load(tmp_path / "run")


def test_the_reward_of_verifiers_leaves_out_what_was_not_scored(tmp_path: Path) -> None:
    from tests.loaders.verifiers_writer import episode

    whole = episode()
    trace = whole["traces"][0]
    trace["rewards"]["c"] = None
    nodes = trace["nodes"]
    nodes[1] |= {"advantages": [0.5, 1.5], "reference_logprobs": [-0.25, -4.0]}
    path = tmp_path / "traces.jsonl"
    path.write_text(json.dumps(whole))

    batch = rd.load(path)

    mask = batch.response_mask != 0
    assert batch.rewards.tolist() == [2.5, 2.5]
    known = batch.advantages[mask].tolist()
    assert known[:2] == [0.5, 1.5]
    assert np.isnan(known[2:]).all()
    assert batch.scores["ref"][mask].tolist()[:2] == [-0.25, -4.0]
    assert not {"nodes.advantages", "nodes.reference_logprobs"} & {
        *batch.meta.get("left_out", [])
    }
