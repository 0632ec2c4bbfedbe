"""What every test shares: the devices of this machine, and patience."""

from __future__ import annotations

import pytest
import torch
from hypothesis import settings

# A busy machine is slow now and then; a test must not fail for it.
settings.register_profile("patient", deadline=None)
settings.register_profile("quick", deadline=None, max_examples=20)
settings.load_profile("patient")

collect_ignore = ["interop"]  # runs in an environment of its own: tests/run --interop

DEVICES = ["cpu", *["cuda"] * torch.cuda.is_available()]


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> torch.device:
    """Run the test on every device that is there."""
    return torch.device(request.param)
