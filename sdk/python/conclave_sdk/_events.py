"""Events of a log in the fixed JSON form: reading the union of both eras, and writing one of them.

It knows nothing of the contract's actions and observations; `conclave_sdk.codec` connects them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from conclave_sdk import _messages
from conclave_sdk._fields import is_whole, listed, read_field, short
from conclave_sdk._forms import ACTIONS, OBSERVATIONS, Era, Kind
from conclave_sdk.errors import InvalidArguments


@dataclass
class Event:
    """An action or an observation, with all fields that either era has."""

    is_action: bool
    kind: str
    fields: dict[str, Any]


def new_event(is_action: bool, kind: str, **fields: Any) -> Event:
    """Return an event with these fields, and the defaults of the others."""
    kinds = ACTIONS if is_action else OBSERVATIONS
    return Event(is_action, kind, {**kinds[kind].defaults(), **fields})


def read_event(value: Any) -> Event:
    """Read the union of both eras and our own kinds.

    Raises `InvalidArguments`, which names the problem and the remedy for the model.
    """
    if not isinstance(value, dict):
        raise InvalidArguments(
            f"An event must be an object with `action` or `observation`, and is {short(value)}."
        )
    if "action" in value:
        event = _read_action(value["action"], value)
    elif "observation" in value:
        event = _read_observation(value["observation"], value)
    else:
        raise InvalidArguments(
            f"An event must have `action` or `observation`; this one has: {listed(sorted(value))}."
        )
    _check_envelope(value, event.is_action)
    return event


def write_event(
    event: Event, era: Era, *, source: str | None = None, seq: int | None = None
) -> dict[str, Any]:
    """Return an event in the form of an era; a kind that it lacks has the fields of the other."""
    form: dict[str, Any] = {} if seq is None else {"id": seq}
    if source is not None:
        form["source"] = source
    form["message"] = _messages.message(event.is_action, event.kind, event.fields, era)
    kinds = ACTIONS if event.is_action else OBSERVATIONS
    fields = {name: event.fields[name] for name in kinds[event.kind].names_in(era)}
    if event.kind == "recall" and era is Era.V2025 and fields["recall_type"] is None:
        # 2025-11 requires the type; a recall of 2024-07 has none, and asked for knowledge.
        fields["recall_type"] = "knowledge"
    if event.is_action:
        return {**form, "action": event.kind, "args": fields}
    content = fields.pop("content")
    if event.kind == "run" and era is Era.V2024:
        metadata = event.fields["metadata"]
        fields = {
            "command_id": metadata["pid"],
            "command": event.fields["command"],
            "exit_code": metadata["exit_code"],
        }
    form = {**form, "observation": event.kind, "content": content, "extras": fields}
    if era is Era.V2025 and event.kind in ("run", "run_ipython"):
        metadata = event.fields.get("metadata") or {"exit_code": 0}
        form["success"] = metadata["exit_code"] == 0
    return form


def _read_action(kind: Any, value: dict[str, Any]) -> Event:
    known = f"Known are: {listed(list(ACTIONS))}."
    if not isinstance(kind, str):
        raise InvalidArguments(f"`action` must be a string, and is {short(kind)}. {known}")
    arguments = value.get("args", {})
    if not isinstance(arguments, dict):
        raise InvalidArguments(
            f"`args` of action `{kind}` must be an object, and is {short(arguments)}."
        )
    arguments = _with_current_names(arguments)
    if kind not in ACTIONS:
        raise InvalidArguments(f"Action `{kind}` does not exist. {known}")
    fields = _read_fields("Action", kind, ACTIONS[kind], arguments)
    if kind == "condensation":
        _check_condensation(fields)
    if kind == "recall" and fields["recall_type"] is None and "query" not in arguments:
        raise InvalidArguments(
            "Action `recall` needs `query` (2024-07) or `recall_type` (2025-11)."
        )
    return Event(True, kind, fields)


def _read_observation(kind: Any, value: dict[str, Any]) -> Event:
    known = f"Known are: {listed(list(OBSERVATIONS))}."
    if not isinstance(kind, str):
        raise InvalidArguments(f"`observation` must be a string, and is {short(kind)}. {known}")
    extras = value.get("extras", {})
    if not isinstance(extras, dict):
        raise InvalidArguments(
            f"`extras` of observation `{kind}` must be an object, and is {short(extras)}."
        )
    extras = dict(extras)
    if kind == "run" and "command_id" in extras and "metadata" not in extras:
        # In 2024-07 the exit code is optional, and 0 by default.
        extras.setdefault("exit_code", 0)
    for old, new in [("exit_code", "exit_code"), ("command_id", "pid")]:
        if old in extras:
            moved = extras.pop(old)
            metadata = extras.get("metadata")
            extras["metadata"] = {**(metadata if isinstance(metadata, dict) else {}), new: moved}
    extras.pop("formatted_output_and_error", None)
    recall_type = extras.get("recall_type")
    if recall_type not in (None, "workspace_context", "knowledge"):
        raise InvalidArguments(
            f"`recall_type` must be workspace_context or knowledge, and is {short(recall_type)}."
        )
    if kind not in OBSERVATIONS:
        raise InvalidArguments(f"Observation `{kind}` does not exist. {known}")
    if "content" in extras:
        raise InvalidArguments(
            f"Observation `{kind}` has `content` among its extras; it belongs at the top level."
        )
    if kind == "run":
        # Writers of 2025-11 add extras of their own to a command.
        extras = {name: one for name, one in extras.items() if name in OBSERVATIONS[kind].fields}
    extras["content"] = value.get("content")
    fields = _read_fields("Observation", kind, OBSERVATIONS[kind], extras)
    if kind == "recall" and "memories" not in extras and "recall_type" not in extras:
        raise InvalidArguments(
            "Observation `recall` needs `memories` (2024-07) or `recall_type` (2025-11)."
        )
    return Event(False, kind, fields)


def _read_fields(family: str, name: str, kind: Kind, values: dict[str, Any]) -> dict[str, Any]:
    """Read the fields of a kind, after all unknown and missing names were looked for (O-006)."""
    required = kind.required()
    unknown = sorted(values.keys() - kind.fields.keys())
    missing = [field for field in required if values.get(field) is None]
    faults = [f"unknown: {listed(unknown)}"] if unknown else []
    faults += [f"missing: {listed(missing)}"] if missing else []
    if faults:
        raise InvalidArguments(
            f"{family} `{name}` has wrong names ({'; '.join(faults)}). "
            f"Known are: {listed(list(kind.fields))}; required are: {listed(required)}."
        )
    fields = kind.defaults()
    for field, (type_name, default, _) in kind.fields.items():
        if field in values:
            try:
                fields[field] = read_field(name, field, type_name, values[field], default)
            except ValueError as error:
                raise InvalidArguments(f"{family} {error}") from error
    return fields


def _with_current_names(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments with the names of today in place of old spellings (O-044)."""
    current = dict(arguments)
    confirmed = current.pop("is_confirmed", None)
    if confirmed is not None:
        state = {True: "confirmed", False: "awaiting_confirmation"}
        is_flag = isinstance(confirmed, bool)
        current["confirmation_state"] = state[confirmed] if is_flag else confirmed
    if "images_urls" in current:
        current["image_urls"] = current.pop("images_urls")
    risk = current.get("security_risk")
    is_risk = isinstance(risk, (int, float)) and not isinstance(risk, bool)
    if risk is not None and not (is_risk and risk in (-1, 0, 1, 2)):
        del current["security_risk"]
    for removed in ("timestamp", "keep_prompt", "task_completed"):
        current.pop(removed, None)
    return current


def _check_condensation(fields: dict[str, Any]) -> None:
    """Check O-042: the events are given in exactly one way, a summary with its offset."""
    ends = [fields["forgotten_events_start_id"], fields["forgotten_events_end_id"]]
    if (fields["forgotten_event_ids"] is None) == (None in ends):
        raise InvalidArguments(
            "Action `condensation` must name what is forgotten in exactly one way: either "
            "`forgotten_event_ids`, or both `forgotten_events_start_id` and "
            "`forgotten_events_end_id`."
        )
    if (fields["summary"] is None) != (fields["summary_offset"] is None):
        raise InvalidArguments(
            "Action `condensation` must give `summary` and `summary_offset` together, or neither."
        )


def _check_envelope(value: dict[str, Any], is_action: bool) -> None:
    timeout = value.get("timeout") if is_action else None
    for field, expected, one, is_right in [
        ("id", "a whole number", value.get("id"), is_whole(value.get("id"))),
        ("cause", "a whole number", value.get("cause"), is_whole(value.get("cause"))),
        (
            "timestamp",
            "an ISO-8601 date and time",
            value.get("timestamp"),
            isinstance(value.get("timestamp"), str),
        ),
        ("source", "a string", value.get("source"), isinstance(value.get("source"), str)),
        (
            "timeout",
            "a number of seconds",
            timeout,
            isinstance(timeout, (int, float)) and not isinstance(timeout, bool),
        ),
    ]:
        if one is not None and not is_right:
            raise InvalidArguments(f"`{field}` must be {expected}, and is {short(one)}.")
