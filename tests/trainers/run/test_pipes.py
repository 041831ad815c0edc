"""A reader that goes away ends nothing: neither a print, nor the console of a training."""

from __future__ import annotations

import os

from rich.console import Console

from trainers.run.pipes import Forgiving


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
