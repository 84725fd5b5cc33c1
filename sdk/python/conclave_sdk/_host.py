"""The host that the capability modules call: the real one, or that of a test.

Outside of a component and of a test, everything that needs a grant is denied, and nothing aborts.
"""

from __future__ import annotations

import hashlib
import sys
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from conclave_sdk.errors import Denied, Error, QuotaExceeded, UnknownBlob
from conclave_sdk.types import Blob, Message

if TYPE_CHECKING:
    from conclave_sdk.fetch import Request as FetchRequest
    from conclave_sdk.files import Entry, Root
    from conclave_sdk.model import Completion
    from conclave_sdk.model import Request as ModelRequest
    from conclave_sdk.programs import ProgramOutput
    from conclave_sdk.toolbox import CallableTool, ToolAnswer
    from conclave_sdk.tools import Call

# The default limit of a host, so that a native test fails where the host would.
_SCRATCH_BYTES = 64 * 1024


class Stream(Protocol):
    """A completion in progress."""

    def next_text(self) -> str | None:
        """Wait for the next piece of text; `None` at the end."""

    def wait(self) -> Completion:
        """Wait for the whole completion."""

    def close(self) -> None:
        """Cancel the request."""


class RawResponse(Protocol):
    """A complete response, whose body the host holds."""

    @property
    def status(self) -> int:
        """The HTTP status."""

    @property
    def url(self) -> str:
        """The URL that answered, after redirects."""

    @property
    def length(self) -> int:
        """The length of the body in bytes."""

    @property
    def headers(self) -> list[tuple[str, str]]:
        """The headers in the order received, with names in lower case."""

    def read(self, offset: int, length: int) -> bytes:
        """Return at most `length` bytes from `offset`; empty past the end."""


class Host:
    """A host that grants nothing."""

    def __init__(self) -> None:
        """Create a host without settings and with an empty scratch."""
        self._scratch = b""
        self._blobs: dict[str, bytes] = {}

    def log(self, level: str, message: str) -> None:
        """Write one line to the plugin's log."""
        print(f"{level}: {message}", file=sys.stderr)

    def report(self, done: int, total: int | None, message: str) -> None:
        """Report the progress of a call, for display."""

    def config(self) -> dict[str, Any]:
        """Return the plugin's settings."""
        return {}

    def scratch(self) -> bytes:
        """Return the scratch; empty at first."""
        return self._scratch

    def set_scratch(self, value: bytes) -> None:
        """Replace the scratch."""
        if len(value) > _SCRATCH_BYTES:
            raise QuotaExceeded("scratch", _SCRATCH_BYTES)
        self._scratch = value

    def blob_read(self, sha256: str, offset: int, length: int) -> bytes:
        """Return a part of a blob."""
        if sha256 not in self._blobs:
            raise UnknownBlob(f"blobs: this call has no access to {sha256}")
        return self._blobs[sha256][offset : offset + length]

    def blob_put(self, content: bytes, media_type: str, name: str | None) -> Blob:
        """Store a blob; needs no grant."""
        sha256 = hashlib.sha256(content).hexdigest()
        self._blobs[sha256] = content
        return Blob(sha256, media_type, len(content), name)

    def file_roots(self) -> list[Root]:
        """Return the granted folders."""
        return []

    def file_list(self, path: str, after: str | None, count: int) -> list[Entry]:  # noqa: ARG002
        """Return entries of a folder after the name `after`, in byte order."""
        _deny("files", path)

    def file_read(self, path: str, offset: int, length: int) -> bytes:  # noqa: ARG002
        """Return a part of a file."""
        _deny("files", path)

    def file_write(self, path: str, offset: int, content: bytes, truncate: bool) -> int:  # noqa: ARG002
        """Write to a file, and return its new length."""
        _deny("files", path)

    def file_remove(self, path: str) -> None:
        """Remove a file."""
        _deny("files", path)

    def kv_get(self, key: str) -> bytes | None:
        """Return the value of a key."""
        _deny("kv", key)

    def kv_set(self, key: str, value: bytes) -> None:  # noqa: ARG002
        """Insert or replace a value."""
        _deny("kv", key)

    def kv_delete(self, key: str) -> None:
        """Remove a key."""
        _deny("kv", key)

    def kv_keys(self, prefix: str, after: str | None, count: int) -> list[str]:  # noqa: ARG002
        """Return keys with this prefix after the key `after`, in byte order."""
        _deny("kv", prefix)

    def secret(self, name: str) -> str:
        """Return the placeholder of a secret."""
        _deny("secrets", name)

    def verify(self, proof: bytes | str, signature: bytes | None) -> bool:  # noqa: ARG002
        """Return whether signed data or a token proves where a request comes from."""
        return False

    def fetch(self, request: FetchRequest) -> RawResponse:
        """Send a request."""
        _deny("fetch", request.url)

    def model_complete(self, request: ModelRequest) -> Completion:
        """Request a completion and wait for it."""
        _deny("model", request.model or "default")

    def model_start(self, request: ModelRequest) -> Stream:
        """Start a completion."""
        _deny("model", request.model or "default")

    def history_length(self) -> int:
        """Return the number of messages of the calling task that may be read."""
        _deny("history", "the conversation")

    def history_messages(self, start: int, count: int) -> list[Message]:  # noqa: ARG002
        """Return messages of the calling task."""
        _deny("history", "the conversation")

    def history_calling_message(self) -> Message:
        """Return the message that carried the call."""
        _deny("history", "the conversation")

    def history_inputs(self) -> dict[str, Any]:
        """Return the inputs of the calling task."""
        _deny("history", "the inputs")

    def tools(self) -> list[CallableTool]:
        """Return the tools that the call may use."""
        return []

    def call_tools(self, requests: list[tuple[str, dict[str, Any]]]) -> list[ToolAnswer | Error]:
        """Call tools at the same time."""
        return [Denied("tools", name, "not granted in this test") for name, _ in requests]

    def commands(self) -> list[str]:
        """Return the granted commands."""
        return []

    def run_program(
        self,
        program: str,
        arguments: list[str],
        directory: str | None,  # noqa: ARG002
        text: bytes,  # noqa: ARG002
        timeout_ms: int | None,  # noqa: ARG002
    ) -> ProgramOutput:
        """Run a program."""
        _deny("exec", " ".join([program, *arguments]))

    def call_facts(self) -> Call:
        """Return the facts of the current tool call."""
        raise Error("no tool call is under way: pass a `Call`, or use `FakeHost(call=…)`")


def _deny(capability: str, target: str) -> NoReturn:
    raise Denied(capability, target, "not granted in this test")


_current: Host = Host()


def current() -> Host:
    """Return the host of the current call."""
    return _current


def use(host: Host) -> Host:
    """Make this the current host, and return the one before."""
    global _current
    before, _current = _current, host
    return before
