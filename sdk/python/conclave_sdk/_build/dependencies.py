"""`dependencies`: the packages of a `pyproject.toml`, and the command that installs them.

Only wheels of pure Python are taken, so pip itself names a package that has none.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from conclave_sdk.errors import AppError

PYTHON = "3.14"
"""The version of Python in the components of componentize-py 0.25."""

_SDK = "conclave-sdk"


def dependencies(pyproject: Path, out: Path) -> dict[str, Any]:
    """Return the packages, without the SDK, and the command of pip. Raises `AppError`."""
    try:
        project = tomllib.loads(pyproject.read_text(encoding="utf-8")).get("project", {})
    except (OSError, ValueError) as error:
        raise AppError(f"{pyproject} could not be read: {error}") from error
    named = [str(item) for item in project.get("dependencies", [])]
    packages = [item for item in named if not _name(item) == _SDK]
    options = ["--only-binary=:all:", "--platform", "any", "--implementation", "py", "--abi", "none"]
    command = ["-m", "pip", "install", "--quiet", "--upgrade", "--target", str(out), *options]
    return {
        "dependencies": packages,
        "command": ["python", *command, "--python-version", PYTHON, *packages] if packages else None,
    }


def _name(requirement: str) -> str:
    name = requirement
    for end in "[ <>=!~;@(":
        name = name.split(end)[0]
    return name.strip().lower().replace("_", "-")
