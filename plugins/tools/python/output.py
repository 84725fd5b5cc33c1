"""The output of a cell: what it printed, its value, and its traceback."""

from __future__ import annotations

import io

# Bytes of what a cell prints, of which the beginning and the end are kept.
PRINTED_BYTES = 100_000


class _Screen(io.RawIOBase):
    """What a cell prints. A cell may print without end, so the middle is dropped meanwhile."""

    name = "cell"

    def __init__(self) -> None:
        self.head = bytearray()
        self.tail = bytearray()
        self.dropped = 0

    def writable(self) -> bool:
        return True

    def write(self, content: bytes | bytearray | memoryview) -> int:  # type: ignore[override]
        view = memoryview(content)
        room = PRINTED_BYTES // 2 - len(self.head)
        self.head += view[:room]
        self.tail += view[room:]
        if len(self.tail) > PRINTED_BYTES:
            self._drop()
        return len(view)

    def _drop(self) -> None:
        more = max(0, len(self.tail) - PRINTED_BYTES // 2)
        del self.tail[:more]
        self.dropped += more

    def text(self) -> str:
        self._drop()
        middle = f"\n[… {self.dropped} bytes left out …]\n".encode() if self.dropped else b""
        return (bytes(self.head) + middle + bytes(self.tail)).decode(errors="replace")


class Output:
    """The output of one cell."""

    def __init__(self) -> None:
        """Create an empty output."""
        self.result = ""
        """The value of the last expression."""
        self.error = ""
        """The traceback."""
        self._screen = _Screen()

    def stream(self) -> io.TextIOWrapper:
        """Return a new standard stream. All of them write to the same place, in their order."""
        return _Stream(self._screen, "utf-8", "backslashreplace", newline="", write_through=True)

    def stdin(self) -> io.StringIO:
        """Return the standard input, which is at its end."""
        return io.StringIO()

    def text(self, last_line: str) -> str:
        """Return all of it as text, each part on lines of its own."""
        parts = [self._screen.text(), self.result, self.error, last_line]
        return "\n".join(part.removesuffix("\n") for part in parts if part)


class _Stream(io.TextIOWrapper):
    """A standard stream that a cell cannot close for the rest of the cell."""

    def close(self) -> None:
        """Do nothing."""


def shortened(text: str, limit: int) -> str:
    """Return a text without its middle, if it has more characters than the limit."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n[… {len(text) - 2 * half} characters left out …]\n{text[-half:]}"
