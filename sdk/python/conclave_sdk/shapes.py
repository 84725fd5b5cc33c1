"""JSON Schemas of Python types, and conversions between JSON values and Python values.

A shape is made from a type once, when the plugin is built. It has the type's schema, and reads a
JSON value as the type: a dataclass is constructed, an enum's member is found. The first wrong
value is reported with its path, such as `stops[1].place`.
"""

from __future__ import annotations

import dataclasses
import json
import re
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, Literal, TypeVar, Union, overload

from conclave_sdk import docstrings
from conclave_sdk.errors import InvalidArguments

T = TypeVar("T")
Schema = dict[str, Any]


@dataclass(frozen=True)
class Field:
    """Refines the schema of a parameter or field: `Annotated[int, Field("days", minimum=1)]`."""

    description: str = ""
    minimum: float | None = None
    maximum: float | None = None
    min_length: int | None = None
    max_length: int | None = None
    pattern: str | None = None


class UnsupportedTypeError(TypeError):
    """A type that JSON cannot express."""


class Shape:
    """The form of a JSON value: its schema, and how a value is read."""

    name = "a value"

    def schema(self) -> Schema:
        """Return the JSON Schema, without `$ref`."""
        return {}

    def read(self, value: Any, path: str) -> Any:  # noqa: ARG002 (the path is for subclasses)
        """Return the Python value of a JSON value. Raises `InvalidArguments` with the path."""
        return value


@overload
def convert(value: Any, kind: type[T], path: str = "") -> T: ...
@overload
def convert(value: Any, kind: Any, path: str = "") -> Any: ...
def convert(value: Any, kind: Any, path: str = "") -> Any:
    """Return a JSON value as a `kind`. Raises `InvalidArguments` with the path of a wrong value."""
    return shape_of(kind).read(value, path)


def to_json(value: Any) -> Any:
    """Return a value that `json.dumps` can write: dataclasses, enums and tuples are converted.

    Raises `TypeError` for any other type, and `ValueError` for an integer of more than 64 bits,
    which the other side would round or refuse.
    """
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        raise ValueError("an integer of more than 64 bits is not kept exactly; give it as a text")
    if value is None or (
        isinstance(value, (str, bool, int, float)) and not isinstance(value, Enum)
    ):
        return value
    if isinstance(value, Enum):
        return to_json(value.value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        return {field.name: to_json(getattr(value, field.name)) for field in fields}
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            raise TypeError("JSON has only texts as keys of an object")
        return {key: to_json(item) for key, item in value.items()}
    if isinstance(value, (Sequence, set, frozenset)) and not isinstance(value, (bytes, bytearray)):
        return [to_json(item) for item in value]
    raise TypeError(f"JSON cannot express a {type(value).__name__}")


def dumps(value: Any) -> str:
    """Return the JSON text of a value; see `to_json`. Raises also for NaN and infinity."""
    return json.dumps(to_json(value), ensure_ascii=False, allow_nan=False)


_shapes: dict[Any, Shape] = {}


def shape_of(kind: Any) -> Shape:
    """Return the shape of a type. Raises `UnsupportedTypeError`."""
    try:
        known = _shapes.get(kind)
    except TypeError:  # An annotation with unhashable metadata.
        return _build(kind, ())
    if known is None:
        known = _shapes[kind] = _build(kind, ())
    return known


def _build(kind: Any, outer: tuple[Any, ...]) -> Shape:
    """Build a shape inside of the records `outer`, so that a recursive type is an error."""
    kind = _resolved(kind)
    if kind in (Any, object):
        return Shape()
    if kind in (None, type(None)):
        return _Null()
    if isinstance(kind, type) and issubclass(kind, Enum):
        return _Choice(kind, [(to_json(member.value), member) for member in kind])
    if kind in _SCALARS:
        return _SCALARS[kind]()
    if isinstance(kind, type) and (dataclasses.is_dataclass(kind) or typing.is_typeddict(kind)):
        if kind in outer:
            raise UnsupportedTypeError(
                f"`{kind.__name__}` contains itself; use `dict` inside of it"
            )
        return _Record(kind, (*outer, kind))
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    build = _ORIGINS.get(origin or kind)
    if build is None:
        raise UnsupportedTypeError(f"JSON cannot express `{_name(kind)}`")
    return build(arguments, outer)


def _resolved(kind: Any) -> Any:
    """Return the type behind a `NewType` or a `type` alias."""
    while True:
        inner = getattr(kind, "__supertype__", None) or getattr(kind, "__value__", None)
        if inner is None or (isinstance(kind, type) and issubclass(kind, Enum)):
            return kind
        kind = inner


def _name(kind: Any) -> str:
    return getattr(kind, "__name__", None) or str(kind)


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=repr)
    return text if len(text) <= 60 else text[:57] + "…"


def wrong(path: str, expected: str, value: Any) -> InvalidArguments:
    """Return the error for a value that is not the expected one."""
    where = f"{path}: " if path else ""
    return InvalidArguments(f"{where}expected {expected}, got {_shown(value)}")


class _Null(Shape):
    name = "null"

    def schema(self) -> Schema:
        return {"type": "null"}

    def read(self, value: Any, path: str) -> Any:
        if value is not None:
            raise wrong(path, self.name, value)
        return None


class _Text(Shape):
    name = "a text"

    def schema(self) -> Schema:
        return {"type": "string"}

    def read(self, value: Any, path: str) -> Any:
        if not isinstance(value, str):
            raise wrong(path, self.name, value)
        return value


class _Boolean(Shape):
    name = "true or false"

    def schema(self) -> Schema:
        return {"type": "boolean"}

    def read(self, value: Any, path: str) -> Any:
        if not isinstance(value, bool):
            raise wrong(path, self.name, value)
        return value


class _Integer(Shape):
    name = "a whole number"

    def schema(self) -> Schema:
        return {"type": "integer"}

    def read(self, value: Any, path: str) -> Any:
        # JSON Schema counts 3.0 as an integer.
        if isinstance(value, float) and value.is_integer():
            return int(value)
        if not isinstance(value, int) or isinstance(value, bool):
            raise wrong(path, self.name, value)
        return value


class _Number(Shape):
    name = "a number"

    def schema(self) -> Schema:
        return {"type": "number"}

    def read(self, value: Any, path: str) -> Any:
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            raise wrong(path, self.name, value)
        return float(value)


_SCALARS: dict[Any, Callable[[], Shape]] = {
    str: _Text,
    bool: _Boolean,
    int: _Integer,
    float: _Number,
}


class _Refined(Shape):
    """A shape with a description and further limits."""

    def __init__(self, inner: Shape, refinement: Field) -> None:
        self._inner = inner
        self._refinement = refinement
        self.name = inner.name

    def schema(self) -> Schema:
        schema = self._inner.schema()
        schema.pop("description", None)
        is_list = schema.get("type") == "array"
        length = "Items" if is_list else "Length"
        refined = {
            "minimum": self._refinement.minimum,
            "maximum": self._refinement.maximum,
            f"min{length}": self._refinement.min_length,
            f"max{length}": self._refinement.max_length,
            "pattern": self._refinement.pattern,
            "description": self._refinement.description or self._inner.schema().get("description"),
        }
        return {**schema, **{key: value for key, value in refined.items() if value is not None}}

    def read(self, value: Any, path: str) -> Any:
        limits = self._refinement
        read = self._inner.read(value, path)
        if isinstance(value, (int, float)):
            if limits.minimum is not None and value < limits.minimum:
                raise wrong(path, f"at least {limits.minimum:g}", value)
            if limits.maximum is not None and value > limits.maximum:
                raise wrong(path, f"at most {limits.maximum:g}", value)
        if isinstance(value, (str, list)):
            if limits.min_length is not None and len(value) < limits.min_length:
                raise wrong(path, f"a length of at least {limits.min_length}", value)
            if limits.max_length is not None and len(value) > limits.max_length:
                raise wrong(path, f"a length of at most {limits.max_length}", value)
        if isinstance(value, str) and limits.pattern and not re.search(limits.pattern, value):
            raise wrong(path, f"a text that matches {limits.pattern}", value)
        return read


class _Choice(Shape):
    """One of several constants: an enum or a literal."""

    def __init__(self, kind: Any, choices: list[tuple[Any, Any]]) -> None:
        self._choices = choices
        self._doc = docstrings.of_class(kind)
        self.name = "one of " + ", ".join(_shown(value) for value, _ in choices)

    def schema(self) -> Schema:
        values = [value for value, _ in self._choices]
        schema: Schema = {"enum": values}
        if all(isinstance(value, str) for value in values):
            schema = {"type": "string", **schema}
        if self._doc:
            schema["description"] = self._doc
        return schema

    def read(self, value: Any, path: str) -> Any:
        for choice, read in self._choices:
            if type(choice) is type(value) and choice == value:
                return read
        raise wrong(path, self.name, value)


class _List(Shape):
    name = "a list"

    def __init__(self, item: Shape, make: Callable[[Iterable[Any]], Any], unique: bool) -> None:
        self._item = item
        self._make = make
        self._unique = unique

    def schema(self) -> Schema:
        schema: Schema = {"type": "array", "items": self._item.schema()}
        return {**schema, "uniqueItems": True} if self._unique else schema

    def read(self, value: Any, path: str) -> Any:
        if not isinstance(value, list):
            raise wrong(path, self.name, value)
        items = (self._item.read(item, f"{path}[{at}]") for at, item in enumerate(value))
        return self._make(items)


class _Tuple(Shape):
    def __init__(self, items: list[Shape]) -> None:
        self._items = items
        self.name = f"a list of {len(items)}"

    def schema(self) -> Schema:
        items = [item.schema() for item in self._items]
        count = len(items)
        return {"type": "array", "prefixItems": items, "minItems": count, "maxItems": count}

    def read(self, value: Any, path: str) -> Any:
        if not isinstance(value, list) or len(value) != len(self._items):
            raise wrong(path, self.name, value)
        pairs = enumerate(zip(self._items, value, strict=True))
        return tuple(shape.read(item, f"{path}[{at}]") for at, (shape, item) in pairs)


class _Map(Shape):
    name = "an object"

    def __init__(self, item: Shape) -> None:
        self._item = item

    def schema(self) -> Schema:
        item = self._item.schema()
        return {"type": "object", **({"additionalProperties": item} if item else {})}

    def read(self, value: Any, path: str) -> Any:
        if not isinstance(value, dict):
            raise wrong(path, self.name, value)
        return {key: self._item.read(item, joined(path, key)) for key, item in value.items()}


class _Union(Shape):
    def __init__(self, shapes: list[Shape]) -> None:
        self._shapes = shapes
        self.name = " or ".join(shape.name for shape in shapes)

    def schema(self) -> Schema:
        schemas = [shape.schema() for shape in self._shapes]
        if len(schemas) == 2 and schemas[1] == {"type": "null"} and "enum" not in schemas[0]:
            first = schemas[0]
            if isinstance(first.get("type"), str):
                return {**first, "type": [first["type"], "null"]}
        return {"anyOf": schemas}

    def read(self, value: Any, path: str) -> Any:
        problems = []
        for shape in self._shapes:
            try:
                return shape.read(value, path)
            except InvalidArguments as problem:
                problems.append(problem)
        # An object or a list that only one of the shapes could be: its problem is the useful one.
        outer = wrong(path, "", value).args[0].partition("expected")[0] + "expected"
        inside = [problem for problem in problems if not str(problem).startswith(outer)]
        if len(inside) == 1 and isinstance(value, (dict, list)):
            raise inside[0]
        raise wrong(path, self.name, value)


NO_DEFAULT = object()
"""The default of a property that has none."""


@dataclass
class Property:
    """A field of an object: its shape, and its default."""

    shape: Shape
    required: bool
    default: Any = NO_DEFAULT


class ObjectShape(Shape):
    """An object with fixed fields."""

    name = "an object"

    def __init__(self, properties: dict[str, Property], description: str = "") -> None:
        """Create the shape; an argument that is no property is an error."""
        self._properties = properties
        self._description = description

    def schema(self) -> Schema:
        """Return the JSON Schema of the object."""
        schema: Schema = {
            "type": "object",
            "properties": {name: _with_default(item) for name, item in self._properties.items()},
            "additionalProperties": False,
        }
        required = [name for name, item in self._properties.items() if item.required]
        if required:
            schema["required"] = required
        if self._description:
            schema["description"] = self._description
        return schema

    def read(self, value: Any, path: str) -> dict[str, Any]:
        """Return the values of the fields that are there."""
        if not isinstance(value, dict):
            raise wrong(path, self.name, value)
        for name in value:
            if name not in self._properties:
                known = ", ".join(self._properties) or "none"
                raise InvalidArguments(
                    f"{joined(path, name)}: there is no such argument; there are {known}"
                )
        read = {}
        for name, item in self._properties.items():
            if name in value:
                read[name] = item.shape.read(value[name], joined(path, name))
            elif item.required:
                raise InvalidArguments(f"{joined(path, name)}: is missing")
        return read


class _Record(ObjectShape):
    """A dataclass or a `TypedDict`."""

    def __init__(self, kind: Any, outer: tuple[Any, ...]) -> None:
        self._kind = kind
        super().__init__(_properties(kind, outer), docstrings.of_class(kind))

    def read(self, value: Any, path: str) -> Any:
        fields = super().read(value, path)
        try:
            return self._kind(**fields)
        except InvalidArguments:
            raise
        except (TypeError, ValueError) as error:  # Of a check in `__post_init__`.
            raise InvalidArguments(f"{path + ': ' if path else ''}{error}") from error


def _properties(kind: Any, outer: tuple[Any, ...]) -> dict[str, Property]:
    hints = typing.get_type_hints(kind, include_extras=True)
    texts = docstrings.parse(docstrings.text_of_class(kind)).parameters
    properties = {}
    if typing.is_typeddict(kind):
        for name, hint in hints.items():
            shape = annotated(_without_marks(hint), texts.get(name, ""), outer)
            properties[name] = Property(shape, name in kind.__required_keys__)
        return properties
    for item in dataclasses.fields(kind):
        if not item.init:
            continue
        default = NO_DEFAULT if item.default is dataclasses.MISSING else item.default
        if item.default_factory is not dataclasses.MISSING:
            default = item.default_factory()
        is_required = default is NO_DEFAULT
        shape = annotated(hints[item.name], texts.get(item.name, ""), outer)
        properties[item.name] = Property(shape, is_required, default)
    return properties


def _without_marks(hint: Any) -> Any:
    """Return the type inside of `Required`, `NotRequired` and `ReadOnly`."""
    marks = ("Required", "NotRequired", "ReadOnly")
    while getattr(typing.get_origin(hint), "_name", None) in marks:
        (hint,) = typing.get_args(hint)
    return hint


def _with_default(item: Property) -> Schema:
    schema = item.shape.schema()
    if item.default is NO_DEFAULT or item.default is None:
        return schema
    try:
        return {**schema, "default": to_json(item.default)}
    except TypeError:
        return schema


def joined(path: str, name: str) -> str:
    """Return the path of a field: `stops[1]` and `place` are `stops[1].place`."""
    return f"{path}.{name}" if path else name


def annotated(hint: Any, description: str = "", outer: tuple[Any, ...] = ()) -> Shape:
    """Return the shape of an annotation with its `Annotated` metadata, and this description.

    A description in the annotation takes precedence.
    """
    refinement = Field(description)
    if typing.get_origin(hint) is Annotated:
        hint, *metadata = typing.get_args(hint)
        for item in metadata:
            if isinstance(item, str):
                refinement = dataclasses.replace(refinement, description=item)
            elif isinstance(item, Field):
                refinement = dataclasses.replace(
                    item, description=item.description or refinement.description
                )
    shape = _build(hint, outer)
    return shape if refinement == Field() else _Refined(shape, refinement)


def _list(make: Any, unique: bool = False) -> Callable[[tuple[Any, ...], tuple[Any, ...]], Shape]:
    def build(arguments: tuple[Any, ...], outer: tuple[Any, ...]) -> Shape:
        item = annotated(arguments[0], outer=outer) if arguments else Shape()
        return _List(item, make, unique)

    return build


def _tuple(arguments: tuple[Any, ...], outer: tuple[Any, ...]) -> Shape:
    if not arguments or arguments[-1] is Ellipsis:
        return _list(tuple)(arguments[:1], outer)
    return _Tuple([annotated(item, outer=outer) for item in arguments])


def _map(arguments: tuple[Any, ...], outer: tuple[Any, ...]) -> Shape:
    if not arguments:
        return _Map(Shape())
    key, item = arguments
    if _resolved(key) not in (str, Any):
        raise UnsupportedTypeError(f"an object of JSON has texts as keys, not `{_name(key)}`")
    return _Map(annotated(item, outer=outer))


def _union(arguments: tuple[Any, ...], outer: tuple[Any, ...]) -> Shape:
    shapes = [annotated(item, outer=outer) for item in arguments]
    # A bool is read before an int, and an int before a float, as written in JSON.
    order = {_Boolean: 0, _Integer: 1, _Null: 9}
    shapes.sort(key=lambda shape: order.get(type(shape), 2))
    return shapes[0] if len(shapes) == 1 else _Union(shapes)


def _literal(arguments: tuple[Any, ...], outer: tuple[Any, ...]) -> Shape:  # noqa: ARG001
    values = [(to_json(item), item) for item in arguments if item is not None]
    choice = _Choice(None, values)
    return choice if len(values) == len(arguments) else _Union([choice, _Null()])


_ORIGINS: dict[Any, Callable[[tuple[Any, ...], tuple[Any, ...]], Shape]] = {
    list: _list(list),
    Sequence: _list(list),
    Iterable: _list(list),
    set: _list(set, unique=True),
    frozenset: _list(frozenset, unique=True),
    tuple: _tuple,
    dict: _map,
    Mapping: _map,
    Union: _union,
    types.UnionType: _union,
    Literal: _literal,
    Annotated: lambda arguments, outer: annotated(Annotated[arguments], outer=outer),
}
