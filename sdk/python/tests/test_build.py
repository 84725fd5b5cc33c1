"""`describe` and `prepare`, called as `conclave plugin build` does."""

import ast
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import WIT

PARENT = Path(__file__).parents[1]
TOOL = '''
from conclave_sdk import kv, tool

@tool
def count(text: str) -> int:
    """Count the words."""
    return len(text.split())
'''


def run(*arguments: object) -> tuple[int, Any]:
    command = [sys.executable, "-m", "conclave_sdk", *map(str, arguments)]
    environment = {"PYTHONPATH": str(PARENT), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.stdout.count("\n") == 1, done.stderr
    return done.returncode, json.loads(done.stdout)


def error_of(app: Path, *options: object) -> str:
    code, result = run("describe", app, *options)
    assert code == 1
    return f"{result['error']} | {result['hint']}"


def test_an_app_is_described(write: Callable[..., Path]) -> None:
    code, result = run("describe", write(app=TOOL + "print('loaded')\n"))
    assert code == 0
    assert result["exports"] == ["tools"]
    assert result["imports"] == ["kv", "log"]
    assert result["tools"][0]["name"] == "count"
    assert result["tools"][0]["input_schema"]["required"] == ["text"]


def test_every_kind_is_exported_with_what_it_reads(write: Callable[..., Path]) -> None:
    kinds = "Agent Responder Memory SecurityAnalyzer Condenser DeliveryStrategy Gate Judge "
    kinds += "SimulatedUser Observer Channel"
    classes = "".join(f"class My{kind}({kind}): pass\n" for kind in kinds.split())
    source = f"from conclave_sdk import {', '.join(kinds.split())}\n{classes}"
    code, result = run("describe", write(app=source))
    assert code == 0
    assert result["exports"] == [
        "agent",
        "responder",
        "memory",
        "delivery-strategy",
        "security-analyzer",
        "condenser",
        "gate",
        "judge",
        "simulated-user",
        "observer",
        "channel",
    ]
    expected = ["channel-secret", "delivery-context", "judge-feedback", "log", "state"]
    assert result["imports"] == expected


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("", "app.py exports nothing | write `@tool`"),
        ("def f(:\n", "app.py:1: "),
        ("\n1 / 0\n", "app.py:2: ZeroDivisionError: division by zero"),
        (
            "from conclave_sdk import Gate\nclass A(Gate): pass\nclass B(Gate): pass\n",
            "`A` and `B` are both a Gate | a component exports one of each kind",
        ),
        (
            "import socket\n",
            "app.py:1: `socket` does not work in a component | use `conclave_sdk.f",
        ),
        ("import urllib.request as r\n", "`urllib.request` does not work"),
        ("from http import server\n", "`http.server` does not work"),
        ("from threading import Thread\n", "`threading.Thread` does not work"),
        ("import threading\nthreading.Thread\n", "app.py:2: `threading.Thread` does not work"),
        ("def f():\n    import subprocess\n", "app.py:2: `subprocess` does not work"),
        ("import multiprocessing.pool\n", "`multiprocessing.pool` does not work"),
        ("import os\nos.system('ls')\n", "app.py:2: `os.system` does not work"),
        (
            "import numpy as np\n",
            "app.py:1: `numpy` does not work in a component | it has compiled",
        ),
        ("import missing\n", "app.py:1: there is no module `missing` | add its package"),
        ("def f():\n    import missing.part\n", "app.py:2: there is no module `missing.part`"),
        (
            "from conclave_sdk import tool\n@tool\nasync def go() -> str:\n    'Go.'\n",
            "app.py:2: the tool `go` is async | no event loop runs in a component: write `def`",
        ),
        (
            "from conclave_sdk import tool\n@tool\nasync def go():\n    'Go.'\n    yield 1\n",
            "the tool `go` is async",
        ),
        (
            "from conclave_sdk import Agent\nclass A(Agent):\n    async def step(self, view): 1\n",
            "app.py:3: the method `step` of `A` is async",
        ),
        (
            "from conclave_sdk import Judge\nclass A(Judge):\n    async def done(self, a, v): 1\n",
            "the method `done` of `A` is async",
        ),
        (
            "from conclave_sdk import Toolset\nclass A(Toolset):\n    async def list(self): 1\n",
            "the method `list` of `A` is async",
        ),
    ],
)
def test_what_cannot_work_is_named_with_its_line(
    write: Callable[..., Path], source: str, message: str
) -> None:
    assert message in error_of(write(app=source))


@pytest.mark.parametrize("name", ["json", "my-app"])
def test_an_app_has_a_name_that_can_be_imported(write: Callable[..., Path], name: str) -> None:
    assert f"{name}.py cannot be imported under this name" in error_of(write(**{name: TOOL}))


def test_a_module_that_hides_the_standard_library_is_named(write: Callable[..., Path]) -> None:
    error = error_of(write(app=TOOL + "import random\n", random=""))
    assert "random.py has the name of a module of the standard library | rename it" in error


def test_all_problems_are_named_at_once(write: Callable[..., Path]) -> None:
    error = error_of(write(app="import socket\nimport helper\n", helper="import lzma\n"))
    assert "app.py:1: `socket`" in error
    assert "helper.py:1: `lzma`" in error


def test_compiled_code_of_a_dependency_is_named(write: Callable[..., Path], packages: Path) -> None:
    (packages / "fast").mkdir()
    (packages / "fast" / "__init__.py").write_text("")
    (packages / "fast" / "_speed.cpython-311-x86_64-linux-gnu.so").write_text("")
    error = error_of(write(app=TOOL + "import fast\n"), "--dependencies", packages)
    assert "`fast` has compiled code (_speed.cpython-311" in error
    assert "pure Python" in error


def test_what_the_standard_library_does_inside_is_no_problem(
    write: Callable[..., Path], packages: Path
) -> None:
    (packages / "pure.py").write_text("import socket, threading\nx = threading.Lock()\n")
    source = TOOL + "import threading\nlock = threading.Lock()\ndef f():\n    import pure\n"
    code, _ = run("describe", write(app=source), "--dependencies", packages)
    assert code == 0


def prepare(app: Path, out: Path, *options: object) -> tuple[Any, dict[str, str]]:
    code, result = run("prepare", app, "--wit", WIT, "--out", out, *options)
    assert code == 0, result
    paths = [path for path in out.rglob("*") if path.is_file()]
    return result, {str(path.relative_to(out)): path.read_text() for path in paths}


def test_a_world_has_only_what_is_used(write: Callable[..., Path], tmp_path: Path) -> None:
    result, files = prepare(write(app=TOOL), tmp_path / "out")
    world = files["wit/python-plugin.wit"]
    assert world == (
        "package conclave:plugin@0.1.0-draft;\n\nworld python-plugin {\n"
        "    import kv;\n    import log;\n    export tools;\n}\n"
    )
    assert files["wit/tools.wit"] == (WIT / "tools.wit").read_text()
    assert result["command"][0] == "componentize-py"
    assert "--stub-wasi" not in result["command"]
    assert (Path(result["env"]["VIRTUAL_ENV"]) / "lib/site-packages").is_dir()


@pytest.mark.parametrize("use", ["open('/a')", "import pathlib", "from conclave_sdk import files"])
def test_a_plugin_that_opens_files_imports_them(write: Callable[..., Path], use: str) -> None:
    source = TOOL + f"def f():\n    {use}\n"
    assert run("describe", write(app=source))[1]["imports"] == ["files", "kv", "log"]


def test_the_modules_of_the_plugin_are_bundled(
    write: Callable[..., Path], tmp_path: Path, packages: Path
) -> None:
    (packages / "pure").mkdir()
    (packages / "pure" / "__init__.py").write_text(
        "def f():\n    from pure import later\n    import ssl\n"
    )
    (packages / "pure" / "later.py").write_text("")
    (packages / "unused.py").write_text("")
    app = write(
        app=TOOL + "import helper, pure\n",
        helper=(
            "from typing import TYPE_CHECKING\n"
            "if TYPE_CHECKING:\n    import nowhere\n"
            "try:\n    import absent\nexcept ImportError:\n    pass\n"
            "def f():\n    import csv\n    from parts import one\n    import datetime\n"
            "    return b'x'.decode('ISO-8859-2')\n"
            "def g(name):\n    import importlib\n    importlib.import_module(name)\n"
            "    return importlib.import_module('colorsys')\n"
        ),
        test_app="import pytest\n",
    )
    (app.parent / "parts").mkdir()
    (app.parent / "parts" / "__init__.py").write_text("")
    (app.parent / "parts" / "one.py").write_text("")
    (app.parent / "parts" / "prompt.txt").write_text("You are short.")
    (app.parent / "build").mkdir()
    (app.parent / "build" / "old.wasm").write_text("")
    (app.parent / ".env").write_text("SECRET=1")
    _, files = prepare(app, tmp_path / "out", "--dependencies", packages)
    bundled = {path for path in files if path.startswith("python/") and "conclave_sdk" not in path}
    assert bundled == {
        "python/app.py",
        "python/conclave_entry.py",
        "python/helper.py",
        "python/parts/__init__.py",
        "python/parts/one.py",
        "python/parts/prompt.txt",
        "python/pure/__init__.py",
        "python/pure/later.py",
    }
    entry = files["python/conclave_entry.py"]
    ast.parse(entry)
    lines = entry.splitlines()
    for module in (
        "colorsys",
        "encodings.iso8859_2",
        "csv",
        "parts",
        "parts.one",
        "datetime",
        "_strptime",
    ):
        assert f"import {module}" in lines, module
    assert "import absent" not in lines
    assert "entry.attempt(['pure', 'pure.later', 'ssl'])" in lines
    assert "from conclave_sdk._guest.tools import Tools" in lines
    assert "python/conclave_sdk/testing.py" not in files
    assert not [path for path in files if "/_build/" in path]


def test_private_files_are_named_and_not_copied(write: Callable[..., Path], tmp_path: Path) -> None:
    app = write(app=TOOL)
    app.chmod(0o644)
    modes = {"alice.key": 0o644, "token": 0o600, "team.txt": 0o640, "list.txt": 0o444}
    for folder in (app.parent, app.parent / "data", app.parent / "home"):
        folder.mkdir(exist_ok=True)
        for name, mode in modes.items():
            (folder / name).write_text(name)
            (folder / name).chmod(mode)
    (app.parent / "home").chmod(0o700)
    result, files = prepare(app, tmp_path / "out")
    copied = {path for path in files if path.endswith((".txt", ".key", "token"))}
    assert copied == {"python/list.txt", "python/data/list.txt"}
    assert (tmp_path / "out" / "python/list.txt").stat().st_mode & 0o777 == 0o444
    names = ("alice.key", "data/alice.key", "data/team.txt", "data/token", "home", "team.txt")
    assert [text.split(" ")[0] for text in result["warnings"]] == [*names, "token"]


def test_data_is_copied_if_all_files_are_private(
    write: Callable[..., Path], tmp_path: Path
) -> None:
    app = write(app=TOOL)
    (app.parent / "list.txt").write_text("one")
    for path in app.parent.iterdir():
        path.chmod(0o600)
    result, files = prepare(app, tmp_path / "out")
    assert (files["python/list.txt"], result["warnings"]) == ("one", [])
    for name in ("app.py", "list.txt"):
        assert (tmp_path / "out" / "python" / name).stat().st_mode & 0o777 == 0o600


def test_a_folder_of_someone_else_is_not_removed(
    write: Callable[..., Path], tmp_path: Path
) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "note.txt").write_text("keep me")
    code, result = run("prepare", write(app=TOOL), "--wit", WIT, "--out", tmp_path / "out")
    assert (code, "is not empty" in result["error"]) == (1, True)
    assert (tmp_path / "out" / "note.txt").exists()


def test_packages_are_installed_as_pure_python(tmp_path: Path) -> None:
    project = tmp_path / "pyproject.toml"
    project.write_text('[project]\ndependencies = ["conclave-sdk>=0.1", "humanize>=4"]\n')
    code, result = run("dependencies", project, "--out", tmp_path / "packages")
    assert (code, result["dependencies"]) == (0, ["humanize>=4"])
    command = result["command"]
    assert command[:4] == ["python", "-m", "pip", "install"]
    assert command[-1] == "humanize>=4"
    assert "--only-binary=:all:" in command
    project.write_text('[project]\ndependencies = ["conclave_sdk"]\n')
    assert run("dependencies", project, "--out", tmp_path / "packages")[1]["command"] is None
    project.write_text("[project\n")
    assert run("dependencies", project, "--out", tmp_path / "packages")[0] == 1


@pytest.mark.parametrize(
    "item",
    [
        "six",
        "Six_x.y[a,b-c] >=1.0, !=2.*; python_version < '4'",
        "six (>=1)",
        "six @ https://a.example/six-1.0-py3-none-any.whl#sha256=00 ; os_name == 'x'",
    ],
)
def test_a_package_is_named_in_each_form_of_the_standard(tmp_path: Path, item: str) -> None:
    project = tmp_path / "pyproject.toml"
    project.write_text(f'[project]\ndependencies = ["{item}"]\n')
    code, result = run("dependencies", project, "--out", tmp_path / "packages")
    assert (code, result["command"][-1]) == (0, item)


@pytest.mark.parametrize(
    "item",
    [
        "--target=/tmp/elsewhere",
        "-r",
        " -e",
        "",
        "six\\n--pre",
        "./six",
        "../six",
        "/tmp/six",
        "six-1.0-py3-none-any.whl",
        "six.tar.gz[a]",
        "file:///tmp/six",
        "https://a.example/six-1.0-py3-none-any.whl",
        "git+https://a.example/six",
        "six @ file:///tmp/six",
        "six @ file:///tmp/six-1.0-py3-none-any.whl",
        "six @ /tmp/six-1.0-py3-none-any.whl",
        "six @ http://a.example/six-1.0-py3-none-any.whl",
        "six @ https://a.example/six-1.0.tar.gz",
        "six @ https://a.example/six-1.0.tar.gz#six-1.0-py3-none-any.whl",
        "six @ git+https://a.example/six.whl",
    ],
)
def test_what_is_no_package_or_a_source_is_refused(tmp_path: Path, item: str) -> None:
    project = tmp_path / "pyproject.toml"
    project.write_text(f'[project]\ndependencies = ["humanize", "{item}"]\n')
    code, result = run("dependencies", project, "--out", tmp_path / "packages")
    assert code == 1
    assert result["error"].startswith("pyproject.toml: `")
    assert "in `dependencies` is not" in result["error"]


def test_a_package_that_is_no_longer_listed_is_removed(tmp_path: Path) -> None:
    project, out = tmp_path / "pyproject.toml", tmp_path / "made" / "packages"

    def installed(*packages: str) -> list[str]:
        """Install what is missing as `conclave plugin build` does, with files in place of pip."""
        names = ", ".join(f'"{name}"' for name in packages)
        project.write_text(f"[project]\ndependencies = [{names}]\n")
        code, result = run("dependencies", project, "--out", out)
        assert code == 0, result
        listed = out.with_suffix(".txt")
        if listed.read_text() != "\n".join(packages):
            for name in packages:
                (out / name).mkdir(parents=True, exist_ok=True)
            if "offline" not in packages:
                listed.write_text("\n".join(packages))
        return sorted(path.name for path in out.iterdir())

    assert installed("idna", "six") == ["idna", "six"]
    (out / "kept").mkdir()
    assert installed("idna", "six") == ["idna", "kept", "six"]
    assert installed("six") == ["six"]
    assert installed("offline") == ["offline"]
    assert installed("six") == ["six"]
    out.with_suffix(".txt").unlink()
    code, result = run("dependencies", project, "--out", out)
    assert (code, "no list of them" in result["error"]) == (1, True)


def test_an_error_without_a_remedy_has_no_hint(write: Callable[..., Path]) -> None:
    assert run("describe", write(app="def f(:\n"))[1]["hint"] is None
    two = run("describe", write(app="import socket\nimport lzma\n"))[1]
    assert (two["hint"], two["error"].count("\n")) == (None, 1)


@pytest.mark.parametrize(
    "folder", sorted((PARENT / "templates").glob("[a-z]*/")), ids=lambda p: p.name
)
def test_a_template_is_a_plugin_whose_test_passes(folder: Path) -> None:
    code, result = run("describe", folder / "app.py")
    assert (code, len(result["exports"]) > 0) == (0, True)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "/dev/null"]
    environment = {"PYTHONPATH": f"{PARENT}:{folder}", "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [*command, f"--rootdir={folder}", str(folder / "test_app.py")],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stdout
