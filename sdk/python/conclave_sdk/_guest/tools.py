"""The export `tools`."""

from __future__ import annotations

import json
from typing import Any

from conclave_sdk import _host
from conclave_sdk._guest import entry
from conclave_sdk._guest.codec import encoder, well_formed, well_formed_json, wit
from conclave_sdk._guest.errors import ErrorForm
from conclave_sdk.errors import ToolError
from conclave_sdk.tools import Outcome, ToolSpec, as_outcome, tool
from conclave_sdk.types import Blob, ToolCall

# More than the interpreter counts before it specialises.
_REHEARSALS = 200

_error = ErrorForm("tools", "ToolError")
_outcome = wit("tools", "Outcome")
_of_attachments = encoder(list[Blob])
_of_calls = encoder(list[ToolCall])
_of_specs = encoder(list[ToolSpec])
_tools = {tool.name: tool for tool in entry.app.tools}
_specs = _of_specs([tool.spec for tool in entry.app.tools])


class Tools:
    def list_tools(self) -> Any:
        if entry.app.toolset is None:
            return _specs
        try:
            return _of_specs(entry.app.toolset().list())
        except Exception as error:
            _error.raise_from(error)

    def call(self, name: str, arguments: str) -> Any:
        try:
            return _encoded(_run(name, json.loads(arguments)))
        except Exception as error:
            _error.raise_from(error)


def _run(name: str, arguments: Any) -> Outcome:
    if entry.app.toolset is not None:
        facts = _host.current().call_facts()
        return as_outcome(entry.app.toolset().call(name, arguments, facts))
    if name not in _tools:
        raise ToolError(f"there is no tool {name}")
    return _tools[name].run(arguments)


def _encoded(outcome: Outcome) -> Any:
    """Return the outcome of the bindings.

    A fresh instance copies each page of memory that it touches, so this takes no further step than
    the outcome needs: a generic conversion costs 0.1 ms more.
    """
    content = None if outcome.content is None else well_formed(outcome.content)
    value = None if outcome.value is None else well_formed_json(outcome.value)
    attachments = _of_attachments(outcome.attachments) if outcome.attachments else []
    calls = _of_calls(outcome.follow_up_calls) if outcome.follow_up_calls else []
    return _outcome(content, value, attachments, calls)


@tool
def _rehearsed(text: str, count: int = 1) -> str:
    """Say a text."""
    return text * count


def _rehearse() -> None:
    """Call a tool of this module while the component is built.

    The interpreter specialises code that runs often by writing to it. Done here, no call has to
    write to these pages: 0.1 ms of a fresh call.
    """
    _tools[_rehearsed.name] = _rehearsed
    for _ in range(_REHEARSALS):
        _encoded(_run(_rehearsed.name, json.loads('{"text": "a", "count": 2}')))
    del _tools[_rehearsed.name]


if entry.app.toolset is None:
    _rehearse()
