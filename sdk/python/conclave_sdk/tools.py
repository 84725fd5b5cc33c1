"""Tools: functions that a model calls.

    @tool(idempotent=True)
    def high_water(place: str) -> str:
        \"\"\"High water at a place. Use it when the user asks about tides.

        Args:
            place: The harbour, such as Oban.
        \"\"\"
        return files.read_text("/tides/today.txt")

A tool stays an ordinary function, which an ordinary test calls.
"""

from __future__ import annotations

import inspect
import json
import re
import typing
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property, update_wrapper
from typing import Any, Generic, ParamSpec, TypeVar, overload

from conclave_sdk import _host, docstrings, shapes
from conclave_sdk.errors import AppError, InvalidArguments
from conclave_sdk.shapes import ObjectShape, Property, UnsupportedTypeError
from conclave_sdk.types import Blob, Extra, Json, JsonObject, ToolCall

P = ParamSpec("P")
R = TypeVar("R")

_NAME = re.compile(r"[a-z][a-z0-9_]*")


@dataclass
class Call:
    """The facts of a tool call, which the host sets.

    A tool gets them by a parameter of this type, which is no argument that the model sees.
    `call_id` is the same for all attempts: the key for idempotent work. `attempt` counts from 1.
    """

    call_id: str = ""
    attempt: int = 1
    task_name: str = ""
    room_id: str = ""
    caller: str = ""
    deadline_ms: int = 0
    traceparent: str = ""


@dataclass
class ToolSpec:
    """The description of a tool, as the host admits it.

    `extra` may have `title`, `result-tokens`, `retained-tokens` and `examples`.
    """

    name: str
    description: str
    input_schema: JsonObject = field(default_factory=lambda: {"type": "object", "properties": {}})
    output_schema: JsonObject | None = None
    idempotent: bool = False
    extra: Extra = field(default_factory=dict)


@dataclass
class Outcome:
    """The result of a tool call, where a plain return value does not suffice.

    Without `content` the text is the JSON of `value`; without both there is no result.
    """

    content: str | None = None
    value: Json | None = None
    attachments: list[Blob] = field(default_factory=list)
    follow_up_calls: list[ToolCall] = field(default_factory=list)

    def then(self, tool: str, arguments: dict[str, Any] | None = None) -> Outcome:
        """Add a call that runs next, on behalf of the calling agent.

        Tools of the host, such as `done`, need the `route` grant.
        """
        self.follow_up_calls.append(ToolCall(tool, arguments or {}))
        return self

    @classmethod
    def done(cls, content: Any) -> Outcome:
        """End the task with this content."""
        return cls().then("done", {"content": content})

    @classmethod
    def agent_done(cls, content: Any, calls: Iterable[tuple[str, dict[str, Any]]]) -> Outcome:
        """End the task with this content, and with calls for its caller."""
        return cls().then("agent_done", {"content": content, "tools": listed_calls(calls)})

    @classmethod
    def result(cls, arguments: dict[str, Any]) -> Outcome:
        """End the task; the call with these arguments is its result."""
        return cls().then("result", arguments)

    @classmethod
    def final_result(cls, arguments: dict[str, Any]) -> Outcome:
        """End the task and all its callers; the call with these arguments is the result."""
        return cls().then("final_result", arguments)

    @classmethod
    def pass_on(cls) -> Outcome:
        """Pass on the message that the agent was given."""
        return cls().then("pass")

    @classmethod
    def done_pass(cls) -> Outcome:
        """End the task with the message that the agent was given."""
        return cls().then("done_pass")

    @classmethod
    def forward(cls, task: str) -> Outcome:
        """Pass the message that the agent was given on to another task. The agent needs `route`."""
        return cls().then("forward", {"agent": task})

    @classmethod
    def send(cls, to: str, content: str) -> Outcome:
        """Send a text to another task, or to `user`. The agent needs `route` with a task's name."""
        return cls().then("send", {"to": to, "content": content})

    @classmethod
    def agent_send(
        cls, to: str, content: str, calls: Iterable[tuple[str, dict[str, Any]]] = ()
    ) -> Outcome:
        """Send a text and calls to another task. The agent needs `route` with a task's name."""
        tools = listed_calls(calls)
        return cls().then("agent_send", {"to": to, "content": content, "tools": tools})

    @classmethod
    def recipient_message(cls, recipient: str, content: str) -> Outcome:
        """Send a text to a task. The agent needs `route` with the task's name."""
        arguments = {"intended_recipient": recipient, "content": content}
        return cls().then("recipient_message", arguments)

    @classmethod
    def rewind(cls, n: int, content: str) -> Outcome:
        """Replace the agent's `n`-th message, counted from 1, and all that followed."""
        return cls().then("rewind", {"n": n, "content": content})


def listed_calls(calls: Iterable[tuple[str, dict[str, Any]]]) -> list[dict[str, Any]]:
    """Return calls as the host's tools take them."""
    return [{"name": name, "arguments": arguments} for name, arguments in calls]


@dataclass
class Example:
    """An example of a call, for models that write calls as text."""

    arguments: dict[str, Any]
    thought: str | None = None


@dataclass
class _Options:
    name: str | None
    description: str | None
    title: str | None
    idempotent: bool
    result_tokens: int | None
    retained_tokens: int | None
    examples: list[Example]


NO_EVENT_LOOP = (
    "no event loop runs in a component: write `def` and remove `await`; "
    "the host's functions return their results at once"
)


def is_async(function: Any) -> bool:
    """Return whether a call of a function returns a coroutine or an asynchronous generator."""
    return inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)


def where(function: Any) -> str:
    """Return the file and line of a function, for the start of an error."""
    code = getattr(function, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}: " if code else ""


class Tool(Generic[P, R]):
    """A function that `@tool` marked. A call of it calls the function."""

    def __init__(self, function: Callable[P, R], options: _Options) -> None:
        """Mark a function; its type hints are read when the plugin is built."""
        update_wrapper(self, function)
        self.function = function
        self._options = options

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function, as an ordinary test does."""
        return self.function(*args, **kwargs)

    @property
    def name(self) -> str:
        """The tool's name, without that of its plugin."""
        return self._options.name or self.function.__name__

    @cached_property
    def spec(self) -> ToolSpec:
        """The description of the tool. Raises `AppError` for a function that cannot be a tool."""
        if not _NAME.fullmatch(self.name):
            raise self._wrong(
                f"`{self.name}` cannot be the name of a tool",
                'use lower-case letters, digits and `_`, or write `@tool(name="…")`',
            )
        text = self._options.description or docstrings.parse(self.function.__doc__).description
        if not text:
            raise self._wrong(
                f"the tool `{self.name}` has no description",
                "write a docstring: the model reads its first paragraph",
            )
        if is_async(self.function):
            raise self._wrong(f"the tool `{self.name}` is async", NO_EVENT_LOOP)
        _ = self._call_parameter  # Found now, so that no call has to look for it.
        return ToolSpec(
            name=self.name,
            description=text,
            input_schema=self._arguments.schema(),
            output_schema=self._output_schema(),
            idempotent=self._options.idempotent,
            extra=self._extra(),
        )

    def run(self, arguments: Any) -> Outcome:
        """Check and convert arguments in JSON, call the function, and convert its result.

        Raises `InvalidArguments` with the path of the first wrong argument.
        """
        values = self._arguments.read(arguments, "")
        if self._call_parameter is not None:
            values[self._call_parameter] = _host.current().call_facts()
        function: Callable[..., Any] = self.function
        return as_outcome(function(**values))

    @cached_property
    def _hints(self) -> dict[str, Any]:
        try:
            return typing.get_type_hints(self.function, include_extras=True)
        except NameError as error:
            raise self._wrong(
                f"a type hint of `{self.name}` is unknown: {error}",
                "import the type at the top of the module",
            ) from error

    @cached_property
    def _call_parameter(self) -> str | None:
        return next((name for name, hint in self._hints.items() if hint is Call), None)

    @cached_property
    def _arguments(self) -> ObjectShape:
        texts = docstrings.parse(self.function.__doc__).parameters
        properties = {}
        for name, parameter in inspect.signature(self.function).parameters.items():
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                raise self._wrong(
                    f"`{self.name}` takes `{parameter}`, which no schema can describe",
                    "write a parameter for each argument, or take one `dict`",
                )
            if parameter.kind is parameter.POSITIONAL_ONLY:
                raise self._wrong(f"`{name}` of `{self.name}` is positional only", "remove the `/`")
            hint = self._hints.get(name)
            if hint is Call:
                continue
            if hint is None:
                raise self._wrong(
                    f"`{name}` of `{self.name}` has no type hint", f"write `{name}: str`, or so"
                )
            properties[name] = self._property(name, hint, texts.get(name, ""), parameter.default)
        return ObjectShape(properties)

    def _property(self, name: str, hint: Any, text: str, default: Any) -> Property:
        try:
            shape = shapes.annotated(hint, text)
        except UnsupportedTypeError as error:
            raise self._wrong(
                f"`{name}` of `{self.name}` cannot be an argument: {error}",
                "take a `str` or a `dict`, and convert it in the function",
            ) from error
        if default is inspect.Parameter.empty:
            return Property(shape, required=True)
        return Property(shape, required=False, default=default)

    def _output_schema(self) -> dict[str, Any] | None:
        hint = self._hints.get("return", Any)
        if hint in (Any, None, type(None), str, Outcome):
            return None
        try:
            schema = shapes.annotated(hint).schema()
        except UnsupportedTypeError as error:
            raise self._wrong(
                f"`{self.name}` cannot return this type: {error}",
                "return a text, a dataclass, a `TypedDict`, a list or a dict, or an `Outcome`",
            ) from error
        # Not every result has a value of this schema, if it may also be a text or nothing.
        kinds = schema.get("anyOf", [schema])
        unstructured = ("string", "null")
        is_structured = all(
            kind.get("type") not in unstructured and not isinstance(kind.get("type"), list)
            for kind in kinds
        )
        return schema if schema and is_structured else None

    def _extra(self) -> dict[str, Any]:
        options = self._options
        extra: dict[str, Any] = {}
        if options.title is not None:
            extra["title"] = options.title
        if options.result_tokens is not None:
            extra["result-tokens"] = options.result_tokens
        if options.retained_tokens is not None:
            extra["retained-tokens"] = options.retained_tokens
        for example in options.examples:
            try:
                self._arguments.read(example.arguments, "")
            except InvalidArguments as error:
                raise self._wrong(
                    f"an example of `{self.name}` is wrong: {error}", "correct the example"
                ) from error
        if options.examples:
            extra["examples"] = [
                {"thought": example.thought, "arguments": example.arguments}
                for example in options.examples
            ]
        return extra

    def _wrong(self, what: str, hint: str) -> AppError:
        return AppError(where(self.function) + what, hint)


@overload
def tool(function: Callable[P, R], /) -> Tool[P, R]: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    title: str | None = None,
    idempotent: bool = False,
    result_tokens: int | None = None,
    retained_tokens: int | None = None,
    examples: Iterable[Example | dict[str, Any]] = (),
) -> Callable[[Callable[P, R]], Tool[P, R]]: ...
def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    title: str | None = None,
    idempotent: bool = False,
    result_tokens: int | None = None,
    retained_tokens: int | None = None,
    examples: Iterable[Example | dict[str, Any]] = (),
) -> Any:
    """Make a function a tool. Its type hints are the schema, its docstring is the description.

    Args:
        name: The tool's name, where it differs from the function's.
        description: The text for the model, where it differs from the docstring.
        title: A second name, for display.
        idempotent: A guarantee: a repeated call with the same call id has no further effect.
        result_tokens: The token limit of a result when the agent first reads it.
        retained_tokens: The token limit of the part that stays in the history.
        examples: Examples of a call: arguments, or an `Example` with a thought.
    """
    options = _Options(
        name,
        description,
        title,
        idempotent,
        result_tokens,
        retained_tokens,
        [item if isinstance(item, Example) else Example(item) for item in examples],
    )
    if function is not None:
        return Tool(function, options)
    return lambda function: Tool(function, options)


class Toolset:
    """Tools that are known only from the plugin's settings; a subclass is exported."""

    def list(self) -> typing.List[ToolSpec]:  # noqa: UP006 (`list` is this method)
        """Return the tools. Called once, when the plugin is loaded, with nothing granted."""
        raise NotImplementedError

    def call(self, name: str, arguments: dict[str, Any], call: Call) -> Any:
        """Run one of the tools, and return its result as a tool does."""
        raise NotImplementedError


def as_outcome(result: Any) -> Outcome:
    """Return the outcome of what a tool returned.

    A text becomes the content, `None` no result at all, and any other value, a number too, becomes
    the content and the structured value. Raises `TypeError` for what JSON cannot express.
    """
    if type(result) is str:  # First, because most tools return a text.
        return Outcome(result)
    if isinstance(result, Outcome):
        return result
    if result is None:
        return Outcome()
    value = shapes.to_json(result)
    if isinstance(value, str):
        return Outcome(value)
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    return Outcome(text, value)
