"""What every test shares: the devices of this machine, and patience."""

from __future__ import annotations

import gc
from collections.abc import Generator
from fnmatch import fnmatch
from typing import Any

import pytest
import torch
from hypothesis import settings

# A busy machine is slow now and then; a test must not fail for it.
settings.register_profile("patient", deadline=None, max_examples=50)
settings.register_profile("quick", deadline=None, max_examples=20)
settings.load_profile("patient")

# The first runs in an environment of its own, the second by hand.
collect_ignore = ["interop", "benchmarks"]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look for no garbage in what is kept until the end: modules and tests.

    That is half of the time of a collection, and some of each test. What is frozen is
    not taken down at the exit, of which DuckDB complains: import it inside the tests.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(autouse=True, scope="session")
def _cache(tmp_path_factory: pytest.TempPathFactory) -> Generator[None, None, None]:
    """Keep the indexes of runs out of the user's cache folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ROUNDDIAG_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


# The files of a lab share a JupyterLab, a page of it and a kernel, which take long to
# start. They mostly wait for the page: two labs run beside each other on one core.
LABS = {
    "first lab": ("explorer_[a-m]", "figures", "harness", "hostile_text", "notebooks"),
    "second lab": ("explorer_[n-z]",),
}


def lab_of(test: str) -> str | None:
    """Return the lab that a test runs in; None if it needs no JupyterLab."""
    for lab, files in LABS.items():
        if any(fnmatch(test, f"tests/browser/test_{file}*") for file in files):
            return lab
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the labs: they take longest, and one process runs each."""
    items.sort(key=lambda test: lab_of(test.nodeid) is None)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> Any:
    """Have one process run all files of a lab."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    scheduling = LoadFileScheduling(config, log)
    file_of = scheduling._split_scope
    scheduling._split_scope = lambda test: lab_of(test) or file_of(test)
    return scheduling


# The process that deals the tests out imports this file, too: it needs no torch.
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that takes a device on every one that is there."""
    if "device" in metafunc.fixturenames:
        import torch

        names = ["cpu", *["cuda"] * torch.cuda.is_available()]
        metafunc.parametrize("device", names, indirect=True)


@pytest.fixture
def device(request: pytest.FixtureRequest) -> torch.device:
    import torch

    return torch.device(request.param)


@pytest.fixture
def forked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `load(untrusted=True)` fork instead of starting a Python."""
    from rounddiag.loaders.untrusted import guard
    from tests.fuzz.forked import run_forked

    monkeypatch.setattr(guard, "run_child", run_forked)


@pytest.fixture(scope="session")
def replies_of_small_batch() -> tuple[Any, list[tuple[str, object]]]:
    """What a report on a small batch is made of: it takes long to draw."""
    from rounddiag.export.replies import collect_replies
    from tests.batches import hand_batch

    diagnosis, replies = collect_replies(hand_batch(), {}, worst=3, samples=0)
    return diagnosis, [*replies]


@pytest.fixture
def drawn_once(
    replies_of_small_batch: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Let every report show the same small batch, where only its file is tested."""
    target = "rounddiag.export.page.collect_replies"
    monkeypatch.setattr(target, lambda *_, **__: replies_of_small_batch)
