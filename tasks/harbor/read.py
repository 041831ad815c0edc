"""Harbor task folders as tasks of ours: `harbor:PATH?ids=A,B&unfit=skip`."""

from __future__ import annotations

import posixpath
import re
import shlex
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sandboxes.sandbox import EntryKind, FileEntry
from tasks.document import Document
from tasks.harbor import CONFIG, SCHEME, TEMPLATES
from tasks.harbor.dockerfile import DOCKERFILE, Built, Tree, read_dockerfile, read_tree
from tasks.judged_in import Where
from tasks.model import Problem, TaskError, collected, listed, path_and_query
from tasks.task import Difficulty, Task
from tasks.workspace import spelt_content, spelt_out
from tasks.yaml import explain

# -- task.toml: the keys that we read; a key that Harbor does not know either is passed over ---------------------------


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class _Phase(_Table):
    timeout_sec: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    env: dict[str, str] = Field(default_factory=dict)
    collect: list[Any] = Field(default_factory=list)
    environment: dict[str, Any] | None = None
    environment_mode: Literal["shared", "separate"] | None = None


class _Environment(_Table):
    docker_image: str | None = None
    os: str = "linux"
    memory_mb: int | None = None
    gpus: int | None = None
    tpu: Any = None
    mcp_servers: list[Any] = Field(default_factory=list)
    env: dict[str, str] = Field(default_factory=dict)
    healthcheck: Any = None
    workdir: str | None = None


class Config(_Table):
    """What `task.toml` says, as far as it is used here."""

    metadata: dict[str, Any] = Field(default_factory=dict)
    verifier: _Phase = Field(default_factory=_Phase)
    agent: _Phase = Field(default_factory=_Phase)
    environment: _Environment = Field(default_factory=_Environment)
    solution: _Phase = Field(default_factory=_Phase)
    steps: list[Any] | None = None
    artifacts: list[str | dict[str, Any]] = Field(default_factory=list)


def read_config(tree: Tree) -> Config:
    """Read the `task.toml` of a folder.

    Raises:
        TaskError: It is no TOML, or a key that we use has a wrong value.
    """
    try:
        data = tomllib.loads(tree.text(CONFIG))
    except tomllib.TOMLDecodeError as error:
        raise TaskError(Problem(f"is no TOML: {error}", tree.place(CONFIG))) from error
    try:
        return Config.model_validate(data)
    except ValidationError as error:
        found = explain(error, Document(tree.place(CONFIG), data))
        raise TaskError(*(_in_config(tree, problem.key, problem.message) for problem in found)) from error


def _in_config(tree: Tree, key: str, message: str) -> Problem:
    """A problem of a key of task.toml, with the line of the key as far as it can be told."""
    last = re.escape(re.sub(r"\[\d+\]$", "", key).rpartition(".")[2])
    wanted = re.compile(rf"\s*(?:{last}\s*=|\[+[\w.\s-]*\b{last}\s*\]+)")
    lines = enumerate(tree.text(CONFIG).split("\n"), 1)
    return Problem(message, tree.place(CONFIG), next((n for n, line in lines if wanted.match(line)), None), key)


# -- From a folder to a task -------------------------------------------------------------------------------------------

WORKDIR = "/app"
"""Where Harbor's own tasks have their workspace; taken where neither task.toml nor a Dockerfile names one."""
BUDGET = {"max_turns": 50, "turn_tokens": 2048}
AGENT_SECONDS, COMMAND_SECONDS, VERIFIER_SECONDS = 600.0, 120.0, 600.0
"""Times where task.toml says none, and the most that one command may take."""
MOST_SECONDS = 3600.0
_CANARY = re.compile(r"(?:<!--.*canary.*-->|#.*canary.*)\s*", re.IGNORECASE)
_SHELL = re.compile(r"#!\s*(?:/usr)?/bin/(?:env\s+)?(?:ba)?sh\b")
_SOLUTION = re.compile(r"(?<![\w.})/-])/solution(?![\w.-])")
_BASE64 = ".turngym-base64"
_NETWORK = re.compile(
    r"(?:^|[;&|(]|\b(?:sudo|then|do|if|!)\s)\s*("
    r"apt(?:-get)?\s+(?:-\S+\s+)*(?:update|install)\b|"
    r"(?:python3?\s+-m\s+)?pip3?\s+install\b(?!.*--no-index)|"
    r"uvx\b|uv\s+(?:add|pip|run|sync|tool)\b|npm\s+(?:ci|i|install)\b|npx\b|git\s+clone\b|"
    r"(?:curl|wget)\b(?!.*(?:localhost|127\.0\.0\.1)))"
)
"""What a verifier cannot do without a network."""
_VERIFY = """\
python3 -I "$GRADER/lay.py" || exit 125
place=$GRADER
[ -z "$GRADER_FOLDERS" ] || place=
{variables}bash "$place/tests/test.sh" </dev/null >"$place/logs/verifier/test-stdout.txt" 2>&1
python3 -I "$GRADER/reward.py"
"""
"""How a verifier is run: what it prints goes to its log, and what it wrote as the reward is what counts."""
_FOLDERS = ("/tests", "/logs")
"""What a verifier has of its own."""
_ASKS_PROCESSES = re.compile(
    r"(?:^|[;&|(!]|\$\(|\b(?:then|do|if)\s)\s*(?:pgrep|pidof|lsof|fuser|ps\s|ss\s|netstat|(?:curl|wget|nc)\b.*(?:localhost|127\.0\.0\.1))"
    r"|https?://(?:localhost|127\.0\.0\.1)|\(\s*[\"'](?:localhost|127\.0\.0\.1)[\"']\s*,"
)
"""What a verifier does that asks processes which somebody else has started."""
_STARTS = re.compile(r"(?<!&)&\s*(?:#.*)?$|\bPopen\(|\bcreate_subprocess_")
"""What a verifier does that starts a process and goes on: then it may be its own that it asks."""


class Unfit(StrEnum):
    """What to do with a task that cannot be run here."""

    REFUSE = "refuse"
    """Load nothing, and name each with the reason."""
    SKIP = "skip"
    """Load the others."""


def load(rest: str | Path) -> list[Task]:
    """Load the tasks for what stands after `harbor:`, sorted by folder.

    Args:
        rest: Path of a task folder, or of a folder of them; as text it may end in `?ids=A,B` (folders by name) and
            `&unfit=skip` (see `Unfit`).

    Raises:
        TaskError: There is none, or tasks cannot be run here, each with the reason.
    """
    asked = _parse(str(rest))
    folders = (
        [asked.path] if (asked.path / CONFIG).is_file() else sorted(p.parent for p in asked.path.glob(f"*/{CONFIG}"))
    )
    if not folders:
        raise TaskError(Problem(f"holds no Harbor tasks (folders with {CONFIG})", str(asked.path)))
    if asked.ids:
        missing = set(asked.ids) - {folder.name for folder in folders}
        if missing:
            raise TaskError(Problem(f"has no {', '.join(sorted(missing))}", str(asked.path)))
        folders = [folder for folder in folders if folder.name in asked.ids]
    tasks: dict[str, Task] = {}
    errors: list[TaskError] = []
    for folder in folders:
        try:
            task = read_folder(folder)
        except TaskError as error:
            errors.append(error)
            continue
        if tasks.setdefault(task.id, task) is not task:
            errors.append(TaskError(Problem(f"the id '{task.id}' is that of another folder: rename one", str(folder))))
    if errors and (asked.unfit is Unfit.REFUSE or not tasks):
        raise collected(errors)
    return list(tasks.values())


@dataclass(frozen=True, slots=True)
class _Asked:
    path: Path
    ids: tuple[str, ...] = ()
    unfit: Unfit = Unfit.REFUSE


def _parse(rest: str) -> _Asked:
    given = {"ids": "", "unfit": Unfit.REFUSE.value}
    path, found = path_and_query(SCHEME, rest, given, f"a folder, such as {SCHEME}:datasets/terminal-bench")
    if found["unfit"] not in list(Unfit):
        raise TaskError(f"{SCHEME}:{rest}: unfit must be one of {', '.join(Unfit)}")
    return _Asked(path, listed(found["ids"]), Unfit(found["unfit"]))


def read_folder(folder: Path) -> Task:
    """Make the task of one folder.

    Raises:
        TaskError: What is broken in it, and what of it cannot be run here, with the file and the remedy.
    """
    tree = read_tree(folder)
    config = read_config(tree)
    problems = [*_beyond(tree, config)]
    if problems:
        raise TaskError(*problems)
    built = read_dockerfile(tree) if tree.has(DOCKERFILE) else Built()
    workdir = config.environment.workdir or built.workdir or WORKDIR
    seconds = config.agent.timeout_sec or AGENT_SECONDS
    variables = {**built.environment, **config.environment.env}
    data = {
        "schema_version": 2,
        "id": re.sub(r"[^a-z0-9._-]", "-", folder.name.lower()).lstrip("._-"),
        "intent": _intent(tree.text("instruction.md")),
        "tags": [SCHEME, *_tags(config.metadata)],
        "difficulty": _difficulty(config.metadata),
        "workspace": spelt_out(built.files),
        "workdir": workdir,
        "environment": variables,
        "image": config.environment.docker_image,
        "dockerfile": {"text": built.text} if built.beyond and not config.environment.docker_image else None,
        "limits": {} if config.environment.memory_mb is None else {"memory_mb": config.environment.memory_mb},
        "budget": {
            **BUDGET,
            "command_seconds": min(seconds, COMMAND_SECONDS),
            "episode_seconds": min(seconds, 86400.0),
        },
        "assertions": [_verifier(tree, config)],
        "oracle": _oracle(tree, config),
    }
    try:
        return Task.model_validate(data)
    except ValidationError as error:
        found = explain(error, Document(str(folder), data))
        raise TaskError(*(Problem(problem.message, problem.file, key=problem.key) for problem in found)) from error


def _beyond(tree: Tree, config: Config) -> Iterator[Problem]:
    """What a task asks for that no sandbox of ours gives."""
    place = config.environment
    asked = {
        "steps": (bool(config.steps), "several steps with a verifier each are not supported"),
        "environment.os": (place.os.lower() != "linux", f"{place.os} is not supported: sandboxes are Linux"),
        "environment.gpus": (bool(place.gpus or place.tpu), "sandboxes have no accelerator"),
        "environment.mcp_servers": (bool(place.mcp_servers), "sandboxes have no network, and so no MCP server"),
        "environment.healthcheck": (bool(place.healthcheck), "a command before the agent is not supported"),
        "verifier.collect": (bool(config.verifier.collect), "commands in other services are not supported"),
        "verifier.environment": (
            bool(config.verifier.environment) and _own_image(tree, config),
            "a verifier with an image of its own is not supported: it runs in the agent's",
        ),
        "verifier.timeout_sec": (
            (config.verifier.timeout_sec or 0) > MOST_SECONDS,
            f"more than {MOST_SECONDS:g} s are not supported",
        ),
    }
    yield from (_in_config(tree, key, why) for key, (wanted, why) in asked.items() if wanted)
    for key, table in (
        ("environment", place.env),
        ("verifier", config.verifier.env),
        ("solution", config.solution.env),
    ):
        for name, value in table.items():
            if "${" in value:
                yield _in_config(
                    tree, f"{key}.env.{name}", "takes its value from the machine that runs it: write the value"
                )
    workdir = place.workdir or ""
    for number, item in enumerate(config.artifacts):
        source = item if isinstance(item, str) else str(item.get("source", ""))
        outside = workdir and source != workdir and not source.startswith(f"{workdir}/")
        if outside and not source.startswith(("/logs/", "/tmp/")):
            why = f"'{source}' lies outside of the workdir and /tmp, and nothing there outlives a command"
            yield _in_config(tree, f"artifacts[{number}]", why)
    for name in ("environment/docker-compose.yaml", "environment/docker-compose.yml"):
        if name in tree.files:
            yield Problem("several containers are not supported", tree.place(name))
    if not tree.has(DOCKERFILE) and not place.docker_image:
        yield Problem("is missing, and task.toml names no docker_image: one of them is needed", tree.place(DOCKERFILE))
    if not tree.has("tests/test.sh"):
        yield Problem("is missing: it is what judges the task", tree.place("tests/test.sh"))


def _own_image(tree: Tree, config: Config) -> bool:
    return "tests/Dockerfile" in tree.files or "docker_image" in (config.verifier.environment or {})


def _lines(tree: Tree, *ends: str) -> Iterator[tuple[str, int, str]]:
    """The lines of the verifier's programs that are no comments, each with its file and number."""
    for path in tree.files:
        if path.startswith("tests/") and path.endswith(ends) and tree.has(path):
            for number, line in enumerate(tree.text(path).split("\n"), 1):
                if not line.lstrip().startswith("#"):
                    yield path, number, line


def _network(tree: Tree) -> str:
    """What needs a network in the verifier, and where; empty if nothing does."""
    found = ((path, number, _NETWORK.search(line)) for path, number, line in _lines(tree, ".sh"))
    return "; ".join(f"`{' '.join(call[1].split())}` in {path}:{number}" for path, number, call in found if call)


def _shares(tree: Tree, config: Config) -> bool:
    """Whether the verifier is for where the agent worked: task.toml says so, or it asks what the agent left running."""
    if config.verifier.environment_mode is not None:
        return config.verifier.environment_mode == "shared"
    sources = [item if isinstance(item, str) else str(item.get("source", "")) for item in config.artifacts]
    if any(source.startswith("/tmp/") for source in sources):
        return True
    lines = [line for _, _, line in _lines(tree, ".sh", ".py")]
    return any(map(_ASKS_PROCESSES.search, lines)) and not any(map(_STARTS.search, lines))


def _intent(text: str) -> str:
    lines = text.split("\n")
    while lines and (_CANARY.fullmatch(lines[0]) or not lines[0].strip()):
        lines.pop(0)
    return "\n".join(lines)


def _tags(metadata: Mapping[str, Any]) -> list[str]:
    tags = metadata.get("tags", [])
    return [tag for tag in tags if isinstance(tag, str)] if isinstance(tags, list) else []


def _difficulty(metadata: Mapping[str, Any]) -> str:
    said = metadata.get("difficulty")
    return said if said in list(Difficulty) else Difficulty.MEDIUM.value


@cache
def _template(name: str) -> str:
    return (TEMPLATES / name).read_text("utf-8")


def _verifier(tree: Tree, config: Config) -> dict[str, Any]:
    files = {"lay.py": _template("harbor_lay.py.txt"), "reward.py": _template("harbor_reward.py.txt")}
    _of_a_shell(tree, "tests/test.sh")
    for path, entry in tree.below("tests").items():
        if entry.kind is EntryKind.SYMLINK:
            raise TaskError(Problem("is a link: graders have files alone", tree.place(f"tests/{path}")))
        if entry.kind is EntryKind.FILE:
            kind, text = _plain(path, entry)
            files[f"tests/{path}" if kind == "text" else f"tests/{path}{_BASE64}"] = text
    variables = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in config.verifier.env.items())
    network, where = _network(tree), Where.SHARED if _shares(tree, config) else Where.FRESH
    if network and where is Where.SHARED:
        why = f"has a verifier that needs a network ({network}) and the container of the agent, who must have none"
        raise TaskError(Problem(why, tree.place("tests/test.sh")))
    return {
        "kind": "script",
        "name": "verifier",
        "command": _VERIFY.format(variables=variables),
        "files": files,
        "mode": "reward",
        "timeout": config.verifier.timeout_sec or VERIFIER_SECONDS,
        "judged_in": {"sandbox": where.value, "folders": list(_FOLDERS), "network": network},
    }


def _plain(path: str, entry: FileEntry) -> tuple[str, str]:
    """How a file is written down (`text` or `base64`), and as what; programs get plain line ends."""
    content = entry.content or b""
    program = content.startswith(b"#!") or path.endswith((".sh", ".py"))
    ((kind, text),) = spelt_content(content.replace(b"\r\n", b"\n") if program else content).items()
    return kind, text


def _oracle(tree: Tree, config: Config) -> dict[str, Any] | None:
    """The solution as one command; the files beside it are laid where it looks for them, and removed again."""
    if not tree.has("solution/solve.sh"):
        return None
    _of_a_shell(tree, "solution/solve.sh")
    exports = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in config.solution.env.items())
    script = tree.text("solution/solve.sh")
    files = {path: entry for path, entry in tree.below("solution").items() if entry.kind is EntryKind.FILE}
    if len(files) == 1 and not _SOLUTION.search(script):
        return {"commands": [exports + script]}
    lines = [f"{exports}mkdir -p /tmp/solution"]
    for path, entry in files.items():
        place = f"/tmp/solution/{path}"
        lines += [f"mkdir -p {shlex.quote(posixpath.dirname(place))}", _written(place, *_plain(path, entry))]
    return {"commands": ["\n".join([*lines, "bash /tmp/solution/solve.sh", "rm -rf /tmp/solution"])]}


def _written(place: str, kind: str, text: str) -> str:
    """A command that writes a file of the solution, with the place where the others stand in it."""
    if kind == "base64":
        return f"base64 -d >{shlex.quote(place)} <<<{text}"
    text, end = _SOLUTION.sub("/tmp/solution", text), "END"
    while end in text:
        end += "_"
    return f"cat >{shlex.quote(place)} <<'{end}'\n{text.removesuffix(chr(10))}\n{end}"


def _of_a_shell(tree: Tree, name: str) -> None:
    first = tree.text(name).split("\n", 1)[0]
    if first.startswith("#!") and not _SHELL.match(first):
        raise TaskError(Problem(f"is run by `{first}`, and only bash and sh are supported", tree.place(name), 1))
