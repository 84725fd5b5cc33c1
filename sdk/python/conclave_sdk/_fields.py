"""The types of the fixed form's fields: how each is read, and its name in an error."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from conclave_sdk._forms import UNKNOWN_COMMAND

WRONG = object()
"""What a reader returns for a value of another type."""

# Characters of a value in an error.
_SHORT = 60
# Above this a float does not identify a single integer.
_EXACT = 2**53


def is_whole(value: Any) -> bool:
    """Return whether a value is a whole number of 64 bits, also if it is written as `3.0`."""
    if isinstance(value, bool):
        return False
    if isinstance(value, int):
        return -(2**63) <= value < 2**63
    return isinstance(value, float) and value.is_integer() and abs(value) < _EXACT


def _text(value: Any) -> Any:
    return value if isinstance(value, str) else WRONG


def _flag(value: Any) -> Any:
    # Models write flags as text; both spellings are unambiguous.
    if isinstance(value, str):
        return {"true": True, "false": False}.get(value.lower(), WRONG)
    return value if isinstance(value, bool) else WRONG


def _whole(value: Any) -> Any:
    if isinstance(value, str) and re.fullmatch(r"[+-]?[0-9]+", value.strip()):
        value = int(value)
    return int(value) if is_whole(value) else WRONG


def _id(value: Any) -> Any:
    if isinstance(value, str):
        return value
    return int(value) if is_whole(value) else WRONG


def _object(value: Any) -> Any:
    return dict(value) if isinstance(value, dict) else WRONG


def _any(value: Any) -> Any:
    return value


def _word(*words: str) -> Callable[[Any], Any]:
    return lambda value: value if value in words and isinstance(value, str) else WRONG


def _risk(value: Any) -> Any:
    # O-044: an invalid risk reads as an unknown one.
    return int(value) if is_whole(value) and value in (0, 1, 2) else -1


def _list(item: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        if not isinstance(value, list):
            return WRONG
        items = [item(one) for one in value]
        return WRONG if any(one is WRONG for one in items) else items

    return read


def _by_name(item: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        if not isinstance(value, dict):
            return WRONG
        items = {name: item(one) for name, one in value.items()}
        return WRONG if any(one is WRONG for one in items.values()) else items

    return read


def _optional(item: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else item(value)


def _delegate(value: Any) -> Any:
    if not isinstance(value, dict) or not value.keys() <= {"agent", "inputs"}:
        return WRONG
    agent, inputs = _text(value.get("agent")), value.get("inputs")
    inputs = {} if inputs is None else _object(inputs)
    return WRONG if agent is WRONG or inputs is WRONG else {"agent": agent, "inputs": inputs}


def _knowledge(value: Any) -> Any:
    names = ("name", "trigger", "content")
    if not isinstance(value, dict) or value.keys() != set(names):
        return WRONG
    is_text = all(isinstance(value[name], str) for name in names)
    return {name: value[name] for name in names} if is_text else WRONG


def _metadata(value: Any) -> Any:
    # Other names are ignored, because some writers of logs add their own.
    if not isinstance(value, dict):
        return WRONG
    read = {}
    for name, default in UNKNOWN_COMMAND.items():
        reader = _optional(_text)
        if default is not None:
            reader = _whole if isinstance(default, int) else _text
        read[name] = reader(value[name]) if name in value else default
    return WRONG if any(one is WRONG for one in read.values()) else read


# The name of each type in an error, and its reader.
_TYPES: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "text": ("a string", _text),
    "flag": ("true or false", _flag),
    "whole": ("a whole number", _whole),
    "id": ("an id: a whole number or a string", _id),
    "object": ("an object", _object),
    "list": ("a list", _list(_any)),
    "texts": ("a list", _list(_text)),
    "wholes": ("a list", _list(_whole)),
    "delegates": ("a list", _list(_delegate)),
    "knowledge": ("a list", _list(_knowledge)),
    "wholes by name": ("an object", _by_name(_whole)),
    "texts by name": ("an object", _by_name(_text)),
    "confirmation": (
        "confirmed, rejected or awaiting_confirmation",
        _word("confirmed", "rejected", "awaiting_confirmation"),
    ),
    "recall": ("workspace_context or knowledge", _word("workspace_context", "knowledge")),
    "reader": ("default or oh_aci", _word("default", "oh_aci")),
    "editor": ("oh_aci or llm_based_edit", _word("oh_aci", "llm_based_edit")),
    "risk": ("-1, 0, 1 or 2", _risk),
    "metadata": (
        "an object with whole numbers `exit_code` and `pid`, and strings",
        _metadata,
    ),
}


def read_field(kind: str, name: str, type_name: str, value: Any, default: Any) -> Any:
    """Return a field's value, or the default for null. Raises `ValueError` for another type."""
    expected, reader = _TYPES[type_name.removeprefix("?")]
    if value is None and type_name.startswith("?"):
        return None
    read = reader(value)
    if read is not WRONG:
        return read
    if value is None:
        return default
    raise ValueError(f"`{name}` of `{kind}` must be {expected}, and is {short(value)}.")


def compact(value: Any) -> str:
    """Return JSON on one line, with sorted keys."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def short(value: Any) -> str:
    """Return a value short enough for an error message."""
    text = compact(value)
    return text if len(text) <= _SHORT else f"{text[:_SHORT]}…"


def listed(names: list[str]) -> str:
    """Return a list of names for a sentence; `none` if it is empty."""
    return ", ".join(names) or "none"
