"""The export `security-analyzer`."""

from __future__ import annotations

from typing import Any

from conclave_sdk._guest import entry
from conclave_sdk._guest.codec import decoder, encoder
from conclave_sdk._guest.errors import ErrorForm
from conclave_sdk._guest.host import TaskState
from conclave_sdk.actions import Action
from conclave_sdk.agents import View
from conclave_sdk.analyzer import Verdict

_error = ErrorForm("security_analyzer", "AnalyzerError")
_kind: Any = entry.app.classes["security-analyzer"]
_state = TaskState()
_to_action = decoder(Action)
_of_verdict = encoder(Verdict)


class SecurityAnalyzer:
    def assess(self, action: Any, thought: str) -> Any:
        try:
            return _of_verdict(_kind().assess(_to_action(action), thought, View(_state)))
        except Exception as error:
            _error.raise_from(error)
