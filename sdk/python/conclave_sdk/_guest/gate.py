"""The export `gate`."""

from __future__ import annotations

from typing import Any

from conclave_sdk._guest import entry
from conclave_sdk._guest.codec import decoder, encoder
from conclave_sdk._guest.errors import ErrorForm
from conclave_sdk.gate import GateInput, Verdict

_error = ErrorForm("gate", "GateError")
_kind: Any = entry.app.classes["gate"]
_to_input = decoder(GateInput)
_of_verdict = encoder(Verdict)


class Gate:
    def check(self, input: Any) -> Any:
        try:
            return _of_verdict(_kind().check(_to_input(input)))
        except Exception as error:
            _error.raise_from(error)
