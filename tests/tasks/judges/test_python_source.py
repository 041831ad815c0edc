from __future__ import annotations

import pytest

from tasks.judges import Finding, JudgeUse
from tasks.judges.python import PythonText, Reach, read_python

IN_PROCESS = {
    "spec_from_file_location": (
        "import importlib.util as u\ns = u.spec_from_file_location('m', path)\ns.loader.exec_module(m)"
    ),
    "its path by keyword": "from importlib.util import spec_from_file_location as s\ns('m', location='prices.py')",
    "SourceFileLoader": "from importlib.machinery import SourceFileLoader\nSourceFileLoader('m', 'a.py').load_module()",
    "exec_module of unknown origin": "import importlib.util as u\nu.find_spec(name).loader.exec_module(m)",
    "import_module of a name that is not fixed": "import importlib, sys\nimportlib.import_module(sys.argv[1])",
    "import_module through a parameter": "import importlib\ndef load(n):\n    importlib.import_module(n)\nload(x)",
    "__import__": "__import__(input())",
    "exec of a file": "exec(open('prices.py').read())",
    "exec of a file, compiled": "text = open(p).read()\nexec(compile(text, p, 'exec'), {'__builtins__': {}})",
    "eval of a cell": "import csv\nfor row in csv.reader(open('a.csv')):\n    print(eval(row[0]))",
    "eval handed on": "list(map(eval, open('a.txt')))",
    "builtins.exec": "import builtins\nbuiltins.exec(text)",
    "runpy.run_path": "from runpy import run_path\nrun_path('config.py')",
    "runpy.run_module": "import runpy\nrunpy.run_module(name)",
    "sys.path, then an import": "import sys\nsys.path.insert(0, '.')\nimport prices",
    "sys.path, then import_module": "import importlib, sys\nsys.path.append(w)\nimportlib.import_module('app.prices')",
    "sys.path, changed by assignment": "import sys\nsys.path = ['src', *sys.path]\nfrom prices import total",
    "sys.path, added to": "import sys\nsys.path += ['src']\nfrom prices import total",
    "sys.path in a function, the import in another": (
        "import sys\ndef a():\n    import prices\ndef b():\n    sys.path.insert(0, w)\n"
    ),
    "sys.path, a module that the grader has too": "import sys\nsys.path.insert(0, '.')\nimport helper",
    "one folder too high": (
        "import sys\nfrom pathlib import Path\nsys.path.insert(0, str(Path(__file__).parent.parent))\nimport prices"
    ),
    "pickle": "import pickle\npickle.load(open('model.pkl', 'rb'))",
    "marshal": "import marshal\nmarshal.loads(data)",
    "shelve": "import shelve\nshelve.open('cache')",
    "torch": "import torch\ntorch.load('model.pt')",
    "joblib": "from joblib import load\nload('model.joblib')",
    "numpy, with pickles": "import numpy as np\nnp.load('a.npy', allow_pickle=True)",
    "yaml, no loader": "import yaml\nyaml.load(text)",
    "yaml, unsafe loader": "import yaml\nyaml.load(text, Loader=yaml.UnsafeLoader)",
    "yaml.unsafe_load": "from yaml import unsafe_load\nunsafe_load(text)",
    "a library of the workspace": "import ctypes\nctypes.CDLL('./lib.so')",
    "pytest.main": "import pytest\npytest.main(['tests'])",
    "discover": "import unittest\nunittest.defaultTestLoader.discover('tests')",
    "discover of a loader with a name": "import unittest\nl = unittest.TestLoader()\nl.discover('tests')",
    "what cannot be read": "exec(",
}
STARTS = {
    "subprocess.run": "import subprocess, sys\nsubprocess.run([sys.executable, 'prices.py'])",
    "an import in the code of a child": (
        "import subprocess, sys\n"
        'code = \'import sys; sys.path.insert(0, "."); import prices; exec(open("a.py").read())\'\n'
        "subprocess.run([sys.executable, '-c', code])"
    ),
    "Popen": "from subprocess import Popen\nPopen(['./run.sh'])",
    "os.system": "import os\nos.system('make')",
    "pytest as a child": "import subprocess\nsubprocess.run(['pytest', '-q'])",
    "git, which has hooks": "import subprocess\nsubprocess.check_output(['git', 'status'])",
    "a tool by a name that is not fixed": "import subprocess\nsubprocess.run(cmd)",
    "os.exec": "import os\nos.execvp('./a', ['./a'])",
    "os.spawn, by name": "from os import spawnl\nspawnl(0, './a')",
    "pty": "import pty\npty.spawn('./a')",
    "asyncio": "import asyncio\nasyncio.create_subprocess_exec('./a')",
    "handed on": "import subprocess\nrun = subprocess.run",
}
NEITHER = {
    "reading": "import json\nprint(json.load(open('a.json')))",
    "compile alone": "compile(open('prices.py').read(), 'prices.py', 'exec')",
    "ast": "import ast\nast.literal_eval(open('a.txt').read())\nast.parse(text)",
    "re.compile": "import re\nre.compile(pattern)",
    "the word in a text": "found = 'eval(' in text or 'pickle.load(' in text or 'import_module' in text",
    "a fixed name": "import importlib\nimportlib.import_module('json')",
    "fixed names through a parameter": (
        "import importlib\ndef load(name):\n    return importlib.import_module(name)\n"
        "for n in ['json', 'csv']:\n    load(n)"
    ),
    "fixed text": "exec('x = 1')\nTEXT = 'a = ' + '2'\nexec(TEXT)",
    "a function of its own called eval": "def eval(row):\n    return row\neval(rows)",
    "a method called exec": "cursor.exec(sql)\ncursor.eval(sql)",
    "a folder of its own": (
        "import sys\nfrom pathlib import Path\nsys.path.insert(0, str(Path(__file__).resolve().parent))\nimport helper"
    ),
    "the same with os.path": (
        "import os, sys\nHERE = os.path.dirname(os.path.abspath(__file__))\nsys.path.append(HERE)\nimport helper"
    ),
    "a folder named by $GRADER": "import os, sys\nsys.path.insert(0, os.environ['GRADER'])\nimport helper",
    "a file of its own": "from pathlib import Path\nexec((Path(__file__).parent / 'helper.py').read_text())",
    "a package that is installed": "import yaml\nyaml.safe_load(text)\nyaml.load(text, Loader=yaml.SafeLoader)",
    "an import in front of sys.path": "import yaml\nimport sys\nsys.path.insert(0, '.')\nimport json",
    "weights only": "import torch\ntorch.load('model.pt', weights_only=True)",
    "numpy, no pickles": "import numpy\nnumpy.load('a.npy')",
    "a library of the system": "import ctypes\nctypes.CDLL('libc.so.6')",
    "a tool that only reads": "import subprocess\nsubprocess.run(['cat', path])\nsubprocess.run('ls -l', shell=True)",
    "its own tests": "import unittest\nunittest.main()",
}


def read(source: str, reach: Reach = Reach.NONE) -> list[Finding]:
    files = {"check.py": source, "helper.py": "TABLE = {1: 2}\n"}
    return read_python(PythonText(source, "check.py", files, reach))


def uses(findings: list[Finding]) -> set[JudgeUse]:
    return {finding.use for finding in findings}


@pytest.mark.parametrize("source", IN_PROCESS.values(), ids=IN_PROCESS)
def test_what_runs_in_the_judge_is_found(source: str) -> None:
    assert uses(read(source)) == {JudgeUse.IN_PROCESS}


@pytest.mark.parametrize("source", STARTS.values(), ids=STARTS)
def test_a_program_that_is_started_is_no_more_than_that(source: str) -> None:
    assert uses(read(source)) == {JudgeUse.STARTS}


@pytest.mark.parametrize("source", [*IN_PROCESS.values(), *STARTS.values()])
def test_a_file_that_stands_alone_is_parsed_where_there_is_something_to_find(source: str) -> None:
    if source != IN_PROCESS["what cannot be read"]:
        assert uses(read_python(PythonText(source, "check.py", {"check.py": source}))) == uses(read(source))


@pytest.mark.parametrize("source", NEITHER.values(), ids=NEITHER)
def test_what_only_looks_like_it_is_left_alone(source: str) -> None:
    assert read(source) == []


@pytest.mark.parametrize(
    ("source", "reach", "found"),
    [
        ("import prices", Reach.ALL, True),
        ("import prices", Reach.FOREIGN, True),
        ("import prices", Reach.NONE, False),
        ("import json", Reach.ALL, True),  # json.py of the workspace
        ("import json", Reach.FOREIGN, False),
        ("import os, sys", Reach.ALL, False),  # loaded before the workspace is on the path
        ("from . import x", Reach.ALL, False),
    ],
)
def test_a_plain_import_counts_where_the_workspace_is_on_the_path(source: str, reach: Reach, found: bool) -> None:
    assert bool(read(source, reach)) is found


def test_a_finding_says_file_line_and_construct() -> None:
    (finding,) = read("import runpy\n\nrunpy.run_path(str(path))\n")
    assert str(finding) == "check.py:3: runpy.run_path(str(path)) runs a file in the judge"


def test_modules_of_the_grader_are_read_too() -> None:
    files = {"check.py": "import helper\n", "helper.py": "import other\n", "other.py": "exec(text)\n"}
    (finding,) = read_python(PythonText(files["check.py"], "check.py", files))
    assert (finding.file, finding.line) == ("other.py", 1)


@pytest.mark.parametrize("first", ["check.py", "helper.py"])
def test_a_path_that_one_file_opens_serves_the_others(first: str) -> None:
    opens, imports = "import sys\nsys.path.insert(0, '.')\n", "import prices\n"
    parts = {"check.py": "import helper\n", "helper.py": ""}
    files = {path: part + (opens if path == first else imports) for path, part in parts.items()}
    assert uses(read_python(PythonText(files["check.py"], "check.py", files))) == {JudgeUse.IN_PROCESS}
    files[first] = parts[first]
    assert read_python(PythonText(files["check.py"], "check.py", files)) == []


def test_a_file_of_the_grader_that_is_only_started_is_no_judge() -> None:
    check = "import subprocess, sys\nsubprocess.run([sys.executable, '-I', 'helper.py'])\n"
    files = {"check.py": check, "helper.py": "import sys\nsys.path.insert(0, '.')\nimport prices\n"}
    assert uses(read_python(PythonText(check, "check.py", files))) == {JudgeUse.STARTS}


def test_names_that_are_made_of_one_another_end() -> None:
    source = "".join(f"a{i} = a{(i + 1) % 30} / a{(i + 7) % 30}\n" for i in range(30))
    assert uses(read(f"{source}exec(a0)\nimport sys\nsys.path.insert(0, a1)\nimport prices")) == {JudgeUse.IN_PROCESS}
