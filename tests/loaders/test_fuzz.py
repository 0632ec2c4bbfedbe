"""Files with bytes changed, lost or added: a LoadError or a batch, nothing else."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rounddiag.errors import LoadError
from rounddiag.loaders import load
from rounddiag.loaders.sniff import open_container
from tests.loaders.verl_writer import pickled, small_batch

if TYPE_CHECKING:
    from hypothesis.strategies import DrawFn

    from rounddiag.loaders.source import Source

DATA = Path(__file__).parents[1] / "data"


def torch_bytes(*, zipped: bool) -> bytes:
    buffer = io.BytesIO()
    torch.save(small_batch(), buffer, _use_new_zipfile_serialization=zipped)
    return buffer.getvalue()


def pixels() -> dict[str, torch.Tensor]:
    grid = torch.tensor([[1, 2, 2]])
    return {"pixel_values": torch.zeros(4, 24), "image_grid_thw": grid}


WHOLE = {
    "proto": pickled(
        small_batch(), {"uid": ["a", "b"], "multi_modal_inputs": [pixels(), {}]}
    ),
    "zip": torch_bytes(zipped=True),
    "legacy": torch_bytes(zipped=False),
    **{path.stem: path.read_bytes() for path in DATA.glob("*0.15.3*nested.pkl")},
    # The pixels of the larger one stand at its end: change what is before them.
    **{path.stem: path.read_bytes() for path in DATA.glob("*0.15.3*jagged.pt")},
}  # fmt: skip


@st.composite
def damaged(draw: DrawFn) -> bytes:
    """A file with up to three changes, most of them early, where its structure is."""
    data = bytearray(WHOLE[draw(st.sampled_from(sorted(WHOLE)))])
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, min(len(data), 10_000)))
        lost = draw(st.integers(0, 4) | st.just(len(data)))
        data[at : at + lost] = draw(st.binary(max_size=4))
    return bytes(data)


@settings(
    max_examples=300,
    deadline=None,
    suppress_health_check=[
        HealthCheck.function_scoped_fixture,
        HealthCheck.large_base_example,
        HealthCheck.data_too_large,
    ],
)
@given(content=damaged())
def test_a_damaged_file_is_a_load_error_or_a_batch(
    content: bytes, tmp_path: Path
) -> None:
    path = tmp_path / "damaged"
    path.write_bytes(content)
    try:
        batch = load(path)
    except LoadError as error:
        if "unexpected error" in str(error):
            raise
        return
    assert len(batch.response_mask) == int(batch.offsets[-1])
    for shot in [shot for row in batch.images or () for shot in row]:
        assert min(shot.size) > 0


def test_the_whole_files_open(tmp_path: Path) -> None:
    for name, content in WHOLE.items():
        path = tmp_path / name
        path.write_bytes(content)
        assert load(path).num_samples in {2, 3}, name


@pytest.mark.parametrize("share", [0.2, 0.6, 0.97])
def test_a_file_that_shrinks_while_it_is_open_is_a_load_error(
    share: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.pkl"
    path.write_bytes(WHOLE["proto"])

    def cutting(source: Source) -> object:
        root = open_container(source)
        with path.open("r+b") as file:
            file.truncate(int(len(WHOLE["proto"]) * share))
        return root

    monkeypatch.setattr("rounddiag.loaders.file_reader.open_container", cutting)
    with pytest.raises(LoadError, match="found another size or time"):
        load(path)
