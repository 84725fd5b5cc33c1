"""A private key-value store of the plugin, durable across runs; needs the `kv` grant."""

from __future__ import annotations

from collections.abc import Iterator

from conclave_sdk import _host

_PAGE = 256


def get(key: str) -> bytes | None:
    """Return the value of a key; `None` if the key is absent."""
    return _host.current().kv_get(key)


def get_text(key: str) -> str | None:
    """Return the value of a key as text in UTF-8; `None` if the key is absent."""
    value = get(key)
    return None if value is None else value.decode()


def set(key: str, value: bytes | str) -> None:
    """Insert or replace a value. Raises `QuotaExceeded`; then nothing was changed."""
    _host.current().kv_set(key, value.encode() if isinstance(value, str) else value)


def delete(key: str) -> None:
    """Remove a key; succeeds if it is absent."""
    _host.current().kv_delete(key)


def keys(prefix: str = "") -> Iterator[str]:
    """Return every key with this prefix, in byte order."""
    after: str | None = None
    while page := _host.current().kv_keys(prefix, after, _PAGE):
        yield from page
        after = page[-1]
