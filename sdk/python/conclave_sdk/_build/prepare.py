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
_NATIVE = ("_build", "harness.py", "testing.py", "__main__.py", "__pycache__")
# Folders beside an app that hold nothing for it, and the largest file that is copied.
_NO_DATA = ("__pycache__", "build", "conclave-sdk", "dist", "node_modules", "target", "tests")
_DATA_BYTES = 1 << 20
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
    _write_modules(described, app, out / "python", dependencies)
    empty = out / "empty"
    (empty / "lib" / "site-packages").mkdir(parents=True)
    command = ["-d", str(out / "wit"), "-w", WORLD, "componentize"]
    return {
        **described.to_json(),
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


def _write_modules(described: Described, app: Path, out: Path, dependencies: list[Path]) -> None:
    imports = described.imports
    sources = {}
    for module in imports.own.values():
        relative = module.path.resolve().relative_to(app.parent.resolve())
        target = out / relative
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(module.path, target)
        sources[module.name] = str(relative)
    _copy_data(app.parent, out)
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


def _copy_data(folder: Path, out: Path) -> None:
    """Copy the plugin's other files, which its modules can read while they are imported."""
    for path in sorted(folder.iterdir()):
        if path.name.startswith(".") or path.is_symlink():
            continue
        if path.is_dir() and path.name not in _NO_DATA and not (path / "pyvenv.cfg").exists():
            _copy_data(path, out / path.name)
        elif path.is_file() and path.suffix != ".py" and path.stat().st_size <= _DATA_BYTES:
            out.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, out / path.name)


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
