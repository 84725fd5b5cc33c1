"""The line for people that each event of a log carries (O-004)."""

from __future__ import annotations

from typing import Any

from conclave_sdk._fields import compact
from conclave_sdk._forms import Era

# A range of forgotten events can be very long. Above this length the line only names its ends.
_LISTED = 10_000


def message(is_action: bool, kind: str, fields: dict[str, Any], era: Era) -> str:
    """Return the line of an action or an observation."""
    if is_action:
        return _of_action(kind, fields, era is Era.V2024)
    return _of_observation(kind, fields, era is Era.V2024)


def _of_action(kind: str, it: dict[str, Any], old: bool) -> str:
    match kind:
        case "null":
            return "No action"
        case "run":
            return f"Running command: {it['command']}"
        case "kill":
            return f"Killing command: {it['command_id']}"
        case "run_ipython":
            return f"Running Python code interactively: {it['code']}"
        case "browse":
            return f"{'Browsing' if old else 'I am browsing the'} URL: {it['url']}"
        case "browse_interactive" if old:
            return f"Executing browser actions: {it['browser_actions']}"
        case "browse_interactive":
            return f"I am interacting with the browser:\n```\n{it['browser_actions']}\n```"
        case "read":
            return f"Reading file: {it['path']}"
        case "write":
            return f"Writing file: {it['path']}"
        case "recall" if old:
            return (
                "Let me dive into my memories to find what you're looking for! "
                f"Searching for: '{it['query']}'. This might take a moment."
            )
        case "recall":
            return f"Retrieving content for: {it['query'][:50]}"
        case "add_task":
            return f"Added task: {it['goal']}"
        case "modify_task":
            return f"Set task {it['task_id']} to {it['state']}"
        case "think":
            return f"I am thinking...: {it['thought']}"
        case "talk" | "message" | "system":
            return str(it["content"])
        case "finish":
            return it["thought"] or "All done! What's next on the agenda?"
        case "reject":
            return _rejection(it["outputs"])
        case "delegate" | "delegate_task":
            return f"I'm asking {it['agent']} for help with this task."
        case "delegate_all":
            agents = ", ".join(one["agent"] for one in it["delegates"])
            return f"I'm asking {agents} for help with this task."
        case "change_agent_state":
            return f"Agent state changed to {it['agent_state']}"
        case "condensation":
            return _condensation(it)
        case "condensation_request":
            return "Requesting a condensation of the conversation history."
        case "call_tool_mcp":
            return (
                "I am interacting with the MCP server with name:\n"
                f"```\n{it['name']}\n```\nand arguments:\n```\n{_repr(it['arguments'])}\n```"
            )
        case "task_tracking":
            count = len(it["task_list"])
            items = "1 task item" if count == 1 else f"{count} task items"
            return f"Managing {items}." if count else "Clearing the task list."
        case _:
            return ""


def _of_observation(kind: str, it: dict[str, Any], old: bool) -> str:
    match kind:
        case "null":
            return "No observation"
        case "run":
            exit_code = it["metadata"]["exit_code"]
            return f"Command `{it['command']}` executed with exit code {exit_code}."
        case "run_ipython":
            return "Code executed in IPython cell."
        case "browse":
            return f"Visited {it['url']}"
        case "read":
            return f"I read the file {it['path']}."
        case "write":
            return f"I wrote to the file {it['path']}."
        case "edit":
            return f"I edited the file {it['path']}."
        case "recall" if old:
            return "The agent recalled memories."
        case "recall":
            is_workspace = it["recall_type"] == "workspace_context"
            return f"Added {'workspace context' if is_workspace else 'microagent knowledge'}"
        case "delegate" | "agent_state_changed" | "loop_detection":
            return ""
        case "download":
            return f"Downloaded the file at location: {it['file_path']}"
        case _:
            return str(it["content"])


def _rejection(outputs: dict[str, Any]) -> str:
    if "reason" not in outputs:
        return "Task is rejected by the agent."
    reason = outputs["reason"]
    text = reason if isinstance(reason, str) else compact(reason)
    return f"Task is rejected by the agent. Reason: {text}"


def _condensation(it: dict[str, Any]) -> str:
    if it["summary"]:
        return f"Summary: {it['summary']}"
    ids = it["forgotten_event_ids"]
    if ids is None:
        start, end = it["forgotten_events_start_id"], it["forgotten_events_end_id"]
        ids = [start, "…", end] if end - start > _LISTED else range(start, end + 1)
    return f"Condenser is dropping the events: [{', '.join(str(one) for one in ids)}]."


def _repr(value: Any) -> str:
    """Return Python's `repr`, with sorted keys."""
    if isinstance(value, dict):
        items = (f"{key!r}: {_repr(value[key])}" for key in sorted(value))
        return f"{{{', '.join(items)}}}"
    if isinstance(value, list):
        return f"[{', '.join(_repr(one) for one in value)}]"
    return repr(value)
