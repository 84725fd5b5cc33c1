"""Conversions between observations of the contract and those of a log."""

from __future__ import annotations

from typing import Any

from conclave_sdk import shapes
from conclave_sdk._events import Event, new_event, read_event, write_event
from conclave_sdk._fields import compact
from conclave_sdk._forms import Era
from conclave_sdk.actions import (
    CellResult,
    CommandResult,
    CustomObservation,
    Delegated,
    Failure,
    FileContent,
    Observation,
    Page,
    Recalled,
    Silence,
    Success,
    ToolOutput,
    Written,
)
from conclave_sdk.errors import InvalidArguments
from conclave_sdk.types import JsonObject

# The text between an agent's name and its outputs (O-090).
_FINISHES = " finishes task"


def event_of_observation(observation: Observation) -> Event | JsonObject:
    """Return the event of an observation; for a custom one that no log knows, its form."""
    match observation:
        case Silence():
            return _event("null")
        case CommandResult(command_id, command, exit_code, content):
            metadata = {"exit_code": exit_code, "pid": command_id}
            event = _event("run", content=content, command=command)
            event.fields["metadata"].update(metadata)
            return event
        case CellResult(code, content):
            return _event("run_ipython", content=content, code=code)
        case Page(url, status, content, is_error):
            page = {"url": url, "status_code": status, "content": content, "error": is_error}
            return _event("browse", **page, trigger_by_action="browse")
        case FileContent(path, content):
            return _event("read", content=content, path=path)
        case Written(path):
            return _event("write", path=path)
        case Recalled(memories):
            return _event("recall", memories=list(memories))
        case Delegated(task, outputs):
            return _delegated(task, shapes.to_json(outputs))
        case ToolOutput(is_error=True, content=content):
            return _event("error", content=content)
        case ToolOutput(name=name, content=content):
            return _event("mcp", content=content, name=name)
        case Success(text):
            return _event("success", content=text)
        case Failure(text):
            return _event("error", content=text)
        case CustomObservation(name, content, extras):
            return _custom({"observation": name, "content": content, "extras": dict(extras)})
        case other:
            raise TypeError(f"the contract has no observation {other!r}")


def observation_of(event: Event) -> Observation:
    """Return the contract's observation of an event."""
    it = event.fields
    match event.kind:
        case "null":
            return Silence()
        case "run":
            exit_code, pid = it["metadata"]["exit_code"], it["metadata"]["pid"]
            exit_code = exit_code if -(2**31) <= exit_code < 2**31 else -1
            return CommandResult(pid, it["command"], exit_code, it["content"])
        case "run_ipython":
            return CellResult(it["code"], it["content"])
        case "browse":
            status = it["status_code"] if 0 <= it["status_code"] < 2**16 else 0
            return Page(it["url"], status, it["content"], it["error"])
        case "read":
            return FileContent(it["path"], it["content"])
        case "write":
            return Written(it["path"])
        case "recall" if it["recall_type"] is None:
            return Recalled(it["memories"])
        case "delegate":
            agent, finishes, _ = it["content"].partition(_FINISHES)
            return Delegated(agent if finishes else "", it["outputs"])
        case "mcp":
            return ToolOutput("", it["name"], it["content"])
        case "success":
            return Success(it["content"])
        case "error":
            return Failure(it["content"])
        case kind:
            extras = write_event(event, Era.V2025)["extras"]
            return CustomObservation(kind, it["content"], extras)


def _event(kind: str, **fields: Any) -> Event:
    return new_event(False, kind, **fields)


def _delegated(task: str, value: Any) -> Event:
    """Return the event whose text is `{Name} finishes task with k: v, k2: v2` (O-090)."""
    outputs = value if isinstance(value, dict) else {} if value is None else {"content": value}
    listed = [
        f"{key}: {outputs[key] if isinstance(outputs[key], str) else compact(outputs[key])}"
        for key in sorted(outputs)
    ]
    content = f"{task}{_FINISHES} with {', '.join(listed)}"
    return _event("delegate", content=content, outputs=outputs)


def _custom(form: JsonObject) -> Event | JsonObject:
    try:
        return read_event(form)
    except InvalidArguments:
        return form
