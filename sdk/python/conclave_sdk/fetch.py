"""HTTP requests to the addresses that the operator granted; needs the `fetch` grant.

The host follows redirects and checks each one. `conclave_sdk.secrets` has placeholders for keys.
"""

from __future__ import annotations

import json as json_module
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar, overload
from urllib.parse import quote, urlencode

from conclave_sdk import _host, shapes
from conclave_sdk.errors import Error
from conclave_sdk.types import Extra

T = TypeVar("T")

_PAGE_BYTES = 256 * 1024
# Characters of a body that are shown in an error.
_SHOWN = 200


@dataclass
class Header:
    """A header of a request or a response."""

    name: str
    value: str


@dataclass
class Request:
    """A request as the host sends it."""

    method: str
    url: str
    headers: list[Header] = field(default_factory=list)
    body: bytes | None = None
    timeout_ms: int | None = None
    extra: Extra = field(default_factory=dict)


class Response:
    """A complete response, whose body the host holds until it is read."""

    def __init__(self, raw: _host.RawResponse) -> None:
        """Wrap the host's response."""
        self._raw = raw
        self.status = raw.status
        self.url = raw.url
        self.length = raw.length

    @property
    def ok(self) -> bool:
        """Whether the status is between 200 and 299."""
        return 200 <= self.status < 300

    @cached_property
    def headers(self) -> dict[str, str]:
        """The headers by their names in lower case; repeated ones are joined by `, `."""
        headers: dict[str, str] = {}
        for name, value in self._raw.headers:
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
        return headers

    def read_at(self, offset: int, length: int) -> bytes:
        """Return at most `length` bytes of the body from `offset`; empty past the end."""
        return self._raw.read(offset, length)

    @cached_property
    def content(self) -> bytes:
        """The whole body."""
        pages: list[bytes] = []
        offset = 0
        while offset < self.length and (page := self.read_at(offset, _PAGE_BYTES)):
            pages.append(page)
            offset += len(page)
        return b"".join(pages)

    @property
    def text(self) -> str:
        """The whole body as text in UTF-8; other bytes are replaced."""
        return self.content.decode(errors="replace")

    def check(self) -> Response:
        """Return the response. Raises `Error` if its status is not between 200 and 299."""
        if self.ok:
            return self
        raise Error(f"{self.url} answered with status {self.status}: {self.text[:_SHOWN]}")

    @overload
    def json(self) -> Any: ...
    @overload
    def json(self, kind: type[T]) -> T: ...
    def json(self, kind: Any = None) -> Any:
        """Return the body as JSON, as a `kind` such as a dataclass.

        Raises `Error` for another status than 200 to 299, and for a body of another form.
        """
        try:
            value = json_module.loads(self.check().content)
            return value if kind is None else shapes.convert(value, kind)
        except ValueError as error:
            raise Error(f"{self.url} answered otherwise than expected: {error}") from error


def get(
    url: str,
    *,
    query: Mapping[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
    timeout_ms: int | None = None,
) -> Response:
    """Send a GET request; see `request`."""
    return request("GET", url, query=query, headers=headers, timeout_ms=timeout_ms)


def post(
    url: str,
    *,
    json: Any = None,
    body: bytes | str | None = None,
    query: Mapping[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
    timeout_ms: int | None = None,
) -> Response:
    """Send a POST request; see `request`."""
    return request(
        "POST", url, json=json, body=body, query=query, headers=headers, timeout_ms=timeout_ms
    )


def request(
    method: str,
    url: str,
    *,
    json: Any = None,
    body: bytes | str | None = None,
    query: Mapping[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
    timeout_ms: int | None = None,
) -> Response:
    """Send a request, and wait for the whole response. A status such as 404 is a response.

    Raises `Denied`, `InvalidRequest`, `QuotaExceeded`, `TimeoutError` and `Unavailable`.

    Args:
        method: In upper case, such as `PUT`.
        url: `https://host[:port]/path[?query]`, or `http://…` if granted.
        json: A body as JSON, with its content type.
        body: A body of bytes or text.
        query: Parameters that are added to the query, encoded.
        headers: Further headers.
        timeout_ms: The limit for all redirects and the whole body; at most the grant's.
    """
    if query:
        url += ("&" if "?" in url else "?") + urlencode(query, quote_via=quote)
    sent = [Header(name, value) for name, value in _pairs(headers)]
    if json is not None:
        body = shapes.dumps(json)
        sent.append(Header("content-type", "application/json"))
    whole = body.encode() if isinstance(body, str) else body
    return Response(_host.current().fetch(Request(method, url, sent, whole, timeout_ms)))


def _pairs(headers: Mapping[str, str] | None) -> Iterable[tuple[str, str]]:
    return headers.items() if headers else ()
