"""The turn that a step returns, and the verbs of an agent that talks.

`conclave_sdk.act` has the verbs of an agent that acts.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from typing import Any

from conclave_sdk import shapes
from conclave_sdk.actions import (
    Action,
    AddTask,
    Browse,
    Custom,
    Delegate,
    DelegateTask,
    Finish,
    Kill,
    ModifyTask,
    Nothing,
    PlanState,
    Read,
    Recall,
    Reject,
    Reply,
    Run,
    RunCell,
    Talk,
    Think,
    Write,
)
from conclave_sdk.errors import InvalidArguments
from conclave_sdk.types import Extra, ToolCall


@dataclass
class Turn:
    """One answer of an agent: an action, with its thought and extras.

    Each verb returns a changed copy:
    `call("search.find", {"query": "lights"}).because("the folder may know")`.
    """

    action: Action
    thought: str = ""
    wait_for_response: bool = False
    extra: Extra = field(default_factory=dict)

    def and_call(self, tool: str, arguments: dict[str, Any] | None = None) -> Turn:
        """Add a tool call. Independent calls of one turn run at the same time.

        Raises `TypeError` if the turn is not a reply.
        """
        reply = self._reply("and_call")
        calls = [*reply.tool_calls, ToolCall(tool, arguments or {})]
        return dataclasses.replace(self, action=dataclasses.replace(reply, tool_calls=calls))

    def to(self, recipient: str) -> Turn:
        """Address the speech to a task or a role. A task needs the `route` grant.

        Raises `TypeError` if the turn is not a reply.
        """
        reply = self._reply("to")
        return dataclasses.replace(self, action=dataclasses.replace(reply, recipient=recipient))

    def because(self, thought: str) -> Turn:
        """Add the reason, for users and logs."""
        return dataclasses.replace(self, thought=thought)

    def and_wait_for_user(self) -> Turn:
        """Ask the user before the task continues."""
        return dataclasses.replace(self, wait_for_response=True)

    def with_turns(self, turns: int) -> Turn:
        """Limit the steps of the turn's delegates, or of the sub-task that answers it."""
        return self.with_extra("turns", turns)

    def with_extra(self, key: str, value: Any) -> Turn:
        """Add a value for which the contract has no field."""
        return dataclasses.replace(self, extra={**self.extra, key: value})

    def _reply(self, verb: str) -> Reply:
        if isinstance(self.action, Reply):
            return self.action
        kind = type(self.action).__name__
        raise TypeError(f"`{verb}` goes with `say` and `call`, not with {kind}")


def say(text: str) -> Turn:
    """Say something to the next responder."""
    return Turn(Reply(content=text))


def call(tool: str, arguments: dict[str, Any] | None = None) -> Turn:
    """Call a tool such as `search.find`; its result arrives with the next step."""
    return Turn(Reply()).and_call(tool, arguments)


def finish(answer: Any) -> Turn:
    """End the task with its answer: a text, a dataclass, or any other value that JSON can express.

    Raises `TypeError` for a value that JSON cannot express.
    """
    return Turn(Finish(shapes.to_json(answer)))


def reject(reason: Any) -> Turn:
    """End the task without an answer, with a reason."""
    return Turn(Reject(shapes.to_json(reason)))


def as_turn(answer: Turn | Action | str) -> Turn:
    """Return the turn of what a step returned: an action alone, or a text that it says."""
    if isinstance(answer, str):
        return say(answer)
    if isinstance(answer, Action):
        return Turn(answer)
    if isinstance(answer, Turn):
        return answer
    raise TypeError(f"a step returns a turn, an action or a text, and this one returned {answer!r}")


def turn_from_json(text: str) -> Turn:
    """Parse an action that a model wrote as JSON, alone or surrounded by words.

    An array of `message` and `call_tool_mcp` becomes one reply. Raises `InvalidArguments`, which
    names the problem for the model.
    """
    value = value_in(text)
    if isinstance(value, list):
        return _reply_of([_turn_of(form) for form in value])
    return _turn_of(value)


def value_in(text: str) -> Any:
    """Return the first JSON object, or array of objects, in a text.

    Raises `InvalidArguments` if there is none.
    """
    decoder = json.JSONDecoder()
    problem = ""
    starts = [at for at, letter in enumerate(text) if letter in "{["]
    for start in starts[:32]:
        try:
            value, _ = decoder.raw_decode(text, start)
        except ValueError as error:
            problem = problem or str(error)
            continue
        # Texts often contain `[1]`, so a list counts only if it holds objects.
        is_list = isinstance(value, list) and bool(value)
        if isinstance(value, dict) or (is_list and all(isinstance(item, dict) for item in value)):
            return value
    what = f"the JSON is not valid: {problem}" if problem else "there is no JSON object"
    raise InvalidArguments(f"{what}. Write one JSON object and nothing else.")


# The required and the optional arguments of each action that the contract types. An action with
# further arguments is passed on as a custom one, which the host checks.
_FORMS: dict[str, tuple[dict[str, type], dict[str, type]]] = {
    "null": ({}, {}),
    "run": ({"command": str}, {"background": bool}),
    "kill": ({"command_id": int}, {}),
    "run_ipython": ({"code": str}, {"kernel_init_code": str}),
    "browse": ({"url": str}, {}),
    "read": ({"path": str}, {"start": int, "end": int}),
    "write": ({"path": str, "content": str}, {"start": int, "end": int}),
    "recall": ({"query": str}, {}),
    "add_task": ({"goal": str}, {"parent": str, "subtasks": list}),
    "modify_task": ({"task_id": str, "state": str}, {}),
    "delegate": ({"agent": str}, {"inputs": dict}),
    "delegate_task": ({"agent": str, "task": str}, {"context": dict, "share_channels": list}),
    "think": ({"thought": str}, {}),
    "talk": ({"content": str}, {}),
    "message": ({"content": str}, {"wait_for_response": bool}),
    "call_tool_mcp": ({"name": str}, {"arguments": dict}),
    "finish": ({}, {"outputs": dict, "final_thought": str}),
    "reject": ({}, {"outputs": dict}),
}


def _turn_of(form: dict[str, Any]) -> Turn:
    kind, arguments = form.get("action"), form.get("args", {})
    if not isinstance(kind, str) or not isinstance(arguments, dict):
        raise InvalidArguments('write an action as {"action": "NAME", "args": {…}}')
    rest = dict(arguments)
    thought = "" if kind == "think" else str(rest.pop("thought", ""))
    if kind not in _FORMS:
        return Turn(Custom(kind, rest)).because(thought)
    required, optional = _FORMS[kind]
    if not rest.keys() <= required.keys() | optional.keys() and required.keys() <= rest.keys():
        return Turn(Custom(kind, rest)).because(thought)
    missing = ", ".join(required.keys() - rest.keys())
    if missing:
        unknown = ", ".join(rest.keys() - required.keys() - optional.keys())
        extra = f"unknown: {unknown}; " if unknown else ""
        raise InvalidArguments(f"{kind}: {extra}missing: {missing}")
    for name, value in rest.items():
        expected = {**required, **optional}[name]
        if name == "task_id" and isinstance(value, int):
            rest[name] = str(value)
        elif not isinstance(value, expected) or (expected is int and isinstance(value, bool)):
            wanted = {str: "a text", int: "a number", bool: "true or false"}.get(
                expected, "a list" if expected is list else "an object"
            )
            raise InvalidArguments(f"{kind}: `{name}` must be {wanted}, and is {value!r}")
    return _typed(kind, rest).because(thought)


def _typed(kind: str, arguments: dict[str, Any]) -> Turn:
    plain: dict[str, type[Action]] = {
        "null": Nothing,
        "run": Run,
        "kill": Kill,
        "run_ipython": RunCell,
        "browse": Browse,
        "read": Read,
        "write": Write,
        "recall": Recall,
        "think": Think,
    }
    if kind in plain:
        return Turn(plain[kind](**arguments))
    match kind:
        case "add_task":
            return Turn(AddTask(**{"parent": "", **arguments}))
        case "modify_task":
            states = [state.value for state in PlanState]
            if arguments["state"] not in states:
                known = ", ".join(states)
                raise InvalidArguments(
                    f"modify_task: there is no state `{arguments['state']}`. Known are: {known}."
                )
            return Turn(ModifyTask(arguments["task_id"], PlanState(arguments["state"])))
        case "delegate":
            return Turn(Delegate(arguments["agent"], arguments.get("inputs", {})))
        case "delegate_task":
            worker, description = arguments.pop("agent"), arguments.pop("task")
            return Turn(DelegateTask(worker, description, **arguments))
        case "talk":
            return Turn(Talk(arguments["content"]))
        case "message":
            turn = say(arguments["content"])
            return turn.and_wait_for_user() if arguments.get("wait_for_response") else turn
        case "call_tool_mcp":
            return call(arguments["name"], arguments.get("arguments"))
        case "reject":
            outputs = arguments.get("outputs", {})
            return reject(outputs["reason"] if outputs.keys() == {"reason"} else outputs)
        case _:
            outputs, answer = arguments.get("outputs", {}), arguments.get("final_thought", "")
            if answer and outputs in ({}, {"content": answer}):
                return finish(answer)
            turn = finish(outputs)
            return turn.with_extra("final-thought", answer) if answer else turn


def _reply_of(turns: list[Turn]) -> Turn:
    content: list[str] = []
    calls: list[ToolCall] = []
    for turn in turns:
        if not isinstance(turn.action, Reply):
            raise InvalidArguments(
                "only `message` and `call_tool_mcp` can stand in a list: write one action at a time"
            )
        content += [] if turn.action.content is None else [turn.action.content]
        calls += turn.action.tool_calls
    return Turn(Reply("\n".join(content) if content else None, calls))
