"""The stand-in writer has the layout of the real one."""

from __future__ import annotations

from pathlib import Path

import torch

from rounddiag.loaders.pickle.placeholders import Node
from rounddiag.loaders.pickle.unpickler import PickleMachine
from rounddiag.loaders.source import Source, Span
from rounddiag.loaders.torch_file import read_torch
from tests.loaders.verl_writer import small_batch, write

DATA = Path(__file__).parents[2] / "data"


def parts(path: Path) -> tuple[Node, Node]:
    """Return the DataProto and its TensorDict, as they stand in the file."""
    whole = Source.of_file(path).whole()
    with whole.open() as stream:
        proto = PickleMachine(whole, stream).run()
    assert isinstance(proto, Node)
    assert isinstance(proto.state, tuple)
    assert isinstance(proto.state[0], Span)
    batch = read_torch(proto.state[0])
    assert isinstance(batch, Node)
    return proto, batch


def test_a_file_of_the_writer_has_the_parts_of_a_real_one(tmp_path: Path) -> None:
    columns = {"multi_modal_inputs": [{"pixel_values": torch.zeros(99)}, {}]}
    ours = parts(write(tmp_path / "a.pkl", small_batch(), columns))
    theirs = parts(DATA / "verl-0.9.1_tensordict-0.10.0_default.pkl")

    for mine, real in zip(ours, theirs, strict=True):
        assert mine.name == real.name
        assert [type(arg) for arg in mine.args] == [type(arg) for arg in real.args]
    assert described(ours[1]) == described(theirs[1])
    found, wanted = pixels(ours[0]), pixels(theirs[0])
    numpy_1 = str(found[0]).replace("numpy.core", "numpy._core")
    assert (numpy_1, *found[1:]) == wanted


def described(batch: Node) -> tuple[object, ...]:
    """Return how `responses` is described; its numbers are the file's own."""
    metadata, storage = batch.args
    assert isinstance(metadata, dict)
    assert isinstance(storage, Node)
    leaf = metadata["leaves"]["responses"]
    return metadata["cls"], storage.name, leaf[0], [type(value) for value in leaf]


def pixels(proto: Node) -> tuple[object, ...]:
    """Return the names on the way to the pixels of the first sample."""
    assert isinstance(proto.state, tuple)
    column = proto.state[1]["multi_modal_inputs"]
    tensor = column.state[4][0]["pixel_values"]
    return column.name, tensor.name, tensor.args[0].name, type(tensor.args[0].args[0])
