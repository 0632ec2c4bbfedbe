"""Pickles made to exhaust: each ends in a LoadError, quickly and in little memory."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from tests.loaders.refusal import refused, text

DEEP = 100_000
MANY = struct.pack("<Q", 1 << 40)  # a length of a terabyte

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


def test_a_false_length_is_refused(tmp_path: Path) -> None:
    content = b"\x80\x04" + BOMBS["a terabyte of bytes"]

    assert refused(tmp_path / "a.pkl", content) == (
        "expected a whole file of its kind; found a bad pickle: a length of"
        " 1099511627776 bytes, more than are left. It is cut off, damaged or forged:"
        " copy or save it again."
    )
