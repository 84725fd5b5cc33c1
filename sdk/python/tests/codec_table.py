"""The table that defines the fixed JSON form for the SDKs of all languages.

Its turns and observations are written as cases of the contract, `{"tag": …, "val": …}`.
"""

import dataclasses
import json
from pathlib import Path
from typing import Any

from conclave_sdk import actions
from conclave_sdk.actions import Action, Observation, PlanState
from conclave_sdk.turn import Turn
from conclave_sdk.types import Message, Role, ToolCall, ToolResult

TABLE: dict[str, Any] = json.loads(
    (Path(__file__).parents[3] / "tests/data/trajectory/codec.json").read_text()
)

_ACTIONS: dict[str, tuple[type[Action], list[str]]] = {
    "null": (actions.Nothing, []),
    "run": (actions.Run, ["command", "background"]),
    "kill": (actions.Kill, []),
    "run-cell": (actions.RunCell, ["code", "kernelInitCode"]),
    "browse": (actions.Browse, []),
    "read": (actions.Read, ["path", "start", "end"]),
    "write": (actions.Write, ["path", "content", "start", "end"]),
    "recall": (actions.Recall, []),
    "add-task": (actions.AddTask, ["parent", "goal", "subtasks"]),
    "delegate": (actions.Delegate, ["task", "inputs"]),
    "delegate-task": (
        actions.DelegateTask,
        ["worker", "description", "context", "shareChannels"],
    ),
    "think": (actions.Think, []),
    "talk": (actions.Talk, []),
    "finish": (actions.Finish, []),
    "reject": (actions.Reject, []),
    "custom": (actions.Custom, ["name", "arguments"]),
}
_OBSERVATIONS: dict[str, tuple[type[Observation], list[str]]] = {
    "null": (actions.Silence, []),
    "command": (actions.CommandResult, ["commandId", "command", "exitCode", "content"]),
    "cell": (actions.CellResult, ["code", "output"]),
    "browsed": (actions.Page, ["url", "status", "content", "isError"]),
    "file": (actions.FileContent, ["path", "content"]),
    "written": (actions.Written, []),
    "recalled": (actions.Recalled, []),
    "delegated": (actions.Delegated, ["task", "outputs"]),
    "success": (actions.Success, []),
    "error": (actions.Failure, []),
    "custom": (actions.CustomObservation, ["name", "content", "extras"]),
}


def turn(row: dict[str, Any]) -> Turn:
    """Return the turn of a row."""
    action = _action(row["action"])
    return Turn(action, row.get("thought", ""), row.get("wait", False), row.get("extra", {}))


def _action(row: dict[str, Any]) -> Action:
    tag, val = row["tag"], row.get("val", {})
    if tag == "reply":
        calls = [ToolCall(one["name"], one["arguments"]) for one in val.get("toolCalls", [])]
        return actions.Reply(val.get("content"), calls)
    if tag == "modify-task":
        return actions.ModifyTask(val["taskId"], PlanState(val["state"].replace("-", "_")))
    kind, names = _ACTIONS[tag]
    made: Action = _of(kind, names, row)
    return made


def _of(kind: Any, names: list[str], row: dict[str, Any]) -> Any:
    if "val" not in row:
        return kind()
    return kind(*([row["val"][name] for name in names] if names else [row["val"]]))


def observation(row: dict[str, Any]) -> Observation:
    """Return the observation of a row."""
    if row["tag"] == "tool":
        val = row["val"]
        return actions.ToolOutput("", val["name"], val["content"], is_error=val["isError"])
    kind, names = _OBSERVATIONS[row["tag"]]
    made: Observation = _of(kind, names, row)
    return made


def message(row: dict[str, Any]) -> Message:
    """Return the message of a row."""
    calls = [ToolCall(one["name"], one["arguments"]) for one in row.get("toolCalls", [])]
    results = [
        ToolResult("call-1", one["name"], one["content"], one["isError"])
        for one in row.get("toolResults", [])
    ]
    plain = Message(row["seq"], Role(row["sender"]), row["sender"], row["content"])
    return dataclasses.replace(plain, tool_calls=calls, tool_results=results)
