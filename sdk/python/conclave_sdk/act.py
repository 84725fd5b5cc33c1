"""The verbs of an agent that acts: one function for each action.

from conclave_sdk import act

look = act.run("cargo test").because("the fix must hold")
mend = act.edit("/project/src/lib.rs").replace("fn mian()", "fn main()")
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from conclave_sdk import actions
from conclave_sdk.actions import PlanState
from conclave_sdk.tools import listed_calls
from conclave_sdk.turn import Turn, call


def nothing() -> Turn:
    """Do nothing in this turn."""
    return Turn(actions.Nothing())


def run(command: str) -> Turn:
    """Run a command in the shell. Its output arrives with the next step."""
    return Turn(actions.Run(command))


def run_in_background(command: str) -> Turn:
    """Start a command that runs beside the agent. Its output arrives as it is printed."""
    return Turn(actions.Run(command, background=True))


def kill(command_id: int) -> Turn:
    """Stop a background command, by the id that its start reported."""
    return Turn(actions.Kill(command_id))


def run_cell(code: str) -> Turn:
    """Run a Python cell."""
    return Turn(actions.RunCell(code))


def read(path: str, start: int = 0, end: int = -1) -> Turn:
    """Read lines of a file. `start` counts from 0, `end` is excluded, and -1 is the end."""
    return Turn(actions.Read(path, start, end))


def write(path: str, content: str, start: int = 0, end: int = -1) -> Turn:
    """Replace lines of a file. `start` counts from 0, `end` is excluded, and -1 is the end."""
    return Turn(actions.Write(path, content, start, end))


def browse(url: str) -> Turn:
    """Open a page."""
    return Turn(actions.Browse(url))


def browse_interactive(browser_actions: str) -> Turn:
    """Act in the browser. `browser_actions` is code in the browser's own language."""
    return custom("browse_interactive", {"browser_actions": browser_actions})


def recall(query: str) -> Turn:
    """Query the agent's long-term memory."""
    return Turn(actions.Recall(query))


def add_task(parent: str, goal: str, subtasks: Iterable[Mapping[str, Any]] = ()) -> Turn:
    """Add a task to the plan. `parent` is an id, or empty for a task at the top.

    A subtask is `{"goal": …, "subtasks": […]}`, as deep as needed.
    """
    return Turn(actions.AddTask(parent, goal, [dict(subtask) for subtask in subtasks]))


def modify_task(task_id: str, state: PlanState) -> Turn:
    """Change the state of a task of the plan."""
    return Turn(actions.ModifyTask(task_id, state))


def think(thought: str) -> Turn:
    """Record a thought, without any effect."""
    return Turn(actions.Think(thought))


def talk(text: str) -> Turn:
    """Say something to the user, without waiting for an answer."""
    return Turn(actions.Talk(text))


def ask(question: str) -> Turn:
    """Ask the user, and wait for the answer."""
    return talk(question).and_wait_for_user()


def delegate(task: str, inputs: dict[str, Any] | None = None) -> Turn:
    """Delegate work to a task of the operator's config, and wait for its outputs."""
    return Turn(actions.Delegate(task, inputs or {}))


def delegate_all(delegates: Iterable[tuple[str, dict[str, Any]]]) -> Turn:
    """Delegate work to several tasks at once, and wait for all: pairs of a task and its inputs."""
    listed = [{"agent": agent, "inputs": inputs} for agent, inputs in delegates]
    return custom("delegate_all", {"delegates": listed})


def view_tasks() -> Turn:
    """View the flat list of tasks, for agents without a plan."""
    return custom("task_tracking", {"command": "view", "task_list": []})


def track_tasks(tasks: Iterable[Mapping[str, Any]]) -> Turn:
    """Replace the flat list of tasks.

    Each is `{"title": …, "status": "todo" | "in_progress" | "done", "notes": …}`.
    """
    return custom("task_tracking", {"command": "plan", "task_list": [dict(task) for task in tasks]})


def request_condensation() -> Turn:
    """Ask the host to shorten this agent's history."""
    return custom("condensation_request", {})


def call_mcp(tool: str, arguments: dict[str, Any] | None = None) -> Turn:
    """Call a tool of an MCP server by its name, or by `server.tool` if two servers have it.

    It is a tool like any other, so this is `call` for agents that know this action.
    """
    return call(tool, arguments)


def agent_send(to: str, content: str, calls: Iterable[tuple[str, dict[str, Any]]] = ()) -> Turn:
    """Send a text and calls to another task: pairs of a tool and its arguments.

    Only a responder may, since it is a tool of the host for handlers; it needs `route` with the
    tool's name.
    """
    return call("agent_send", {"to": to, "content": content, "tools": listed_calls(calls)})


def recipient_message(recipient: str, content: str) -> Turn:
    """Send a text to a recipient with the host's tool of that name, where the task offers it.

    `Turn.to` needs no tool.
    """
    return call("recipient_message", {"intended_recipient": recipient, "content": content})


def custom(name: str, arguments: dict[str, Any]) -> Turn:
    """Return an action without a verb here, in the fixed JSON form."""
    return Turn(actions.Custom(name, arguments))


def edit(path: str) -> Edit:
    """Begin an edit of a file. The verbs of `Edit` complete it."""
    return Edit(path)


@dataclass(frozen=True)
class Edit:
    """An edit without its command yet: `edit("/a.md").insert_after(0, "# Title")`."""

    path: str

    def view(self) -> Turn:
        """Show the file with line numbers, or a folder's entries."""
        return self._with("view")

    def view_lines(self, first: int, last: int) -> Turn:
        """Show lines of the file. Both ends count from 1 and are included; -1 is the end."""
        # The fixed form of an edit has no range, but the `read` of the same era has one.
        lines = {"path": self.path, "impl_source": "oh_aci", "view_range": [first, last]}
        return custom("read", lines)

    def create(self, text: str) -> Turn:
        """Create the file, which must not exist."""
        return self._with("create", file_text=text)

    def replace(self, old: str, new: str) -> Turn:
        """Replace text that occurs in the file exactly once."""
        return self._with("str_replace", old_str=old, new_str=new)

    def insert_after(self, line: int, text: str) -> Turn:
        """Insert text after a line; 0 is the beginning of the file."""
        return self._with("insert", insert_line=line, new_str=text)

    def undo(self) -> Turn:
        """Revert the last edit of this file."""
        return self._with("undo_edit")

    def _with(self, command: str, **rest: Any) -> Turn:
        return custom("edit", {"path": self.path, "command": command, **rest})


_FORMS = {
    "run": ('"command": "ls"', "runs a command in the shell"),
    "run_ipython": ('"code": "1 + 1"', "runs a Python cell"),
    "read": ('"path": "/folder/a.md"', "reads a file"),
    "write": ('"path": "/folder/a.md", "content": "text"', "writes a file"),
    "edit": (
        '"path": "/folder/a.md", "command": "str_replace", "old_str": "a", "new_str": "b"',
        "replaces a text that occurs once",
    ),
    "browse": ('"url": "https://example.org"', "opens a page"),
    "recall": ('"query": "words"', "searches your memory"),
    "call_tool_mcp": ('"name": "plugin.tool", "arguments": {}', "calls a tool"),
    "delegate": (
        '"agent": "task", "inputs": {"task": "what to do"}',
        "hands work to another agent and waits",
    ),
    "add_task": (
        '"parent": "", "goal": "what", "subtasks": [{"goal": "first part"}]',
        "adds to the plan; parent is an id, empty at the top",
    ),
    "modify_task": (
        '"task_id": "0", "state": "completed"',
        "open, in_progress, completed, verified or abandoned",
    ),
    "think": ('"thought": "why"', "notes a thought"),
    "message": (
        '"content": "text", "wait_for_response": true',
        "says something to the user, and waits or does not",
    ),
    "finish": ('"outputs": {"answer": "text"}', "ends the task with an answer"),
    "reject": ('"outputs": {"reason": "text"}', "gives up, and says why"),
}


def form(*names: str) -> str:
    """Return the JSON of these actions for a model's prompt, one per line; of all without names."""
    return "\n".join(
        f'{{"action": "{name}", "args": {{{arguments}}}}}  {meaning}'
        for name, (arguments, meaning) in _FORMS.items()
        if not names or name in names
    )
