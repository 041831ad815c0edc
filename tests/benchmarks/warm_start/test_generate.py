from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.warm_start.episodes import demonstrations
from benchmarks.warm_start.generate import main


def test_it_writes_one_line_a_demonstration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "shown.jsonl"
    assert main(["--n", "30", "--seed", "0", "--out", str(out)]) == 0
    records = [json.loads(line) for line in out.read_text().splitlines()]
    assert records == [one.to_json() for one in demonstrations(30, seed=0)]
    assert set(records[0]) == {"task_id", "messages"}
    assert "30 demonstrations, sha256" in capsys.readouterr().out


def test_it_prints_statistics(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--n", "40", "--faultless", "--stats"]) == 0
    assert "all                 40  1.000" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["--n", "0", "--stats"], "1 or more"), (["--n", "5"], "nothing to do"), (["--out", "{there}"], "exists")],
)
def test_it_explains_wrong_arguments(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    there = tmp_path / "there.jsonl"
    there.write_text("kept\n")
    with pytest.raises(SystemExit) as stopped:
        main([argument.replace("{there}", str(there)) for argument in arguments])
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err
    assert there.read_text() == "kept\n"
