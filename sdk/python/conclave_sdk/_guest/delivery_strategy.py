"""The export `delivery-strategy`."""

from __future__ import annotations

from typing import Any

from conclave_sdk._guest import entry
from conclave_sdk._guest.codec import decoder, encoder
from conclave_sdk._guest.errors import ErrorForm
from conclave_sdk._guest.host import RoomState
from conclave_sdk.delivery import Context, Decision, Wake

_error = ErrorForm("delivery_strategy", "StrategyError")
_kind: Any = entry.app.classes["delivery-strategy"]
_state = RoomState()
_to_wake = decoder(Wake)
_of_decisions = encoder(list[Decision])


class DeliveryStrategy:
    def decide(self, wake: Any) -> Any:
        try:
            return _of_decisions(_kind().decide(_to_wake(wake), Context(_state)))
        except Exception as error:
            _error.raise_from(error)
