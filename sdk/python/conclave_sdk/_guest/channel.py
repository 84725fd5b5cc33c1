"""The export `channel`."""

from __future__ import annotations

from typing import Any

from conclave_sdk import channel as sdk
from conclave_sdk._guest import entry
from conclave_sdk._guest.codec import well_formed, wit
from conclave_sdk._guest.errors import ErrorForm

_error = ErrorForm("channel", "ChannelError")
_kind: Any = entry.app.classes["channel"]


def _wit(name: str) -> Any:
    return wit("channel", name)


class Channel:
    def send(self, message: Any) -> Any:
        try:
            read = sdk.Message(
                message.id, message.text, message.conversation, message.attempt, message.room
            )
            return _delivery(_kind().send(read))
        except Exception as error:
            _error.raise_from(error)

    def received(self, request: Any) -> Any:
        try:
            read = sdk.Request(request.body, list(request.headers), request.query, request.time)
            return _reception(_kind().received(read))
        except Exception as error:
            _error.raise_from(error)


def _delivery(delivery: sdk.Delivery) -> Any:
    match delivery:
        case sdk.Delivered(remote_id):
            return _wit("Delivery_Delivered")(remote_id and well_formed(remote_id))
        case sdk.Retry(reason, after_ms):
            return _wit("Delivery_Retry")(_wit("RetryHint")(after_ms, well_formed(reason)))
        case sdk.Refused(reason):
            return _wit("Delivery_Refused")(well_formed(reason))
        case sdk.Unknown(reason):
            return _wit("Delivery_Unknown")(well_formed(reason))
    raise TypeError("send: return Delivered, Retry, Refused or Unknown")


def _reception(reception: sdk.Reception) -> Any:
    match reception:
        case sdk.Messages(messages):
            record = _wit("ReceivedMessage")
            parts = [(each.id, each.sender, each.conversation, each.text) for each in messages]
            return _wit("Reception_Messages")([record(*map(well_formed, each)) for each in parts])
        case sdk.Answer(body, is_json):
            kind = _wit("AnswerType").JSON if is_json else _wit("AnswerType").TEXT
            return _wit("Reception_Answer")(_wit("HttpAnswer")(kind, well_formed(body)))
        case sdk.Refused(reason):
            return _wit("Reception_Refused")(well_formed(reason))
    raise TypeError("received: return Messages, Answer or Refused")
