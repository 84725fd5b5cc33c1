"""The tools that a cell calls as functions, such as `search.find(query="tides")`.

Each call is one of the agent's own: checked, approved, counted and journalled by the host.
"""

from __future__ import annotations

import builtins
import inspect
import keyword
import re
from collections.abc import Iterator, Mapping
from typing import Any

from conclave_sdk import Denied, Error, toolbox
from conclave_sdk.toolbox import CallableTool, ToolAnswer

_TYPES = {
    "string": "str",
    "integer": "int",
    "number": "float",
    "boolean": "bool",
    "object": "dict",
    "array": "list",
    "null": "None",
}


# Names that a plugin's tools do not hide: a script that prints would not work any more.
_RESERVED = frozenset(dir(builtins)) | {"Denied", "Error", "gather", "tools"}


class Pending:
    """A call that `gather` makes together with others."""

    def __init__(self, tool: CallableTool, arguments: dict[str, Any]) -> None:
        self.name = tool.name
        self.arguments = arguments
        self._is_typed = tool.output_schema is not None

    def result(self, answer: ToolAnswer) -> Any:
        """Return the structured result if the tool declares one, or a number, or else the text."""
        first, second = answer.content, answer.value
        # The text of a number is of no use to a script. A bool is an int.
        if self._is_typed or isinstance(answer.value, (int, float)):
            first, second = second, first
        return second if first is None else first

    def __repr__(self) -> str:
        return f"<call of {self.name} for gather()>"


class Function:
    """A tool as a function."""

    def __init__(self, tool: CallableTool) -> None:
        self.__name__ = _identifier(tool.name.rpartition(".")[2])
        self.__doc__ = tool.description
        self.__signature__ = _signature(tool)
        self._tool = tool

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the structured result if the tool declares one, or else the text."""
        call = self.later(*args, **kwargs)
        return call.result(toolbox.call(call.name, call.arguments))

    def later(self, *args: Any, **kwargs: Any) -> Pending:
        """Return the call, for `gather`."""
        bound = self.__signature__.bind(*args, **kwargs)
        names = _names(self._tool)
        return Pending(self._tool, {names[key]: value for key, value in bound.arguments.items()})

    def __repr__(self) -> str:
        return f"{_callable_name(self._tool.name)}{self.__signature__}"

    def __reduce__(self) -> Any:
        # By name: the next cell has the tools that are granted then.
        return _named, (self._tool.name,)


class _Ungranted:
    """A tool that the cell may not call. The host says why, and reports it to the operator."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, *_: Any, **arguments: Any) -> Any:
        return toolbox.call(self._name, arguments).content

    def later(self, *_: Any, **arguments: Any) -> Pending:
        return Pending(CallableTool(self._name, "", {}), arguments)

    def __repr__(self) -> str:
        return f"<{self._name}, which this cell may not call>"


class ToolPlugin:
    """The tools of one plugin."""

    def __init__(self, name: str, functions: dict[str, Function], plugin: str = "") -> None:
        self.__name__ = name
        self._plugin = plugin or name
        self.__dict__.update(functions)

    def __getattr__(self, name: str) -> _Ungranted:
        # Python asks for names with `_` itself, such as `__deepcopy__`.
        if name.startswith("_"):
            raise AttributeError(name)
        return _Ungranted(f"{self._plugin}.{name}")

    def __repr__(self) -> str:
        functions = [value for value in vars(self).values() if isinstance(value, Function)]
        return "\n".join(map(repr, functions))

    def __reduce__(self) -> Any:
        return _plugin_named, (self.__name__,)


class _Listing(str):
    """A text whose value in a cell is the text itself."""

    def __repr__(self) -> str:
        return str(self)


def gather(*calls: Pending, return_exceptions: bool = False) -> list[Any]:
    """Make calls at the same time, and return their results in order.

    A call is what `later` of a function returns: `gather(a.find.later("x"), a.find.later("y"))`.
    The first failure is raised when all have ended; with `return_exceptions` it is a result.
    """
    for call in calls:
        if not isinstance(call, Pending):
            raise TypeError(f"gather() takes calls such as search.find.later(…), not {call!r}")
    answers = toolbox.call_all([(call.name, call.arguments) for call in calls])
    results = [
        answer if isinstance(answer, Error) else call.result(answer)
        for call, answer in zip(calls, answers, strict=True)
    ]
    failed = next((result for result in results if isinstance(result, Error)), None)
    if failed is not None and not return_exceptions:
        raise failed
    return results


def tools(word: str = "") -> str:
    """Return the functions with a word in their name or description, one after the other."""
    found = [
        f"{Function(tool)!r}\n    {' '.join(tool.description.split())}"
        for tool in toolbox.tools()
        if word.lower() in f"{tool.name} {Function(tool)!r} {tool.description}".lower()
    ]
    without = "No tool fits." if word else _NONE
    return _Listing("\n".join(found) or without)


def namespace() -> dict[str, Any]:
    """Return the functions by name, for a cell, and the exceptions that they raise."""
    plugins: dict[str, dict[str, Function]] = {}
    names: dict[str, Any] = {"Denied": Denied, "Error": Error, "gather": gather, "tools": tools}
    written: dict[str, str] = {}
    for tool in toolbox.tools():
        plugin, dot, name = _callable_name(tool.name).rpartition(".")
        if dot:
            plugins.setdefault(plugin, {})[name] = Function(tool)
            written[plugin] = tool.name.rpartition(".")[0]
        else:
            names[name] = Function(tool)
    for name, functions in plugins.items():
        names[name] = ToolPlugin(name, functions, written[name])
    return names


def _named(name: str) -> Function:
    for tool in toolbox.tools():
        if tool.name == name:
            return Function(tool)
    raise LookupError(f"the tool {name} is not granted any more")


def _plugin_named(name: str) -> Any:
    found = namespace().get(name)
    if found is None:
        raise LookupError(f"no tool of {name} is granted any more")
    return found


def _callable_name(tool: str) -> str:
    """Return what a cell writes to call a tool."""
    plugin, dot, name = tool.rpartition(".")
    first = _identifier(plugin if dot else name)
    first = f"{first}_" if first in _RESERVED else first
    return f"{first}.{_identifier(name)}" if dot else first


def _identifier(name: str) -> str:
    text = re.sub(r"\W", "_", name)
    return f"{text}_" if keyword.iskeyword(text) or not text.isidentifier() else text


def _names(tool: CallableTool) -> dict[str, str]:
    """Return the arguments' names in the schema by those in Python."""
    return {_identifier(name): name for name in tool.input_schema.get("properties", {})}


def _signature(tool: CallableTool) -> inspect.Signature:
    schema = tool.input_schema
    required = schema.get("required", [])
    properties: Mapping[str, Any] = schema.get("properties", {})
    output = tool.output_schema
    returns = _Annotation("str" if output is None else _type(output))
    return inspect.Signature(
        sorted(_parameters(properties, required), key=_is_optional), return_annotation=returns
    )


def _parameters(properties: Mapping[str, Any], required: list[str]) -> Iterator[inspect.Parameter]:
    for name, schema in properties.items():
        schema = schema if isinstance(schema, dict) else {}
        # What is left out is not sent, so the tool's own default applies.
        default = inspect.Parameter.empty if name in required else schema.get("default", _OMITTED)
        yield inspect.Parameter(
            _identifier(name),
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
            default=default,
            annotation=_Annotation(_type(schema)),
        )


def _is_optional(parameter: inspect.Parameter) -> bool:
    return parameter.default is not inspect.Parameter.empty


class _Annotation:
    """A type or a default as it is written."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def _type(schema: Any) -> str:
    if not isinstance(schema, dict):
        return "Any"
    if "enum" in schema:
        return f"Literal[{', '.join(map(repr, schema['enum']))}]"
    for union in ("anyOf", "oneOf"):
        if union in schema:
            return " | ".join(dict.fromkeys(map(_type, schema[union])))
    kind = schema.get("type")
    if isinstance(kind, list):
        return " | ".join(_TYPES.get(one, "Any") for one in kind)
    if kind == "array" and "items" in schema:
        return f"list[{_type(schema['items'])}]"
    return _TYPES.get(kind or "", "Any")


_OMITTED = _Annotation("...")
_NONE = "No tool: this plugin and the agent that calls it both need the grant `tools`."
