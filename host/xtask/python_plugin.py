"""Builds the component of a stock plugin in Python: `python_plugin.py FOLDER OUT`.

Does what `conclave plugin build` does, for a program that is not built yet. The interpreter has
componentize-py and pip. Writes OUT/NAME.wasm.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent


def build(folder: Path, out: Path) -> None:
    """Write the component of the plugin in this folder to OUT/NAME.wasm."""
    manifest = tomllib.loads((folder / "conclave-plugin.toml").read_text(encoding="utf-8"))
    packages = out / "packages"
    arguments = ["dependencies", folder / "pyproject.toml", "--out", packages]
    wanted = sdk(*arguments)
    # Installed once for each list, so that a later build needs no network.
    kept, listed = out / "packages.txt", "\n".join(wanted["dependencies"])
    if wanted["command"] and not (kept.is_file() and kept.read_text() == listed):
        run([sys.executable, *wanted["command"][1:]])
        kept.write_text(listed)
    wit, sources = ROOT / "wit", out / "sources"
    arguments = [folder / "app.py", "--wit", wit, "--out", sources, "--dependencies", packages]
    prepared = sdk("prepare", *arguments)
    name = manifest["plugin"]["name"]
    component = out / "plugin.wasm"
    command = [BIN / "componentize-py", *prepared["command"][1:], "-o", component]
    run(command, prepared["env"])
    whole = component.read_bytes() + section("conclave:manifest", embedded(manifest))
    (out / f"{name}.wasm").write_bytes(whole)


def sdk(*arguments: object) -> dict[str, Any]:
    """Run a command of the SDK, and return the object that it prints."""
    path = {"PYTHONPATH": str(ROOT / "sdk" / "python")}
    command = [sys.executable, "-m", "conclave_sdk", *arguments]
    result: dict[str, Any] = json.loads(run(command, path, may_fail=True))
    if "error" in result:
        sys.exit(f"{result['error']} {result['hint']}")
    return result


def run(
    command: list[Any], variables: dict[str, str] | None = None, *, may_fail: bool = False
) -> str:
    """Run a program to its end, and return its output."""
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **(variables or {})}
    words = [str(word) for word in command]
    ended = subprocess.run(words, env=environment, stdout=subprocess.PIPE, text=True)
    if ended.returncode and not may_fail:
        print(ended.stdout, file=sys.stderr)
        sys.exit(f"{words[0]} failed")
    return ended.stdout


def embedded(manifest: dict[str, Any]) -> bytes:
    """Return the JSON form of a manifest, in which the host reads it."""
    asks = {
        name: {"why": ask["why"], "optional": ask.get("optional", False)}
        for name, ask in manifest.get("asks", {}).items()
    }
    config = manifest.get("config", {})
    whole = {"format": 1, **manifest["plugin"], "asks": asks, "config": config}
    return json.dumps(whole, ensure_ascii=False, separators=(",", ":")).encode()


def section(name: str, content: bytes) -> bytes:
    """Return a custom section, which has the id 0 and is valid at the end of a component."""
    body = length(len(name)) + name.encode() + content
    return b"\0" + length(len(body)) + body


def length(number: int) -> bytes:
    """Return a number as LEB128."""
    low, rest = number & 0x7F, number >> 7
    return bytes([low | 0x80]) + length(rest) if rest else bytes([low])


if __name__ == "__main__":
    target = Path(sys.argv[2])
    target.mkdir(parents=True, exist_ok=True)
    build(Path(sys.argv[1]), target)
