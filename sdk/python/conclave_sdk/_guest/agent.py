"""The export `agent`."""

from __future__ import annotations

from typing import Any

from conclave_sdk._guest import entry
from conclave_sdk._guest.codec import encoder
from conclave_sdk._guest.errors import ErrorForm
from conclave_sdk._guest.host import TaskState
from conclave_sdk.agents import View
from conclave_sdk.turn import Turn, as_turn

_error = ErrorForm("actions", "AgentError")
_kind: Any = entry.app.classes["agent"]
_state = TaskState()
_of_turn = encoder(Turn)


class Agent:
    def step(self) -> Any:
        try:
            return _of_turn(as_turn(_kind().step(View(_state))))
        except Exception as error:
            _error.raise_from(error)
