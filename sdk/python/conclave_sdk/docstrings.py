"""The description and the parameters in a docstring.

Three forms are read: `Args:` with indented lines, `Parameters` underlined with hyphens, and
`:param name:`.
"""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass, field
from typing import Any

_HEADINGS = {"args", "arguments", "parameters", "params", "attributes", "fields"}
_OTHERS = {"returns", "return", "raises", "yields", "yield", "example", "examples", "note", "notes"}
_GOOGLE = re.compile(r"^(\*{0,2}\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)$")
_NUMPY = re.compile(r"^(\*{0,2}\w+)\s*(?::.*)?$")
_SPHINX = re.compile(r"^:param(?:\s+[^:]*?)?\s+(\w+)\s*:\s*(.*)$")


@dataclass
class Docstring:
    """The first paragraph as one line, and the texts of parameters by name."""

    description: str = ""
    parameters: dict[str, str] = field(default_factory=dict)


def parse(text: str | None) -> Docstring:
    """Parse a docstring; an absent one is empty."""
    lines = inspect.cleandoc(text or "").splitlines()
    found = Docstring()
    paragraph: list[str] = []
    for line in lines:
        is_heading = line.rstrip(":").strip().lower() in _HEADINGS | _OTHERS
        if not line.strip() or is_heading or line.startswith(":"):
            break
        paragraph.append(line.strip())
    found.description = " ".join(paragraph)
    _read_parameters(lines, found.parameters)
    return found


def _read_parameters(lines: list[str], parameters: dict[str, str]) -> None:
    inside, numpy, name = False, False, ""
    for at, line in enumerate(lines):
        word = line.strip()
        if match := _SPHINX.match(word):
            inside, name = True, match[1]
            parameters[name] = match[2]
            continue
        if word.startswith(":"):
            inside = False
        underline = lines[at + 1].strip() if at + 1 < len(lines) else ""
        if not line.startswith(" ") and word.rstrip(":").lower() in _HEADINGS | _OTHERS:
            numpy = bool(underline) and set(underline) == {"-"}
            inside = word.rstrip(":").lower() in _HEADINGS and (numpy or word.endswith(":"))
            name = ""
            continue
        if not inside or not word or set(word) == {"-"}:
            continue
        depth = len(line) - len(line.lstrip())
        starts = depth == 0 if numpy else 0 < depth <= 4 or not name
        match = (_NUMPY if numpy else _GOOGLE).match(word) if starts else None
        if match:
            name = match[1].lstrip("*")
            parameters[name] = "" if numpy else match[2]
        elif name:
            parameters[name] = f"{parameters[name]} {word}".strip()


def text_of_class(kind: Any) -> str | None:
    """Return the docstring of a class, without the one that `dataclass` or `Enum` generates."""
    text = getattr(kind, "__dict__", {}).get("__doc__")
    if not isinstance(text, str) or text.startswith(f"{kind.__name__}("):
        return None
    generated = {"An enumeration.", "Create a collection of name/value pairs."}
    return None if text.split("\n")[0] in generated else text


def of_class(kind: Any) -> str:
    """Return the first paragraph of a class's own docstring."""
    return parse(text_of_class(kind)).description
