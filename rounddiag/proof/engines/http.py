"""Requests to the one host that the user named: JSON in, JSON out, no redirects."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from rounddiag.errors import BatchError, LoadError

_TIMEOUT_S = 600.0  # a long sample on a busy server takes minutes
_SHOWN = 300  # characters of an answer in an error


class ServerError(LoadError):
    """A server did not answer, or answered something that cannot be used."""


class StatusError(ServerError):
    """A server answered with a status of failure."""

    status: int = 0


@dataclass(frozen=True)
class Host:
    """A server at an address.

    Attributes
    ----------
    url : str
        Scheme, host, port and path, without a slash at the end.
    timeout_s : float
        For each request.
    """

    url: str
    timeout_s: float = _TIMEOUT_S

    @classmethod
    def at(cls, address: str) -> Host:
        """Return the server at an address.

        Examples
        --------
        >>> Host.at("http://127.0.0.1:8000/").url
        'http://127.0.0.1:8000'
        """
        try:
            parts = urlsplit(address)
            is_good = parts.scheme in {"http", "https"} and bool(parts.hostname)
            _ = parts.port
        except ValueError:
            is_good = False
        if not is_good or "@" in parts.netloc or parts.query:
            raise BatchError.build(
                key="engine",
                expected="an address such as http://127.0.0.1:8000",
                found="one with a password or a query"
                if is_good
                else repr(address[:80]),
                advice="Pass scheme, host and port of the server.",
            )
        return cls(f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}")

    @property
    def name(self) -> str:
        """Host and port, as they are printed."""
        return urlsplit(self.url).netloc

    @property
    def is_local(self) -> bool:
        """Whether it is this machine."""
        host = urlsplit(self.url).hostname or ""
        try:
            return ip_address(host).is_loopback
        except ValueError:
            return host == "localhost"

    def get(self, path: str) -> Any:  # noqa: ANN401 JSON
        """Return the answer to a GET request."""
        return self._ask(path, None)

    def post(self, path: str, body: dict[str, Any]) -> Any:  # noqa: ANN401 JSON
        """Return the answer to a POST request."""
        return self._ask(path, json.dumps(body).encode())

    def _ask(self, path: str, data: bytes | None) -> Any:  # noqa: ANN401 JSON
        request = urllib.request.Request(  # noqa: S310 http or https only
            self.url + path, data, {"Content-Type": "application/json"}
        )
        handlers: list[urllib.request.BaseHandler] = [_NoRedirect()]
        if self.is_local:
            handlers.append(urllib.request.ProxyHandler({}))
        opener = urllib.request.build_opener(*handlers)
        try:
            with opener.open(request, timeout=self.timeout_s) as answer:
                text = answer.read()
            return json.loads(text or b"null")
        except urllib.error.HTTPError as error:
            raise self._status_error(path, error) from error
        except TimeoutError as error:
            raise self._silence(path) from error
        except urllib.error.URLError as error:
            if isinstance(error.reason, TimeoutError):
                raise self._silence(path) from error
            raise self._unreachable(path, error) from error
        except (OSError, ValueError) as error:
            raise self._unreachable(path, error) from error

    def _status_error(self, path: str, error: urllib.error.HTTPError) -> StatusError:
        with error:
            text = error.read(10 * _SHOWN).decode("utf-8", "replace")
        found = StatusError.build(
            file=self.url + path,
            expected="an answer",
            found=f"HTTP {error.code}: {' '.join(text.split())[:_SHOWN]}",
            advice=_ADVICE.get(error.code, "See the server's log."),
        )
        found.status = error.code
        return found

    def _silence(self, path: str) -> ServerError:
        return ServerError.build(
            file=self.url + path,
            expected=f"an answer within {self.timeout_s:g} s",
            found="none",
            advice="See whether the server is busy; choose fewer or shorter samples.",
        )

    def _unreachable(self, path: str, error: Exception) -> ServerError:
        return ServerError.build(
            file=self.url + path,
            expected="a server that answers with JSON",
            found=f"{type(error).__name__}: {error!s:.200}",
            advice="Check the address, and that the server is up.",
        )


_ADVICE = {
    400: "Check that the server has the model of the batch, and that its longest"
    " context is as long as the samples.",
    401: "No key is sent: use a server without one, such as on this machine.",
    403: "Start vLLM with --enable-scale-out (before 0.33:"
    " VLLM_ENABLE_SCALE_OUT_ENDPOINTS=1), to score pictures.",
    404: "Check the address, and the version of the server.",
}


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Stays at the host that was named."""

    def redirect_request(self, *_: Any, **__: Any) -> None:  # noqa: ANN401 of the base
        return None
