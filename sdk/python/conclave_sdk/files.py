"""Files of the folders that the operator granted; needs the `files` grant.

A path starts with the folder's path in the plugin: `/folder/notes/a.txt`. The builtin `open` works
too, under the same grants. A file that is absent raises `FileNotFoundError`, a folder in place of a
file `IsADirectoryError`, a path that is not granted `Denied`, which is a `PermissionError`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeVar, overload

from conclave_sdk import _host, shapes
from conclave_sdk.errors import Error

T = TypeVar("T")

# Large enough to make the cost of the calls to the host negligible.
_PAGE_BYTES = 256 * 1024
_PAGE_ENTRIES = 256


class EntryKind(Enum):
    """The kind of an entry."""

    FILE = "file"
    DIRECTORY = "directory"


@dataclass
class Entry:
    """An entry of a folder. `length` is in bytes, and 0 for a folder."""

    name: str
    kind: EntryKind
    length: int


@dataclass
class Root:
    """A granted folder."""

    path: str
    writable: bool


@dataclass
class FoundEntry:
    """An entry below a folder, with its full path."""

    path: str
    entry: Entry


def roots() -> list[Root]:
    """Return the granted folders, in the operator's order."""
    return _host.current().file_roots()


def list_entries(path: str) -> list[Entry]:
    """Return every entry of a folder, in byte order of the names."""
    entries: list[Entry] = []
    while True:
        after = entries[-1].name if entries else None
        page = _host.current().file_list(path, after, _PAGE_ENTRIES)
        if not page:
            return entries
        entries += page


def read(path: str) -> bytes:
    """Return the whole file."""
    pages: list[bytes] = []
    offset = 0
    while page := read_at(path, offset, _PAGE_BYTES):
        pages.append(page)
        offset += len(page)
    return b"".join(pages)


def read_at(path: str, offset: int, length: int) -> bytes:
    """Return at most `length` bytes from `offset`; empty past the end, perhaps fewer before it."""
    return _host.current().file_read(path, offset, length)


def read_text(path: str) -> str:
    """Return the whole file as text. Raises `Error` if it is not UTF-8."""
    try:
        return read(path).decode()
    except UnicodeDecodeError as error:
        raise Error(f"{path} is not text in UTF-8") from error


@overload
def read_json(path: str) -> Any: ...
@overload
def read_json(path: str, kind: type[T]) -> T: ...
def read_json(path: str, kind: Any = None) -> Any:
    """Return the file's JSON, as a `kind` such as a dataclass.

    Raises `Error`, which names the path, if it does not have that form.
    """
    try:
        value = json.loads(read_text(path))
        return value if kind is None else shapes.convert(value, kind)
    except ValueError as error:
        raise Error(f"{path}: {error}") from error


def lines(path: str) -> list[str]:
    """Return the lines of a text file, without their ends."""
    return read_text(path).splitlines()


def write(path: str, content: bytes | str) -> None:
    """Replace the whole file, and create it if it is absent."""
    write_at(path, 0, content.encode() if isinstance(content, str) else content, truncate=True)


def write_at(path: str, offset: int, content: bytes, *, truncate: bool = False) -> int:
    """Write at `offset`, and return the file's new length.

    `truncate` cuts it after the last byte written.
    """
    return _host.current().file_write(path, offset, content, truncate)


def remove(path: str) -> None:
    """Remove a file; succeeds if it is absent."""
    _host.current().file_remove(path)


def walk(path: str) -> Iterator[FoundEntry]:
    """Return every entry below a folder, parents before children, in byte order of the names."""
    for entry in list_entries(path):
        below = f"{path.rstrip('/')}/{entry.name}"
        yield FoundEntry(below, entry)
        if entry.kind is EntryKind.DIRECTORY:
            yield from walk(below)
