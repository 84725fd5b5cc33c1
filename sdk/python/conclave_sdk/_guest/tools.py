"""The export `tools`."""

from __future__ import annotations

import json
from typing import Any

from conclave_sdk import _host
from conclave_sdk._guest import entry
from conclave_sdk._guest.codec import encoder
from conclave_sdk._guest.errors import ErrorForm
from conclave_sdk.errors import ToolError
from conclave_sdk.tools import Outcome, ToolSpec, as_outcome

_error = ErrorForm("tools", "ToolError")
_of_outcome = encoder(Outcome)
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
            return _of_outcome(_run(name, json.loads(arguments)))
        except Exception as error:
            _error.raise_from(error)


def _run(name: str, arguments: Any) -> Outcome:
    if entry.app.toolset is not None:
        facts = _host.current().call_facts()
        return as_outcome(entry.app.toolset().call(name, arguments, facts))
    if name not in _tools:
        raise ToolError(f"there is no tool {name}")
    return _tools[name].run(arguments)
