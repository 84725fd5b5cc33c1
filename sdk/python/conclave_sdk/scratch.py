"""A small private state: per task for agents and tools, per room for strategies.

A new value is stored with the call's answer, and lost if the call fails. Calls of a tool plugin
whose manifest has `[asks.scratch]` take turns, so that each reads what the one before it stored.
"""

from __future__ import annotations

import json
from typing import Any, TypeVar, overload

from conclave_sdk import _host, shapes
from conclave_sdk.errors import Error

T = TypeVar("T")


@overload
def get() -> Any: ...
@overload
def get(kind: type[T]) -> T | None: ...
def get(kind: Any = None) -> Any:
    """Return the stored value as a `kind`, such as a dataclass; `None` at first.

    Raises `Error` if it does not have that form, such as after an update of the plugin.
    """
    content = get_bytes()
    if not content:
        return None
    value = json.loads(content)
    if kind is None:
        return value
    try:
        return shapes.convert(value, kind)
    except ValueError as error:
        raise Error(f"the scratch: {error}") from error


def set(value: Any) -> None:
    """Replace the value. Raises `QuotaExceeded`; then nothing was changed."""
    set_bytes(shapes.dumps(value).encode())


def get_bytes() -> bytes:
    """Return the stored bytes; empty at first."""
    return _host.current().scratch()


def set_bytes(value: bytes) -> None:
    """Replace the bytes. Raises `QuotaExceeded`; then nothing was changed."""
    _host.current().set_scratch(value)
