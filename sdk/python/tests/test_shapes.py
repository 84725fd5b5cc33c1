"""Schemas of types, and how values are read."""

import json
from dataclasses import dataclass, field
from enum import Enum
from typing import Annotated, Any, Literal, NotRequired, Optional, TypedDict, Union

import pytest

from conclave_sdk import Field, InvalidArguments
from conclave_sdk.shapes import UnsupportedTypeError, convert, dumps, shape_of, to_json


class Unit(Enum):
    CELSIUS = "c"
    FAHRENHEIT = "f"


@dataclass
class Stop:
    """A stop of a route.

    Attributes:
        place: The harbour.
    """

    place: str
    nights: Annotated[int, Field("How long", minimum=1, maximum=7)] = 1
    tags: list[str] = field(default_factory=list)


class Route(TypedDict):
    name: str
    stops: list[Stop]
    note: NotRequired[str]


@pytest.mark.parametrize(
    ("kind", "schema"),
    [
        (str, {"type": "string"}),
        (int, {"type": "integer"}),
        (float, {"type": "number"}),
        (bool, {"type": "boolean"}),
        (None, {"type": "null"}),
        (Any, {}),
        (list, {"type": "array", "items": {}}),
        (list[int], {"type": "array", "items": {"type": "integer"}}),
        (set[int], {"type": "array", "items": {"type": "integer"}, "uniqueItems": True}),
        (tuple[int, ...], {"type": "array", "items": {"type": "integer"}}),
        (
            tuple[int, str],
            {
                "type": "array",
                "prefixItems": [{"type": "integer"}, {"type": "string"}],
                "minItems": 2,
                "maxItems": 2,
            },
        ),
        (dict, {"type": "object"}),
        (dict[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
        (Optional[str], {"type": ["string", "null"]}),  # noqa: UP045
        (str | None, {"type": ["string", "null"]}),
        (Union[int, str], {"anyOf": [{"type": "integer"}, {"type": "string"}]}),  # noqa: UP007
        (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}),
        (Literal[1, "b"], {"enum": [1, "b"]}),
        (Unit, {"type": "string", "enum": ["c", "f"]}),
        (Unit | None, {"anyOf": [{"type": "string", "enum": ["c", "f"]}, {"type": "null"}]}),
    ],
)
def test_a_type_has_its_schema(kind: Any, schema: Any) -> None:
    assert shape_of(kind).schema() == schema


def test_a_dataclass_is_an_object_with_nothing_else() -> None:
    assert shape_of(Stop).schema() == {
        "type": "object",
        "description": "A stop of a route.",
        "properties": {
            "place": {"type": "string", "description": "The harbour."},
            "nights": {
                "type": "integer",
                "minimum": 1,
                "maximum": 7,
                "description": "How long",
                "default": 1,
            },
            "tags": {"type": "array", "items": {"type": "string"}, "default": []},
        },
        "required": ["place"],
        "additionalProperties": False,
    }


def test_a_typed_dict_has_optional_keys() -> None:
    assert shape_of(Route).schema()["required"] == ["name", "stops"]
    assert convert({"name": "a", "stops": []}, Route) == Route(name="a", stops=[])


def test_values_are_converted() -> None:
    route = convert({"name": "a", "stops": [{"place": "Oban", "nights": 2}]}, Route)
    assert route["stops"] == [Stop("Oban", 2)]
    assert convert(["c"], list[Unit]) == [Unit.CELSIUS]
    assert convert([1, "b"], tuple[int, str]) == (1, "b")
    assert convert([1, 1], set[int]) == {1}
    assert convert(3, float) == 3.0
    assert convert(3.0, int) == 3
    assert convert(3.5, int | float) == 3.5
    assert convert(True, int | bool) is True
    assert convert(None, str | None) is None


@pytest.mark.parametrize(
    ("value", "kind", "message"),
    [
        (5, str, "expected a text, got 5"),
        (True, int, "expected a whole number, got true"),
        (1.5, int, "expected a whole number, got 1.5"),
        ("x", float, 'expected a number, got "x"'),
        (0, bool, "expected true or false, got 0"),
        ("k", Unit, 'expected one of "c", "f", got "k"'),
        (1, Literal[True], "expected one of true, got 1"),
        ([1, "a"], list[int], '[1]: expected a whole number, got "a"'),
        ([1], tuple[int, str], "expected a list of 2, got [1]"),
        ({"a": 1}, dict[str, str], "a: expected a text, got 1"),
        (1.5, int | str, "expected a whole number or a text, got 1.5"),
        ({}, Stop, "place: is missing"),
        (
            {"place": "a", "x": 1},
            Stop,
            "x: there is no such argument; there are place, nights, tags",
        ),
        ({"place": "a", "nights": 0}, Stop, "nights: expected at least 1, got 0"),
        (
            {"name": "a", "stops": [{"place": "a"}, {"place": 5}]},
            Route,
            "stops[1].place: expected a text, got 5",
        ),
        ({"place": 5}, Stop | None, "place: expected a text, got 5"),
    ],
)
def test_the_path_of_a_wrong_value_is_named(value: Any, kind: Any, message: str) -> None:
    with pytest.raises(InvalidArguments) as raised:
        convert(value, kind)
    assert str(raised.value) == message


def test_limits_of_texts_and_lists_are_checked() -> None:
    code = Annotated[str, Field(pattern="^[A-Z]+$", min_length=2, max_length=3)]
    assert shape_of(code).schema() == {
        "type": "string",
        "minLength": 2,
        "maxLength": 3,
        "pattern": "^[A-Z]+$",
    }
    assert convert("AB", code) == "AB"
    for text in ["A", "ABCD", "ab"]:
        with pytest.raises(InvalidArguments):
            convert(text, code)
    assert shape_of(Annotated[list[int], Field(max_length=1)]).schema()["maxItems"] == 1


@dataclass
class Checked:
    low: int
    high: int

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise ValueError("low must be at most high")


def test_a_check_of_the_dataclass_is_a_wrong_argument() -> None:
    with pytest.raises(InvalidArguments, match=r"\[0\]: low must be at most high"):
        convert([{"low": 2, "high": 1}], list[Checked])


@dataclass
class Node:
    children: "list[Node]"


@pytest.mark.parametrize("kind", [bytes, complex, dict[int, str], Node, type])
def test_a_type_that_json_cannot_express_is_refused(kind: Any) -> None:
    with pytest.raises(UnsupportedTypeError):
        shape_of(kind)


def test_results_are_written() -> None:
    value = {"at": Stop("Oban"), "unit": Unit.CELSIUS, "pair": (1, None)}
    expected = {"at": {"place": "Oban", "nights": 1, "tags": []}, "unit": "c", "pair": [1, None]}
    assert json.loads(dumps(value)) == expected
    for wrong in [b"x", {1: 2}, object()]:
        with pytest.raises(TypeError):
            to_json(wrong)
    with pytest.raises(ValueError, match="JSON compliant"):
        dumps(float("nan"))
    assert dumps([2**64 - 1, -(2**63)]) == "[18446744073709551615, -9223372036854775808]"
    for wrong in [2**64, -(2**63) - 1, 10**400]:
        with pytest.raises(ValueError, match="more than 64 bits"):
            dumps({"a": wrong})
