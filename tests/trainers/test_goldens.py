"""What stays as it is while code moves: eight runs, all flags, keys of all files, imports that the manual shows.

A change that means to change one of these writes them anew, and the diff shows what it changed:

    .venv/bin/python -m tests.trainers.test_goldens
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import importlib.util
import json
import platform
import re
import signal
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from sandboxes import probe
from tests.trainers.runs import Moment, start

HERE = Path(__file__).parent / "goldens"
ROOT = Path(__file__).parents[2]
SANDBOX = next((name for name in ("bubblewrap", "landlock") if probe(name).ok), None)
pytestmark = [pytest.mark.timeout(600), pytest.mark.xdist_group("fork server")]

SHELL = [
    "--use_cpu", "true", "--tasks", "generated:quickstart?n=24&seed=5", "--held_out", "generated:quickstart?n=6&seed=6",
    "--per_device_train_batch_size", "8", "--num_generations", "4", "--slots", "8", "--learning_rate", "3e-4",
    "--warmup_steps", "0", "--max_steps", "3", "--eval_steps", "2", "--save_steps", "2", "--seed", "0",
    "--torch_threads", "1",
]  # fmt: skip
QUESTIONS = [
    *SHELL, "--env", "GSM8K-v0", "--tasks", "gsm8k:sample?limit=16", "--held_out", "split", "--tools", "false",
    "--prompt_style", "compact", "--max_turn_tokens", "24",
]  # fmt: skip
RUNS: dict[str, list[str]] = {
    "quickstart": SHELL,
    "t2po": [
        *SHELL, "--turn_resample", "true", "--turn_resample_warmup", "8", "--turn_resample_eta", "0.3",
        "--think_evaluate", "false",
    ],
    "gtpo_sepa": [*SHELL, "--token_operators", "sepa,gtpo", "--scale_rewards", "group"],
    "delight": [*SHELL, "--token_operators", "delight", "--beta", "0.02"],
    "maxrl_entropy": [
        *SHELL, "--episode_operator", "maxrl", "--reward", "binary", "--token_operators", "entropy_mask",
        "--turn_grouping", "none", "--beta_turn", "0",
    ],
    "gsm8k": QUESTIONS,
    "lora": [*SHELL, "--adapter", "lora", "--lora_r", "4", "--learning_rate", "1e-3", "--num_iterations", "2"],
}  # fmt: skip
KILLED = "kill_and_resume"
"""The eighth: the first one, killed while it writes its checkpoint, and gone on with."""

CLOCKS = re.compile(r"seconds|_s$|/s$|wall|time|per_second|memory|_mb$|eta$|runtime|flos|rss|cpu")
"""Names of figures that depend on the machine."""


def machine() -> str:
    """What floating-point results depend on: kernels are chosen by the processor, of one capability, too."""
    try:
        said = Path("/proc/cpuinfo").read_text(encoding="utf-8").partition("\n\n")[0]
    except OSError:
        said = platform.processor()
    cpu = dict(re.findall(r"^(\w[\w ]*?)\s*: (.*)$", said, re.MULTILINE))
    name = "-".join(cpu.get(key, "?") for key in ("vendor_id", "cpu family", "model", "stepping"))
    flags = hashlib.sha256(cpu.get("flags", said).encode()).hexdigest()[:8]
    return f"torch {torch.__version__}, {torch.backends.cpu.get_cpu_capability()}, {name}, flags {flags}"


def _run(args: list[str], folder: Path, moment: Moment | None = None) -> int:
    log = folder.with_name(f"{folder.name}.log")
    process = start([*args, "--output_dir", str(folder)], folder, log, moment)
    process.join()
    assert process.exitcode in (0, -signal.SIGKILL), log.read_text()
    return int(process.exitcode)


def play(name: str, folder: Path) -> dict[str, Any]:
    """Run one of the eight and return what it left, without clocks."""
    if name == KILLED:
        args = [*RUNS["quickstart"], "--resume"]
        assert _run(args, folder, Moment("saving|checkpoint", 3)) == -signal.SIGKILL
        assert _run(args, folder) == 0
    else:
        assert _run(RUNS[name], folder) == 0
    return left_by(folder)


def left_by(folder: Path) -> dict[str, Any]:
    """Weights and sampled ids as hashes, metrics as they are, without clocks."""
    weights = {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()[:16]
        for path in sorted(folder.rglob("*.safetensors"))
    }
    sampled = hashlib.sha256()
    for path in sorted([*folder.glob("trajectories/*"), *folder.glob("held_out/*")]):
        for line in path.read_text().splitlines():
            episode = json.loads(line)
            ids = [turn["ids"] for turn in episode["turns"]]
            sampled.update(json.dumps([path.name, episode["task_id"], episode["reward"], ids]).encode())
    with open(folder / "steps.csv") as file:
        steps = [{key: value for key, value in row.items() if not CLOCKS.search(key)} for row in csv.DictReader(file)]
    metrics = [
        {key: value for key, value in json.loads(line).items() if not CLOCKS.search(key)}
        for line in (folder / "metrics.jsonl").read_text().splitlines()
    ]
    keys = hashlib.sha256(json.dumps(keys_of(folder), sort_keys=True).encode()).hexdigest()[:16]
    return {"weights": weights, "sampled": sampled.hexdigest()[:16], "keys": keys, "steps": steps, "metrics": metrics}


def keys_of(folder: Path) -> dict[str, list[str]]:
    """The keys of every JSON and JSON-lines file of a run folder, checkpoints apart, `[]` for the items of a list."""
    found: dict[str, set[str]] = {}
    for path in sorted([*folder.rglob("*.json"), *folder.rglob("*.jsonl")]):
        name = re.sub(r"\d+", "N", str(path.relative_to(folder)))
        if re.match(r"(checkpoint-N|best)/(?!turngym|BEST)", name):
            continue  # what other libraries write
        lines = [path.read_text()] if path.suffix == ".json" else path.read_text().splitlines()
        for line in lines:
            found.setdefault(name, set()).update(_keys(json.loads(line)))
    return {name: sorted(keys) for name, keys in found.items()}


def _keys(value: Any, prefix: str = "") -> Iterator[str]:
    if isinstance(value, dict):
        for key, item in value.items():
            name = re.sub(r"[0-9a-f]{8,}|\d+", "N", key)
            yield f"{prefix}{name}"
            yield from _keys(item, f"{prefix}{name}.")
    elif isinstance(value, list):
        for item in value:
            yield from _keys(item, f"{prefix}[].")


def _union(files: Iterable[dict[str, list[str]]]) -> dict[str, list[str]]:
    every: dict[str, set[str]] = {}
    for found in files:
        for name, keys in found.items():
            every.setdefault(name, set()).update(keys)
    return {name: sorted(keys) for name, keys in every.items()}


class _Parser(BaseException):
    """Carries the parser of a command out of it."""


COMMANDS = (
    "trainers.grpo", "trainers.evaluate", "trainers.sft", "trainers.report", "trainers.campaign", "tasks.__main__",
    "envs.__main__", "agents.__main__", "sandboxes.__main__",
)  # fmt: skip


def flags() -> dict[str, dict[str, str]]:
    """All options of all commands, with their defaults."""
    return {module.removesuffix(".__main__"): dict(_options(_parser_of(module))) for module in COMMANDS}


def _parser_of(module: str) -> argparse.ArgumentParser:
    def caught(self: argparse.ArgumentParser, *args: Any, **kwargs: Any) -> Any:
        raise _Parser(self)

    command = importlib.import_module(module)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(argparse.ArgumentParser, "parse_known_args", caught)
        try:
            (getattr(command, "main", None) or command.run)([])
        except _Parser as parser:
            return parser.args[0]  # type: ignore[no-any-return]
    raise AssertionError(f"{module} parses no options")


def _options(parser: argparse.ArgumentParser, command: str = "") -> Iterator[tuple[str, str]]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, sub in action.choices.items():
                yield from _options(sub, f"{command}{name} ")
        elif not isinstance(action, argparse._HelpAction):
            name = max(action.option_strings, key=len, default=action.dest)
            yield f"{command}{name}", repr(action.default)


def shown_imports() -> list[str]:
    """Every import of ours in a code block of README or docs, as `module` or `module:name`."""
    found: set[str] = set()
    ours = r"(?:trainers|agents|envs|tasks|sandboxes)"
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        text = page.read_text(encoding="utf-8")
        for module, names in re.findall(rf"^\s*(?:>>> )?from ({ours}[\w.]*) import \(?([\w, ]+)", text, re.MULTILINE):
            found.update(f"{module}:{name.split(' as ')[0].strip()}" for name in names.split(",") if name.strip())
        found.update(re.findall(rf"^\s*(?:>>> )?import ({ours}[\w.]*)", text, re.MULTILINE))
        found.update(re.findall(rf"python3? -m ({ours}(?:\.\w+)*)", text))
    return sorted(found)


def golden(name: str) -> Any:
    return json.loads((HERE / f"{name}.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    base = tmp_path_factory.mktemp("goldens")
    return {name: base / name for name in (*RUNS, KILLED)}


@pytest.mark.skipif(SANDBOX is None, reason="no sandbox backend works on this machine")
@pytest.mark.parametrize("name", [*RUNS, KILLED])
def test_a_run_leaves_what_it_left(name: str, folders: dict[str, Path]) -> None:
    wanted, found = golden("runs"), play(name, folders[name])
    known = golden("keys")
    for file, keys in keys_of(folders[name]).items():
        assert set(keys) <= set(known.get(file, ())), file
    assert found["keys"] == wanted[name]["keys"], "a file lacks a key that it had"
    assert [sorted(row) for row in found["metrics"]] == [sorted(row) for row in wanted[name]["metrics"]]
    assert sorted(found["weights"]) == sorted(wanted[name]["weights"])
    if wanted["machine"] != machine():
        pytest.skip(f"figures are those of {wanted['machine']}, this is {machine()}: only the names were compared")
    assert found == wanted[name]


def test_all_flags_and_their_defaults() -> None:
    assert flags() == golden("flags")


def test_every_import_that_was_ever_shown_works() -> None:
    known = golden("imports")
    assert set(shown_imports()) <= set(known), "shown, and not among those that are kept"
    for entry in known:
        module, _, name = entry.partition(":")
        assert not name or hasattr(importlib.import_module(module), name), entry
        assert name or importlib.util.find_spec(module) is not None, entry


def _write(name: str, make: Callable[[], Any]) -> None:
    HERE.mkdir(exist_ok=True)
    text = json.dumps(make(), indent=1, sort_keys=True, ensure_ascii=False)
    (HERE / f"{name}.json").write_text(text + "\n", encoding="utf-8")


def main() -> int:
    """Write the goldens anew; imports that were shown before are kept."""
    with tempfile.TemporaryDirectory() as base:
        folders = {name: Path(base) / name for name in (*RUNS, KILLED)}
        runs = {name: play(name, folder) for name, folder in folders.items()}
        _write("runs", lambda: {"machine": machine(), **runs})
        _write("keys", lambda: _union(keys_of(folder) for folder in folders.values()))
    _write("flags", flags)
    before = golden("imports") if (HERE / "imports.json").exists() else []
    _write("imports", lambda: sorted({*before, *shown_imports()}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
