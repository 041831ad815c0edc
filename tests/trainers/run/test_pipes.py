"""A reader that goes away ends nothing: neither a print, nor the console of a training."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from tests.shared_data import REPOSITORY
from trainers.run.pipes import Forgiving, start


def test_what_nobody_reads_is_dropped_without_an_error():
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "w", encoding="utf-8") as stream:
        out = Forgiving(stream)
        print("first line", file=out, flush=True)
        Console(file=out).print("a rich console leaves the program at a broken pipe")  # type: ignore[arg-type]
        assert out.write("as many characters") == 18
        assert not out.isatty() and out.encoding == "utf-8"


def test_what_somebody_reads_arrives():
    reader, writer = os.pipe()
    with open(writer, "w", encoding="utf-8") as stream:
        print("first line", file=Forgiving(stream))
    with open(reader, encoding="utf-8") as told:
        assert told.read() == "first line\n"


@pytest.mark.parametrize(
    ("source", "code", "said"),
    [
        ("raise KeyboardInterrupt", 130, "interrupted\n"),
        (
            "raise ModuleNotFoundError(name='torch.nn')",
            2,
            'command: this needs torch, which is not installed. Remedy: pip install "turngym[train]"\n',
        ),
        ("def main(): return 7", 7, ""),
    ],
    ids=["Ctrl-C", "a package of the extra", "nothing"],
)
def test_what_stops_the_imports_of_a_command_is_one_line(tmp_path: Path, source: str, code: int, said: str) -> None:
    begin = "from trainers.run.pipes import start\nif __name__ == '__main__': start('command')\n"
    (tmp_path / "command.py").write_text(f"{begin}{source}\n")
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{REPOSITORY}"}
    done = subprocess.run(
        [sys.executable, "-m", "command"], env=environment, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (code, said)


def test_a_package_that_no_extra_brings_keeps_its_traceback(tmp_path: Path) -> None:
    (tmp_path / "command.py").write_text("from trainers.run.pipes import start\nstart(lambda: __import__('nowhere'))\n")
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{REPOSITORY}"}
    done = subprocess.run(
        [sys.executable, "-m", "command"], env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1 and "No module named 'nowhere'" in done.stderr


def test_a_folder_that_may_not_be_read_is_one_line(capsys):
    def main() -> int:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), "runs/closed")

    out, err = sys.stdout, sys.stderr
    try:
        with pytest.raises(SystemExit) as end:
            start(main)
    finally:
        sys.stdout, sys.stderr = out, err
    said = capsys.readouterr().err
    assert end.value.code == 2 and said.endswith(": runs/closed: Permission denied: check its permissions\n")
    assert said.count("\n") == 1
