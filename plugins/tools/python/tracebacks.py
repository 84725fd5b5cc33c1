"""Tracebacks of cells in the form of IPython: the cell, and the lines around the failed one."""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Mapping
from types import CodeType, TracebackType

import library

_RULE = "-" * 75
# Lines that are shown before and after the failed one.
_AROUND = 2
# A recursion has a thousand frames: this many are shown at either end.
_FRAMES = 8
_MAGIC = (
    "`!` and `%` are commands of IPython, and this is plain Python: an agent runs commands with "
    "the action `run`."
)


def render(error: BaseException, sources: Mapping[str, str]) -> str:
    """Return the traceback of an exception, those that caused it first.

    `sources` has the text of each cell. The frames above the first of a cell are left out.
    """
    parts = []
    for link, cause in _chain(error):
        parts += [link] if link else []
        parts.append(_one(cause, sources))
    return "\n\n".join([f"{_RULE}\n{parts[0]}", *parts[1:]])


def _chain(error: BaseException) -> list[tuple[str, BaseException]]:
    """Return the exceptions from the first to the last, each with the words that precede it."""
    found: list[tuple[str, BaseException]] = []
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        link, before = "", None
        if current.__cause__ is not None:
            link = "The above exception was the direct cause of the following exception:"
            before = current.__cause__
        elif current.__context__ is not None and not current.__suppress_context__:
            link = "During handling of the above exception, another exception occurred:"
            before = current.__context__
        found.append((link if before is not None else "", current))
        current = before
    found.reverse()
    return found


def _one(error: BaseException, sources: Mapping[str, str]) -> str:
    name = type(error).__name__
    last = "".join(traceback.format_exception_only(error)).rstrip()
    for cell in sources:
        last = last.replace(f'File "{cell}"', cell)
    if isinstance(error, SyntaxError) and error.filename in sources:
        bad = (error.text or "").lstrip()
        return f"{last}\n{_MAGIC}" if bad.startswith(("!", "%")) else last
    frames = list(_frames(error.__traceback__, sources))
    if len(frames) > 2 * _FRAMES:
        left = len(frames) - 2 * _FRAMES
        frames[_FRAMES:-_FRAMES] = [f"    [… {left} frames left out …]"]
    title = f"{name:<42}Traceback (most recent call last)"
    return "\n\n".join(["\n".join([title, *frames[:1]]), *frames[1:], last])


def _frames(trace: TracebackType | None, sources: Mapping[str, str]) -> Iterator[str]:
    while trace is not None and trace.tb_frame.f_code.co_filename not in sources:
        trace = trace.tb_next
    while trace is not None:
        code = trace.tb_frame.f_code
        source = sources.get(code.co_filename)
        if source is not None:
            head = f"{code.co_filename}, line {trace.tb_lineno}{_function(code)}"
            yield "\n".join([head, *_lines(source, trace.tb_lineno)])
        elif code.co_filename != library.__file__:  # It raises what the import statement reports.
            yield f"File {code.co_filename}:{trace.tb_lineno}{_function(code)}"
        trace = trace.tb_next


def _function(code: CodeType) -> str:
    if code.co_name == "<module>":
        return ""
    arguments = ", ".join(code.co_varnames[: code.co_argcount])
    name = getattr(code, "co_qualname", code.co_name)
    return f", in {name}({arguments})"


def _lines(source: str, number: int) -> Iterator[str]:
    lines = source.splitlines()
    for index in range(max(1, number - _AROUND), min(len(lines), number + _AROUND) + 1):
        mark = f"----> {index} " if index == number else f"{index:>7} "
        if index == number:
            mark = f"{'-' * max(1, 5 - len(str(index)))}> {index} "
        yield f"{mark}{lines[index - 1]}".rstrip()
