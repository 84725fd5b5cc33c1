"""The values that several interfaces of the contract share.

Field names are those of `wit/types.wit`. Fields that are JSON text there are Python values here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Annotated, Any, TypeAlias

Json: TypeAlias = Annotated[Any, "json"]
"""A value that JSON can express."""

JsonObject: TypeAlias = Annotated[dict[str, Any], "json"]
"""A JSON object."""

Extra: TypeAlias = Annotated[dict[str, Any], "extra"]
"""Extension fields by key, with JSON values."""


class Role(Enum):
    """The role of a message's sender in a task."""

    LLM = "llm"
    AGENT = "agent"
    USER = "user"
    SYSTEM = "system"


@dataclass
class ToolCall:
    """A request to run a tool. `name` is `plugin.tool`; the host assigns an empty `id`."""

    name: str
    arguments: JsonObject = field(default_factory=dict)
    id: str = ""


@dataclass
class ToolResult:
    """The result of a tool call, as the model reads it; of a failed one, the reason."""

    call_id: str
    name: str
    content: str
    is_error: bool = False


@dataclass
class Blob:
    """A reference to content that the host stores. `length` is in bytes, `name` is for display."""

    sha256: str
    media_type: str
    length: int
    name: str | None = None


@dataclass
class Message:
    """A message as a plugin reads it. The host sets the sender, the labels and all metadata."""

    seq: int
    sender: Role
    sender_name: str
    content: str
    recipient: str | None = None
    tool_calls: list[ToolCall] = field(default_factory=list)
    tool_results: list[ToolResult] = field(default_factory=list)
    attachments: list[Blob] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    extra: Extra = field(default_factory=dict)


@dataclass
class Draft:
    """A message that a plugin writes for a model's prompt."""

    role: Role
    content: str
    tool_calls: list[ToolCall] = field(default_factory=list)
    tool_results: list[ToolResult] = field(default_factory=list)
    attachments: list[Blob] = field(default_factory=list)


@dataclass
class Usage:
    """The tokens and the cost of model calls; the cost is `None` if the price is unknown."""

    input_tokens: int = 0
    cached_input_tokens: int = 0
    output_tokens: int = 0
    cost_micro_usd: int | None = None
