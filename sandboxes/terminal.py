"""Interactive programs from the outside: a pexpect spawn over the frames of a sandbox.

The terminal is inside the sandbox; what crosses to the host are its bytes.

Example:
    with sandbox.spawn("python3 -i") as program:
        program.expect(">>> ")
        program.sendline("1 + 1")
        program.expect("2")
"""

from __future__ import annotations

import time
from typing import Any, Protocol

from pexpect import EOF, TIMEOUT
from pexpect.spawnbase import SpawnBase

from sandboxes.sandbox import SandboxError

END_SECONDS = 60.0
"""How long the end of a program may take."""


class Line(Protocol):
    """What a program needs of its sandbox: frames both ways."""

    @property
    def alive(self) -> bool:
        """Whether a supervisor stands."""

    def stream_send(self, head: dict[str, Any], body: bytes = b"") -> None:
        """One frame to the program. Raises SandboxError."""

    def stream_receive(self, seconds: float) -> tuple[dict[str, Any], bytes] | None:
        """One frame of the program, None when none comes in time. Raises SandboxError."""

    def stream_over(self) -> None:
        """The program ended."""

    def close(self) -> None:
        """End the sandbox."""


class SandboxSpawn(SpawnBase):
    """One interactive program. Made by `SupervisedSandbox.spawn`.

    Attributes:
        exitstatus: Exit code once the program ended by itself or was closed, as bash reports it; None before.
    """

    ROWS, COLUMNS = 24, 80

    def __init__(self, sandbox: Line, timeout: float) -> None:
        super().__init__(timeout=timeout)
        self._sandbox = sandbox
        self._arrived = b""
        self._over = False
        self.name = "<program in a sandbox>"
        self.closed = False

    def read_nonblocking(self, size: int = 1, timeout: float | None = -1) -> bytes:
        """Up to `size` bytes. Raises pexpect's TIMEOUT or EOF, or SandboxError."""
        seconds = self.timeout if timeout == -1 else timeout
        limit = None if seconds is None else time.monotonic() + seconds
        while not self._arrived:
            if self._over:
                self.flag_eof = True
                raise EOF("the program ended")
            left = 3600.0 if limit is None else limit - time.monotonic()
            frame = self._sandbox.stream_receive(max(0.0, left))
            if frame is None:
                if limit is None:
                    continue
                raise TIMEOUT(f"nothing came for {seconds} seconds")
            self._take(*frame)
        data, self._arrived = self._arrived[:size], self._arrived[size:]
        self._log(data, "read")  # type: ignore[attr-defined]
        return data

    def _take(self, head: dict[str, Any], body: bytes) -> None:
        if head.get("event") == "output":
            self._arrived += body
        else:
            self._over = True
            self.terminated = True
            self.exitstatus = head.get("exit_code")
            self._sandbox.stream_over()

    def send(self, text: bytes | str) -> int:
        """Type something. Returns the number of bytes."""
        data = text.encode() if isinstance(text, str) else text
        self._log(data, "send")  # type: ignore[attr-defined]
        if not self._over:
            self._sandbox.stream_send({"op": "input"}, data)
        return len(data)

    def sendline(self, text: bytes | str = b"") -> int:
        """Type a line."""
        data = text.encode() if isinstance(text, str) else text
        return self.send(data + b"\n")

    def write(self, text: bytes | str) -> None:
        """Like `send`, without a result."""
        self.send(text)

    def writelines(self, sequence: Any) -> None:
        """Send each item."""
        for text in sequence:
            self.send(text)

    def sendeof(self) -> None:
        """Type Ctrl-D."""
        self.send(b"\x04")

    def sendintr(self) -> None:
        """Type Ctrl-C."""
        self.send(b"\x03")

    def setwinsize(self, rows: int, columns: int) -> None:
        """Change the size of the terminal."""
        if not self._over:
            self._sandbox.stream_send({"op": "resize", "rows": rows, "columns": columns})

    def isalive(self) -> bool:
        """Whether the program still runs, as far as frames that arrived tell."""
        while not self._over:
            frame = self._sandbox.stream_receive(0.001)
            if frame is None:
                return True
            self._take(*frame)
        return False

    def wait(self) -> int | None:
        """Wait for the end of the program. Returns its exit code."""
        while not self._over:
            frame = self._sandbox.stream_receive(3600.0)
            if frame is not None:
                self._take(*frame)
        return self.exitstatus

    def close(self) -> None:
        """End the program; the sandbox takes other requests again. Idempotent; of a dead sandbox it does nothing.

        Raises:
            SandboxError: The supervisor does not end it; the sandbox is closed then.
        """
        if not self.closed and not self._over and self._sandbox.alive:
            self._sandbox.stream_send({"op": "end"})
            limit = time.monotonic() + END_SECONDS
            while not self._over:
                frame = self._sandbox.stream_receive(limit - time.monotonic())
                if frame is not None:
                    self._take(*frame)
                elif time.monotonic() >= limit:
                    self._sandbox.close()
                    raise SandboxError(f"the supervisor did not end a program in {END_SECONDS:.0f} seconds")
        self.closed = True

    def __enter__(self) -> SandboxSpawn:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
