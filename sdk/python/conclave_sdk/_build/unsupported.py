"""Modules and functions that do not work in a component, with what to use instead."""

from __future__ import annotations

_FETCH = "use `conclave_sdk.fetch`, whose requests the operator grants"
_ONE_THREAD = (
    "a call has one thread: start several requests with `model.start`, or let the agent call "
    "several tools in one turn"
)
_PROCESS = "a call starts no programs: an agent returns `act.run(…)`, which the host carries out"
_ABSENT = "the Python of a component does not have it"

_COMPILED = "it has compiled code, which a component cannot load"
_NUMBERS = f"{_COMPILED}: use `math`, `statistics` and lists, or write the plugin in Rust"
_PICTURES = f"{_COMPILED}: use a package in pure Python, or write the plugin in Rust"

UNSUPPORTED: dict[str, str] = {
    # Sockets, and modules on top of them.
    "socket": _FETCH,
    "ssl": _FETCH,
    "socketserver": _FETCH,
    "select": _FETCH,
    "selectors": _FETCH,
    "http.client": _FETCH,
    "http.server": _FETCH,
    "urllib.request": _FETCH,
    "ftplib": _FETCH,
    "imaplib": _FETCH,
    "poplib": _FETCH,
    "smtplib": _FETCH,
    "xmlrpc": _FETCH,
    "requests": _FETCH,
    "httpx": _FETCH,
    "aiohttp": _FETCH,
    "urllib3": _FETCH,
    # Threads and event loops.
    "_thread": _ONE_THREAD,
    "threading.Thread": _ONE_THREAD,
    "threading.Timer": _ONE_THREAD,
    "concurrent.futures": _ONE_THREAD,
    "multiprocessing": _ONE_THREAD,
    "asyncio": _ONE_THREAD,
    # Processes.
    "subprocess": _PROCESS,
    "pty": _PROCESS,
    "os.system": _PROCESS,
    "os.popen": _PROCESS,
    "os.fork": _PROCESS,
    "os.execv": _PROCESS,
    "os.spawnv": _PROCESS,
    "os.posix_spawn": _PROCESS,
    # Modules whose compiled code is not built in.
    "bz2": f"{_ABSENT}: use `zlib` or `gzip`",
    "ctypes": _ABSENT,
    "curses": _ABSENT,
    "fcntl": _ABSENT,
    "grp": _ABSENT,
    "lzma": f"{_ABSENT}: use `zlib` or `gzip`",
    "mmap": _ABSENT,
    "pwd": _ABSENT,
    "readline": _ABSENT,
    "resource": _ABSENT,
    "syslog": "use `conclave_sdk.log`",
    "termios": _ABSENT,
    "tkinter": _ABSENT,
    "tty": _ABSENT,
    "turtle": _ABSENT,
    # Packages with compiled code. pip has no wheel of them for a component, which reads as if it
    # did not find them.
    "numpy": _NUMBERS,
    "pandas": f"{_COMPILED}: use `csv` and `statistics`, or write the plugin in Rust",
    "scipy": _NUMBERS,
    "sklearn": _NUMBERS,
    "torch": _NUMBERS,
    "tensorflow": _NUMBERS,
    "matplotlib": _PICTURES,
    "PIL": _PICTURES,
    "cv2": _PICTURES,
    "lxml": f"{_COMPILED}: use `xml.etree.ElementTree`",
    "orjson": f"{_COMPILED}: use `json`",
    "ujson": f"{_COMPILED}: use `json`",
    "pydantic": f"{_COMPILED}: use `dataclasses`, which tools take as arguments",
    "cryptography": f"{_COMPILED}: use `hashlib` and `hmac`, or write the plugin in Rust",
}


def alternative(name: str) -> str | None:
    """Return what to use in place of a module or function; `None` if it works."""
    while name:
        if name in UNSUPPORTED:
            return UNSUPPORTED[name]
        name = name.rpartition(".")[0]
    return None
