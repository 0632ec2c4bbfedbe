"""The list of fields: what follows from it."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import rounddiag as rd
from rounddiag.batch.layout import PER_TOKEN
from rounddiag.loaders.fields import FIELDS, aliases_of, field_of, names_where, our_name
from tests.loaders.table_cases import COLUMNS


def test_a_name_in_a_table_is_one_field() -> None:
    names = [alias for field in FIELDS for alias in field.aliases]
    assert sorted(names) == sorted({*names})
    assert {*PER_TOKEN} - {*names_where(scope="token")} == {"pieces"}  # of texts alone


def test_the_documentation_of_load_lists_the_fields_that_columns_may_name() -> None:
    table = (rd.load.__doc__ or "").split("required  ")[1].split("sample_by")[0]
    named = re.findall(r"`(\w+)`", table)
    assert sorted({*named} - {"ref_log_probs"}) == sorted(names_where(is_mapped=True))


@given(st.sampled_from([alias for field in FIELDS for alias in field.aliases]))
def test_every_alias_leads_to_the_field_that_is_looked_up_under_it(alias: str) -> None:
    field = field_of(alias)
    assert our_name(alias) == field.name
    assert alias in field.aliases == aliases_of(field.aliases[0])


@pytest.mark.parametrize("name", [f.name for f in FIELDS if f.name in PER_TOKEN])
def test_a_field_of_the_batch_is_no_column_of_the_file_s_own(name: str) -> None:
    values = [[0.0, 1.0, 0.0], [1.0]]
    batch = rd.load({**COLUMNS, **({} if name in COLUMNS else {name: values})})
    assert batch.token_columns == {}
    assert getattr(batch, name) is not None


@given(
    name=st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), min_size=1)
)
def test_any_other_name_is_a_column_of_tokens(name: str) -> None:
    values = [[0.5, 1.5, 2.5], [3.5]]
    if field_of(name) is not None or name in COLUMNS or "prob" in name:
        return
    batch = rd.load({**COLUMNS, name: values})
    assert batch.token_columns[name].tolist() == [0.5, 1.5, 2.5, 3.5]


def test_a_name_that_frames_use_themselves_is_left_out_and_named() -> None:
    values = [[0.5, 1.5, 2.5], [3.5]]
    batch = rd.load({**COLUMNS, "diff": values, "prob_diff": values, "kl": values})
    assert [*batch.token_columns] == ["kl"]
    assert batch.meta["left_out"] == ["diff", "prob_diff"]


def test_texts_and_nested_lists_per_token_are_left_out_and_named(
    tmp_path: Path,
) -> None:
    texts = [["a", "b", "c"], ["d"]]
    nested = [[[1], [2], [3]], [[4]]]
    empty: list[list[list[int]]] = [[[], [], []], [[]]]
    others = {"texts": texts, "nested": nested, "empty": empty}
    names = ["empty", "nested", "texts"]
    assert rd.load({**COLUMNS, **others}).meta["left_out"] == names
    pq.write_table(pa.table({**COLUMNS, **others}), tmp_path / "a.parquet")
    assert rd.load(tmp_path / "a.parquet").meta["left_out"] == names
    (tmp_path / "a.pkl").write_bytes(pickle.dumps({**COLUMNS, **others}))
    assert rd.load(tmp_path / "a.pkl").meta["left_out"] == names


def test_lists_that_share_their_rows_are_not_read() -> None:
    shared = [0.5] * 1_000_000
    columns = {name: rows * 1000 for name, rows in COLUMNS.items() if name != "turns"}
    batch = rd.load({**columns, "notes": [shared] * len(columns["response_ids"])})
    assert batch.meta["left_out"] == ["notes"]


def test_two_values_per_token_are_left_out_by_name_and_not_read() -> None:
    class Unread(torch.Tensor):
        """A tensor whose values nobody may take."""

        def detach(self) -> torch.Tensor:
            raise AssertionError

    wide = torch.zeros(2, 3, 4).as_subclass(Unread)
    ids = torch.tensor([[5, 6, 7], [8, 9, 9]])
    log_probs = torch.full((2, 3), -1.0)
    columns = {
        "responses": ids,
        "response_mask": torch.ones(2, 3),
        "rollout_log_probs": log_probs,
        "old_log_probs": log_probs - 1,
        "hidden_states": wide,
        "returns": log_probs,
    }
    batch = rd.load(columns)
    assert batch.meta["left_out"] == ["hidden_states"]
    assert [*batch.token_columns] == ["returns"]
