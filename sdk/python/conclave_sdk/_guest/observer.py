"""The export `observer`."""

from __future__ import annotations

from typing import Any

from conclave_sdk._guest import entry
from conclave_sdk._guest.codec import decoder
from conclave_sdk._guest.errors import ErrorForm
from conclave_sdk.observer import ObservedEvent

_error = ErrorForm("observer", "ObserverError")
_kind: Any = entry.app.classes["observer"]
_to_events = decoder(list[ObservedEvent])


class Observer:
    def observe(self, events: Any) -> Any:
        try:
            _kind().observe(_to_events(events))
            return None
        except Exception as error:
            _error.raise_from(error)
