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


def reply_with(explorer: Explorer, name: str, answer: Callable[..., object]) -> None:
    """Answer a request of one explorer by a function of its arguments."""
    others, stored = REQUESTS[name]
    own = explorer._requests  # other notebooks may have the same kernel

    def reply(requests: object, **args: object) -> object:
        return answer(**args) if requests is own else others(requests, **args)

    REQUESTS[name] = (reply, stored)
