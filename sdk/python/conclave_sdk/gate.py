"""A gate: it allows, modifies or blocks a text before the text takes effect.

A gate that raises, is refused or times out blocks.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from enum import Enum

from conclave_sdk.types import Json, JsonObject


class Point(Enum):
    """The point in a room at which a gate is called."""

    INBOUND = "inbound"
    DELEGATE = "delegate"
    DELIVER = "deliver"
    SUBTASK = "subtask"
    OUTBOUND = "outbound"
    TOOL_CALL = "tool-call"
    TOOL_RESULT = "tool-result"


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


@dataclass
class ToolResult:
    """The readable parts of a tool's result, as a gate reads and changes them."""

    content: str | None = None
    value: Json = None
    error: str | None = None


def arguments(input: GateInput) -> JsonObject:
    """Return the arguments of the call at `Point.TOOL_CALL`."""
    parsed: JsonObject = json.loads(input.text)
    return parsed


def result(input: GateInput) -> ToolResult:
    """Return the result at `Point.TOOL_RESULT`."""
    return ToolResult(**json.loads(input.text))


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


def modify_arguments(arguments: JsonObject) -> Verdict:
    """Let the call run with these arguments, which must fit the tool's schema."""
    return Modify(json.dumps(arguments, ensure_ascii=False))


def modify_result(result: ToolResult) -> Verdict:
    """Let this result be read in place of the tool's own."""
    parts = {key: part for key, part in asdict(result).items() if part is not None}
    return Modify(json.dumps(parts, ensure_ascii=False))


def block(reason: str) -> Verdict:
    """Block the text, with a reason for its sender."""
    return Block(reason)
