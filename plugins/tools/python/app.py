"""An executor of `run_ipython`: cells of Python, whose variables live on from cell to cell."""

from __future__ import annotations

from typing import Any

from conclave_sdk import config, files, log, scratch, tool

import library
import rehearsal
from session import Session

# Of a state, unless the settings say otherwise. The default of `limits.output` allows no more.
STATE_BYTES = 1_000_000


class TaskScratch:
    """The scratch of the task, which no other task can read."""

    get_bytes = staticmethod(scratch.get_bytes)
    set_bytes = staticmethod(scratch.set_bytes)

    def __init__(self, limit: int) -> None:
        self.limit = limit


@tool
def run_ipython(
    code: str,
    thought: Any = None,
    kernel_init_code: str = "",
    include_extra: Any = None,
    confirmation_state: Any = None,
    security_risk: Any = None,
) -> str:
    """Run a cell of Python. Returns what it prints and the value of its last expression.

    Variables, functions, classes and imports live on in later cells. The standard library is there,
    without network, threads and processes; packages cannot be installed. A cell that holds only
    `%reset` forgets all variables, such as one that stops every later cell.

    Other tools may be there as functions: `tools()` lists them with their arguments, and
    `tools("word")` those that fit. A cell can call many and return only what it prints.
    `gather(a.b.later(1), a.b.later(2))` calls them at the same time.

    Args:
        code: The cell.
        kernel_init_code: Code that runs once, before the first cell.
    """
    # Parts of the action's JSON that do not matter here.
    del thought, include_extra, confirmation_state, security_risk
    # Not as a dataclass: to derive its form costs a call 1 ms. The manifest has the type.
    store = TaskScratch(config.get().get("state_bytes", STATE_BYTES))
    with Session(store, [root.path for root in files.roots()]) as session:
        content = session.run(code, kernel_init_code)
    for line in session.lost:
        log.warn(line)
    return content


library.install()
rehearsal.run()
