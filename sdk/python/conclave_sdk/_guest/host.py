"""The host of a component: each capability calls its import."""

from __future__ import annotations

import importlib
import json
from typing import Any

from componentize_py_types import Err, Ok

from conclave_sdk import _host, shapes
from conclave_sdk._guest.codec import decoder, encoder, well_formed
from conclave_sdk._guest.errors import calling, error_of
from conclave_sdk.agents import PastAction, Peer, RemainingBudgets, RunMetrics, ToolSummary
from conclave_sdk.delivery import Channel, EndedTask
from conclave_sdk.errors import Error
from conclave_sdk.fetch import Request as FetchRequest
from conclave_sdk.files import Entry, Root
from conclave_sdk.model import Completion
from conclave_sdk.model import Request as ModelRequest
from conclave_sdk.programs import ProgramOutput
from conclave_sdk.toolbox import CallableTool, ToolAnswer
from conclave_sdk.tools import Call
from conclave_sdk.types import Blob, Message


class _Missing:
    """An import that the component was built without."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, _: str) -> Any:
        raise Error(
            f"this component was built without the import `{self._name}`: "
            f"write `from conclave_sdk import {self._name}` in the plugin"
        )


class _Import:
    """An import with the conversions that it needs."""

    def __init__(self, name: str, **conversions: Any) -> None:
        try:
            self.functions: Any = importlib.import_module(f"wit_world.imports.{name}")
        except ImportError:
            self.functions = _Missing(name)
            return
        for key, (build, hint) in conversions.items():
            setattr(self, key, build(hint))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.functions, name)


_log = _Import("log")
_progress = _Import("progress")
_config = _Import("config")
_scratch = _Import("scratch")
_blobs = _Import("blobs", to_blob=(decoder, Blob))
_files = _Import("files", to_entries=(decoder, list[Entry]), to_roots=(decoder, list[Root]))
_kv = _Import("kv")
_secrets = _Import("secrets")
_channel_secret = _Import("channel_secret")
_fetch = _Import("fetch", of_request=(encoder, FetchRequest))
_model = _Import("model", of_request=(encoder, ModelRequest), to_completion=(decoder, Completion))
_history = _Import("history", to_messages=(decoder, list[Message]), to_message=(decoder, Message))
_call = _Import("call")
_toolbox = _Import("toolbox")
_exec = _Import("exec")


class ComponentHost(_host.Host):
    """The host of a call in a component."""

    def log(self, level: str, message: str) -> None:
        _log.log(_log.Level[level.upper()], well_formed(message))

    def report(self, done: int, total: int | None, message: str) -> None:
        _progress.report(done, total, well_formed(message))

    def config(self) -> dict[str, Any]:
        settings: dict[str, Any] = json.loads(_config.get())
        return settings

    def scratch(self) -> bytes:
        return bytes(_scratch.get())

    def set_scratch(self, value: bytes) -> None:
        calling("scratch", "", _scratch.set, value)

    def blob_read(self, sha256: str, offset: int, length: int) -> bytes:
        return bytes(calling("blobs", sha256, _blobs.read, sha256, offset, length))

    def blob_put(self, content: bytes, media_type: str, name: str | None) -> Blob:
        blob: Blob = _blobs.to_blob(calling("blobs", "", _blobs.put, content, media_type, name))
        return blob

    def file_roots(self) -> list[Root]:
        roots: list[Root] = _files.to_roots(_files.roots())
        return roots

    def file_list(self, path: str, after: str | None, count: int) -> list[Entry]:
        page = calling("files", path, _files.list_entries, path, after, count)
        entries: list[Entry] = _files.to_entries(page)
        return entries

    def file_read(self, path: str, offset: int, length: int) -> bytes:
        return bytes(calling("files", path, _files.read, path, offset, length))

    def file_write(self, path: str, offset: int, content: bytes, truncate: bool) -> int:
        return int(calling("files", path, _files.write, path, offset, content, truncate))

    def file_remove(self, path: str) -> None:
        calling("files", path, _files.remove, path)

    def kv_get(self, key: str) -> bytes | None:
        value = calling("kv", key, _kv.get, key)
        return None if value is None else bytes(value)

    def kv_set(self, key: str, value: bytes) -> None:
        calling("kv", key, _kv.set, key, value)

    def kv_delete(self, key: str) -> None:
        calling("kv", key, _kv.delete, key)

    def kv_keys(self, prefix: str, after: str | None, count: int) -> list[str]:
        return list(calling("kv", prefix, _kv.keys, prefix, after, count))

    def secret(self, name: str) -> str:
        return str(calling("secrets", name, _secrets.placeholder, name))

    def verify(self, proof: bytes | str, signature: bytes | None) -> bool:
        bindings = _channel_secret
        if isinstance(proof, str):
            claim = bindings.Proof_Token(well_formed(proof))
        else:
            data = bindings.SignedData(proof, signature or b"")
            claim = bindings.Proof_HmacSha256(data)
        return bool(bindings.verify(claim))

    def fetch(self, request: FetchRequest) -> _host.RawResponse:
        sent = _fetch.of_request(request)
        return _Response(calling("fetch", request.url, _fetch.send, sent))

    def model_complete(self, request: ModelRequest) -> Completion:
        name = request.model or "default"
        answer = calling("model", name, _model.complete, _model.of_request(request))
        completion: Completion = _model.to_completion(answer)
        return completion

    def model_start(self, request: ModelRequest) -> _host.Stream:
        name = request.model or "default"
        return _Stream(name, calling("model", name, _model.start, _model.of_request(request)))

    def history_length(self) -> int:
        return int(calling("history", "the conversation", _history.length))

    def history_messages(self, start: int, count: int) -> list[Message]:
        page = calling("history", "the conversation", _history.messages, start, count)
        messages: list[Message] = _history.to_messages(page)
        return messages

    def history_calling_message(self) -> Message:
        found = calling("history", "the conversation", _history.calling_message)
        message: Message = _history.to_message(found)
        return message

    def history_inputs(self) -> dict[str, Any]:
        inputs: dict[str, Any] = json.loads(calling("history", "the inputs", _history.inputs))
        return inputs

    def tools(self) -> list[CallableTool]:
        return [
            CallableTool(
                tool.name,
                tool.description,
                json.loads(tool.input_schema),
                None if tool.output_schema is None else json.loads(tool.output_schema),
            )
            for tool in _toolbox.list_tools()
        ]

    def call_tools(self, requests: list[tuple[str, dict[str, Any]]]) -> list[ToolAnswer | Error]:
        sent = [
            _toolbox.Request(well_formed(name), well_formed(shapes.dumps(arguments)))
            for name, arguments in requests
        ]
        answers = _toolbox.call_all(sent)
        pairs = zip(requests, answers, strict=True)
        return [_answer(name, answer) for (name, _), answer in pairs]

    def commands(self) -> list[str]:
        return list(_exec.commands())

    def run_program(
        self,
        program: str,
        arguments: list[str],
        directory: str | None,
        text: bytes,
        timeout_ms: int | None,
    ) -> ProgramOutput:
        command = _exec.Command(
            well_formed(program),
            [well_formed(argument) for argument in arguments],
            None if directory is None else well_formed(directory),
            text,
            timeout_ms,
            [],
        )
        output = calling("exec", program, _exec.run, command)
        case, value = type(output.ending).__name__.partition("_")[2], output.ending.value
        code, stopped = None, None
        if case == "ExitCode":
            code = value
        else:
            stopped = f"signal {value}" if case == "Signal" else f"its limit {value}"
        return ProgramOutput(
            code, stopped, bytes(output.stdout), bytes(output.stderr), output.dropped
        )

    def call_facts(self) -> Call:
        return Call(
            _call.call_id(),
            _call.attempt(),
            _call.task_name(),
            _call.room_id(),
            _call.caller(),
            _call.deadline_ms(),
            _call.traceparent(),
        )


def _answer(name: str, answer: Any) -> ToolAnswer | Error:
    if isinstance(answer, Err):
        return error_of("tools", name, answer.value)
    result = answer.value if isinstance(answer, Ok) else answer
    return ToolAnswer(result.content, None if result.value is None else json.loads(result.value))


class _Response:
    """A response, whose body stays with the host until it is read."""

    def __init__(self, resource: Any) -> None:
        self._resource = resource
        self.status: int = resource.status()
        self.url: str = resource.url()
        self.length: int = resource.length()

    @property
    def headers(self) -> list[tuple[str, str]]:
        return [(header.name, header.value) for header in self._resource.headers()]

    def read(self, offset: int, length: int) -> bytes:
        return bytes(self._resource.read(offset, length))


class _Stream:
    """A completion in progress."""

    def __init__(self, name: str, resource: Any) -> None:
        self._name = name
        self._resource = resource
        self._is_open = True

    def next_text(self) -> str | None:
        text: str | None = calling("model", self._name, self._resource.next_text)
        return text

    def wait(self) -> Completion:
        answer = calling("model", self._name, self._resource.wait)
        completion: Completion = _model.to_completion(answer)
        return completion

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            self._resource.__exit__(None, None, None)


class TaskState:
    """The task of the current call, for a view."""

    def __init__(self) -> None:
        self._state = importlib.import_module("wit_world.imports.state")
        self._decoders = {
            "inputs": json.loads,
            "pending": decoder(Message | None),
            "since_last_step": decoder(list[PastAction]),
            "plan": json.loads,
            "outputs": json.loads,
            "tools": decoder(list[ToolSummary]),
            "peers": decoder(list[Peer]),
            "remaining": decoder(RemainingBudgets),
            "metrics": decoder(RunMetrics),
        }
        self._messages = decoder(list[Message])

    def read(self, part: str) -> Any:
        value = getattr(self._state, part)()
        convert = self._decoders.get(part)
        return convert(value) if convert else value

    def read_history(self, start: int, count: int) -> list[Message]:
        messages: list[Message] = self._messages(self._state.history(start, count))
        return messages


class RoomState:
    """The room of the current decision, for a delivery strategy."""

    def __init__(self) -> None:
        self._context = importlib.import_module("wit_world.imports.delivery_context")
        self._decoders = {
            "pending_results": decoder(list[EndedTask]),
            "channels": decoder(list[Channel]),
        }

    def read(self, part: str) -> Any:
        value = getattr(self._context, part)()
        convert = self._decoders.get(part)
        return convert(value) if convert else value
