"""Turns and observations in the fixed JSON form of both eras.

It is for agents whose model writes actions as JSON, and for logs. The host has the same form; a
table that the SDKs of all languages are tested with defines it.

    turn = turn_from_json('I look first: {"action": "run", "args": {"command": "ls"}}')
    assert turn == act.run("ls")
    assert turn.to_json(Era.V2024)["message"] == "Running command: ls"
"""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn

from conclave_sdk import shapes
from conclave_sdk._events import Event, new_event, read_event, write_event
from conclave_sdk._fields import compact, is_whole
from conclave_sdk._forms import ACTIONS, Era
from conclave_sdk._observations import event_of_observation, observation_of
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
    Observation,
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
from conclave_sdk.turn import Turn, call, finish, reject, say
from conclave_sdk.types import JsonObject, Message, Role, ToolCall

# Places in a text at which JSON is looked for.
_PLACES = 32
# The nesting of JSON, as in the host.
_DEPTH = 127


def turn_from_json(text: str) -> Turn:
    """Parse an action that a model wrote as JSON, alone or surrounded by words.

    A list of `message` and `call_tool_mcp` becomes one reply. Raises `InvalidArguments`, which
    names the problem and the remedy for the model.
    """
    return turn_from_value(value_in(text))


def turn_from_value(value: Any) -> Turn:
    """Return the turn of JSON that is parsed already; see `turn_from_json`."""
    if isinstance(value, list):
        return _reply_of(value)
    event = read_event(value)
    if not event.is_action:
        raise InvalidArguments("an observation was written where an action is wanted")
    return _turn_of(event)


def turn_to_json(turn: Turn, era: Era = Era.V2025) -> Any:
    """Return a turn in the form of an era, as `Turn.to_json` does."""
    raw = _raw_custom(turn)
    if raw is not None and not _is_known(raw):
        return raw
    forms = [write_event(event, era, source="agent") for event in events_of_turn(turn)]
    return forms[0] if len(forms) == 1 else forms


def observation_to_json(observation: Observation, era: Era = Era.V2025) -> JsonObject:
    """Return an observation in the form of an era."""
    event = event_of_observation(observation)
    if isinstance(event, Event):
        return write_event(event, era)
    return event


def observation_from_json(value: Any) -> Observation:
    """Return the observation of a form of either era. Raises `InvalidArguments`."""
    event = read_event(value)
    if event.is_action:
        raise InvalidArguments("an action was written where an observation is wanted")
    return observation_of(event)


def value_in(text: str) -> Any:
    """Return the first JSON object, or list of objects, in a text. What follows is ignored.

    Raises `InvalidArguments` if there is none.
    """
    decoder = json.JSONDecoder(parse_constant=_refused, parse_float=_float, parse_int=_int)
    problem = ""
    starts = [at for at, letter in enumerate(text) if letter in "{["]
    for start in starts[:_PLACES]:
        try:
            value, _ = decoder.raw_decode(text, start)
            _check(value)
        except (ValueError, RecursionError) as error:
            problem = problem or str(error)
            continue
        # Texts often contain `[1]`, so a list counts only if it holds objects.
        is_list = isinstance(value, list) and bool(value)
        if isinstance(value, dict) or (is_list and all(isinstance(item, dict) for item in value)):
            return value
    what = f"what was written is no JSON: {problem}"
    if not problem:
        what = "there is no JSON object in what was written"
    raise InvalidArguments(f"{what}. Write one JSON object and nothing else.")


def events_of_turn(turn: Turn) -> list[Event]:
    """Return the events of a turn. A custom action that no log knows gives none."""
    raw = _raw_custom(turn)
    if raw is not None:
        return [read_event(raw)] if _is_known(raw) else []
    thought = turn.thought
    match turn.action:
        case Reply() as reply:
            return _said(reply, turn)
        case Nothing():
            return [_action("null")]
        case Run(command, background):
            return [_action("run", command=command, background=background, thought=thought)]
        case Kill(command_id):
            return [_action("kill", command_id=command_id, thought=thought)]
        case RunCell(code, init):
            return [_action("run_ipython", code=code, kernel_init_code=init, thought=thought)]
        case Browse(url):
            return [_action("browse", url=url, thought=thought)]
        case Read(path, start, end):
            return [_action("read", path=path, start=start, end=end, thought=thought)]
        case Write(path, content, start, end):
            lines = {"start": start, "end": end}
            return [_action("write", path=path, content=content, **lines, thought=thought)]
        case Recall(query):
            return [_action("recall", query=query, thought=thought)]
        case AddTask(parent, goal, subtasks):
            below = subtasks if isinstance(subtasks, list) else []
            return [_action("add_task", parent=parent, goal=goal, subtasks=below, thought=thought)]
        case ModifyTask(task_id, state):
            return [_action("modify_task", task_id=task_id, state=state.value, thought=thought)]
        case Delegate(task, inputs):
            return [_action("delegate", agent=task, inputs=dict(inputs), thought=thought)]
        case DelegateTask() as task:
            return [
                _action(
                    "delegate_task",
                    agent=task.worker,
                    task=task.description,
                    context=dict(task.context),
                    share_channels=list(task.share_channels),
                    thought=thought,
                )
            ]
        case Think(text):
            return [_action("think", thought=text)]
        case Talk(text) if turn.wait_for_response:
            return [_action("message", content=text, wait_for_response=True)]
        case Talk(text):
            return [_action("talk", content=text)]
        case Finish(outputs):
            answer = outputs if isinstance(outputs, str) else ""
            named = _outcome(outputs, "content")
            return [_action("finish", final_thought=answer, outputs=named, thought=thought)]
        case Reject(outputs):
            return [_action("reject", outputs=_outcome(outputs, "reason"), thought=thought)]
        case other:
            raise TypeError(f"a turn has an action of the contract, not {other!r}")


def forms_of_message(message: Message, era: Era) -> list[JsonObject]:
    """Return the events of a message in the form of an era: speech, calls and results."""
    source = {Role.LLM: "agent", Role.USER: "user"}.get(message.sender, "environment")
    events = []
    # The host's own text is an observation only as the result of a call. Elsewhere it is a message
    # of the environment.
    if not message.tool_results and (message.content or not message.tool_calls):
        events.append(_action("message", content=message.content))
    for one in message.tool_calls:
        events.append(_action("call_tool_mcp", name=one.name, arguments=dict(one.arguments)))
    for result in message.tool_results:
        if result.is_error:
            events.append(new_event(False, "error", content=result.content))
        else:
            events.append(new_event(False, "mcp", content=result.content, name=result.name))
    return [write_event(event, era, source=source, seq=message.seq) for event in events]


def forms_of_past(
    action: Action | None, observation: Observation | None, seq: int, era: Era
) -> list[JsonObject]:
    """Return the events of an entry of the past: the action, then its observation."""
    events = events_of_turn(Turn(action)) if action is not None else []
    forms = [write_event(event, era, source="agent", seq=seq) for event in events]
    event = event_of_observation(observation) if observation is not None else None
    if isinstance(event, Event):
        forms.append(write_event(event, era, seq=seq))
    return forms


def _action(kind: str, **fields: Any) -> Event:
    return new_event(True, kind, **fields)


def _said(reply: Reply, turn: Turn) -> list[Event]:
    events = []
    if reply.content is not None or not reply.tool_calls:
        waits = turn.wait_for_response
        events.append(_action("message", content=reply.content or "", wait_for_response=waits))
    for one in reply.tool_calls:
        arguments = dict(one.arguments)
        events.append(
            _action("call_tool_mcp", name=one.name, arguments=arguments, thought=turn.thought)
        )
    return events


def _raw_custom(turn: Turn) -> JsonObject | None:
    """Return a custom action unchanged, with its thought, if any, among its arguments."""
    if not isinstance(turn.action, Custom):
        return None
    arguments = shapes.to_json(turn.action.arguments)
    kind = ACTIONS.get(turn.action.name)
    takes_thought = kind is None or not kind.is_in(Era.V2025) or "thought" in kind.fields
    if turn.thought and takes_thought:
        arguments = {**arguments, "thought": turn.thought}
    return {"action": turn.action.name, "args": arguments}


def _is_known(form: JsonObject) -> bool:
    try:
        read_event(form)
    except InvalidArguments:
        return False
    return True


def _outcome(outputs: Any, key: str) -> JsonObject:
    """Return the outputs as an object; another value becomes the value of that key."""
    value = shapes.to_json(outputs)
    if value is None:
        return {}
    return value if isinstance(value, dict) else {key: value}


def _turn_of(event: Event) -> Turn:
    it = event.fields
    thought = it.get("thought", "")
    match event.kind:
        case "think":
            return Turn(Think(thought))
        case "message":
            return _message(it)
        case "talk":
            return Turn(Talk(it["content"]))
        case "call_tool_mcp":
            return call(it["name"], it["arguments"]).because(thought)
        case "finish":
            return _finished(it).because(thought)
        case "reject":
            outputs = it["outputs"]
            reason = outputs.get("reason")
            is_reason = len(outputs) == 1 and isinstance(reason, str)
            return reject(reason if is_reason else outputs).because(thought)
        case _:
            return Turn(_typed(event), thought)


def _typed(event: Event) -> Action:
    it = event.fields
    match event.kind:
        case "null":
            return Nothing()
        # The contract's own case has no place for the fields that 2025-11 adds to a command.
        case "run" if (
            it
            == _action(
                "run", command=it["command"], background=it["background"], thought=it["thought"]
            ).fields
        ):
            return Run(it["command"], it["background"])
        case "kill":
            return Kill(_number("kill", "command_id", it["command_id"]))
        case "run_ipython":
            return RunCell(it["code"], it["kernel_init_code"])
        case "browse":
            return Browse(it["url"])
        case "read" if it["view_range"] is None:
            return Read(it["path"], it["start"], it["end"])
        case "write":
            return Write(it["path"], it["content"], it["start"], it["end"])
        case "recall":
            return Recall(it["query"])
        case "add_task":
            return AddTask(it["parent"], it["goal"], it["subtasks"])
        case "modify_task":
            return ModifyTask(str(it["task_id"]), _state(it["state"]))
        case "delegate":
            return Delegate(it["agent"], it["inputs"])
        case "delegate_task":
            return DelegateTask(it["agent"], it["task"], it["context"], it["share_channels"])
        case _:
            arguments = write_event(event, Era.V2025)["args"]
            arguments.pop("thought", None)
            return Custom(event.kind, arguments)


def _message(it: dict[str, Any]) -> Turn:
    turn = say(it["content"])
    turn = turn.and_wait_for_user() if it["wait_for_response"] else turn
    for key, urls in [("file-urls", it["file_urls"]), ("image-urls", it["image_urls"])]:
        turn = turn if urls is None else turn.with_extra(key, urls)
    return turn


def _finished(it: dict[str, Any]) -> Turn:
    """Return the finish of a log: 2025-11 has a field for a text, 2024-07 finds it in outputs."""
    outputs, answer = it["outputs"], it["final_thought"]
    if answer and outputs in ({}, {"content": answer}):
        return finish(answer)
    turn = finish(outputs)
    return turn.with_extra("final-thought", answer) if answer else turn


def _number(kind: str, name: str, value: int | str) -> int:
    try:
        number = int(value)
    except ValueError:
        number = 2**63
    if not is_whole(number):
        raise InvalidArguments(f"{kind}: `{name}` must be a number, and is {value}")
    return number


def _state(name: str) -> PlanState:
    states = [state.value for state in PlanState]
    if name not in states:
        known = ", ".join(states)
        raise InvalidArguments(f"modify_task: there is no state `{name}`. Known are: {known}.")
    return PlanState(name)


def _reply_of(forms: list[Any]) -> Turn:
    content: list[str] = []
    calls: list[ToolCall] = []
    for form in forms:
        turn = turn_from_value(form)
        if not isinstance(turn.action, Reply):
            raise InvalidArguments(
                "only `message` and `call_tool_mcp` can stand in a list: write one action at a time"
            )
        content += [] if turn.action.content is None else [turn.action.content]
        calls += turn.action.tool_calls
    return Turn(Reply("\n".join(content) if content else None, calls))


def _refused(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no value of JSON")


def _float(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("number out of range")
    return number


def _int(text: str) -> int | float:
    # As in the host, a larger integer is a float.
    return int(text) if len(text) < 22 and -(2**63) <= int(text) < 2**64 else _float(text)


def _check(value: Any) -> None:
    """Refuse what the host refuses: deep nesting, and half of a surrogate pair."""
    _check_depth(value, _DEPTH)
    if any("\ud800" <= letter <= "\udfff" for letter in compact(value)):
        raise ValueError("lone surrogate in a text")


def _check_depth(value: Any, depth: int) -> None:
    if not isinstance(value, (dict, list)):
        return
    if depth == 0:
        raise ValueError("recursion limit exceeded")
    for item in value.values() if isinstance(value, dict) else value:
        _check_depth(item, depth - 1)
