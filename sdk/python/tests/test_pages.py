"""The Python of the page about strategies runs as it is written there."""

import re
from pathlib import Path
from typing import Any

from conclave_sdk.delivery import Activity, Channel, EndedTask, Timer, deliver, wait_for
from conclave_sdk.testing import RoomSnapshot

ROOT = Path(__file__).parents[3]


def test_the_strategy_of_the_page() -> None:
    page = (ROOT / "docs/write-plugins/strategy.md").read_text()
    files = dict(re.findall(r"^```python (\S+)\n(.*?)^```$", page, re.M | re.S))
    app: dict[str, Any] = {}
    exec(files["app.py"], app)
    for activity, decided in [
        (Activity.IDLE, deliver(["a"])),
        (Activity.SPEAKING, wait_for("web", 10_000)),
    ]:
        room = RoomSnapshot([EndedTask("a")], [Channel("web", activity=activity)])
        assert app["Polite"]().decide(Timer(), room.context) == [decided]
