"""Native tests of plugins: a host that grants what a test names, and the task that an agent reads.

    host = FakeHost().file("/tides/today.txt", "Oban 06:12 18:40")
    with host:
        assert high_water("Oban") == "Oban 06:12 18:40"

Without a grant, the plugin gets the refusal of a real host. No test needs WebAssembly.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from conclave_sdk import _host, shapes
from conclave_sdk.actions import Observation
from conclave_sdk.agents import (
    PastAction,
    Peer,
    RemainingBudgets,
    RunMetrics,
    ToolSummary,
    View,
)
from conclave_sdk.delivery import Channel, ChannelKind, Context, EndedTask
from conclave_sdk.errors import Denied, Error
from conclave_sdk.fetch import Request as FetchRequest
from conclave_sdk.files import Entry, EntryKind, Root
from conclave_sdk.judge import Answer, Ending, TaskResult
from conclave_sdk.model import Completion, StopReason
from conclave_sdk.model import Request as ModelRequest
from conclave_sdk.programs import ProgramOutput
from conclave_sdk.toolbox import CallableTool, ToolAnswer
from conclave_sdk.tools import Call, Outcome, Tool
from conclave_sdk.types import Message, Role, ToolCall

__all__ = [
    "FakeHost",
    "RoomSnapshot",
    "TaskSnapshot",
    "answer",
    "ending",
    "message",
    "run_tool",
]


def run_tool(tool: Tool[..., Any], arguments: Any) -> Outcome:
    """Call a tool as the host does: with arguments in JSON, which are checked and converted."""
    return tool.run(arguments)


@dataclass
class _FakeResponse:
    status: int
    url: str
    headers: list[tuple[str, str]]
    content: bytes

    @property
    def length(self) -> int:
        return len(self.content)

    def read(self, offset: int, length: int) -> bytes:
        return self.content[offset : offset + length]


@dataclass
class _FakeStream:
    completion: Completion
    is_read: bool = False

    def next_text(self) -> str | None:
        if self.is_read:
            return None
        self.is_read = True
        return self.completion.content

    def wait(self) -> Completion:
        return self.completion

    def close(self) -> None:
        self.is_read = True


class FakeHost(_host.Host):
    """A host for native tests, with everything in memory.

    It grants what the test names, and denies everything else. As a context manager, it is the host
    of the code inside of the block.
    """

    def __init__(self) -> None:
        """Create a host that grants nothing."""
        super().__init__()
        self.logged: list[str] = []
        """The lines of the log, such as `info: indexed 41 files`."""
        self.reported: list[tuple[int, int | None, str]] = []
        """The reports of progress: done, total, message."""
        self.requests: list[FetchRequest] = []
        """The requests that were sent, oldest first."""
        self.prompts: list[ModelRequest] = []
        """The requests to the model, oldest first."""
        self._settings: dict[str, Any] = {}
        self._folders: dict[str, bool] = {}
        self._files: dict[str, bytes] = {}
        self._keys: dict[str, bytes] | None = None
        self._secrets: set[str] = set()
        self._proofs: list[tuple[bytes | str, bytes | None]] = []
        self._responses: dict[str, _FakeResponse] = {}
        self._replies: list[Completion] = []
        self._has_model = False
        self._history: TaskSnapshot | None = None
        self._call: Call | None = None
        self.calls: list[tuple[str, dict[str, Any]]] = []
        """The calls of other tools with their arguments, oldest first."""
        self._tools: dict[str, tuple[Any, dict[str, Any]]] = {}
        self.ran: list[tuple[str, str | None, bytes]] = []
        """The programs that ran: command, directory, input."""
        self._programs: dict[str, ProgramOutput] = {}
        self._before: list[_host.Host] = []

    def settings(self, settings: Mapping[str, Any]) -> FakeHost:
        """Set the plugin's settings."""
        self._settings = dict(settings)
        return self

    def file(self, path: str, content: bytes | str) -> FakeHost:
        """Put a file into a folder that may be read. The folder is the first part of the path."""
        self._folders.setdefault("/" + path.lstrip("/").partition("/")[0], False)
        self._files[path] = _bytes(content)
        return self

    def writable(self, folder: str) -> FakeHost:
        """Grant a folder for writing, such as `/out`."""
        self._folders[folder] = True
        return self

    def kv(self, entries: Mapping[str, bytes | str] | None = None) -> FakeHost:
        """Grant the key-value store, with these entries in it."""
        known = self._keys or {}
        self._keys = {**known, **{key: _bytes(value) for key, value in (entries or {}).items()}}
        return self

    def with_secret(self, name: str) -> FakeHost:
        """Grant a secret. Its placeholder is `<secret NAME>`."""
        self._secrets.add(name)
        return self

    def with_proof(self, proof: bytes | str, signature: bytes | None = None) -> FakeHost:
        """Make signed data, or a token, a valid proof of a request to a channel."""
        self._proofs.append((proof, signature))
        return self

    def response(
        self,
        url: str,
        content: Any = b"",
        status: int = 200,
        headers: Mapping[str, str] | None = None,
    ) -> FakeHost:
        """Grant an address, whole and with its query, and answer requests there.

        Other content than bytes and text is written as JSON.
        """
        if not isinstance(content, (bytes, str)):
            content = shapes.dumps(content)
        pairs = [(name.lower(), value) for name, value in (headers or {}).items()]
        self._responses[url] = _FakeResponse(status, url, pairs, _bytes(content))
        return self

    def reply(self, text: str) -> FakeHost:
        """Grant a model, whose next answer is this text."""
        return self._completion(text, [])

    def reply_with_call(self, tool: str, arguments: dict[str, Any] | None = None) -> FakeHost:
        """Grant a model, whose next answer calls this tool."""
        return self._completion(None, [ToolCall(tool, arguments or {}, "1")])

    def tool(self, name: str, answer: Any, input_schema: dict[str, Any] | None = None) -> FakeHost:
        """Grant another tool, such as `search.find`, which always answers with this.

        A text is its content, an exception of the SDK its failure, and anything else its value.
        Arguments are not checked against the schema.
        """
        self._tools[name] = answer, input_schema or {"type": "object"}
        return self

    def program(self, command: str, exit_code: int = 0, stdout: bytes | str = b"") -> FakeHost:
        """Grant a command, such as `git log main`, which always ends with this."""
        self._programs[command] = ProgramOutput(exit_code, stdout_bytes=_bytes(stdout))
        return self

    def history(self, task: TaskSnapshot) -> FakeHost:
        """Grant the conversation of the calling task: its pending message carries the call."""
        self._history = task
        return self

    def call(self, call: Call) -> FakeHost:
        """Set the facts of the tool call."""
        self._call = call
        return self

    def content(self, path: str) -> bytes | None:
        """Return the content of a file; `None` if there is none."""
        return self._files.get(path)

    def value(self, key: str) -> bytes | None:
        """Return the value of a key; `None` if there is none."""
        return (self._keys or {}).get(key)

    def __enter__(self) -> FakeHost:
        """Make this the host of the code inside of the block."""
        self._before.append(_host.use(self))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Restore the host from before the block."""
        _host.use(self._before.pop())

    def _completion(self, text: str | None, calls: list[ToolCall]) -> FakeHost:
        self._has_model = True
        stop = StopReason.TOOL_CALLS if calls else StopReason.END
        number = len(self._replies) + len(self.prompts) + 1
        completion = Completion(f"completion-{number}", text, None, calls, stop, model="fake")
        self._replies.append(completion)
        return self

    # What the capability modules call.

    def log(self, level: str, message: str) -> None:  # noqa: D102
        self.logged.append(f"{level}: {message}")

    def report(self, done: int, total: int | None, message: str) -> None:  # noqa: D102
        self.reported.append((done, total, message))

    def config(self) -> dict[str, Any]:  # noqa: D102
        return self._settings

    def file_roots(self) -> list[Root]:  # noqa: D102
        return [Root(path, writable) for path, writable in self._folders.items()]

    def file_list(self, path: str, after: str | None, count: int) -> list[Entry]:  # noqa: D102
        self._check(path, write=False)
        if path in self._files:
            raise NotADirectoryError(20, "it is a file, not a directory", path)
        prefix = path.rstrip("/") + "/"
        below = {
            name[len(prefix) :]: content
            for name, content in self._files.items()
            if name.startswith(prefix)
        }
        if not below and path not in self._folders:
            raise FileNotFoundError(2, "no such file or directory", path)
        entries = {}
        for name, content in below.items():
            first, slash, _ = name.partition("/")
            kind = EntryKind.DIRECTORY if slash else EntryKind.FILE
            entries[first] = Entry(first, kind, 0 if slash else len(content))
        listed = sorted(entries.values(), key=lambda entry: entry.name.encode())
        return [entry for entry in listed if after is None or entry.name > after][:count]

    def file_read(self, path: str, offset: int, length: int) -> bytes:  # noqa: D102
        self._check(path, write=False)
        if path not in self._files:
            if path in self._folders or any(name.startswith(path + "/") for name in self._files):
                raise IsADirectoryError(21, "it is a directory, not a file", path)
            raise FileNotFoundError(2, "no such file or directory", path)
        return self._files[path][offset : offset + length]

    def file_write(  # noqa: D102
        self, path: str, offset: int, content: bytes, truncate: bool
    ) -> int:
        self._check(path, write=True)
        old = self._files.get(path, b"").ljust(offset, b"\0")
        rest = b"" if truncate else old[offset + len(content) :]
        self._files[path] = old[:offset] + content + rest
        return len(self._files[path])

    def file_remove(self, path: str) -> None:  # noqa: D102
        self._check(path, write=True)
        self._files.pop(path, None)

    def _check(self, path: str, *, write: bool) -> None:
        folder = "/" + path.lstrip("/").partition("/")[0]
        if folder not in self._folders or ".." in path.split("/"):
            raise Denied("files", path, "outside of every granted folder")
        if write and not self._folders[folder]:
            raise Denied("files", path, "granted for reading only")

    def kv_get(self, key: str) -> bytes | None:  # noqa: D102
        return super().kv_get(key) if self._keys is None else self._keys.get(key)

    def kv_set(self, key: str, value: bytes) -> None:  # noqa: D102
        if self._keys is None:
            return super().kv_set(key, value)
        self._keys[key] = value
        return None

    def kv_delete(self, key: str) -> None:  # noqa: D102
        if self._keys is None:
            return super().kv_delete(key)
        self._keys.pop(key, None)
        return None

    def kv_keys(self, prefix: str, after: str | None, count: int) -> list[str]:  # noqa: D102
        if self._keys is None:
            return super().kv_keys(prefix, after, count)
        keys = sorted(self._keys, key=str.encode)
        is_next = [key for key in keys if key.startswith(prefix) and (not after or key > after)]
        return is_next[:count]

    def secret(self, name: str) -> str:  # noqa: D102
        return f"<secret {name}>" if name in self._secrets else super().secret(name)

    def verify(self, proof: bytes | str, signature: bytes | None) -> bool:  # noqa: D102
        return (proof, signature) in self._proofs

    def fetch(self, request: FetchRequest) -> _host.RawResponse:  # noqa: D102
        if request.url not in self._responses:
            return super().fetch(request)
        self.requests.append(request)
        return self._responses[request.url]

    def model_complete(self, request: ModelRequest) -> Completion:  # noqa: D102
        if not self._has_model:
            return super().model_complete(request)
        if not self._replies:
            raise AssertionError("the model was asked more often than the test has replies")
        self.prompts.append(request)
        return self._replies.pop(0)

    def model_start(self, request: ModelRequest) -> _host.Stream:  # noqa: D102
        return _FakeStream(self.model_complete(request))

    def history_length(self) -> int:  # noqa: D102
        return super().history_length() if not self._history else len(self._history.history)

    def history_messages(self, start: int, count: int) -> list[Message]:  # noqa: D102
        if self._history is None:
            return super().history_messages(start, count)
        return self._history.read_history(start, count)

    def history_calling_message(self) -> Message:  # noqa: D102
        if self._history is None:
            return super().history_calling_message()
        if self._history.pending is None:
            raise AssertionError("the task of `history` has no pending message")
        return self._history.pending

    def history_inputs(self) -> dict[str, Any]:  # noqa: D102
        return self._history.inputs if self._history else super().history_inputs()

    def tools(self) -> list[CallableTool]:  # noqa: D102
        return [CallableTool(name, "", schema) for name, (_, schema) in self._tools.items()]

    def call_tools(  # noqa: D102
        self, requests: list[tuple[str, dict[str, Any]]]
    ) -> list[ToolAnswer | Error]:
        return [self._call_tool(name, arguments) for name, arguments in requests]

    def _call_tool(self, name: str, arguments: dict[str, Any]) -> ToolAnswer | Error:
        if name not in self._tools:
            return Denied("tools", name, f"this test may not call {name!r}")
        self.calls.append((name, arguments))
        answer, _ = self._tools[name]
        if isinstance(answer, Error):
            return answer
        return ToolAnswer(answer) if isinstance(answer, str) else ToolAnswer(None, answer)

    def commands(self) -> list[str]:  # noqa: D102
        return list(self._programs)

    def run_program(  # noqa: D102
        self,
        program: str,
        arguments: list[str],
        directory: str | None,
        text: bytes,
        timeout_ms: int | None,
    ) -> ProgramOutput:
        command = " ".join([program, *arguments])
        if command not in self._programs:
            return super().run_program(program, arguments, directory, text, timeout_ms)
        self.ran.append((command, directory, text))
        return self._programs[command]

    def call_facts(self) -> Call:  # noqa: D102
        return self._call or Call(call_id="call-1", caller="test", task_name="main")


def _bytes(content: bytes | str) -> bytes:
    return content.encode() if isinstance(content, str) else content


@dataclass
class TaskSnapshot:
    """A task as a test describes it: by default the first step of a task named `main`."""

    task_name: str = "main"
    inputs: dict[str, Any] = field(default_factory=dict)
    pending: Message | None = None
    history: list[Message] = field(default_factory=list)
    since_last_step: list[PastAction] = field(default_factory=list)
    latest_user_message: str | None = None
    plan: Any = field(default_factory=list)
    current_plan_node: str | None = None
    outputs: Any = None
    last_error: str | None = None
    tools: list[ToolSummary] = field(default_factory=list)
    peers: list[Peer] = field(default_factory=list)
    remaining: RemainingBudgets = field(default_factory=RemainingBudgets)
    metrics: RunMetrics = field(default_factory=RunMetrics)
    delegate_level: int = 0
    iteration: int = 0

    @classmethod
    def asked(cls, text: str) -> TaskSnapshot:
        """Return a task whose user has just said this."""
        return cls().says(Role.USER, text)

    def says(self, sender: Role, text: str) -> TaskSnapshot:
        """Return the task with one more message, which is pending then."""
        said = message(text, sender, seq=len(self.history))
        latest = text if sender is Role.USER else self.latest_user_message
        return dataclasses.replace(
            self, history=[*self.history, said], pending=said, latest_user_message=latest
        )

    def observed(self, observation: Observation) -> TaskSnapshot:
        """Return the task with one more observation since the previous step."""
        past = PastAction(None, observation, len(self.history))
        return dataclasses.replace(self, since_last_step=[*self.since_last_step, past])

    @property
    def view(self) -> View:
        """An agent's view of this task."""
        return View(self)

    def read(self, part: str) -> Any:
        """Return a part of the task, for the view."""
        return len(self.history) if part == "history_length" else getattr(self, part)

    def read_history(self, start: int, count: int) -> list[Message]:
        """Return messages from index `start`, for the view."""
        return self.history[start : start + count]


@dataclass
class RoomSnapshot:
    """A room as a test describes it, for a delivery strategy."""

    pending_results: list[EndedTask] = field(default_factory=list)
    channels: list[Channel] = field(default_factory=list)
    room_id: str = "room"
    now_ms: int = 0
    notified_task: str | None = None

    @property
    def context(self) -> Context:
        """A strategy's view of this room."""
        return Context(self)

    def read(self, part: str) -> Any:
        """Return a part of the room, for the context."""
        return self._preferred() if part == "preferred_channel" else getattr(self, part)

    def _preferred(self) -> str | None:
        """Return a voice channel, or else any other; never a muted one or an agent's."""
        usable = [c for c in self.channels if not c.muted and c.kind is not ChannelKind.AGENT]
        usable.sort(key=lambda channel: channel.kind is not ChannelKind.VOICE)
        return usable[0].id if usable else None


def message(text: str, sender: Role = Role.USER, seq: int = 0) -> Message:
    """Return a message without calls and attachments."""
    return Message(seq, sender, sender.value, text)


def answer(text: str, *, responder: str = "llm", done: bool = False) -> Answer:
    """Return an answer that the host takes, for a judge."""
    return Answer(message(text, Role.LLM), responder, True, done)


def ending(text: str) -> Ending:
    """Return the end of a task that is done with this result, for a judge."""
    return Ending("DONE", "the model said that it is done", TaskResult(text))
