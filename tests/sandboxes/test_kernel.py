from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import pytest

from sandboxes.inside import kernel


def test_filters_fit_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for machine in ("x86_64", "aarch64"):
        monkeypatch.setattr("os.uname", lambda machine=machine: SimpleNamespace(machine=machine))
        small, large = kernel.filter_program(False), kernel.filter_program(True)
        assert small is not None
        assert large is not None
        assert len(small) % 8 == 0
        assert len(small) < len(large) < 8 * 4096
    monkeypatch.setattr("os.uname", lambda: SimpleNamespace(machine="m68k"))
    assert kernel.filter_program(True) is None


_TRIES = """
import ctypes, errno, os, sys
from sandboxes.inside import kernel
kernel.enter_filter(kernel.filter_program(sys.argv[1] == "sockets"))
libc, number = ctypes.CDLL(None, use_errno=True), kernel._CLONE[kernel.architecture()[1]]
def tried(*words):
    pid = libc.syscall(*words)
    if pid == 0: os._exit(0)
    return os.waitpid(pid, 0)[1] if pid > 0 else errno.errorcode[ctypes.get_errno()]
print(tried(number, 0x10000000 | 17, 0, 0, 0, 0), tried(number, 17, 0, 0, 0, 0), tried(435, 0, 0),
      libc.unshare(0x10000000), os.system("true"))
"""


@pytest.mark.skipif(kernel.architecture() is None, reason="no filter for this machine")
@pytest.mark.parametrize("kind", ["namespaces", "sockets"])
def test_no_namespace_is_made_and_programs_start(kind: str) -> None:
    done = subprocess.run([sys.executable, "-c", _TRIES, kind], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["EPERM", "0", "ENOSYS", "-1", "0"]


def test_call_numbers_are_not_used_twice() -> None:
    for column in (0, 1):
        numbers = [row[column] for row in kernel._DENIED.values()] + [kernel._CLONE[column], kernel._CLONE3]
        numbers += [row[column] for row in kernel._ONLY_SELF.values()]
        assert len(set(numbers)) == len(numbers)


def test_errors_name_the_call() -> None:
    with pytest.raises(kernel.KernelError, match="prctl"):
        kernel.prctl(999_999)
