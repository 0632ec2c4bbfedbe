"""Files made to run something: nothing is executed, each ends in a LoadError."""

from __future__ import annotations

import io
import pickle
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from rounddiag.loaders import load
from tests.loaders.refusal import refused, text

# Each takes the command that would prove that something ran.
CALLS = {
    "reduce of os.system": lambda c: b"cos\nsystem\n(" + text(c) + b"tR.",
    "reduce of a name from the stack": lambda c: (
        text("os") + text("system") + b"\x93" + text(c) + b"\x85R."
    ),
    "eval": lambda c: (
        b"cbuiltins\neval\n" + text(f"__import__('os').system({c!r})") + b"\x85R."
    ),
    "old eval": lambda c: b"c__builtin__\neval\n(" + text(f"print({c!r})") + b"tR.",
    "getattr": lambda c: b"cbuiltins\ngetattr\n(" + text(c) + text("x") + b"tR.",
    "inst": lambda c: b"(" + text(c) + b"ios\nsystem\n.",
    "obj": lambda c: b"(cos\nsystem\n" + text(c) + b"o.",
    "torch.load": lambda c: b"ctorch\nload\n(" + text(c) + b"tR.",
    "a listed name with a prefix": lambda c: (
        b"cevil.collections\nOrderedDict\n(" + text(c) + b"tR."
    ),
    "a call of a call": lambda c: (
        b"ccollections\nOrderedDict\n)R" + text(c) + b"\x85R."
    ),
}


@pytest.fixture
def canary(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "canary"
    yield path
    assert not path.exists()


@pytest.mark.parametrize("name", CALLS)
def test_a_call_is_not_made(name: str, tmp_path: Path, canary: Path) -> None:
    stream = CALLS[name](f"touch {canary}")

    assert refused(tmp_path / "a.pkl", b"\x80\x04" + stream)


def test_a_refused_call_is_named(tmp_path: Path) -> None:
    stream = CALLS["reduce of os.system"]("true")

    assert refused(tmp_path / "a.pkl", b"\x80\x04" + stream) == (
        "expected a pickle that calls nothing but the makers of tensors and arrays;"
        " found a call of `os.system`, which was not made. If you trust the file, open"
        " it with the program that wrote it and save it without that value."
    )


def test_the_corpus_does_run_in_the_pickle_of_the_standard_library(
    tmp_path: Path,
) -> None:
    canary = tmp_path / "canary"
    for name in (
        "reduce of os.system",
        "reduce of a name from the stack",
        "inst",
        "obj",
    ):
        pickle.loads(b"\x80\x04" + CALLS[name](f"touch {canary}"))  # noqa: S301 the proof
        assert canary.exists(), name
        canary.unlink()


@pytest.mark.parametrize("name", CALLS)
def test_a_call_in_a_nested_torch_file_is_not_made(
    name: str, tmp_path: Path, canary: Path
) -> None:
    bad = b"\x80\x02" + CALLS[name](f"touch {canary}")
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, "w") as archive:
        archive.writestr("archive/data.pkl", bad)
    legacy = pickle.dumps(0x1950A86A20F9469CFC6C, 2) + bad
    for blob in (inner.getvalue(), legacy):
        assert refused(tmp_path / "a.pkl", nested(blob))


def nested(blob: bytes) -> bytes:
    """Return a DataProto whose batch is this torch file, long enough to stay there."""
    padded = blob if len(blob) > 255 else blob + b"\0" * 256
    state = b"B" + len(padded).to_bytes(4, "little") + padded + b"}}\x87"
    return b"\x80\x04cverl.protocol\nDataProto\n)\x81" + state + b"b."


@pytest.mark.parametrize("name", CALLS)
def test_a_call_in_a_tensor_of_a_column_is_not_made(
    name: str, tmp_path: Path, canary: Path
) -> None:
    legacy = (
        pickle.dumps(0x1950A86A20F9469CFC6C, 2)
        + b"\x80\x02"
        + CALLS[name](f"touch {canary}")
        + b"\0" * 256
    )
    storage = (
        b"ctorch.storage\n_load_from_bytes\nB"
        + len(legacy).to_bytes(4, "little")
        + legacy
        + b"\x85R"
    )
    tensor = (
        b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage + b"K\0K\x01\x85K\x01\x85tR"
    )
    stream = b"\x80\x04}" + text("responses") + tensor + b"s."

    assert refused(tmp_path / "a.pkl", stream)


def test_an_object_is_a_placeholder_and_a_state_changes_nothing(tmp_path: Path) -> None:
    state = b"}" + text("fork_exec") + b"Ns"
    popen = b"csubprocess\nPopen\n" + text("touch x") + b"\x85\x81" + state + b"b."

    assert refused(tmp_path / "a.pkl", b"\x80\x04" + popen).startswith(
        "expected a saved batch; found a pickle of subprocess.Popen. "
    )


def test_a_state_for_a_name_is_refused(tmp_path: Path) -> None:
    stream = b"\x80\x04crounddiag.loaders\nload\n}" + text("x") + b"Nsb."

    assert refused(tmp_path / "a.pkl", stream) == (
        "expected a whole file of its kind; found a bad pickle: a state for something"
        " that has none. It is cut off, damaged or forged: copy or save it again."
    )
    assert not hasattr(load, "x")


def test_a_module_with_side_effects_is_not_imported(
    tmp_path: Path, canary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = f"open({str(canary)!r}, 'w')"
    (tmp_path / "side_effects.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    names = b"cside_effects\nthing\n" + text("side_effects") + text("more") + b"\x93"

    refused(tmp_path / "a.pkl", b"\x80\x04" + names + b"\x86.")
    assert "side_effects" not in sys.modules
