"""A script of the harness as data: the events in a room, with their times.

The words are those of the harness of every language.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeVar

from conclave_sdk.delivery import Activity, ChannelKind, EndedTask, TaskStatus

if TYPE_CHECKING:
    from conclave_sdk.harness import Harness

E = TypeVar("E", bound=Enum)

# The words of each event besides its time: the required ones, and the optional ones.
_EVENTS: dict[str, tuple[list[str], list[str]]] = {
    "ends": (["task"], ["status", "output", "error"]),
    "activity": (["channel", "is"], []),
    "refuses": (["channel", "times"], []),
    "mutes": (["channel", "muted"], []),
    "leaves": (["channel"], []),
    "crashes": (["for_ms"], []),
}


def add_script(harness: Harness, data: Mapping[str, Any]) -> None:
    """Add the channels and the lines of a script to a harness.

    Raises `ValueError` with the wrong word and the valid ones.
    """
    _check("the script", data, ["channels", "script"], ["notify", "until", "expect"])
    _check("the script's expect", data.get("expect", {}), [], ["delivered", "inbox"])
    for channel in data["channels"]:
        _check("a channel", channel, ["id", "kind"], ["says_ms"])
        kind = _member("kind of channel", channel["kind"], ChannelKind)
        harness.channel(channel["id"], kind, says_ms=channel.get("says_ms", 0))
    for line in data["script"]:
        _add_line(harness, line)


def _add_line(harness: Harness, line: Mapping[str, Any]) -> None:
    rest = {word: value for word, value in line.items() if word not in ("at", "do")}
    event = line.get("do")
    if event not in _EVENTS:
        raise ValueError(_no("event", event, _EVENTS))
    _check(f"the event {event}", rest, *_EVENTS[event])
    harness.at(line.get("at", 0))
    match event:
        case "ends":
            status = _member("status", rest.pop("status", "completed"), TaskStatus)
            harness.ended(EndedTask(rest.pop("task"), status=status, **rest))
        case "activity":
            harness.activity(rest["channel"], _member("activity", rest["is"], Activity))
        case "refuses":
            harness.refuses(rest["channel"], rest["times"])
        case "mutes":
            harness.mutes(rest["channel"], rest["muted"])
        case "leaves":
            harness.leaves(rest["channel"])
        case _:
            harness.crashes(rest["for_ms"])


def _member(what: str, word: Any, kind: type[E]) -> E:
    for member in kind:
        if member.value == word:
            return member
    raise ValueError(_no(what, word, (member.value for member in kind)))


def _no(what: str, word: Any, known: Iterable[str]) -> str:
    return f"the script: {word!r} is no {what}: there are {', '.join(known)}"


def _check(what: str, data: Mapping[str, Any], required: list[str], optional: list[str]) -> None:
    missing = next((word for word in required if word not in data), None)
    if missing is not None:
        raise ValueError(f"{what} has no `{missing}`")
    known = [*required, *optional]
    unknown = next((word for word in data if word not in known), None)
    if unknown is not None:
        raise ValueError(f"{what} has no word `{unknown}`: there are {', '.join(known)}")
