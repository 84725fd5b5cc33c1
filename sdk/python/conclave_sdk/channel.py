"""A channel: it carries messages to people elsewhere, and reads the requests of their service.

The host journals a message before its first attempt, counts the attempts, and never repeats one
whose outcome is unknown, unless the operator says that the service drops repetitions.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from conclave_sdk import _host


@dataclass
class Message:
    """A message to deliver. Each attempt has the same `id`, which no other message has.

    `conversation` is the address that a `ReceivedMessage` named when the conversation began, and
    `None` for a message of another one.
    """

    id: str
    text: str
    conversation: str | None = None
    attempt: int = 1
    room: str = ""


@dataclass
class Delivered:
    """The service has the message, under an id of its own."""

    remote_id: str | None = None


@dataclass
class Retry:
    """The service does not have it, and may accept it later."""

    reason: str
    after_ms: int | None = None


@dataclass
class Refused:
    """The service will not accept the message; or the request does not come from the service."""

    reason: str


@dataclass
class Unknown:
    """The service may have the message."""

    reason: str


Delivery: TypeAlias = Delivered | Retry | Refused | Unknown


@dataclass
class Request:
    """A request to the channel. Names of headers are in lower case, `time` is in milliseconds."""

    body: bytes
    headers: list[tuple[str, str]] = field(default_factory=list)
    query: str = ""
    time: int = 0


@dataclass
class ReceivedMessage:
    """A message that someone wrote. All but its text is 1 to 100 printable ASCII characters."""

    id: str
    sender: str
    conversation: str
    text: str


@dataclass
class Messages:
    """The messages of a request; they count only after it was verified."""

    messages: list[ReceivedMessage]


@dataclass
class Answer:
    """The answer that the service wants, such as an echo of its challenge."""

    body: str
    is_json: bool = False


Reception: TypeAlias = Messages | Answer | Refused


class Channel:
    """A channel; a subclass is exported."""

    def send(self, message: Message) -> Delivery:
        """Make one attempt. After an exception the outcome is unknown if a request was sent."""
        raise NotImplementedError

    def received(self, request: Request) -> Reception:
        """Read a request before its sender is known: every side effect is refused."""
        raise NotImplementedError


def verify_hmac(data: bytes, signature: bytes) -> bool:
    """Return whether it is the HMAC-SHA256 of the data with the channel's secret.

    The data must end with the request's body.
    """
    return _host.current().verify(data, signature)


def verify_token(token: str) -> bool:
    """Return whether the token is the channel's secret."""
    return _host.current().verify(token, None)
