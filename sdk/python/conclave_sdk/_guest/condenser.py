"""The export `condenser`."""

from __future__ import annotations

from typing import Any

from conclave_sdk._guest import entry
from conclave_sdk._guest.codec import decoder, encoder
from conclave_sdk._guest.errors import ErrorForm
from conclave_sdk._guest.host import TaskState
from conclave_sdk.agents import View
from conclave_sdk.condenser import Condensation, Reason

_error = ErrorForm("condenser", "CondenserError")
_kind: Any = entry.app.classes["condenser"]
_state = TaskState()
_to_reason = decoder(Reason)
_of_condensation = encoder(Condensation | None)


class Condenser:
    def condense(self, why: Any) -> Any:
        try:
            return _of_condensation(_kind().condense(_to_reason(why), View(_state)))
        except Exception as error:
            _error.raise_from(error)
