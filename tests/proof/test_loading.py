"""A folder that is no complete model is one sentence that says so."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from rounddiag.errors import LoadError
from rounddiag.proof.engines.local import LocalEngine
from tests.proof import test_local

folder = test_local.folder  # the same fixture


def put(name: str, value: Any) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        config = json.loads((path / "config.json").read_text())
        (path / "config.json").write_text(json.dumps({**config, name: value}))

    return change


def write(name: str, data: bytes) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        (path / name).write_bytes(data)

    return change


def drop_weights(name: str) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        tensors = load_file(path / "model.safetensors")
        rest = {key: value for key, value in tensors.items() if name not in key}
        save_file(rest, path / "model.safetensors", {"format": "pt"})

    return change


def halve_weights(path: Path) -> None:
    tensors = load_file(path / "model.safetensors")
    key = "model.norm.weight"
    tensors[key] = tensors[key][:16].clone()
    save_file(tensors, path / "model.safetensors", {"format": "pt"})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (put("hidden_size", "abc"), "StrictDataclassFieldValidationError"),
        (put("num_attention_heads", 0), "ZeroDivisionError"),
        (put("layer_types", ["x", "y"]), "StrictDataclassClassValidationError"),
        (put("dtype", "os.system"), "AttributeError"),
        (put("hidden_act", "evil"), "KeyError"),
        (write("config.json", b"[" * 100_000), "RecursionError"),
        (write("model.safetensors", b"x" * 100), "SafetensorError"),
        (
            drop_weights("model.layers.1.mlp.up_proj"),
            r"found a checkpoint that lacks model\.layers\.1\.mlp\.up_proj\.weight\. ",
        ),
        (drop_weights("layers"), "a checkpoint that lacks .* more"),
        (halve_weights, r"model\.norm\.weight|RuntimeError"),
        (lambda path: (path / "config.json").unlink(), "found a folder without one"),
        (shutil.rmtree, "found no such folder"),
    ],
)
def test_what_cannot_be_loaded(
    folder: str, tmp_path: Path, change: Callable[[Path], None], message: str
) -> None:
    path = tmp_path / "model"
    shutil.copytree(folder, path)
    change(path)
    with pytest.raises(LoadError, match=message) as caught:
        LocalEngine.open(str(path))
    text = str(caught.value)
    assert text.startswith(f"{path}: expected ")
    assert ".." not in text
    assert text.endswith((" writes it.", " of this step."))


def fifo(path: Path) -> None:
    os.mkfifo(path)


def link_outside(path: Path) -> None:
    other = path.parent.parent / "other.json"
    other.write_text("{}")
    path.symlink_to(other)


@pytest.mark.parametrize(
    ("make", "found"), [(fifo, "no regular file"), (link_outside, "outside")]
)
@pytest.mark.parametrize("name", ["model.safetensors", "generation_config.json"])
def test_a_model_folder_has_its_own_regular_files(
    folder: str, tmp_path: Path, make: Callable[[Path], None], name: str, found: str
) -> None:
    path = tmp_path / "model"
    shutil.copytree(folder, path)
    (path / name).unlink(missing_ok=True)
    make(path / name)
    with pytest.raises(LoadError, match=f"found '{name}', which is {found}"):
        LocalEngine.open(str(path))
