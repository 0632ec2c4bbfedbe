"""What Python answers to a page, for tests that note it, delay it or break it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from rounddiag.widgets import Explorer
from rounddiag.widgets.requests import REQUESTS


def replies_of(explorer: Explorer) -> dict[str, Callable[..., object]]:
    """Return what answers each request of an explorer."""
    requests = explorer._requests
    return {name: partial(answer, requests) for name, (answer, _) in REQUESTS.items()}


def reply_with(name: str, answer: Callable[..., object]) -> None:
    """Answer a request of all explorers by a function of its arguments."""
    REQUESTS[name] = (lambda _, **args: answer(**args), REQUESTS[name][1])
