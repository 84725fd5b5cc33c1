"""`python -m conclave_sdk`: the commands that `conclave plugin build` calls.

    describe APP.py [--dependencies FOLDER]
    prepare APP.py --wit FOLDER --out FOLDER [--dependencies FOLDER]
    dependencies PYPROJECT.toml --out FOLDER

Each prints one JSON object. For a plugin that cannot be built it is `{"error": …, "hint": …}`, and
the exit code is 1; the hint is null where none is needed.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from conclave_sdk._build.dependencies import dependencies
from conclave_sdk._build.describe import describe
from conclave_sdk._build.prepare import prepare
from conclave_sdk.errors import AppError


def main() -> int:
    """Run one command, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m conclave_sdk")
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("describe", "prepare"):
        command = commands.add_parser(name)
        command.add_argument("app", type=Path)
        command.add_argument("--dependencies", type=Path, action="append", default=[])
        if name == "prepare":
            command.add_argument("--wit", type=Path, required=True)
            command.add_argument("--out", type=Path, required=True)
    command = commands.add_parser("dependencies")
    command.add_argument("pyproject", type=Path)
    command.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    try:
        if args.command == "dependencies":
            result = dependencies(args.pyproject, args.out)
        elif args.command == "describe":
            result = describe(args.app, args.dependencies).to_json()
        else:
            result = prepare(args.app, args.wit, args.out, args.dependencies)
    except AppError as error:
        print(json.dumps({"error": str(error), "hint": error.hint or None}, ensure_ascii=False))
        return 1
    print(json.dumps(result, ensure_ascii=False))
    return 0


if __name__ == "__main__":
    sys.exit(main())
