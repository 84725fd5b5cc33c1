"""Attachments. A call can read those that its view or arguments refer to, and its own."""

from __future__ import annotations

from conclave_sdk import _host
from conclave_sdk.types import Blob

_PAGE_BYTES = 256 * 1024


def read(blob: Blob) -> bytes:
    """Return the whole content. Raises `UnknownBlob` if the call has no access to it."""
    pages: list[bytes] = []
    offset = 0
    while offset < blob.length and (page := read_at(blob.sha256, offset, _PAGE_BYTES)):
        pages.append(page)
        offset += len(page)
    return b"".join(pages)


def read_at(sha256: str, offset: int, length: int) -> bytes:
    """Return at most `length` bytes from `offset`; empty past the end."""
    return _host.current().blob_read(sha256, offset, length)


def put(content: bytes | str, media_type: str, name: str | None = None) -> Blob:
    """Store content and return a reference to it. `name` is for display.

    Raises `QuotaExceeded` if it is too large; then nothing was stored.
    """
    whole = content.encode() if isinstance(content, str) else content
    return _host.current().blob_put(whole, media_type, name)
