"""Cells that run while the component is built.

The interpreter specialises code that runs often by writing to it, and fills caches at the first use
of many functions. Done here, no call has to copy these pages of memory.
"""

from __future__ import annotations

from session import Session

# More than the interpreter counts before it specialises.
_TIMES = 20
_CELLS = (
    """
import json, math, re
from dataclasses import dataclass

@dataclass
class Point:
    x: int
    y: float = 0.5

    def far(self):
        return math.hypot(self.x, self.y)

class Plain:
    def __init__(self, value):
        self.value = value

def outer(factor):
    def inner(x, *rest, scale=2, **more):
        return x * factor * scale
    return inner

rows = [{"name": f"row {i}", "value": i / 3, "even": i % 2 == 0} for i in range(20)]
double, point, plain, found = outer(2), Point(1), Plain([1, 2]), {"a": (1, None), "b": {1, 2}}
sorted(rows, key=lambda row: -row["value"])[:2]
""",
    "print(double(3), point, json.dumps(found['a']), re.findall('w', 'row'))\npoint.far()",
    "rows.append({'name': 'another'})\nrows[-1]['value']",
    "double(",
)


class _Memory:
    """A store of one session."""

    def __init__(self) -> None:
        self.limit = 1_000_000
        self._content = b""

    def get_bytes(self) -> bytes:
        return self._content

    def set_bytes(self, value: bytes) -> None:
        self._content = value


def run() -> None:
    """Run the cells as calls do."""
    for _ in range(_TIMES):
        store = _Memory()
        for cell in _CELLS:
            with Session(store, []) as session:
                session.run(cell)
