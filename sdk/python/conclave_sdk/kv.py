"""A private key-value store of the plugin, durable across runs; needs the `kv` grant."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, TypeVar, overload

from conclave_sdk import _host, shapes
from conclave_sdk.errors import Error

T = TypeVar("T")

_PAGE = 256


def get(key: str) -> bytes | None:
    """Return the value of a key; `None` if the key is absent."""
    return _host.current().kv_get(key)


def get_text(key: str) -> str | None:
    """Return the value of a key as text in UTF-8; `None` if the key is absent."""
    value = get(key)
    return None if value is None else value.decode()


@overload
def get_json(key: str) -> Any: ...
@overload
def get_json(key: str, kind: type[T]) -> T | None: ...
def get_json(key: str, kind: Any = None) -> Any:
    """Return the JSON of a key, as a `kind` such as a dataclass; `None` if the key is absent.

    Raises `Error` if it does not have that form, such as after an update of the plugin.
    """
    text = get(key)
    if text is None:
        return None
    try:
        value = json.loads(text)
        return value if kind is None else shapes.convert(value, kind)
    except ValueError as error:
        raise Error(f"kv: the value of {key}: {error}") from error


def set(key: str, value: bytes | str) -> None:
    """Insert or replace a value. Raises `QuotaExceeded`; then nothing was changed."""
    _host.current().kv_set(key, value.encode() if isinstance(value, str) else value)


def set_json(key: str, value: Any) -> None:
    """Insert or replace a value with this one, as JSON."""
    set(key, shapes.dumps(value))


def delete(key: str) -> None:
    """Remove a key; succeeds if it is absent."""
    _host.current().kv_delete(key)


def keys(prefix: str = "") -> Iterator[str]:
    """Return every key with this prefix, in byte order."""
    after: str | None = None
    while page := _host.current().kv_keys(prefix, after, _PAGE):
        yield from page
        after = page[-1]
