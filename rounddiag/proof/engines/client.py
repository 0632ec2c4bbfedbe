"""Requests to the one host that the user named: JSON in, JSON out, no redirects."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import urlsplit

from rounddiag.errors import BatchError, LoadError, import_extra
from rounddiag.text.json_text import JsonError, parse_json

if TYPE_CHECKING:
    import httpx

TIMEOUT_S = 600.0  # a long sample on a busy server takes minutes
MOST_BYTES = 2**27  # of an answer: a million tokens at some 100 bytes a token
_SHOWN = 300  # characters of an answer in an error
OTHER_SERVER = "Pass the address of a vLLM or SGLang server."


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
    url: Scheme, host, port and path, without a slash at the end.
    timeout_s: For each request, from connecting to the last byte of the answer.
    """

    url: str
    timeout_s: float = TIMEOUT_S

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

    def get(self, path: str) -> Any:  # noqa: ANN401 JSON
        """Return the answer to a GET request."""
        return self._ask("GET", path, None)

    def post(self, path: str, body: dict[str, Any]) -> Any:  # noqa: ANN401 JSON
        """Return the answer to a POST request."""
        return self._ask("POST", path, body)

    def _ask(self, method: str, path: str, body: dict[str, Any] | None) -> Any:  # noqa: ANN401 JSON
        httpx = import_extra("httpx", "prove", "to ask a server")
        deadline = _Deadline(self.timeout_s)
        client = httpx.Client(
            trust_env=False,  # neither proxies nor passwords of this machine
            timeout=self.timeout_s,
            headers={"Accept-Encoding": "identity"},
            verify=self.url.startswith("https:"),
        )
        try:
            with (
                deadline,
                client,
                client.stream(
                    method,
                    self.url + path,
                    json=body,
                    extensions={"trace": deadline.trace},
                ) as answer,
            ):
                text = self._read(path, answer)
            if deadline.is_over:
                self._refuse_silence(path)
            return parse_json(text or b"null")
        except (httpx.HTTPError, httpx.InvalidURL, OSError, JsonError) as error:
            if deadline.is_over or isinstance(error, httpx.TimeoutException):
                self._refuse_silence(path)
            self._refuse_answer(path, error)

    def _read(self, path: str, answer: httpx.Response) -> bytes:
        if not answer.is_success:
            raise self._status_error(path, answer)
        text = bytearray()
        for part in answer.iter_raw():
            text += part
            if len(text) > MOST_BYTES:
                expected = f"an answer of at most {MOST_BYTES / 1e6:.0f} MB"
                self.refuse(expected, "a longer one", OTHER_SERVER, path)
        return bytes(text)

    def _status_error(self, path: str, answer: httpx.Response) -> StatusError:
        text = bytearray()
        with suppress(Exception):  # what there is of it is shown
            for part in answer.iter_raw():
                text += part
                if len(text) > 10 * _SHOWN:
                    break
        words = " ".join(text.decode("utf-8", "replace").split())[:_SHOWN]
        error = StatusError.build(
            file=self.url + path,
            expected="an answer",
            found=f"HTTP {answer.status_code}: {words}".rstrip(" .:"),
            advice=_ADVICE.get(answer.status_code, "See the server's log."),
        )
        error.status = answer.status_code
        return error

    def _refuse_silence(self, path: str) -> NoReturn:
        advice = "See whether the server is busy; choose fewer or shorter samples."
        self.refuse(f"an answer within {self.timeout_s:g} s", "none", advice, path)

    def _refuse_answer(self, path: str, error: Exception) -> NoReturn:
        content = f"{type(error).__name__}: {error!s:.200}".rstrip(" .:")
        advice = "Check the address, and that the server is up."
        self.refuse("a server that answers with JSON", content, advice, path)

    def refuse(
        self, expected: str, content: str, advice: str, path: str = ""
    ) -> NoReturn:
        """Raise a ServerError that names the server."""
        raise ServerError.build(
            file=self.url + path, expected=expected, found=content, advice=advice
        )


class _Deadline:
    """Ends a request at one time, however slowly bytes come: its socket is shut."""

    def __init__(self, seconds: float) -> None:
        self.is_over = False
        self._sockets: list[socket.socket] = []
        self._timer = threading.Timer(seconds, self._end)
        self._timer.daemon = True

    def __enter__(self) -> None:
        self._timer.start()

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()

    def trace(self, event: str, info: dict[str, Any]) -> None:
        """Note the sockets that httpx opens."""
        if event.endswith(("connect_tcp.complete", "start_tls.complete")):
            self._sockets.append(info["return_value"].get_extra_info("socket"))

    def _end(self) -> None:
        self.is_over = True
        for connection in self._sockets:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


_ADVICE = {
    400: "Check that the server has the model of the batch, and that its longest"
    " context is as long as the samples.",
    401: "No key is sent: use a server without one, such as on this machine.",
    403: "Start vLLM with --enable-scale-out (before 0.33:"
    " VLLM_ENABLE_SCALE_OUT_ENDPOINTS=1), to score pictures.",
    404: "Check the address, and the version of the server.",
}
