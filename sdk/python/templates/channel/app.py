"""<NAME>: posts messages to a service, and reads the requests that it signs."""

import json

from conclave_sdk import Channel, channel, config, fetch
from conclave_sdk.channel import (
    Delivered,
    Delivery,
    Message,
    Messages,
    ReceivedMessage,
    Reception,
    Refused,
    Request,
    Retry,
    Unknown,
)

TOLERANCE = 300
"""The seconds by which the time of a request may differ: an older one may be a repetition."""


class People(Channel):
    """Carries messages to the people of a service, and theirs back."""

    def send(self, message: Message) -> Delivery:
        """Make an attempt. An exception leaves the outcome unknown, if the request was sent."""
        response = fetch.post(
            config.get()["url"],
            headers={"Idempotency-Key": message.id},
            json={"chat": message.conversation, "text": message.text},
        )
        answered = f"the service answered {response.status}"
        match response.status:
            case 429 | 503:
                return Retry(answered)
            case status if status < 300:
                return Delivered()
            case status if status < 500:
                return Refused(answered)
        return Unknown(answered)

    def received(self, request: Request) -> Reception:
        """Read a request. Its sender is not known before it is verified."""
        if not is_signed(request):
            return Refused("it is not signed by the service")
        posted = json.loads(request.body)
        message = ReceivedMessage(posted["id"], posted["from"], posted["chat"], posted["text"])
        return Messages([message])


def is_signed(request: Request) -> bool:
    """Return whether the service has signed `TIME:BODY`, a short time ago."""
    headers = dict(request.headers)
    time, signature = headers.get("x-time", ""), headers.get("x-signature", "")
    if not time.isdecimal() or abs(int(time) - request.time // 1000) > TOLERANCE:
        return False
    try:
        tag = bytes.fromhex(signature)
    except ValueError:
        return False
    return channel.verify_hmac(time.encode() + b":" + request.body, tag)
