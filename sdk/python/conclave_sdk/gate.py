"""A gate: it allows, modifies or blocks a text before the text takes effect.

A gate that raises, is refused or times out blocks.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from conclave_sdk.types import JsonObject


class Point(Enum):
    """The point in a room at which a gate is called."""

    INBOUND = "inbound"
    DELEGATE = "delegate"
    DELIVER = "deliver"
    SUBTASK = "subtask"
    OUTBOUND = "outbound"


@dataclass
class GateInput:
    """A text to check, with its origin and destination. `metadata` has further facts."""

    point: Point
    text: str
    room: str = ""
    channel: str | None = None
    from_task: str | None = None
    to_task: str | None = None
    metadata: JsonObject = field(default_factory=dict)


class Verdict:
    """Base class of the verdicts of a gate."""


@dataclass
class Allow(Verdict):
    """The text passes unchanged."""


@dataclass
class Modify(Verdict):
    """This text replaces the original."""

    text: str


@dataclass
class Block(Verdict):
    """The text is blocked, with this reason for its sender."""

    reason: str


class Gate:
    """A gate; a subclass is exported."""

    def check(self, input: GateInput) -> Verdict:
        """Return the verdict on a text."""
        raise NotImplementedError


def allow() -> Verdict:
    """Pass the text unchanged."""
    return Allow()


def modify(text: str) -> Verdict:
    """Pass this text instead, which the next gate gets."""
    return Modify(text)


def block(reason: str) -> Verdict:
    """Block the text, with a reason for its sender."""
    return Block(reason)
