"""The Python of the page about strategies runs as it is written there."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_the_strategy_of_the_page_and_its_test(tmp_path: Path) -> None:
    page = (ROOT / "docs/write-plugins/strategy.md").read_text()
    files = dict(re.findall(r"^```python (\S+)\n(.*?)^```$", page, re.M | re.S))
    assert files.keys() == {"app.py", "test_app.py"}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_app.py"]
    path = f"{ROOT / 'sdk/python'}:{tmp_path}"
    done = subprocess.run(
        command, cwd=tmp_path, env={"PYTHONPATH": path}, capture_output=True, text=True, check=False
    )
    assert "2 passed" in done.stdout, done.stdout + done.stderr
