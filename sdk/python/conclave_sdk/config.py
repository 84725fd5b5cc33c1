"""The plugin's own settings: its `config` table in the operator's file. They need no grant."""

from __future__ import annotations

import re
from typing import Any, TypeVar, overload

from conclave_sdk import _host, shapes
from conclave_sdk.errors import Error

T = TypeVar("T")

_UNITS = {"ms": 1, "s": 1_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


@overload
def get() -> dict[str, Any]: ...
@overload
def get(kind: type[T]) -> T: ...
def get(kind: Any = None) -> Any:
    """Return the settings as a `kind`, such as a dataclass with defaults.

    Raises `Error`, which names the key, if they do not have that form.
    """
    settings = _host.current().config()
    if kind is None:
        return settings
    try:
        return shapes.convert(settings, kind)
    except ValueError as error:
        raise Error(f"the plugin's config: {error}") from error


def milliseconds(text: str) -> int:
    """Return a duration in the operator's notation, such as `15 s`, `500 ms`, `2 min` or `1 h`.

    Raises `Error` for any other text; a number needs a unit, except 0.
    """
    match = re.fullmatch(r"\s*(\d+)\s*(ms|s|min|h|d)?\s*", text)
    if match is None or (match[2] is None and int(match[1]) != 0):
        raise Error(
            f'{text!r} is no time: write a whole number and ms, s, min, h or d, such as "15 s"'
        )
    return int(match[1]) * _UNITS[match[2] or "ms"]
