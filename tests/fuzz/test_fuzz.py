"""A short run of the fuzzer, and proof that it would notice."""

from __future__ import annotations

import warnings
from collections import Counter
from itertools import islice
from multiprocessing import Pipe, get_context
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import rounddiag.loaders.open as opening
from rounddiag.errors import LoadError
from rounddiag.loaders import load
from rounddiag.loaders.containers import open_container
from rounddiag.loaders.detection import DATASET, FORMATS, content_names, find_format
from rounddiag.loaders.source import Source
from tests.fuzz import guard
from tests.fuzz.cases import case
from tests.fuzz.corpus import corpus
from tests.fuzz.running import outcomes

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

AT_RANDOM = 10_000_000  # the number of a case after all that only cut files off


def test_damaged_files_are_batches_or_load_errors() -> None:
    facts = list(islice(outcomes(0, lambda: True, AT_RANDOM), 40))

    assert [fact for fact in facts if fact["kind"] == "fault"] == []
    counts = Counter(fact["kind"] for fact in facts)
    assert counts["batch"] > 0
    assert counts["refused"] > counts["batch"]


def test_the_corpus_has_whole_files_of_every_format(tmp_path: Path) -> None:
    keys = set()
    for number, seed in enumerate(corpus()):
        place = tmp_path / str(number)
        for name, content in seed.files.items():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).write_bytes(content)
            root = open_container(Source.of_file(place / name))
            form = find_format(content_names(root))
            keys.add(form and form.keys)
        assert load(place / seed.opened, columns=seed.columns).num_tokens > 0

    # A data set with ids and a mask under verl's names is found by these, and a
    # checkpoint of AndroidWorld, a list, by its rows.
    names = {form.name for form in FORMATS if form.keys not in keys}
    assert names == {"checkpoints of episodes", DATASET.name}


def test_a_number_gives_the_same_case_again() -> None:
    seeds = corpus()

    assert case(AT_RANDOM + 7, seeds, 0) == case(AT_RANDOM + 7, seeds, 0)
    assert case(AT_RANDOM + 7, seeds, 0)[2] != case(AT_RANDOM + 7, seeds, 1)[2]


def test_the_first_cases_cut_a_file_off_at_every_percent() -> None:
    seeds = corpus()
    name = min(seeds[0].files)
    whole = seeds[0].files[name]

    for percent in range(100):
        _, how, data = case(percent, seeds, 0)
        assert how == f"cut at {percent} %"
        assert data == whole[: len(whole) * percent // 100]


DEEDS = {
    "import os; os.system('true')": ("fault", "audit: [\"os.system (b'true',)\"]"),
    "open('/etc/passwd')": ("fault", "audit: [\"open ('/etc/passwd', 'r', "),
    "open(path, 'w')": ("fault", "audit: [\"open ('/none/a', 'w', "),
    "import pickle; pickle.loads(b'cos\\nsystem\\n.')": ("fault", "pickle.find_class"),
    "bytearray(10**9)": ("limit", "in 0.4 GB of memory; found one that needs more"),
    "[].pop()": ("fault", "IndexError: pop from empty list"),
    "while True: pass": ("limit", "in 1 s; found one that takes longer"),
    "import os; os.abort()": ("crash", "SIGABRT"),
    "import os; open('/etc/passwd'); os.abort()": ("fault", "open ('/etc/passwd'"),
}


def watch(answers: Connection) -> None:
    """Do all deeds under guard, and send what it says of each."""
    deed = ""

    def read_batch(path: str, **_: object) -> None:
        exec(deed, {"path": path})  # noqa: S102 our own
        msg = "refused"
        raise LoadError(msg)

    vars(opening)["read_batch"] = read_batch
    watching = guard.Guard(Path("/none"))
    for deed in DEEDS:
        guard.SECONDS = 1 if deed.startswith("while") else 60
        outcome = watching.open(Path("/none/a"))
        answers.send((outcome.kind, outcome.message))


@pytest.fixture(scope="module")
def outcome_of_deed() -> dict[str, tuple[str, str]]:
    """Do all deeds in one process under guard, a fork; return what it says of each."""
    ours, theirs = Pipe()
    with warnings.catch_warnings():  # Python 3.12 warns where there are threads
        warnings.simplefilter("ignore", DeprecationWarning)
        process = get_context("fork").Process(target=watch, args=[theirs])
        process.start()
    theirs.close()
    found = {deed: ours.recv() for deed in DEEDS}
    process.join()
    return found


@pytest.mark.parametrize("deed", DEEDS)
def test_the_guard_notices(
    deed: str, outcome_of_deed: dict[str, tuple[str, str]]
) -> None:
    kind, message = DEEDS[deed]
    assert outcome_of_deed[deed][0] == kind
    assert message in outcome_of_deed[deed][1]
