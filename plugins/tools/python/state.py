"""The state between cells, in the scratch of the task.

Each variable is a pickle of its own, with one memo for all: variables that share an object share it
again, and one that fails takes no other with it. Functions and classes of cells are pickled by
value, and a function's globals are always those of the session. The pickles are read back from the
task's own scratch alone, which no other task and no agent can write to.
"""

from __future__ import annotations

import contextlib
import contextvars
import io
import marshal
import pickle
import sys
import types
import zlib
from dataclasses import dataclass, field
from typing import Any, Protocol

import cloudpickle
from conclave_sdk import QuotaExceeded

# Another build of Python may not read it.
_FORMAT = (1, sys.hexversion)
# More than this of pickles is not tried, because the time of a call is limited.
_PICKLED_BYTES = 8 << 20
# Bytes of a state that are worth the time of a compression.
_PLAIN_BYTES = 32 << 10
_FILES = {io.FileIO, io.BufferedReader, io.BufferedWriter, io.BufferedRandom, io.TextIOWrapper}
# What every module has.
_OWN = frozenset(types.ModuleType("").__dict__) | {
    "__builtins__",
    "__annotate__",
    "__annotations__",
    "__conditional_annotations__",
    "__warningregistry__",
}


class Store(Protocol):
    """Where the state of a session is from cell to cell."""

    limit: int
    """The largest state in bytes."""

    def get_bytes(self) -> bytes:
        """Return the state; empty at first."""

    def set_bytes(self, value: bytes) -> None:
        """Replace the state. Raises `QuotaExceeded`; then nothing was changed."""


@dataclass
class State:
    """A session without its variables."""

    count: int
    """The number of cells that have run."""
    sources: dict[str, str]
    """The text of each cell that a function comes from, for tracebacks."""
    folder: str
    """The working directory; empty for the first granted folder."""
    lost: list[str] = field(default_factory=list)
    """The variables that could not be restored."""


# The namespace of the functions that are being restored.
_globals: contextvars.ContextVar[dict[str, Any]] = contextvars.ContextVar("globals")


class _TooLarge(Exception):
    """The pickles are larger than what is tried."""

    def __init__(self, end: int) -> None:
        super().__init__()
        self.end = end


def load(store: Store, namespace: dict[str, Any]) -> State | None:
    """Restore the variables into a namespace. Returns `None` if there is no state."""
    content = store.get_bytes()
    if not content:
        return None
    try:
        whole = zlib.decompress(content[1:]) if content[:1] == b"z" else content[1:]
        form, count, sources, folder, segments, pickled = marshal.loads(whole)
    except Exception as error:
        return State(0, {}, "", [f"all variables: the state could not be read: {error}"])
    if form != _FORMAT:
        return State(0, {}, "", ["all variables: they are of another version of this plugin"])
    found = State(count, sources, folder)
    stream = io.BytesIO(pickled)
    _globals.set(namespace)
    reader = pickle.Unpickler(stream)
    end = 0
    for name, length in segments:
        end += length
        try:
            namespace[name] = reader.load()
        except BaseException as error:
            found.lost.append(_because(name, error))
            # A reader that failed may hold bytes of its last frame.
            memo = reader.memo
            stream.seek(end)
            reader = pickle.Unpickler(stream)
            reader.memo = memo
    return found


def save(store: Store, namespace: dict[str, Any], kept: State) -> list[str]:
    """Store the variables, and return those that could not be stored, each with its reason."""
    variables = {
        name: value
        for name, value in namespace.items()
        if name not in _OWN and not _is_closed_file(value)
    }
    lost: list[str] = []
    limit = store.limit
    while True:
        segments, pickled, files = _pickled(variables, namespace, lost)
        sources = {name: text for name, text in kept.sources.items() if name in files}
        form = (_FORMAT, kept.count, sources, kept.folder, segments, pickled)
        whole = marshal.dumps(form)
        content = b"p" + whole if len(whole) <= _PLAIN_BYTES else b"z" + zlib.compress(whole, 1)
        if len(content) <= limit:
            try:
                store.set_bytes(content)
                return lost
            except QuotaExceeded as error:
                limit = int(error.limit)
        if not segments:
            return [*lost, f"the session: its state has more than {limit} bytes"]
        name, length = max(segments, key=lambda segment: segment[1])
        del variables[name]
        lost.append(
            f"`{name}`: it has {length} bytes; `limits.scratch` allows {limit} for all variables"
        )


def _is_closed_file(value: object) -> bool:
    """Return whether nobody misses it, such as the file of a `with` that has ended."""
    return type(value) in _FILES and value.closed  # type: ignore[attr-defined]


def _pickled(
    variables: dict[str, Any], namespace: dict[str, Any], lost: list[str]
) -> tuple[list[tuple[str, int]], bytes, set[str]]:
    """Return name and length of each variable's pickle, the pickles, and the cells of functions.

    Removes variables that cannot be pickled.
    """
    while True:
        stream = _Bounded()
        writer = _Writer(stream, namespace)
        segments: list[tuple[str, int]] = []
        name, begin = "", 0
        try:
            for name, value in variables.items():
                begin = stream.tell()
                if value is namespace:
                    raise ValueError("it is the namespace itself")
                writer.dump(value)
                segments.append((name, stream.tell() - begin))
            return segments, stream.getvalue(), writer.files
        except _TooLarge as error:
            segments.append((name, error.end - begin))
            name = max(segments, key=lambda segment: segment[1])[0]
            lost.append(f"`{name}`: it is too large")
        except BaseException as error:
            lost.append(_because(name, error))
        del variables[name]


def _because(name: str, error: BaseException) -> str:
    text = " ".join(str(error).split())[:200]
    return f"`{name}`: {text or type(error).__name__}"


class _Bounded(io.BytesIO):
    def write(self, content: Any) -> int:
        end = self.tell() + len(content)
        if end > _PICKLED_BYTES:
            raise _TooLarge(end)
        return super().write(content)


class _CellReference:
    """A cell of a closure, pickled empty: its content may refer to the function that has it."""

    def __reduce__(self) -> tuple[Any, ...]:
        return types.CellType, ()


class _Writer(cloudpickle.Pickler):  # type: ignore[misc]
    """Pickles functions of cells without their globals."""

    def __init__(self, stream: io.BytesIO, namespace: dict[str, Any]) -> None:
        super().__init__(stream, pickle.HIGHEST_PROTOCOL)
        self.files: set[str] = set()
        self._namespace = namespace
        # Functions that share a variable of an enclosing one share its cell.
        self._cells: dict[int, _CellReference] = {}

    def reducer_override(self, value: Any) -> Any:
        if type(value) is types.FunctionType and value.__globals__ is self._namespace:
            return self._reduced(value)
        return super().reducer_override(value)

    def _reduced(self, function: types.FunctionType) -> tuple[Any, ...]:
        code = function.__code__
        self.files.add(code.co_filename)
        cells = function.__closure__ or ()
        references = tuple(self._cells.setdefault(id(cell), _CellReference()) for cell in cells)
        contents = []
        for reference, cell in zip(references, cells, strict=True):
            with contextlib.suppress(ValueError):  # The cell is empty.
                contents.append((reference, cell.cell_contents))
        attributes = {name: getattr(function, name) for name in _ATTRIBUTES}
        annotate = getattr(function, "__annotate__", None)
        if annotate is not None:
            attributes["__annotate__"] = annotate
        elif function.__annotations__:
            attributes["__annotations__"] = function.__annotations__
        arguments = (marshal.dumps(code), references)
        state = (attributes, function.__dict__, contents)
        return _new_function, arguments, state, None, None, _fill_function


_ATTRIBUTES = (
    "__name__",
    "__qualname__",
    "__module__",
    "__doc__",
    "__defaults__",
    "__kwdefaults__",
)


def _new_function(code: bytes, cells: Any) -> types.FunctionType:
    return types.FunctionType(marshal.loads(code), _globals.get(), closure=cells or None)


def _fill_function(function: types.FunctionType, state: tuple[Any, ...]) -> None:
    attributes, own, contents = state
    for name, value in attributes.items():
        setattr(function, name, value)
    function.__dict__.update(own)
    for cell, value in contents:
        cell.cell_contents = value
