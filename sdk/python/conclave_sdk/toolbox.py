"""Calls of other tools, for the agent that called this one; needs the `tools` grant.

The agent must be able to call them too. The host checks, approves, counts and journals each as a
call of that agent.

    from conclave_sdk import toolbox

    found = toolbox.call("search.find", {"query": "tides"})
    pages = toolbox.call_all([("notes.read", {"page": "a"}), ("notes.read", {"page": "b"})])
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from conclave_sdk import _host
from conclave_sdk.errors import Error

# Calls that the host runs at the same time for one call of a tool.
_AT_ONCE = 64


@dataclass(frozen=True)
class CallableTool:
    """A tool that the call may use."""

    name: str
    """The name in the agent's task, such as `search.find`."""
    description: str
    input_schema: dict[str, Any]
    """The JSON Schema of the arguments."""
    output_schema: dict[str, Any] | None = None
    """The JSON Schema of `ToolAnswer.value`; `None` if the tool returns no structured result."""


@dataclass(frozen=True)
class ToolAnswer:
    """The result of a tool, uncut."""

    content: str | None = None
    """The text; `None` if the tool returned none."""
    value: Any = None
    """The structured result; `None` if the tool returned none."""


def tools() -> list[CallableTool]:
    """Return the tools that the call may use, in the order of the agent's task.

    The list is empty without the grant.
    """
    return _host.current().tools()


def call(name: str, arguments: Mapping[str, Any] | None = None) -> ToolAnswer:
    """Call a tool and wait for its answer.

    Raises `Denied` without the grant, and `Error` if the tool fails, is refused to the agent, or is
    not approved.
    """
    answer = call_all([(name, arguments or {})])[0]
    if isinstance(answer, Error):
        raise answer
    return answer


def call_all(requests: Iterable[tuple[str, Mapping[str, Any]]]) -> list[ToolAnswer | Error]:
    """Call tools at the same time, and return answer or error of each, in order.

    A request is the name of a tool and its arguments. More than 64 are sent in batches of 64.
    """
    sent = [(name, dict(arguments)) for name, arguments in requests]
    answers: list[ToolAnswer | Error] = []
    for start in range(0, len(sent), _AT_ONCE):
        answers += _host.current().call_tools(sent[start : start + _AT_ONCE])
    return answers
