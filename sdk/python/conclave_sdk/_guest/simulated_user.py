"""The export `simulated-user`."""

from __future__ import annotations

from typing import Any

from conclave_sdk._guest import entry
from conclave_sdk._guest.codec import encoder
from conclave_sdk._guest.errors import ErrorForm
from conclave_sdk._guest.host import TaskState
from conclave_sdk.agents import View

_error = ErrorForm("simulated_user", "SimulatedUserError")
_kind: Any = entry.app.classes["simulated-user"]
_state = TaskState()
_of_answer = encoder(str | None)


class SimulatedUser:
    def answer(self, question: str) -> Any:
        try:
            return _of_answer(_kind().answer(question, View(_state)))
        except Exception as error:
            _error.raise_from(error)
