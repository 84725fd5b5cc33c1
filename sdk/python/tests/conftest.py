"""Fixtures that the tests share."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from conclave_sdk import _host

WIT = Path(__file__).parents[3] / "wit"


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Write files into a folder, and return the path of the first."""

    def write(**files: str) -> Path:
        paths = []
        for name, text in files.items():
            path = tmp_path / "plugin" / f"{name}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            paths.append(path)
        return paths[0]

    return write


@pytest.fixture(autouse=True)
def no_host_remains() -> Iterator[None]:
    """Check that a test restores the host that denies everything."""
    before = _host.current()
    yield
    assert _host.current() is before


@pytest.fixture
def packages(tmp_path: Path) -> Iterator[Path]:
    """Return a folder of dependencies."""
    folder = tmp_path / "packages"
    folder.mkdir()
    yield folder
    shutil.rmtree(folder)
