"""How each check fails on a batch of its own tests, which run for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from rounddiag.batch import Batch
from rounddiag.checks import Check
from rounddiag.checks.contracts import Contract

ROOT = Path(__file__).parents[2]
# Leaves nothing in the checkout, has the same examples in every run, and takes modules
# as they were imported.
_ARGUMENTS = ["-q", "-p", "no:cacheprovider", "--hypothesis-seed=0", "--assert=plain"]


@dataclass(frozen=True)
class _Recorder:
    """A plugin of pytest that keeps the first failure of each check, with its file."""

    failures: dict[str, tuple[Check, str]] = field(default_factory=dict)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        """Record what checks find while a test runs."""
        check, file = Contract.check, item.path.relative_to(ROOT).as_posix()

        def record(contract: Contract, batch: Batch) -> Check:
            result = check(contract, batch)
            if result.status == "failed":
                self.failures.setdefault(result.name, (result, file))
            return result

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Contract, "check", record)
            yield


def record_failures() -> dict[str, tuple[Check, str]]:
    """Return the first failure of each check in its tests, and the file of the test."""
    recorder = _Recorder()
    status = pytest.main([*_ARGUMENTS, str(ROOT / "tests/checks")], [recorder])
    if status != pytest.ExitCode.OK:
        raise RuntimeError("the tests of checks fail")
    return recorder.failures
