"""Tools: their descriptions, their arguments, their results."""

from dataclasses import dataclass
from typing import Annotated, Any

import pytest

from conclave_sdk import (
    Call,
    Example,
    InvalidArguments,
    Outcome,
    ToolCall,
    Toolset,
    ToolSpec,
    config,
    tool,
)
from conclave_sdk.errors import AppError
from conclave_sdk.testing import FakeHost, run_tool
from conclave_sdk.tools import as_outcome


@dataclass
class Tide:
    place: str
    times: list[str]


@tool(
    title="Tides",
    idempotent=True,
    result_tokens=2000,
    retained_tokens=200,
    examples=[{"place": "Oban"}, Example({"place": "Tobermory", "days": 2}, "two days")],
)
def high_water(place: Annotated[str, "The harbour."], days: int = 1) -> Tide:
    """High water at a place.

    Args:
        place: Is overruled.
        days: How many.
    """
    return Tide(place, ["06:12"] * days)


def test_a_function_describes_itself() -> None:
    spec = high_water.spec
    assert (spec.name, spec.description) == ("high_water", "High water at a place.")
    assert spec.idempotent
    assert spec.input_schema == {
        "type": "object",
        "properties": {
            "place": {"type": "string", "description": "The harbour."},
            "days": {"type": "integer", "description": "How many.", "default": 1},
        },
        "required": ["place"],
        "additionalProperties": False,
    }
    assert spec.output_schema is not None
    assert spec.output_schema["required"] == ["place", "times"]
    assert spec.extra == {
        "title": "Tides",
        "result-tokens": 2000,
        "retained-tokens": 200,
        "examples": [
            {"thought": None, "arguments": {"place": "Oban"}},
            {"thought": "two days", "arguments": {"place": "Tobermory", "days": 2}},
        ],
    }


def test_it_stays_a_function() -> None:
    assert high_water("Oban", days=2) == Tide("Oban", ["06:12", "06:12"])


def test_a_call_has_content_and_value() -> None:
    outcome = run_tool(high_water, {"place": "Oban"})
    assert outcome.value == {"place": "Oban", "times": ["06:12"]}
    assert outcome.content == '{"place": "Oban", "times": ["06:12"]}'


def test_a_wrong_argument_is_named() -> None:
    for arguments, message in [
        ({}, "place: is missing"),
        ({"place": "Oban", "day": 1}, "day: there is no such argument; there are place, days"),
        ({"place": "Oban", "days": "x"}, 'days: expected a whole number, got "x"'),
        ([], "expected an object"),
    ]:
        with pytest.raises(InvalidArguments, match=message.replace("(", r"\(")):
            run_tool(high_water, arguments)


def test_the_facts_of_a_call_are_no_argument() -> None:
    @tool
    def whoami(call: Call) -> str:
        """Say who is asking."""
        return call.caller

    assert whoami.spec.input_schema["properties"] == {}
    with FakeHost().call(Call(caller="librarian")):
        assert run_tool(whoami, {}).content == "librarian"


@pytest.mark.parametrize(
    ("returned", "content", "value"),
    [
        ("text", "text", None),
        (4, "4", 4),
        (12.5, "12.5", 12.5),
        (True, "true", True),
        (None, None, None),
        ([1, 2], "[1, 2]", [1, 2]),
        ({"é": 1}, '{"é": 1}', {"é": 1}),
    ],
)
def test_results_become_outcomes(returned: Any, content: Any, value: Any) -> None:
    assert as_outcome(returned) == Outcome(content, value)


def test_a_result_that_json_cannot_express_is_an_error() -> None:
    with pytest.raises(TypeError, match="JSON cannot express a bytes"):
        as_outcome(b"x")


def test_only_a_structured_result_has_a_schema() -> None:
    def schema(hint: Any) -> Any:
        def f() -> Any:
            """Do it."""

        f.__annotations__["return"] = hint
        return tool(f).spec.output_schema

    assert [schema(hint) for hint in (str, None, Any, Outcome, Tide | None, str | Tide)] == [
        None
    ] * 6
    assert [schema(hint)["type"] for hint in (int, float, bool)] == ["integer", "number", "boolean"]
    assert schema(list[int]) == {"type": "array", "items": {"type": "integer"}}


def test_outcomes_that_control_the_task() -> None:
    def called(outcome: Outcome) -> ToolCall:
        return outcome.follow_up_calls[0]

    assert called(Outcome.done("sent")) == ToolCall("done", {"content": "sent"})
    assert called(Outcome.forward("expert")) == ToolCall("forward", {"agent": "expert"})
    assert called(Outcome.pass_on()) == ToolCall("pass")
    assert called(Outcome.rewind(1, "again")) == ToolCall("rewind", {"n": 1, "content": "again"})
    done = called(Outcome.agent_done("filed", [("desk.report", {"year": 1844})]))
    assert done.arguments["tools"] == [{"name": "desk.report", "arguments": {"year": 1844}}]


def wrong_name() -> None:
    """Do it."""


def no_docstring() -> None: ...


def no_hint(place) -> None:  # type: ignore[no-untyped-def]
    """Do it."""


def wrong_type(when: bytes) -> None:
    """Do it."""


def many(*places: str) -> None:
    """Do it."""


def wrong_result() -> bytes:
    """Do it."""
    return b""


@pytest.mark.parametrize(
    ("function", "options", "message"),
    [
        (wrong_name, {"name": "Wrong-Name"}, "cannot be the name of a tool"),
        (no_docstring, {}, "`no_docstring` has no description"),
        (no_hint, {}, "`place` of `no_hint` has no type hint"),
        (wrong_type, {}, "`when` of `wrong_type` cannot be an argument"),
        (many, {}, "no schema can describe"),
        (wrong_result, {}, "`wrong_result` cannot return this type"),
        (high_water.function, {"examples": [{"x": 1}]}, "an example of `high_water` is wrong: x:"),
    ],
)
def test_a_function_that_cannot_be_a_tool_is_named_with_its_line(
    function: Any, options: Any, message: str
) -> None:
    with pytest.raises(AppError, match=message) as raised:
        _ = tool(**options)(function).spec
    assert f"test_tools.py:{function.__code__.co_firstlineno}: " in str(raised.value)
    assert raised.value.hint


def test_a_toolset_lists_what_its_settings_name() -> None:
    class Phrases(Toolset):
        def list(self) -> list[ToolSpec]:
            return [ToolSpec(name, "Says its phrase.") for name in config.get()]

        def call(self, name: str, arguments: dict[str, Any], call: Call) -> str:
            return str(config.get()[name])

    with FakeHost().settings({"hello": "Good day."}):
        assert [spec.name for spec in Phrases().list()] == ["hello"]
        assert Phrases().call("hello", {}, Call()) == "Good day."
