from __future__ import annotations

import pytest

from tasks.judges import JudgeUse, read_judge, worst

CHECK = "import json\nprint(json.dumps({}))\n"
IMPORTS = "import sys\nsys.path.insert(0, '.')\nimport prices\n"

IN_PROCESS = {
    "-c with an import": 'python3 -c "import prices; assert prices.total([]) == 0"',
    "with a path in front": "/usr/bin/python3.11 -B -c 'from prices import total'",
    "-c, isolated, that opens the path": "python3 -I -c \"import sys; sys.path.insert(0, '.'); import prices\"",
    "a module of the library, which the workspace may hide": "python3 -c 'import json; json.load(open(\"a.json\"))'",
    "-m of the library, likewise": "python3 -m json.tool report.json",
    "a here-document": "python3 - <<'EOF'\nimport prices\nEOF",
    "a here-document, no dash": "cd src && python3 <<EOF\nfrom prices import total\nEOF",
    "unittest": "python3 -m unittest",
    "unittest, isolated": "python3 -I -m unittest discover tests",
    "pytest": "python3 -m pytest -q",
    "doctest": "python3 -m doctest prices.py",
    "pytest over tests of the grader": 'pytest -q "$GRADER/test_prices.py"',
    "behind env and timeout": "env A=b timeout 5 python3 -c 'import prices'",
    "in a condition": "if python3 -c 'import prices'; then echo 1; else echo 0; fi",
    "in bash -c": "bash -c 'python3 -c \"import prices\"'",
    "text of a file in the code": 'python3 -I -c "print($(cat sum.txt))"',
    "a variable of unknown value in the code": 'n=$(cat sum.txt)\npython3 -I -c "assert $n == 3"',
    "source": "source lib.sh && total 1 2",
    "a dot": ". ./lib.sh",
    "source, in a substitution": 'test "$(. ./lib.sh; total 1 2)" = 3',
    "eval of a file": 'eval "$(cat vars.sh)"',
    "eval of a variable": 'x=$(head -1 a); eval "$x"',
    "a script of the grader that imports": 'python3 -I "$GRADER/imports.py"',
    "the same in its folder": 'cd "$GRADER" && python3 -I imports.py',
    "a bash script of the grader": 'bash "$GRADER/run.sh"',
    "a script of the grader, the path opened": 'PYTHONPATH=. python3 "$GRADER/plain.py"',
    "behind options with values": "nice -n 5 timeout -s KILL 10s python3 -c 'import prices'",
    "by a variable": "PY=python3; $PY -c 'import prices'",
    "by a variable with a default": "\"${PYTHON:-python3}\" -c 'import prices'",
    "behind a program that is not known": "uv run python -c 'import prices'",
    "a script that is asked twice": 'x=$(python3 "$GRADER/imports.py"); python3 "$GRADER/imports.py"',
    "node": "node -e \"const p = require('./prices.js'); process.exit(p.total() == 0 ? 0 : 1)\"",
    "perl": "perl -e 'require \"./prices.pl\"; exit(total() != 0)'",
}
STARTS = {
    "a program": "python3 calc.py 1 plus 2",
    "a module as a program": "python3 -m calc 1 plus 2",
    "a script": "./run.sh && bash run.sh",
    "make": "make test",
    "npm": "npm test",
    "pytest over the workspace": "pytest -q",
    "awk -f": "awk -f report.awk sales.csv",
    "sed -f": "sed -f edits.sed a.txt",
    "git": "git log --oneline",
    "find -exec": "find . -name '*.sh' -exec sh {} ';'",
    "xargs": "ls *.sh | xargs -n1 ./run",
    "what a program prints is compared": "test \"$(python3 -c 'import prices; print(prices.total([]))')\" = 0",
    "in backticks": "test \"`python3 -c 'import prices'`\" = 0",
    "into a pipe": "python3 -c 'import prices; print(prices.total([]))' | grep -qx 0",
    "in a process substitution": "diff <(python3 -c 'import prices') \"$GRADER/plain.py\"",
    "source in a child whose output is compared": "test \"$(bash -c '. ./lib.sh; total 1 2')\" = 3",
    "a script of the grader whose output is compared": 'test "$(python3 -I "$GRADER/imports.py")" = 3',
    "an interpreter that reads a file": "node app.js",
    "input of an interpreter": "cat a.py | python3",
}
NEITHER = {
    "tools": "sort a.txt | uniq -c | grep -q '3 apples' && test -f b.txt",
    "isolated": "python3 -I -c 'import json; json.load(open(\"a.json\"))'",
    "safe path": "python3 -P -m json.tool a.json",
    "what is loaded already": "python3 -c 'import os, sys; sys.exit(os.path.exists(\"a\"))'",
    "a script of the grader": 'python3 -I "$GRADER/check.py"',
    "its own text": "eval 'x=1'; trap 'rm -f a' EXIT",
    "a fixed variable in the code": 'for n in 1 2; do python3 -I -c "print($n)"; done',
    "its own file, sourced": '. "$GRADER/lib.sh"',
    "a comment": "# . ./lib.sh\ntrue",
    "a word": "echo 'source lib.sh; python3 -c \"import prices\"'",
    "bash -n": "bash -n run.sh",
    "looking for a program": "command -v python3 && type make",
    "a trap taken back": "trap - EXIT; trap '' INT",
    "case": 'case "$x" in python3) echo a ;; *) echo b ;; esac',
    "a function": 'f() { cat "$1"; }',
    "an array": "a=(./x ./y)",
    "arithmetic": "echo $((1 + (2 * 3)))",
    "node of its own": "node -e 'const fs = require(\"fs\"); process.exit(0)'",
}
FILES = {
    "check.py": CHECK,
    "imports.py": IMPORTS,
    "plain.py": "import prices\n",
    "run.sh": "set -e\npython3 -c 'import prices'\n",
    "lib.sh": "total() { echo 3; }\n",
    "test_prices.py": "from prices import total\n",
}


@pytest.mark.parametrize("command", IN_PROCESS.values(), ids=IN_PROCESS)
def test_what_runs_in_the_judge_is_found(command: str) -> None:
    assert worst(read_judge(command, _named(command))) is JudgeUse.IN_PROCESS


@pytest.mark.parametrize("command", STARTS.values(), ids=STARTS)
def test_a_program_that_is_started_is_no_more_than_that(command: str) -> None:
    assert worst(read_judge(command, _named(command))) is JudgeUse.STARTS


@pytest.mark.parametrize("command", NEITHER.values(), ids=NEITHER)
def test_what_only_looks_like_it_is_left_alone(command: str) -> None:
    assert read_judge(command, _named(command)) == ()


def test_a_safe_path_keeps_the_library_but_not_a_foreign_name() -> None:
    assert read_judge("python3 -c 'import json'", {}, safe_path=True) == ()
    assert read_judge("unset PYTHONSAFEPATH\npython3 -c 'import json'", {}, safe_path=True)
    assert read_judge("python3 -c 'import prices'", {}, safe_path=True)


def test_lines_are_those_of_the_text() -> None:
    command = "true\nif true; then\n  python3 - <<'EOF'\nimport sys\nimport prices\nEOF\nfi\n. ./lib.sh\n"
    assert [(f.file, f.line) for f in read_judge(command, {})] == [("command", 5), ("command", 8)]
    found = read_judge('bash "$GRADER/run.sh"', {"run.sh": FILES["run.sh"]})
    assert [(f.file, f.line) for f in found] == [("run.sh", 2)]


def test_files_that_no_command_names_are_read_all_the_same() -> None:
    found = read_judge('"$GRADER"/start', {"start": "#!/bin/sh\n. ./lib.sh\n"})
    assert [(f.file, f.line) for f in found] == [("start", 2)]
    assert worst(read_judge("$runner", {"imports.py": IMPORTS})) is JudgeUse.IN_PROCESS


@pytest.mark.parametrize(
    "command", ["'", '"$(', "cat <<EOF", "${", "((", "`", "a=(", "$'x", "<(", "case x in", "|", "\\"]
)
def test_text_that_bash_would_refuse_is_read_to_its_end(command: str) -> None:
    read_judge(command, {})


def _named(command: str) -> dict[str, str]:
    """The files that a command names; those that none names would all be read."""
    return {path: text for path, text in FILES.items() if "GRADER" in command and path in command}
