from __future__ import annotations

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


def test_call_numbers_are_not_used_twice() -> None:
    for column in (0, 1):
        numbers = [row[column] for row in kernel._DENIED.values()] + [row[column] for row in kernel._ONLY_SELF.values()]
        assert len(set(numbers)) == len(numbers)


def test_errors_name_the_call() -> None:
    with pytest.raises(kernel.KernelError, match="prctl"):
        kernel.prctl(999_999)
