"""Files that trainers write and that cannot be diagnosed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from rounddiag.loaders import formats, load
from tests.loaders.table_cases import says
from tests.loaders.wide_files import ROWS


def test_summaries_of_tinker_are_refused_with_what_they_lack(tmp_path: Path) -> None:
    record = {
        "schema_version": 1,
        "total_reward": 1.0,
        "final_ob_len": 9,
        "trajectory_metrics": {},
        "steps": [{"ob_len": 4, "ac_len": 5}],
    }
    path = tmp_path / "40.jsonl"
    path.write_text(json.dumps(record) + "\n")
    with says(
        f"{path}: expected a saved batch; found Tinker's summaries of rollouts: lengths"
        " and rewards, without log-probs. Add the lines to the trainer that `rounddiag"
        " recipe tinker` prints."
    ):
        load(path)


def test_a_json_object_of_all_columns_opens_as_what_it_holds(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    for indent in (None, 2):
        path.write_text(json.dumps(ROWS, indent=indent))
        for batch in (load(path), load(ROWS)):
            assert batch.require_ids().tolist() == [5, 6, 7, 8]
            assert batch.log_probs("old").tolist() == [-1.5, -2.0, -3.0, -4.0]


def test_the_keys_of_json_lines_in_an_npz_name_the_file_that_has_them(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a.npz"
    keys = ("generation_logprobs", "prev_logprobs", "input_lengths")
    arrays: dict[str, Any] = dict.fromkeys(keys, np.zeros(2))
    np.savez(path, **arrays)
    message = (
        f"{path}: expected training data of a step, as NeMo-RL saves it in"
        f" train_data_step*.jsonl; found a dictionary of {', '.join(keys)}, with"
        " values of other kinds. Save it again with the program that wrote it."
    )
    with says(message):
        load(path)


def test_formats_end_with_what_cannot_be_opened() -> None:
    checked = formats()["checked on"].tolist()

    is_refused = [text.startswith("cannot be opened: ") for text in checked]
    assert is_refused == [False] * (len(checked) - 2) + [True] * 2
    assert (formats()["format"] == "trace annotations").sum() == 1
