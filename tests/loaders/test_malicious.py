"""Files made to harm: nothing is executed, and each ends in a LoadError, quickly."""

from __future__ import annotations

import io
import pickle
import signal
import struct
import sys
import tracemalloc
import zipfile
from typing import TYPE_CHECKING

import pytest
import torch

from rounddiag.errors import LoadError
from rounddiag.loaders import load

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DEEP = 100_000
MANY = struct.pack("<Q", 1 << 40)  # a length of a terabyte
TOUCH = "touch {}"


def text(value: str) -> bytes:
    raw = value.encode()
    return b"X" + len(raw).to_bytes(4, "little") + raw


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


@pytest.fixture(autouse=True)
def _alarm() -> Iterator[None]:
    """End what hangs."""

    def late(*_: object) -> None:
        msg = "still at it after 20 s"
        raise TimeoutError(msg)

    old = signal.signal(signal.SIGALRM, late)
    signal.alarm(20)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, old)


def refused(path: Path, content: bytes) -> str:
    """Return the message of the LoadError that a file ends in; at most 64 MB for it."""
    path.write_bytes(content)
    tracemalloc.start()
    try:
        with pytest.raises(LoadError) as caught:
            load(path)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 64_000_000
    return str(caught.value).removeprefix(f"{path}: ")


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
        parts = {"batch": torch.zeros(1), "old": blob}
        assert refused(tmp_path / "a.pkl", nested(blob)), parts


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


BOMBS = {
    "deep lists": b"]" * DEEP + b"a" * (DEEP - 1) + b".",
    "deep tuples": b"N" + b"\x85" * DEEP + b".",
    "deep objects": b"cx\ny\n" * 2 + b")\x81" + b"b" * 3 + b".",
    "a deep tuple as a key": b"}N" + b"\x85" * DEEP + b"Ns.",
    "a tuple of shared parts as a key": b"})" + b"2\x86" * 64 + b"Ns.",
    "an object as a key": b"}cos\nsystem\nNs.",
    "a tuple of shared parts": b")" + b"2\x86" * 1000 + b".",
    "a list of shared parts": b"]" + b"2\x86" * 1000 + b".",
    "a memo far away": b"Nr\xff\xff\xff\xff0j\xff\xff\xff\xff.",
    "a memo with a long number": b"Np" + b"9" * 4000 + b"\n.",
    "an integer that hashes as others": b"}\x8a\x09" + b"\xff" * 8 + b"\x00Ns.",
    "a memo that is not there": b"h\x07.",
    "nothing on the stack": b"0.",
    "no mark": b"t.",
    "a key without a value": b"}(Nu.",
    "an end in the middle": b"(((",
    "an unknown opcode": b"\xff",
    "an extension": b"\x82\x01.",
    "a buffer from outside": b"\x97.",
    "a persistent id": b"Pabc\n.",
    "a terabyte of bytes": b"\x8e" + MANY + b"x.",
    "a terabyte in a bytearray": b"\x96" + MANY + b"x.",
    "a terabyte of text": b"\x8d" + MANY + b"x.",
    "a terabyte in a frame": b"\x95" + MANY + b".",
    "four gigabytes of bytes": b"B\xff\xff\xff\xffx.",
    "four gigabytes of text": b"X\xff\xff\xff\xffx.",
    "a negative length of old text": b"T\xff\xff\xff\xffx.",
    "an integer of gigabytes": b"\x8b\xff\xff\xff\x7fx.",
    "an integer of a megabyte": b"\x8b\x00\x00\x10\x00" + b"x" * (1 << 20) + b".",
    "a decimal of a megabyte": b"L" + b"9" * (1 << 20) + b"L\n.",
    "a line without an end": b"c" + b"a" * (1 << 20),
    "bad text": b"X\x02\0\0\0\xff\xff.",
    "a list in itself": b"]q\0h\0a.",
    "a dictionary in itself": b"}q\0" + text("responses") + b"h\0s.",
    "an object in itself": b"cx\ny\n)\x81q\0h\0b.",
    "a batch in itself": b"cverl.protocol\nDataProto\n)\x81q\0h\0b.",
    "a tensor in itself": (
        b"}" + text("responses") + b"ctorch._utils\n_rebuild_tensor_v2\n(]q\0h\0tRs."
    ),
    "typed tensors in each other": (
        b"}" + text("responses") + b"N" + 1000 * (
            b"ctorch._tensor\n_rebuild_from_type_v2\ncx\ny\n\x87R"
        ) + b"s."
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused(name: str, tmp_path: Path) -> None:
    assert refused(tmp_path / "a.pkl", b"\x80\x04" + BOMBS[name])


def test_a_length_that_lies_is_told(tmp_path: Path) -> None:
    content = b"\x80\x04" + BOMBS["a terabyte of bytes"]

    assert refused(tmp_path / "a.pkl", content) == (
        "expected a whole file of its kind; found a bad pickle: a length of"
        " 1099511627776 bytes, more than are left. It is cut off, damaged or forged:"
        " copy or save it again."
    )
