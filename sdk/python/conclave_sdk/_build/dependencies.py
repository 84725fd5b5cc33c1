"""`dependencies`: the packages of a `pyproject.toml`, and the command that installs them.

Only wheels of pure Python are taken, so pip itself names a package that has none. An item that pip
would take for an option, a folder or a source archive is refused: a source runs code of its own when
it is installed.
"""

from __future__ import annotations

import re
import shutil
import tomllib
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from conclave_sdk.errors import AppError

PYTHON = "3.14"
"""The version of Python in the components of componentize-py 0.25."""

_SDK = "conclave-sdk"
_PACKAGE = re.compile(
    r"""
    (?P<name> [a-z0-9] ([a-z0-9._-]*[a-z0-9])? ) \s*
    ( \[ [a-z0-9._,\s-]* \] )? \s*
    ( @ \s* (?P<url> \S+ ) | \(? [<>=!~] [a-z0-9.*+!<>=~,_\s-]* \)? )? \s*
    ( ; .* )?
    """,
    re.ASCII | re.IGNORECASE | re.VERBOSE,
)
# pip takes a name that ends so for a file of the current folder.
_ARCHIVE = re.compile(r"\.(zip|whl|tar|tgz|tbz|txz|tlz|tar\.[a-z0-9]+)", re.ASCII | re.IGNORECASE)


def dependencies(pyproject: Path, out: Path) -> dict[str, Any]:
    """Return the packages, without the SDK, and the command of pip.

    Removes what is installed in `out`, unless it is what the file `out` with the suffix `.txt`
    lists: the caller writes the packages there, one a line, after the command has succeeded. Raises
    `AppError`.
    """
    try:
        project = tomllib.loads(pyproject.read_text(encoding="utf-8")).get("project", {})
    except (OSError, ValueError) as error:
        raise AppError(f"{pyproject} could not be read: {error}") from error
    named = [(_name(item, pyproject), item) for item in project.get("dependencies", [])]
    packages = [item for name, item in named if name != _SDK]
    if packages:
        _clear(out, packages)
    options = ["--only-binary=:all:", "--platform", "any", "--implementation", "py", "--abi", "none"]
    command = ["-m", "pip", "install", "--quiet", "--upgrade", "--target", str(out), *options]
    return {
        "dependencies": packages,
        "command": ["python", *command, "--python-version", PYTHON, *packages] if packages else None,
    }


def _name(item: Any, pyproject: Path) -> str:
    """Return the normalised name of a package. Raises `AppError` for anything else."""
    found = _PACKAGE.fullmatch(item) if isinstance(item, str) else None
    if found is None or _ARCHIVE.search(found["name"]):
        raise AppError(
            f"{pyproject.name}: `{item}` in `dependencies` is not the name of a package",
            "write a name with its versions, such as `humanize>=4`",
        )
    if found["url"] is not None and not _is_wheel(found["url"]):
        raise AppError(
            f"{pyproject.name}: `{item}` in `dependencies` is not an https URL of a wheel",
            "name the package alone, or a wheel: `humanize @ https://…/humanize-4.0-py3-none-any.whl`",
        )
    return re.sub(r"[-_.]+", "-", found["name"]).lower()


def _is_wheel(url: str) -> bool:
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.scheme == "https" and bool(parts.hostname) and parts.path.endswith(".whl")


def _clear(out: Path, packages: list[str]) -> None:
    """Remove the packages of another list: pip adds to a folder, and never removes one."""
    installed = out.with_suffix(".txt")
    if installed.is_file():
        if installed.read_text(encoding="utf-8") == "\n".join(packages):
            return
    elif out.exists():
        raise AppError(
            f"{out} has packages, and no list of them in {installed.name}",
            "remove the folder, or name one that does not exist",
        )
    # Empty until the packages are installed, so that an interrupted installation is repeated.
    installed.parent.mkdir(parents=True, exist_ok=True)
    installed.write_text("", encoding="utf-8")
    shutil.rmtree(out, ignore_errors=True)
