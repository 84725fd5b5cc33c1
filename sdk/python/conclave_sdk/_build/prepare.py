"""`prepare`: writes the folder from which componentize-py builds a component.

    OUT/wit/         the contract, with a world of what the plugin exports and imports
    OUT/python/      the plugin's modules, its dependencies, the SDK, and the entry module
    OUT/empty/       a virtual environment without packages, so that no other one is found
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import conclave_sdk
from conclave_sdk._build.describe import Described, describe
from conclave_sdk.errors import AppError

WORLD = "python-plugin"
ENTRY = "conclave_entry"

# Modules of the SDK that only the author's machine needs.
_NATIVE = ("_build", "testing.py", "__main__.py", "__pycache__")
# Folders beside an app that hold nothing for it, and the largest file that is copied.
_NO_DATA = ("__pycache__", "build", "conclave-sdk", "dist", "node_modules", "target", "tests")
_DATA_BYTES = 1 << 20
# The permissions of a group and of others to read a file.
_READABLE = 0o044
# Codecs that the interpreter imports by name when a text is encoded or a file is opened.
_ENCODINGS = ("ascii", "cp1252", "idna", "latin_1", "punycode", "utf_16", "utf_8_sig")


def prepare(app: Path, wit: Path, out: Path, dependencies: list[Path]) -> dict[str, Any]:
    """Write the folder, and return the JSON for the caller. Raises `AppError`."""
    out = out.resolve()
    described = describe(app, dependencies)
    if out.exists() and not (out / "python").is_dir() and any(out.iterdir()):
        raise AppError(f"{out} is not empty", "name a folder that does not exist")
    shutil.rmtree(out, ignore_errors=True)
    _write_world(described, wit, out / "wit")
    private = _write_modules(described, app, out / "python", dependencies)
    empty = out / "empty"
    (empty / "lib" / "site-packages").mkdir(parents=True)
    command = ["-d", str(out / "wit"), "-w", WORLD, "componentize"]
    return {
        **described.to_json(),
        "warnings": [
            f"{path} is private and was not copied for the build: the plugin cannot read it"
            for path in private
        ],
        "command": ["componentize-py", *command, "-p", str(out / "python"), ENTRY],
        # Otherwise componentize-py adds the packages of this virtual environment.
        "env": {"VIRTUAL_ENV": str(empty)},
    }


def _write_world(described: Described, wit: Path, out: Path) -> None:
    if not (wit / "types.wit").is_file():
        raise AppError(f"{wit} has no types.wit", "name the folder of the contract")
    shutil.copytree(wit, out, ignore=lambda _, names: [n for n in names if not n.endswith(".wit")])
    lines = (wit / "types.wit").read_text(encoding="utf-8").splitlines()
    package = next(line for line in lines if line.startswith("package "))
    items = [f"    import {name};" for name in described.interfaces]
    items += [f"    export {name};" for name in described.app.exports]
    text = "\n".join([package, "", f"world {WORLD} {{", *items, "}", ""])
    (out / f"{WORLD}.wit").write_text(text, encoding="utf-8")


def _write_modules(
    described: Described, app: Path, out: Path, dependencies: list[Path]
) -> list[Path]:
    """Write the modules and the data, and return the private files that were not copied."""
    imports = described.imports
    sources = {}
    for module in imports.own.values():
        relative = module.path.resolve().relative_to(app.parent.resolve())
        target = out / relative
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(module.path, target)
        sources[module.name] = str(relative)
    private = [
        path.relative_to(app.parent)
        for path in _copy_data(app.parent, out, app.stat().st_mode & _READABLE)
    ]
    without = shutil.ignore_patterns("__pycache__", "tests", "*.dist-info")
    for name in imports.dependencies:
        for folder in dependencies:
            if (folder / name).is_dir():
                shutil.copytree(folder / name, out / name, ignore=without, dirs_exist_ok=True)
            elif (folder / f"{name}.py").is_file():
                shutil.copyfile(folder / f"{name}.py", out / f"{name}.py")
    sdk = Path(conclave_sdk.__file__).parent
    shutil.copytree(sdk, out / "conclave_sdk", ignore=shutil.ignore_patterns(*_NATIVE))
    (out / f"{ENTRY}.py").write_text(_entry(described, app.stem, sources), encoding="utf-8")
    return private


def _copy_data(folder: Path, out: Path, readable: int) -> list[Path]:
    """Copy the plugin's other files, which its modules can read while they are imported.

    Returns those that are private: keys, and files that fewer users may read than `readable`. The
    build's folder may be open to others.
    """
    private = []
    for path in sorted(folder.iterdir()):
        if path.name.startswith(".") or path.is_symlink():
            continue
        is_data = path.is_file() and path.suffix != ".py" and path.stat().st_size <= _DATA_BYTES
        is_folder = (
            path.is_dir() and path.name not in _NO_DATA and not (path / "pyvenv.cfg").exists()
        )
        if not is_data and not is_folder:
            continue
        if path.suffix == ".key" or readable & ~path.stat().st_mode:
            private.append(path)
        elif is_folder:
            private += _copy_data(path, out / path.name, readable)
        else:
            out.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, out / path.name)
    return private


def _entry(described: Described, app: str, sources: dict[str, str]) -> str:
    late = sorted({*described.imports.late, *(f"encodings.{name}" for name in _ENCODINGS)})
    attempted = sorted(described.imports.attempted.difference(late))
    exports = []
    for name in described.app.exports:
        kind = "".join(word.capitalize() for word in name.split("-"))
        exports.append(f"from conclave_sdk._guest.{name.replace('-', '_')} import {kind}")
    lines = [
        '"""The entry of the component, written by `python -m conclave_sdk prepare`."""',
        "",
        f"import {app}",
        "from conclave_sdk._guest import entry",
        "",
        "# Modules that are imported inside of functions, where the component cannot load them.",
        *(f"import {name}" for name in late),
        f"entry.attempt({attempted!r})",
        "",
        f"entry.load({app}, {sources!r})",
        "",
        *exports,
        "",
        "entry.freeze()",
        "",
    ]
    return "\n".join(lines)
