from conclave_sdk.channel import Message, Messages, Refused, Request, Retry, Unknown
from conclave_sdk.testing import FakeHost

from app import People

URL = "https://chat.example.org/messages"


def sent(status: int):
    with FakeHost().settings({"url": URL}).response(URL, status=status):
        return People().send(Message("msg_1", "It was lit in 1844.", "C1"))


def test_what_is_known_of_a_message_follows_from_the_answer():
    assert isinstance(sent(429), Retry)
    assert isinstance(sent(404), Refused)
    assert isinstance(sent(500), Unknown), "the service may have it"


def test_only_a_signed_request_has_messages():
    body = b'{"id": "m1", "from": "ada", "chat": "C1", "text": "hello"}'
    headers = [("x-time", "1700000000"), ("x-signature", "abcd")]
    request = Request(body, headers, time=1_700_000_000_000)
    with FakeHost().with_proof(b"1700000000:" + body, b"\xab\xcd"):
        assert isinstance(People().received(request), Messages)
        request.body += b" "
        assert isinstance(People().received(request), Refused)
