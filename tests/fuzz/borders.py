"""Odd answers, run folders, trajectories and index tables, and what becomes of them.

    python -m tests.fuzz.borders                  500 cases
    python -m tests.fuzz.borders --cases 2000 --run 3
    python -m tests.fuzz.borders --case 77        one case again, with its traceback

Each must end in a result or in an error of this package; that of an index table, in the
rows that the files have. Ends with 1 if there was a fault.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from copy import deepcopy
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pandas as pd

import rounddiag as rd
from rounddiag.errors import RounddiagError
from tests.fuzz.damage import DAMAGES
from tests.fuzz.structure import parquet_changed
from tests.proof.fake_server import make_batch, png, serve

SECONDS = 60  # of a case; a server of another process may hold it for 2 s
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 7, 0.5, -0.5, 10**30, -(10**400), 1e308, float("nan")),
    *(float("inf"), float("-inf"), "", "x", "7", "a\0b", "../secret.png", "n" * 5000),
    *("\ud800", "\u202e", "\x1b]0;A\x07", "<script>", [], {}, [[]], [[1], [2, 3]]),
    *([None], ["a"], {"a": 1}, [{}], [1.5], [10**30]),
)
DEEP = b"[" * 100_000


def changed(random: Random, document: Any) -> Any:
    """Change a value somewhere in a JSON document: its type, its length, its name."""
    places = [*_places(document)]
    odd = deepcopy(random.choice(VALUES))  # each case has lists of its own
    if not places:
        return odd
    holder, key = random.choice(places)
    match random.randrange(5):
        case 0 if isinstance(holder, dict):
            del holder[key]
        case 1 if isinstance(holder, list):
            holder.append(deepcopy(random.choice([*holder, odd])))
        case 2 if isinstance(holder, list):
            del holder[random.randrange(len(holder)) :]
        case 3:
            holder[key] = [holder[key]]
        case _:
            holder[key] = odd
    return document


def _places(document: Any) -> Iterator[tuple[Any, Any]]:
    items = document.items() if isinstance(document, dict) else enumerate(document)
    for key, value in [*items]:
        yield document, key
        if isinstance(value, dict | list):
            yield from _places(value)


def text_of(random: Random, document: Any) -> bytes:
    """Return a changed document as bytes, which may be damaged as well."""
    for _ in range(random.choice((1, 1, 2, 4))):
        document = changed(random, document)
        if not isinstance(document, dict | list):
            break
    data = json.dumps(document).encode()
    if random.random() < 0.2:
        data = random.choice(DAMAGES)(random, data)
    return random.choice((*[data] * 20, DEEP, b"", b"\xff\xfe", b"9" * 5000))


def answers(random: Random, folder: Path) -> None:
    """A server, one of whose answers is odd."""
    del folder
    batch = make_batch(pictures=False)[:1]
    with serve(kind=random.choice(("vllm", "sglang"))) as fake:
        sound, turn = fake.answer, random.randrange(4)
        calls: list[str] = []

        def answer(path: str, body: Any) -> tuple[int, Any]:
            status, found = sound(path, body)
            calls.append(path)
            if len(calls) - 1 != turn or found is None:
                return status, found
            odd = text_of(random, json.loads(json.dumps(found)))
            return random.choice((200, 200, 200, status, 400, 500)), odd

        fake.answer = answer  # type: ignore[method-assign]
        rd.rescore(batch, fake.url)


def _trajectory(random: Random) -> dict[str, Any]:
    part = {"type": "image", "source": {"path": "a.png"}}
    call = {"function_name": "click", "arguments": {"x": random.randrange(9)}}
    result = {"content": [part], "subagent_trajectory_ref": [{"trajectory_id": "t"}]}
    observed = {"results": [result]}
    step = {"source": "agent", "tool_calls": [call], "observation": observed}
    steps = [{"source": "user", "message": [part]}, step, {**step}]
    document = {"schema_version": "ATIF-v1.6", "session_id": "s0", "steps": steps}
    return json.loads(json.dumps(document))


def _episode(random: Random) -> dict[str, Any]:
    call = {"name": "click", "arguments": f'{{"x": {random.randrange(9)}}}'}
    nodes = [
        {"parent": None, "message": {"content": [{"image_url": {"url": "data:,"}}]}},
        {"parent": 0, "sampled": True, "message": {"tool_calls": [call]}},
        {"parent": 1, "sampled": True, "message": {"content": "done"}},
    ]
    return {"env": "gui", "traces": [{"id": "s0", "nodes": nodes}]}


def put_odd_file(random: Random, folder: Path, name: str) -> None:
    """Put something that is no file of a run, or of trajectories, under a name."""
    path = folder / name
    target = random.choice((folder.parent / "secret", "nothing", name, "/dev/zero"))
    match random.randrange(4):
        case 0:
            os.mkfifo(path)
        case 1:
            path.mkdir()
        case 2:
            path.symlink_to(target)
        case 3:
            path.write_bytes(random.choice((b"", b"PAR1", b"{", DEEP, b"\xff" * 99)))


def trajectories(random: Random, folder: Path) -> None:
    """Files of agents, of which one is odd."""
    (folder / "secret").write_bytes(png(9))
    home = folder / "home"
    home.mkdir()
    (home / "a.png").write_bytes(png(7))
    if random.random() < 0.6:
        (home / "t.json").write_bytes(text_of(random, _trajectory(random)))
    else:
        (home / "t.jsonl").write_bytes(text_of(random, _episode(random)) + b"\n")
    if random.random() < 0.3:
        put_odd_file(random, home, random.choice(("b.json", "b.jsonl", "b.png")))
    batch = rd.load("sample_data/healthy.parquet")[:3]
    batch = replace(batch, sample_ids=("s0", "t", "home"), images=None)
    found = rd.attach(batch, "trajectories", home)
    rd.round_frame(found)
    str(rd.check(found))
    rd.save(found, folder / "again.parquet")
    rd.load(folder / "again.parquet")


NAMES = (
    *("step_1.parquet", "step_2.parquet", "STEP-3.parquet", "step_-4.parquet"),
    *("step_99999999999999999999.parquet", "5.parquet", "x.parquet", "step_7.pt"),
    *(
        "step_8_rank_0.parquet",
        "step_8_rank_1.parquet",
        "a\nb_9.parquet",
        "[1].parquet",
    ),
    *("step_10.parquet\ud800", "é_11.parquet", "rank_2.parquet", "step_12.jsonl"),
)


def run_folders(random: Random, folder: Path) -> None:
    """A run, of whose files some are damaged, or none."""
    home = folder / "run"
    home.mkdir()
    (folder / "secret").write_bytes(Path("sample_data/healthy.parquet").read_bytes())
    whole = _small_step(folder)
    for name in random.sample(NAMES, random.randrange(2, 6)):
        safe = name.encode(
            "utf-8", "surrogateescape" if "\ud800" not in name else "replace"
        )
        kind = random.random()
        if kind < 0.2:
            put_odd_file(random, home, safe.decode())
        else:
            damage = random.choice((*DAMAGES, parquet_changed))
            data = whole if kind < 0.5 else _damaged(random, damage, whole)
            (home / safe.decode()).write_bytes(data)
    run = rd.open_run(home)
    use_run(random, run)


def _damaged(random: Random, damage: Callable[..., bytes], data: bytes) -> bytes:
    try:
        return damage(random, data)
    except Exception:  # noqa: BLE001 the writer itself refuses such a value
        return data[: random.randrange(len(data))]


def _small_step(folder: Path) -> bytes:
    batch = make_batch(pictures=False)[:3]
    rd.save(replace(batch, step=1), folder / "whole.parquet")
    return (folder / "whole.parquet").read_bytes()


def use_run(random: Random, run: rd.Run) -> None:
    """Do what a user does with a run."""
    uses: list[Callable[[], object]] = [
        run.summary,
        run.step_summary,
        run.changes,
        partial(run.diagnose, run.steps[:2]),
        lambda: run.batch(run.steps[0]),
        lambda: run.sample(run.steps[-1], 0),
        run.refresh,
        lambda: rd.plot_run(run),
    ]
    for use in random.sample(uses, 4):
        with suppress(RounddiagError):
            use()
    repr(run)


def indexes(random: Random, folder: Path) -> None:
    """An index that is damaged; the rows must be those of the files."""
    home, cache = folder / "run", folder / "cache"
    home.mkdir()
    os.environ["ROUNDDIAG_CACHE"] = str(cache)
    whole = _small_step(folder)
    for step in (1, 2, 3):
        (home / f"step_{step}.parquet").write_bytes(whole)
    true = rd.open_run(home).step_summary()
    (index,) = cache.glob("*.index")
    data = index.read_bytes()
    kind = random.randrange(4)
    if kind == 0:
        index.unlink()
        put_odd_file(random, index.parent, index.name)
    elif kind == 1:
        index.write_bytes(data[: random.randrange(len(data))])
    elif kind == 2:
        odd = _damaged(random, parquet_changed, data[32:])
        index.write_bytes(random.choice((data[:32], b"")) + odd)
    else:
        index.write_bytes(random.choice(DAMAGES)(random, data))
    pd.testing.assert_frame_equal(rd.open_run(home).step_summary(), true)


KINDS: tuple[Callable[[Random, Path], None], ...] = (
    answers,
    run_folders,
    trajectories,
    indexes,
)


@contextmanager
def limited(seconds: int) -> Iterator[None]:
    """Raise an error in what takes longer."""

    def late(*_: object) -> None:
        msg = f"it took more than {seconds} s"
        raise SystemError(msg)

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def outcome(number: int, run: int) -> tuple[str, str, str]:
    """Run a case; return its kind, "result", "refused" or "fault", and the fault."""
    random = Random(f"borders {run} {number}")  # noqa: S311 no secret
    make = KINDS[number % len(KINDS)]
    folder = Path(tempfile.mkdtemp(prefix="borders-"))
    cache = os.environ.get("ROUNDDIAG_CACHE")
    os.environ["ROUNDDIAG_CACHE"] = str(folder / "cache")
    try:
        with limited(SECONDS), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            make(random, folder)
    except RounddiagError as error:
        return make.__name__, "refused", str(error)
    except (Exception, SystemExit):  # noqa: BLE001 what is looked for
        return make.__name__, "fault", traceback.format_exc()
    finally:
        os.environ.pop("ROUNDDIAG_CACHE")
        if cache is not None:
            os.environ["ROUNDDIAG_CACHE"] = cache
        shutil.rmtree(folder, ignore_errors=True)
    return make.__name__, "result", ""


def main() -> int:
    """Run cases, and print what became of them."""
    os.environ["TQDM_DISABLE"] = "1"
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=500)
    parser.add_argument("--run", type=int, default=0, help="another run, other cases")
    parser.add_argument("--case", type=int, help="one case again")
    options = parser.parse_args()
    if options.case is not None:
        print(*outcome(options.case, options.run), sep="\n")
        return 0
    found = [outcome(number, options.run) for number in range(options.cases)]
    for (kind, end), count in sorted(Counter(one[:2] for one in found).items()):
        print(f"{count:6} {kind}: {end}")
    for number, (kind, end, text) in enumerate(found):
        if end == "fault":
            print(f"case {number}, {kind}: {text.strip().splitlines()[-1]:.200}")
    return int(any(end == "fault" for _, end, _ in found))


if __name__ == "__main__":
    sys.exit(main())
