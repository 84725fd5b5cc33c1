"""The imports of a plugin's modules, found in their source.

A component has only the modules that are imported while it is built. An import inside of a function
runs later, so the entry module imports its module too.
"""

from __future__ import annotations

import ast
import encodings.aliases
import importlib.util
import sys
from dataclasses import dataclass, field
from pathlib import Path

from conclave_sdk._build.unsupported import alternative
from conclave_sdk.errors import AppError

# Interfaces that are imported for what a module uses of the SDK.
_CAPABILITIES = {
    "blobs",
    "config",
    "fetch",
    "files",
    "history",
    "kv",
    "model",
    "programs",
    "progress",
    "scratch",
    "secrets",
    "toolbox",
}
_CALL = {"Call", "Toolset"}
# Modules of the SDK whose names are not those of their interfaces.
_INTERFACES = {"programs": "exec"}
# Modules that open files, as the builtin `open` does: with the import of `files`, the SDK can
# report a path that is not granted as a denial.
_OPENS = {"fileinput", "glob", "io", "os", "pathlib", "shutil"}
# Modules that C code of the interpreter imports by name.
_HIDDEN = {"datetime": ["_strptime"], "time": ["_strptime"]}
_COMPILED = (".so", ".pyd", ".dylib")


@dataclass
class Module:
    """A module of the plugin or of a dependency."""

    name: str
    path: Path
    is_package: bool


@dataclass
class Imports:
    """What the modules of a plugin import."""

    own: dict[str, Module] = field(default_factory=dict)
    """The plugin's own modules, by name."""
    dependencies: set[str] = field(default_factory=set)
    """The top-level names of dependencies."""
    late: set[str] = field(default_factory=set)
    """Modules that the plugin's functions import."""
    attempted: set[str] = field(default_factory=set)
    """Modules that may be absent: optional ones, and those that functions of dependencies import."""
    interfaces: set[str] = field(default_factory=set)
    """Interfaces of the contract, besides those of the exported kinds."""
    problems: list[AppError] = field(default_factory=list)


@dataclass
class _Import:
    """An import of a module, and perhaps of a name in it."""

    module: str
    name: str | None
    line: int
    is_late: bool
    is_optional: bool


def find_imports(app: Path, folders: list[Path]) -> Imports:
    """Follow the imports of an app's file through its folder and the folders of dependencies."""
    found = Imports()
    scan = _Scan(app.parent, folders, found)
    scan.module(Module(app.stem, app, False), is_own=True)
    return found


class _Scan:
    def __init__(self, own: Path, folders: list[Path], found: Imports) -> None:
        self._own = own
        self._folders = folders
        self._found = found
        self._seen: set[str] = set()

    def module(self, module: Module, *, is_own: bool) -> None:
        if module.name in self._seen:
            return
        self._seen.add(module.name)
        if is_own:
            self._found.own[module.name] = module
        tree = _parse(module.path)
        visitor = _Visitor(module)
        visitor.visit(tree)
        self._found.interfaces |= visitor.interfaces
        (self._found.late if is_own else self._found.attempted).update(visitor.codecs)
        if is_own:
            self._found.problems += visitor.problems
        for item in visitor.imports:
            self._follow(item, module, is_own=is_own)

    def _follow(self, item: _Import, by: Module, *, is_own: bool) -> None:
        top = item.module.partition(".")[0]
        if top == "conclave_sdk":
            return
        wanted = [item.module, f"{item.module}.{item.name}" if item.name else ""]
        if is_own:
            for name in filter(None, reversed(wanted)):
                instead = alternative(name)
                if instead:
                    what = f"{by.path.name}:{item.line}: `{name}` does not work in a component"
                    self._found.problems.append(AppError(what, instead))
                    return
        if top in sys.stdlib_module_names:
            if is_own and top in _OPENS:
                self._found.interfaces.add("files")
            if is_own and (self._own / f"{top}.py").is_file():
                what = f"{top}.py has the name of a module of the standard library"
                self._found.problems.append(AppError(what, "rename it"))
            self._found.late.update(_HIDDEN.get(item.module, []))
            self._add_late(item.module, item, is_own=is_own)
            return
        place = self._resolve(item.module)
        if place is None:
            if is_own and not item.is_optional:
                what = f"{by.path.name}:{item.line}: there is no module `{item.module}`"
                hint = "add its package to `dependencies` in pyproject.toml"
                self._found.problems.append(AppError(what, hint))
            return
        found, is_inside = place
        if not is_inside:
            self._add_dependency(top, by, item.line)
        self._add_late(item.module, item, is_own=is_own)
        # Importing `a.b` also runs `a`.
        parents = found.name.split(".")
        for depth in range(1, len(parents)):
            above = self._resolve(".".join(parents[:depth]))
            if above:
                self.module(above[0], is_own=above[1])
        self.module(found, is_own=is_inside)
        submodule = self._resolve(wanted[1]) if wanted[1] else None
        if submodule:
            self._add_late(wanted[1], item, is_own=is_own)
            self.module(submodule[0], is_own=submodule[1])

    def _add_late(self, name: str, item: _Import, *, is_own: bool) -> None:
        if item.is_late:
            is_certain = is_own and not item.is_optional
            (self._found.late if is_certain else self._found.attempted).add(name)

    def _add_dependency(self, top: str, by: Module, line: int) -> None:
        if top in self._found.dependencies:
            return
        self._found.dependencies.add(top)
        for folder in self._folders:
            package = folder / top
            compiled = [
                *(path for path in package.rglob("*") if path.suffix in _COMPILED),
                *(path for path in folder.glob(f"{top}.*") if path.suffix in _COMPILED),
            ]
            if compiled:
                what = f"{by.path.name}:{line}: `{top}` has compiled code ({compiled[0].name})"
                hint = "a component runs pure Python only: use another package, or the standard library"
                self._found.problems.append(AppError(what, hint))
                return

    def _resolve(self, name: str) -> tuple[Module, bool] | None:
        """Return a module by its name, and whether it is the plugin's own."""
        relative = Path(*name.split("."))
        for folder in [self._own, *self._folders]:
            package = folder / relative / "__init__.py"
            if package.is_file():
                return Module(name, package, True), folder == self._own
            file = folder / relative.with_suffix(".py")
            if file.is_file():
                return Module(name, file, False), folder == self._own
            if (folder / relative).is_dir() and folder != self._own:
                # A namespace package has no file; its modules are found by their own names.
                continue
        return None


def _parse(path: Path) -> ast.Module:
    try:
        return ast.parse(path.read_text(encoding="utf-8"), str(path))
    except SyntaxError as error:
        raise AppError(f"{path.name}:{error.lineno}: {error.msg}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise AppError(f"{path.name} could not be read: {error}") from error


class _Visitor(ast.NodeVisitor):
    """Collects the imports of one module, and what it uses of the SDK."""

    def __init__(self, module: Module) -> None:
        self.imports: list[_Import] = []
        self.codecs: set[str] = set()
        self.interfaces: set[str] = set()
        self.problems: list[AppError] = []
        self._module = module
        self._depth = 0
        self._optional = 0
        # Names that stand for modules: `import os.path as p` and `import conclave_sdk`.
        self._names: dict[str, str] = {}

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:  # noqa: N802
        self._inside(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:  # noqa: N802
        self._inside(node)

    def _inside(self, node: ast.AST) -> None:
        self._depth += 1
        self.generic_visit(node)
        self._depth -= 1

    def visit_Try(self, node: ast.Try) -> None:  # noqa: N802
        handled = {_name_of(handler.type) for handler in node.handlers}
        is_optional = bool(handled & {"ImportError", "ModuleNotFoundError", "Exception", ""})
        self._optional += is_optional
        for statement in node.body:
            self.visit(statement)
        self._optional -= is_optional
        for part in [*node.handlers, *node.orelse, *node.finalbody]:
            self.visit(part)

    def visit_If(self, node: ast.If) -> None:  # noqa: N802
        if _name_of(node.test) == "TYPE_CHECKING":
            for statement in node.orelse:
                self.visit(statement)
            return
        self.generic_visit(node)

    def visit_Import(self, node: ast.Import) -> None:  # noqa: N802
        for alias in node.names:
            self._add(alias.name, None, node.lineno)
            top = alias.name.partition(".")[0]
            self._names[alias.asname or top] = alias.name if alias.asname else top
            if alias.name.startswith("conclave_sdk."):
                self._uses(alias.name.split(".")[1])

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:  # noqa: N802
        base = node.module or ""
        if node.level:
            parts = self._module.name.split(".")
            kept = len(parts) - node.level + self._module.is_package
            base = ".".join([*parts[:kept], *([node.module] if node.module else [])])
        for alias in node.names:
            self._add(base, alias.name, node.lineno)
            self._names[alias.asname or alias.name] = f"{base}.{alias.name}"
            if base == "conclave_sdk":
                self._uses(alias.name)
            elif base.startswith("conclave_sdk."):
                self._uses(base.split(".")[1])
                self._uses(alias.name)

    def visit_Call(self, node: ast.Call) -> None:  # noqa: N802
        self.generic_visit(node)
        first = _text_of(node.args[0]) if node.args else None
        if _name_of(node.func) in ("import_module", "__import__") and first:
            self._depth += 1  # Even at the top: the build may take another branch than a call.
            self._add(first, None, node.lineno)
            self._depth -= 1
        named = [_text_of(keyword.value) for keyword in node.keywords if keyword.arg == "encoding"]
        if _name_of(node.func) in ("encode", "decode"):
            named.append(first)
        for codec in filter(None, named):
            name = encodings.normalize_encoding(codec).lower()
            module = f"encodings.{encodings.aliases.aliases.get(name, name)}"
            if importlib.util.find_spec(module):
                self.codecs.add(module)

    def visit_Name(self, node: ast.Name) -> None:  # noqa: N802
        if node.id == "open":
            self.interfaces.add("files")

    def visit_Attribute(self, node: ast.Attribute) -> None:  # noqa: N802
        self.generic_visit(node)
        owner = self._names.get(_name_of(node.value))
        if owner is None:
            return
        name = f"{owner}.{node.attr}"
        if owner == "conclave_sdk":
            self._uses(node.attr)
        elif alternative(name) and not alternative(owner):
            what = f"{self._module.path.name}:{node.lineno}: `{name}` does not work in a component"
            self.problems.append(AppError(what, alternative(name) or ""))

    def _uses(self, name: str) -> None:
        if name == "*":
            self.interfaces |= {*map(_interface_of, _CAPABILITIES), "call"}
        elif name in _CAPABILITIES:
            self.interfaces.add(_interface_of(name))
        elif name in _CALL:
            self.interfaces.add("call")

    def _add(self, module: str, name: str | None, line: int) -> None:
        is_name = name not in (None, "*")
        late, optional = self._depth > 0, self._optional > 0
        self.imports.append(_Import(module, name if is_name else None, line, late, optional))


def _interface_of(name: str) -> str:
    return _INTERFACES.get(name, name)


def _text_of(node: ast.expr) -> str | None:
    is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
    return str(ast.literal_eval(node)) if is_text else None


def _name_of(node: ast.AST | None) -> str:
    """Return the name of a simple expression; of a tuple of exceptions, its first."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.Tuple) and node.elts:
        return _name_of(node.elts[0])
    return ""
