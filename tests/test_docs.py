"""What documents and help texts say of the code is what the code has: files, commands, choices, engines."""

from __future__ import annotations

import argparse
import re
import shlex
from fnmatch import fnmatch
from pathlib import Path

import pytest

from agents.models.card import CARD_FILE, MANIFEST
from agents.policies.opening import EXAMPLES
from sandboxes.sandbox import Backend
from tasks.__main__ import run as tasks_command
from tests.shared_data import REPOSITORY
from tests.trainers.test_goldens import COMMANDS
from tests.trainers.test_goldens import _parser_of as parser_of
from trainers import grpo
from trainers.checkpoint import BEST_FILE, STATE_FILE
from trainers.run import record
from trainers.run.folder import LOCK
from trainers.settings.parsing import GROUPS, known_settings

EVENTS = "runs"
"""Where the TensorBoard callback of transformers puts its event files, in the output folder."""
DOCS = REPOSITORY / "docs"
PAGES = {path.name: path.read_text(encoding="utf-8") for path in [REPOSITORY / "README.md", *DOCS.glob("*.md")]}


def table_under(page: str, heading: str) -> list[str]:
    """The first cells of the table under a heading."""
    part = re.split(r"^#+ ", PAGES[page].split(f"\n{heading}\n", 1)[1], maxsplit=1, flags=re.MULTILINE)[0]
    return [line.split("|")[1] for line in part.splitlines() if line.startswith("|")][2:]


def documented_files() -> set[str]:
    """Patterns of the names that the table of a run folder has."""
    names = re.findall(r"`([^`]+)`", " ".join(table_under("trainers.md", "## The run folder")))
    return {name.rstrip("/").replace("checkpoint-N", "checkpoint-*") for name in names}


def undocumented(folder: Path) -> set[str]:
    """What stands in a run folder, or is ours in its folders of weights, and is in no row of the table."""
    found = {path.name for path in folder.iterdir()}
    found |= {path.name for path in folder.glob("*/turngym*")}
    return {name for name in found if not any(fnmatch(name, pattern) for pattern in documented_files())} - {STATE_FILE}


def test_every_file_that_a_run_can_write_is_in_the_table_of_its_folder() -> None:
    """A real run is held to the same table in trainers/test_grpo.py."""
    texts = {key: name for key, name in vars(record).items() if key.isupper() and isinstance(name, str)}
    ours = {name for name in texts.values() if re.fullmatch(r"[\w.]+", name)}
    # A metric, how files of episodes begin, an arm, a key.
    ours -= {record.TRAINED, record.CONFIRMED, record.POOL, record.IMAGES}
    ours |= {MANIFEST, CARD_FILE, LOCK, "best", "last", EVENTS}
    assert ours <= documented_files()
    assert f"`{BEST_FILE}`" in PAGES["trainers.md"] and f"`{STATE_FILE}`" in PAGES["trainers.md"]


def test_a_file_without_a_row_is_found(tmp_path: Path) -> None:
    (tmp_path / "best").mkdir()
    for name in ("metrics.jsonl", "new.jsonl", "best/turngym_new.json", "best/turngym.json", "best/model.safetensors"):
        (tmp_path / name).touch()
    assert undocumented(tmp_path) == {"new.jsonl", "turngym_new.json"}


def commands() -> set[str]:
    """Every command line that there is: a module that can be run, with each of its subcommands."""
    found = set()
    for path in sorted((REPOSITORY / "trainers").glob("*.py")):  # makers of the shipped policy: quickstart.md has them
        if path.name != "__main__.py" and '__name__ == "__main__"' in path.read_text(encoding="utf-8"):
            found.add(".".join(path.relative_to(REPOSITORY).with_suffix("").parts))
    for name in ("tasks", "envs", "agents", "sandboxes"):
        sub = next(a for a in parser_of(f"{name}.__main__")._actions if isinstance(a, argparse._SubParsersAction))
        found |= {f"{name} {command}" for command in sub.choices}
    return found


def test_every_command_is_in_the_table_of_commands() -> None:
    rows = [re.findall(r"`([^`]+)`", cell) for cell in table_under("index.md", "## Commands")]
    told = set()
    for first, *more in rows:
        module, _, command = first.removeprefix("python -m ").partition(" ")
        told |= {" ".join([module, command]).strip(), *(f"{module} {name}" for name in more)}
    assert told == commands()


def test_the_table_of_task_commands_has_every_option() -> None:
    sub = next(a for a in parser_of("tasks.__main__")._actions if isinstance(a, argparse._SubParsersAction))
    told = {}
    for cell in table_under("tasks.md", "## Command line"):
        for name, rest in re.findall(r"`python -m tasks (\w+)(.*?)`", cell):
            told[name] = set(re.findall(r"(?<![\w-])--?[a-z][a-z_-]*", rest))
    for name, parser in sub.choices.items():
        assert told[name] == {o for a in parser._actions for o in a.option_strings} - {"-h", "--help"}, name


FORMS = {"guards", "planning", "sampler"}
"""Settings whose help shows forms, with a part that is free."""
THEIRS = {"lr_scheduler_type", "eval_strategy", "save_strategy"}
"""Enumerations of transformers, of which our help names those that are of use here."""


def settings_with_choices() -> list[tuple[str, str]]:
    texts = {
        name: f.metadata.get("help") or "" for name, f in known_settings(GROUPS).items() if isinstance(f.default, str)
    }
    return [(name, text) for name, text in texts.items() if " | " in text and name not in FORMS | THEIRS]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "text"), settings_with_choices(), ids=lambda value: value.split()[0])
def test_help_names_the_choices_that_the_code_has(
    name: str, text: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The code says them when it refuses another word."""
    few = ["--output_dir", str(tmp_path / "run"), "--tasks", "generated:quickstart?n=8&seed=1", "--held_out", "none"]
    assert grpo.main(["--dry-run", "--use_cpu", "true", *few, f"--{name}", "no_such_word"]) == 2
    refused = capsys.readouterr().err
    choices = re.search(rf"{name.replace('_', '.')}[= ].*?(?:one of|now:|\(valid:) ([^.;)\n]*)", refused)
    assert choices is not None, refused
    plain = re.sub(r"\([^)]*\)", "", text)
    known_words = set(re.findall(r"[\w:-]+", choices[1]))
    assert known_words - {"or", "and"} <= set(re.findall(r"[\w:-]+", plain))
    assert {part.split()[0].strip(".,;") for part in plain.split(" | ")[1:]} <= known_words | {
        "auto",
        "base",
        "one",
    }  # base: not in a shell; one of your own


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_for_a_sandbox_names_every_backend(command: str) -> None:
    parsers = [parser_of(command)]
    while parsers:
        parser = parsers.pop()
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                parsers += action.choices.values()
            elif action.dest in ("sandbox", "backend"):
                said = f"{action.help} {' '.join(action.choices or ())}"
                assert [name for name in Backend if name not in said] == [], parser.prog


def test_no_page_says_that_an_engine_is_missing_which_is_there() -> None:
    for name, page in PAGES.items():
        for sentence in re.split(r"(?<=[.:;])\s|\n\|", page):
            if re.search(r"\b(?:no|not)\b[^.;]*\byet\b", sentence):
                assert not re.search(r"vllm|openai|backend|trainer|docker", sentence, re.IGNORECASE), (
                    f"{name}: {sentence}"
                )
    assert all(f"{prefix}:" in PAGES["README.md"] for prefix in EXAMPLES)


def test_splits_of_hand_written_tasks_in_the_docs_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "my_tasks"
    folder.mkdir()
    for name in ("apple", "pear", "plum", "fig"):
        text = (
            f"schema_version: 1\nid: {name}\nintent: make {name}\nassertions: [{{kind: file_exists, path: {name}}}]\n"
        )
        (folder / f"{name}.yaml").write_text(text)
    monkeypatch.chdir(tmp_path)
    lines = {line for page in PAGES.values() for line in re.findall(r"python -m tasks (split my_tasks[^\n#`]*)", page)}
    assert lines
    for line in lines:
        assert tasks_command(shlex.split(line)) == 0, f"{line}: {capsys.readouterr().err}"
        Path("my.lock").unlink(missing_ok=True)


def test_trackers_are_documented() -> None:
    assert "report_to" in PAGES["trainers.md"] and "$TENSORBOARD_LOGGING_DIR" in PAGES["trainers.md"]
    assert all(f"`{name}`" in PAGES["trackers.md"] for name in ("tensorboard", "trackio", "wandb"))


def test_paths_that_the_manual_names_are_there() -> None:
    """A file or folder of the repository in backticks. Patterns, and what a reader is to make, are none."""
    pages = [*sorted((REPOSITORY / "docs").glob("*.md")), *(REPOSITORY / f"{n}.md" for n in ("CONTRIBUTING", "AGENTS"))]
    top = "sandboxes|tasks|envs|agents|trainers|tests|benchmarks"
    named = {
        (page.name, path)
        for page in pages
        for path in re.findall(rf"`((?:{top})/[\w/.-]*)`", page.read_text(encoding="utf-8"))
        if "NAME" not in path
    }
    assert len(named) > 50
    assert sorted(f"{page}: {path}" for page, path in named if not (REPOSITORY / path).exists()) == []
