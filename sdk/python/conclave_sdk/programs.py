"""Programs of the operator's machine, outside the sandbox; needs the `exec` grant.

The operator grants whole commands, such as `/usr/bin/git log *`. The kernel confines the program,
and the host journals each run.

    from conclave_sdk import programs

    log = programs.run("git", "log", "main", directory="/workspace")
    if log.exit_code == 0:
        print(log.stdout)
"""

from __future__ import annotations

from dataclasses import dataclass

from conclave_sdk import _host


@dataclass(frozen=True)
class ProgramOutput:
    """The result of a program."""

    exit_code: int | None
    """`None` if the program was stopped."""
    stopped: str | None = None
    """Why it was stopped, such as `its limit timeout = 20 s`."""
    stdout_bytes: bytes = b""
    stderr_bytes: bytes = b""
    dropped: int = 0
    """The bytes of output beyond the grant's limit, which were dropped."""

    @property
    def stdout(self) -> str:
        """Return the standard output as text; invalid UTF-8 is replaced."""
        return self.stdout_bytes.decode(errors="replace")

    @property
    def stderr(self) -> str:
        """Return the standard error as text; invalid UTF-8 is replaced."""
        return self.stderr_bytes.decode(errors="replace")


def commands() -> list[str]:
    """Return the granted commands: the path of a program and a word for each argument.

    The list is empty without the grant.
    """
    return _host.current().commands()


def run(
    program: str,
    *arguments: str,
    directory: str | None = None,
    input: bytes | str = b"",
    timeout_ms: int | None = None,
) -> ProgramOutput:
    """Run a program, by its granted path or the path's last component, and wait for its end.

    Without a directory of a granted folder it runs in an empty one, which is removed when it ends.
    Raises `Denied` if the command or its directory is not granted, or the kernel cannot confine it.
    """
    text = input.encode() if isinstance(input, str) else input
    return _host.current().run_program(program, list(arguments), directory, text, timeout_ms)
