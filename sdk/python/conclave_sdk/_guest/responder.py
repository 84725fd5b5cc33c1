"""The export `responder`."""

from __future__ import annotations

from typing import Any

from conclave_sdk._guest import entry
from conclave_sdk._guest.codec import encoder
from conclave_sdk._guest.errors import ErrorForm
from conclave_sdk._guest.host import TaskState
from conclave_sdk.agents import View
from conclave_sdk.turn import Turn, as_turn

_error = ErrorForm("actions", "AgentError")
_kind: Any = entry.app.classes["responder"]
_state = TaskState()
_of_turn = encoder(Turn)


class Responder:
    def respond(self) -> Any:
        try:
            answer = _kind().respond(View(_state))
            return None if answer is None else _of_turn(as_turn(answer))
        except Exception as error:
            _error.raise_from(error)
