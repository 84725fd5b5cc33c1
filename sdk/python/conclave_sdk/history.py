"""The conversation of the task that calls a tool; needs the `history` grant.

`History` is also an agent's view of its own history.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, overload

from conclave_sdk import _host
from conclave_sdk.types import Message

_PAGE = 16


class History(Sequence[Message]):
    """Messages, oldest first. Only those that are looked at are read, in pages of 16."""

    def __init__(self, length: int, fetch: Callable[[int, int], list[Message]]) -> None:
        """Create the sequence; `fetch(start, count)` may return fewer messages than asked for."""
        self._length = length
        self._fetch = fetch
        self._known: dict[int, Message] = {}

    def __len__(self) -> int:
        """Return the number of messages, without reading any."""
        return self._length

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> list[Message]: ...
    def __getitem__(self, index: int | slice) -> Message | list[Message]:
        """Return one message, or those of a slice such as `[-3:]`."""
        if isinstance(index, slice):
            return [self._at(at) for at in range(*index.indices(self._length))]
        at = index + self._length if index < 0 else index
        if not 0 <= at < self._length:
            raise IndexError(index)
        return self._at(at)

    def __iter__(self) -> Iterator[Message]:
        """Iterate from the oldest message to the newest."""
        return (self._at(at) for at in range(self._length))

    def _at(self, at: int) -> Message:
        if at not in self._known:
            start = at - at % _PAGE
            # A page that was read in part, because the host returned fewer, continues at its gap.
            while start in self._known:
                start += 1
            while at not in self._known:
                page = self._fetch(start, min(_PAGE, self._length - start))
                if not page:
                    raise IndexError(f"the host has no message {start}")
                self._known.update(enumerate(page, start))
                start += len(page)
        return self._known[at]


def messages() -> History:
    """Return the messages that the call may read: the newest, with the calling message.

    Raises `Denied`.
    """
    host = _host.current()
    return History(host.history_length(), host.history_messages)


def calling_message() -> Message:
    """Return the message that carried the call, or that led to it. Raises `Denied`."""
    return _host.current().history_calling_message()


def inputs() -> dict[str, Any]:
    """Return the inputs of the calling task. Raises `Denied`."""
    return _host.current().history_inputs()
