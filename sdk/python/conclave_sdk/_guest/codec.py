"""Conversions between the types of the bindings and those of the SDK.

A conversion is built from a type hint once, while the component is built. The bindings have only
the interfaces of the component's world, so a conversion looks for its classes when it is built.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import re
import types
import typing
from collections.abc import Callable
from enum import Enum
from typing import Annotated, Any, Union

from conclave_sdk import (
    actions,
    agents,
    analyzer,
    condenser,
    delivery,
    fetch,
    files,
    gate,
    judge,
    model,
    observer,
    tools,
    turn,
)
from conclave_sdk import types as sdk_types
from conclave_sdk.shapes import dumps

Conversion = Callable[[Any], Any]

_SURROGATE = re.compile("[\ud800-\udfff]")

_EXPORTED = {
    "channel",
    "condenser",
    "delivery_strategy",
    "gate",
    "judge",
    "observer",
    "security_analyzer",
    "tools",
}

# The record of each class, by interface and name.
_RECORDS: dict[type, tuple[str, str]] = {
    sdk_types.ToolCall: ("types", "ToolCall"),
    sdk_types.ToolResult: ("types", "ToolResult"),
    sdk_types.Blob: ("types", "Blob"),
    sdk_types.Message: ("types", "Message"),
    sdk_types.Draft: ("types", "Draft"),
    sdk_types.Usage: ("types", "Usage"),
    turn.Turn: ("actions", "Turn"),
    actions.StructuredResult: ("actions", "StructuredResult"),
    agents.PastAction: ("state", "PastAction"),
    agents.ToolSummary: ("state", "ToolSummary"),
    agents.Peer: ("state", "Peer"),
    agents.RemainingBudgets: ("state", "RemainingBudgets"),
    agents.RunMetrics: ("state", "RunMetrics"),
    model.Request: ("model", "Request"),
    model.Completion: ("model", "Completion"),
    files.Entry: ("files", "Entry"),
    files.Root: ("files", "Root"),
    fetch.Header: ("fetch", "Header"),
    fetch.Request: ("fetch", "Request"),
    tools.ToolSpec: ("tools", "ToolSpec"),
    tools.Outcome: ("tools", "Outcome"),
    delivery.EndedTask: ("delivery_context", "EndedTask"),
    delivery.Channel: ("delivery_context", "Channel"),
    gate.GateInput: ("gate", "GateInput"),
    judge.Answer: ("judge", "Answer"),
    judge.TaskResult: ("judge", "TaskResult"),
    judge.Ending: ("judge", "Ending"),
    condenser.Condensation: ("condenser", "Condensation"),
    condenser.Span: ("condenser", "Span"),
    condenser.Masked: ("condenser", "Masked"),
    analyzer.Verdict: ("security_analyzer", "Verdict"),
    observer.ObservedEvent: ("observer", "ObservedEvent"),
}

# Fields that the SDK names otherwise, because a method has the contract's name.
_RENAMED = {condenser.Condensation: {"spans": "forget", "masked": "mask"}}

_ENUMS: dict[type[Enum], tuple[str, str]] = {
    sdk_types.Role: ("types", "Role"),
    actions.PlanState: ("actions", "PlanState"),
    actions.ResultForm: ("actions", "ResultForm"),
    actions.OnClose: ("actions", "OnClose"),
    model.ToolFormat: ("model", "ToolFormat"),
    model.StopReason: ("model", "StopReason"),
    files.EntryKind: ("files", "EntryKind"),
    delivery.TaskStatus: ("delivery_context", "TaskStatus"),
    delivery.ChannelKind: ("delivery_context", "ChannelKind"),
    delivery.Activity: ("delivery_context", "Activity"),
    gate.Point: ("gate", "Point"),
    condenser.Reason: ("condenser", "Reason"),
    analyzer.Risk: ("security_analyzer", "Risk"),
}

# How a case carries the fields of its class: not at all, as its one field, as a tuple of them, or
# as the record of this name.
_NONE, _FIELD, _TUPLE = "", "=", "()"

_VARIANTS: dict[type, tuple[str, str, dict[str, tuple[type, str]]]] = {
    actions.Action: (
        "actions",
        "Action",
        {
            "Null": (actions.Nothing, _NONE),
            "Reply": (actions.Reply, "Reply"),
            "Run": (actions.Run, "RunCommand"),
            "Kill": (actions.Kill, _FIELD),
            "RunCell": (actions.RunCell, "RunCell"),
            "Browse": (actions.Browse, _FIELD),
            "Read": (actions.Read, "ReadFile"),
            "Write": (actions.Write, "WriteFile"),
            "Recall": (actions.Recall, _FIELD),
            "AddTask": (actions.AddTask, "AddTask"),
            "ModifyTask": (actions.ModifyTask, "ModifyTask"),
            "Delegate": (actions.Delegate, "Delegate"),
            "DelegateTask": (actions.DelegateTask, "BackgroundTask"),
            "Think": (actions.Think, _FIELD),
            "Talk": (actions.Talk, _FIELD),
            "Finish": (actions.Finish, _FIELD),
            "Reject": (actions.Reject, _FIELD),
            "Custom": (actions.Custom, "CustomAction"),
        },
    ),
    actions.Observation: (
        "actions",
        "Observation",
        {
            "Null": (actions.Silence, _NONE),
            "Command": (actions.CommandResult, "CommandOutput"),
            "Cell": (actions.CellResult, _TUPLE),
            "Browsed": (actions.Page, "Page"),
            "File": (actions.FileContent, _TUPLE),
            "Written": (actions.Written, _FIELD),
            "Recalled": (actions.Recalled, _FIELD),
            "Delegated": (actions.Delegated, _TUPLE),
            "Tool": (actions.ToolOutput, "ToolOutput"),
            "Success": (actions.Success, _FIELD),
            "Error": (actions.Failure, _FIELD),
            "Custom": (actions.CustomObservation, "CustomObservation"),
        },
    ),
    actions.DeliveryChoice: (
        "actions",
        "DeliveryChoice",
        {
            "AsConfigured": (actions.AsConfigured, _NONE),
            "Inbox": (actions.Inbox, _NONE),
            "Strategy": (actions.Strategy, _FIELD),
        },
    ),
    model.Part: (
        "model",
        "Part",
        {
            "System": (model.System, _NONE),
            "History": (model.HistoryRange, "Range"),
            "Draft": (model.DraftPart, _FIELD),
        },
    ),
    model.ToolChoice: (
        "model",
        "ToolChoice",
        {
            "Auto": (model.Auto, _NONE),
            "None_": (model.Never, _NONE),
            "Required": (model.Required, _NONE),
            "Named": (model.Named, _FIELD),
        },
    ),
    gate.Verdict: (
        "gate",
        "Verdict",
        {
            "Allow": (gate.Allow, _NONE),
            "Modify": (gate.Modify, _FIELD),
            "Block": (gate.Block, _FIELD),
        },
    ),
    delivery.Wake: (
        "delivery_strategy",
        "Wake",
        {
            "Ended": (delivery.TaskEnded, _FIELD),
            "ChannelIdle": (delivery.ChannelIdle, _FIELD),
            "Timer": (delivery.Timer, _NONE),
            "SendFailed": (delivery.SendFailed, _FIELD),
        },
    ),
    delivery.Decision: (
        "delivery_strategy",
        "Decision",
        {
            "Deliver": (delivery.Deliver, "DeliveryMessage"),
            "MoveToInbox": (delivery.MoveToInbox, _FIELD),
            "Wait": (delivery.Wait, "WaitRequest"),
            "GiveUp": (delivery.GiveUp, _FIELD),
        },
    ),
}


def wit(interface: str, name: str) -> Any:
    """Return a class or function of the bindings."""
    side = "exports" if interface in _EXPORTED else "imports"
    return getattr(importlib.import_module(f"wit_world.{side}.{interface}"), name)


def decoder(hint: Any) -> Conversion:
    """Return the conversion of a value of the bindings to a value of this type."""
    return _decoders[hint] if hint in _decoders else _decoders.setdefault(hint, _decoder(hint))


def encoder(hint: Any) -> Conversion:
    """Return the conversion of a value of this type to a value of the bindings."""
    return _encoders[hint] if hint in _encoders else _encoders.setdefault(hint, _encoder(hint))


def well_formed(text: str) -> str:
    """Return the text with U+FFFD for each surrogate, which UTF-8 cannot express.

    The bindings would trap on one. `json.loads` returns them for escapes such as `"\\ud83d"`.
    """
    return text if text.isascii() else _SURROGATE.sub("\ufffd", text)


def well_formed_json(value: Any) -> str:
    """Return the JSON text of a value."""
    return well_formed(dumps(value))


_decoders: dict[Any, Conversion] = {}
_encoders: dict[Any, Conversion] = {}


def _same(value: Any) -> Any:
    return value


def _inner(hint: Any) -> tuple[str, list[Any]]:
    """Return the form of a hint that is no class, and the hints inside of it."""
    origin, arguments = typing.get_origin(hint), list(typing.get_args(hint))
    if origin in (Union, types.UnionType):
        return "option", [item for item in arguments if item is not type(None)]
    if origin is Annotated:
        return str(arguments[1]), arguments[:1]
    if origin is list:
        return "list", arguments
    if hint in (str, int, bool, bytes):
        return "scalar", []
    raise TypeError(f"the contract has no type for {hint}")


def _decoder(hint: Any) -> Conversion:
    if hint in _VARIANTS:
        return _variant_decoder(hint)
    if hint in _RECORDS:
        return _record_decoder(hint)
    if hint in _ENUMS:
        members = {item: hint[item.name] for item in wit(*_ENUMS[hint])}
        return members.__getitem__
    form, inner = _inner(hint)
    match form:
        case "json":
            return json.loads
        case "extra":
            return _decode_extra
        case "option":
            item = decoder(inner[0])
            if item is _same:
                return _same
            return lambda value: None if value is None else item(value)
        case "list":
            item = decoder(inner[0])
            return _same if item is _same else lambda value: [item(each) for each in value]
        case _:
            return _same


def _encoder(hint: Any) -> Conversion:
    if hint in _VARIANTS:
        return _variant_encoder(hint)
    if hint in _RECORDS:
        interface, name = _RECORDS[hint]
        return _record_encoder(hint, wit(interface, name))
    if hint in _ENUMS:
        kind = wit(*_ENUMS[hint])
        return lambda value: kind[value.name]
    form, inner = _inner(hint)
    match form:
        case "json":
            return well_formed_json
        case "extra":
            return _extra_encoder()
        case "option":
            item = encoder(inner[0])
            return lambda value: None if value is None else item(value)
        case "list":
            item = encoder(inner[0])
            return lambda value: [item(each) for each in value]
        case _:
            return well_formed if hint is str else _same


def _decode_extra(value: Any) -> dict[str, Any]:
    return {item.key: json.loads(item.value) for item in value}


def _extra_encoder() -> Conversion:
    kind = wit("types", "Extra")
    return lambda value: [
        kind(well_formed(key), well_formed_json(item)) for key, item in value.items()
    ]


def _fields(kind: Any) -> list[tuple[str, Any]]:
    hints = typing.get_type_hints(kind, include_extras=True)
    return [(field.name, hints[field.name]) for field in dataclasses.fields(kind)]


def _record_decoder(kind: Any) -> Conversion:
    names = _RENAMED.get(kind, {})
    fields = [(names.get(name, name), decoder(hint)) for name, hint in _fields(kind)]
    return lambda value: kind(*[convert(getattr(value, name)) for name, convert in fields])


def _record_encoder(kind: Any, record: Any) -> Conversion:
    names = _RENAMED.get(kind, {})
    fields = [(name, names.get(name, name), encoder(hint)) for name, hint in _fields(kind)]
    return lambda value: record(
        **{target: convert(getattr(value, name)) for name, target, convert in fields}
    )


def _variant_decoder(base: Any) -> Conversion:
    interface, variant, cases = _VARIANTS[base]
    by_class: dict[Any, Conversion] = {}
    for name, (kind, form) in cases.items():
        by_class[wit(interface, f"{variant}_{name}")] = _case_decoder(kind, form)
    return lambda value: by_class[type(value)](value)


def _case_decoder(kind: Any, form: str) -> Conversion:
    fields = _fields(kind)
    if form == _NONE:
        return lambda _: kind()
    if form == _FIELD:
        convert = decoder(fields[0][1])
        return lambda value: kind(convert(value.value))
    if form == _TUPLE:
        conversions = [decoder(hint) for _, hint in fields]
        return lambda value: kind(*[c(v) for c, v in zip(conversions, value.value, strict=True)])
    whole = _record_decoder(kind)
    return lambda value: whole(value.value)


def _variant_encoder(base: Any) -> Conversion:
    interface, variant, cases = _VARIANTS[base]
    by_class: dict[Any, Conversion] = {}
    for name, (kind, form) in cases.items():
        case = wit(interface, f"{variant}_{name}")
        by_class[kind] = _case_encoder(interface, case, kind, form)
    wanted = base.__name__

    def encode(value: Any) -> Any:
        if type(value) not in by_class:
            raise TypeError(f"expected a {wanted}, got {value!r}")
        return by_class[type(value)](value)

    return encode


def _case_encoder(interface: str, case: Any, kind: Any, form: str) -> Conversion:
    if form == _NONE:
        return lambda _: case()
    fields = _fields(kind)
    if form == _FIELD:
        (name, hint) = fields[0]
        convert = encoder(hint)
        return lambda value: case(convert(getattr(value, name)))
    if form == _TUPLE:
        parts = [(name, encoder(hint)) for name, hint in fields]
        return lambda value: case(tuple(c(getattr(value, name)) for name, c in parts))
    whole = _record_encoder(kind, wit(interface, form))
    return lambda value: case(whole(value))
