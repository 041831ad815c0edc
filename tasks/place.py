"""Where a task happens: what it asks of a sandbox, and how a sandbox comes to the start of it."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import AfterValidator, BeforeValidator, Field, field_validator

from sandboxes.docker.dockerfile import dockerfile_problem
from sandboxes.inside.variables import is_owned, is_variable, loads_code
from sandboxes.sandbox import (
    MOUNTS_FOLDERS,
    Backend,
    CommandResult,
    Files,
    Limits,
    Sandbox,
    SandboxError,
    SandboxOutage,
    SandboxUnavailable,
    Snapshot,
    Terms,
)
from tasks.images import image_key, image_of, no_image
from tasks.judged_in import Where, is_shared, network_reason
from tasks.model import Bash, Items, Problem, StrictModel, TaskError, fault

if TYPE_CHECKING:
    from tasks.task import Task

# -- What a task file says of it: variables, services, limits, image --------------------------------------------------

PLACE = ("environment", "setup", "services", "image", "dockerfile", "limits")
"""Keys of a task that make its start beside its files."""
ENVIRONMENT_CHARACTERS = 32 * 1024
"""Names and values of `environment` together."""


def _check_environment(environment: dict[str, str]) -> dict[str, str]:
    for name, value in environment.items():
        if not is_variable(name):
            raise fault(f"'{name}' is no name of a variable: use letters, digits and '_', a letter or '_' first", name)
        if loads_code(name):
            raise fault(
                f"'{name}' makes programs load code, graders among them, from where the agent may write: set it in the "
                "command that needs it",
                name,
            )
        if is_owned(name):
            raise fault(f"'{name}' belongs to the sandbox or its shell: choose another name", name)
        if "\0" in value:
            raise fault(f"the value of '{name}' holds a NUL character, which no variable can", name)
    size = sum(len(name) + len(value) for name, value in environment.items())
    if size > ENVIRONMENT_CHARACTERS:
        raise fault(f"holds {size} characters; {ENVIRONMENT_CHARACTERS} are allowed: lay a file instead")
    return environment


Environment = Annotated[dict[str, str], AfterValidator(_check_environment)]
"""Variables of every command."""


def _check_image(image: str) -> str:
    if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._/:@-]{0,254}", image) is None:
        raise fault(f"{image!r} is no name of an image: write it as the engine lists it, such as debian-with-git:1")
    return image


Image = Annotated[str, AfterValidator(_check_image)]
"""Name of an image as the engine lists it."""


class Dockerfile(StrictModel):
    """How the image of a task is built, out of images that the engine has; only when somebody asks for it.

    Attributes:
        text: What stands in the Dockerfile. In a task file, `dockerfile: NAME` takes the file of that name beside it.
    """

    text: str

    @field_validator("text")
    @classmethod
    def _buildable(cls, text: str) -> str:
        if problem := dockerfile_problem(text):
            raise fault(f"the Dockerfile {problem}")
        return text


def _dockerfile_text(value: object) -> object:
    if isinstance(value, str):
        raise fault("names a file, and this task is read from none: write {text: ...} with what stands in it")
    return value


Dockerfiles = Annotated[Dockerfile, BeforeValidator(_dockerfile_text)]
"""A Dockerfile as the model holds it; files name it by its path."""


def read_dockerfile(name: str, folder: Path) -> str:
    """The text of a Dockerfile that a task file names.

    Raises:
        ValueError: It leaves the folder of the task file, or cannot be read.
    """
    if Path(name).is_absolute() or ".." in Path(name).parts:
        raise ValueError(f"'{name}' is not in the folder of the task file: put the Dockerfile there")
    try:
        return (folder / name).read_bytes().decode("utf-8").replace("\r\n", "\n")
    except OSError as error:
        raise ValueError(f"'{name}' cannot be read beside the task file: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"'{name}' is not UTF-8 text: save it as UTF-8") from error


class Service(StrictModel):
    """A background process of the task.

    Attributes:
        name: What it is called in messages; unique in the task.
        command: Bash text, run from clean state in the workspace. It must stay in the foreground.
        ready: Bash text that ends with 0 once the service can be used; tried until it does.
        ready_seconds: Wall time that this may take.
    """

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9._-]*$", max_length=60)
    command: Bash
    ready: Bash
    ready_seconds: float = Field(default=5.0, gt=0, le=300, allow_inf_nan=False)


def _names_once(services: tuple[Service, ...]) -> tuple[Service, ...]:
    names = [service.name for service in services]
    for number, name in enumerate(names):
        if name in names[:number]:
            raise fault(f"two services are named '{name}': rename one", number, "name")
    return services


Services = Annotated[Items[Service], AfterValidator(_names_once)]
"""Services in the order in which they start; names are unique."""


class Needs(StrictModel):
    """What commands may use, instead of what the sandbox was opened with. Sizes in the unit of their name.

    Attributes:
        memory_mb: Memory of all processes together.
        processes: How many processes at a time.
        workspace_mb: Size of the workspace.
    """

    memory_mb: int | None = Field(default=None, ge=32, le=65536)
    processes: int | None = Field(default=None, ge=4, le=4096)
    workspace_mb: int | None = Field(default=None, ge=1, le=4096)


# -- Bringing a sandbox to the start of a task ------------------------------------------------------------------------

POLL_SECONDS = 0.05
"""Between two tries of a service's `ready`."""
_LINES, _TAIL = 3, 300
"""The last lines of stderr, and their last characters, that an error shows."""


class CannotBegin(TaskError, SandboxError):
    """A task cannot be brought to its start: a `setup` command fails, a service is not ready, the image is not there.

    An error of the task. Whoever plays episodes meets it as a failure of the machinery: there is no reward, and it is
    counted and shown.
    """


def prepared(task: Task) -> bool:
    """Whether commands of the task make its start, so that the files that it lays are not yet all of it."""
    return bool(task.setup or task.services)


def particular(task: Task) -> bool:
    """Whether a task asks for what not every backend can give, or nobody may have allowed."""
    return image_of(task) is not None or bool(network_reason(task)) or is_shared(task)


def lacking(task: Task, backend: Backend) -> str | None:
    """What a task asks for that a backend cannot give, in words that follow its id; `None` where there is nothing."""
    if backend is Backend.DOCKER:
        return None
    what = ""
    if image_of(task) is not None:
        what = f"asks for the image '{task.image}'" if task.dockerfile is None else "has a Dockerfile"
    elif reason := network_reason(task):
        what = f"has a verifier that needs a network ({reason})"
    if what:
        return f"{what}, which only the docker sandbox can give; here it is {backend}"
    if is_shared(task) and backend not in MOUNTS_FOLDERS:
        return (
            "is judged by the agent's processes, which only docker and bubblewrap tell from those of the machine; here "
            f"it is {backend}"
        )
    return None


def no_network(reason: str) -> str:
    """What to say of a task whose verifier needs a network where none is allowed, in words that follow its id."""
    return (
        f"has a verifier that needs a network, and none is allowed ({reason}); remedy: verifier_network names one of "
        "the engine for the verifier alone (docker), or put what it installs into the task's image"
    )


def refuse_unplaceable(tasks: Sequence[Task], backend: Backend, network: str | None = None) -> None:
    """Refuse tasks that ask for what a backend cannot give or nobody allowed, each by its id and with the reason.

    Args:
        tasks: What is to be played.
        backend: Where.
        network: The engine's network that verifiers may have.

    Raises:
        TaskError: The problems of all.
    """
    problems = [Problem(why, task.id) for task in tasks if (why := lacking(task, backend))]
    if not problems and network is None:
        problems = [Problem(no_network(why), task.id) for task in tasks if (why := network_reason(task))]
    if problems:
        raise TaskError(*problems)


def begin(task: Task, sandbox: Sandbox) -> None:
    """Bring a sandbox to the start of a task: what the agent meets in its first turn. Everything older is gone.

    Files are laid, then the commands of `setup` run, each from clean state, as the user that the agent will be. Then
    the start is sealed: the workspace is all that is left of them. Services start last, each when those before it are
    ready.

    Raises:
        CannotBegin: That is the task's fault.
        SandboxError: The machinery failed.
    """
    if why := lacking(task, sandbox.backend):
        raise CannotBegin(Problem(why, task.id))
    try:
        lay(task, sandbox, task.files())
    except SandboxUnavailable as error:
        if image_of(task) is None or isinstance(error, SandboxOutage):
            raise
        built = task.dockerfile is None or "is not on this engine" not in str(error)
        why, key = (str(error), "image") if built else (no_image(task), image_key(task))
        raise CannotBegin(Problem(why, task.id, key=key)) from error
    if task.services or is_shared(task):
        _ = sandbox.judge_isolation  # found out by a judge, before which services end
    for number, command in enumerate(task.setup):
        result = sandbox.run(command, timeout=task.budget.command_seconds, state="clean")
        if result.exit_code or result.timed_out:
            raise CannotBegin(Problem(f"{_shown(command)} {_ended(result)}", task.id, key=f"setup[{number}]"))
    if task.setup:
        sandbox.seal()
    for number, service in enumerate(task.services):
        sandbox.serve(service.command)
        if why := _wait_until_ready(service, number, sandbox):
            raise CannotBegin(Problem(f"the service '{service.name}' {why}", task.id, key=f"services[{number}]"))


def limits_of(task: Task, own: Limits) -> Limits:
    """The limits of an episode in a sandbox that has these of its own."""
    return replace(own, **task.limits.model_dump(exclude_none=True))


def lay(task: Task | None, sandbox: Sandbox, files: Files) -> None:
    """Lay files where the task has its workspace, as they stood at some moment of an episode: nothing else is done.

    Raises:
        SandboxError: The machinery failed.
    """
    if task is None:
        sandbox.open(files)
        return
    terms = terms_of(task)
    if terms != Terms():
        sandbox.open(files, workdir=task.workdir, terms=terms)
    else:
        sandbox.open(files, workdir=task.workdir)


def terms_of(task: Task | None) -> Terms:
    """What an episode of the task asks of its sandbox."""
    if task is None:
        return Terms()
    limits = task.limits.model_dump(exclude_none=True)
    shared = tuple(item for item in task.judged_in if item.sandbox is Where.SHARED)
    folders = dict.fromkeys(folder for item in shared for folder in item.folders)
    return Terms(task.environment, image_of(task), limits, folders=tuple(folders), background=bool(shared))


def open_for_judge(task: Task | None, sandbox: Sandbox, terms: Terms) -> None:
    """Open an empty sandbox for a judge. Nothing of the agent's is in it, so a failure is none of the agent's doing.

    Raises:
        SandboxUnavailable: It cannot be opened, or its network is none.
    """
    try:
        sandbox.open({}, workdir=None if task is None else task.workdir, terms=terms)
        interfaces = sandbox.run("cat /proc/net/dev", state="clean").stdout_text if terms.network else ""
    except SandboxUnavailable:
        raise
    except SandboxError as error:
        raise SandboxUnavailable(f"no sandbox for the judge could be opened: {error}") from error
    if terms.network and not re.search(r"^\s*(?!lo:)[\w.-]+:", interfaces, re.MULTILINE):
        raise SandboxUnavailable(
            f"the engine's network {terms.network!r} gives a container no way out; remedy: name one of `docker network "
            "ls` that does"
        )


def start_of(task: Task, sandbox: Sandbox) -> Snapshot:
    """The workspace as the agent meets it, made in a sandbox beside this one.

    Raises:
        CannotBegin, SandboxError: As in `begin`.
    """
    with sandbox.twin() as twin:
        begin(task, twin)
        return twin.snapshot()


def _wait_until_ready(service: Service, number: int, sandbox: Sandbox) -> str | None:
    """Why a service that was started does not come to be ready; `None` once it is."""
    end = time.monotonic() + service.ready_seconds
    while True:
        result = sandbox.run(service.ready, timeout=max(POLL_SECONDS, end - time.monotonic()), state="clean")
        code = sandbox.services()[number]
        if code is not None:
            return f"ended with {code}: it must stay in the foreground (what it prints goes nowhere: 2> FILE keeps it)"
        if not result.exit_code and not result.timed_out:
            return None
        if time.monotonic() >= end:
            hint = "; a landlock sandbox has no sockets" if sandbox.backend is Backend.LANDLOCK else ""
            return f"was not ready in {service.ready_seconds:g} s: {_shown(service.ready)} {_ended(result)}{hint}"
        time.sleep(POLL_SECONDS)


def _shown(command: str) -> str:
    line = " ".join(command.split())
    return f"`{line}`" if len(line) <= 80 else f"`{line[:77]}...`"


def _ended(result: CommandResult) -> str:
    said = "; ".join(line.strip() for line in result.stderr_text.strip().splitlines()[-_LINES:])[-_TAIL:]
    how = f"ran out of time after {result.seconds:.1f} s" if result.timed_out else f"ended with {result.exit_code}"
    return f"{how}: {said}" if said else how
