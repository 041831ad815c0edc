"""`python -m envs`: carry out a task by hand, as an agent would meet it; serve an environment to other programs."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from envs.actions import STOP_WORD, fenced
from envs.clawgym import ClawGymEnv
from envs.conversation import ConversationEnv
from envs.fences import Heredoc, heredocs
from envs.mixed import MixedEnv, kind_of_env
from envs.registry import environment, environment_ids
from envs.serve import TOKEN_VARIABLE, CannotListen, Limits, Server, check_access, run, to_standard_error
from envs.user import ClawGymUserEnv
from sandboxes.guard import Parser, add_command, leave_with, started
from sandboxes.opening import choose, open_sandbox
from sandboxes.sandbox import NAMES, SandboxError, SandboxUnavailable
from tasks.assertions.grade import GradeError
from tasks.cli import SPEC
from tasks.sources import load_tasks
from tasks.task import TaskError

HELP = f"""Type a command and press Enter. It goes on over several lines while a quote or a heredoc is open, or after a
backslash at the end of a line. {STOP_WORD} (or Ctrl-D) submits, Ctrl-C leaves without a grade."""
ANSWERING = """To answer, type `= ` and the answer; one of several lines between `= <<END` and a line `END`."""
SPEAKING = """To write to the user, type `= ` and the message; one of several lines between `= <<END` and `END`."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Returns:
        0 if the task was passed, 1 if not, 2 for a mistake in the call, 3 if the machinery failed, 130 after Ctrl-C.
    """
    started()
    options = _parser().parse_args(arguments)
    return int(options.run(options))


def _play(options: argparse.Namespace) -> int:
    try:
        tasks = load_tasks(options.tasks)
        kinds = {kind_of_env(task) for task in tasks}
        make: Any = kinds.pop() if kinds in ({ClawGymEnv}, {ClawGymUserEnv}) else MixedEnv
        env = make(tasks, options.task, sandbox=options.sandbox, max_turns=options.max_turns, reward=options.reward)
        _refuse_unfit(env)
    except (TaskError, ValueError) as error:
        print(f"envs: {error}", file=sys.stderr)
        return 2
    if sys.stdin.isatty():
        with contextlib.suppress(ImportError):  # not in every build of Python; without it lines cannot be edited
            import readline  # noqa: F401
    try:
        return play(env, options.seed)
    except (SandboxError, GradeError) as error:
        print(f"envs: {error}", file=sys.stderr)
        return 3
    except KeyboardInterrupt:
        print("\nleft without a grade", file=sys.stderr)
        return 130
    finally:
        env.close()


def _refuse_unfit(env: ConversationEnv) -> None:
    """Raises ValueError where the environment cannot carry one of its tasks out."""
    for task in env.tasks:
        if why := env.unfit(task):
            raise ValueError(f"task '{task.id}' {why}")


def _serve(options: argparse.Namespace) -> int:
    token = os.environ.get(TOKEN_VARIABLE) if options.token is None else options.token
    try:
        import websockets  # noqa: F401

        check_access(options.host, token)
        limits = Limits(options.max_sessions, options.max_message_bytes, options.idle_seconds)
        kind: Any = environment(options.id)  # what each takes, its class says
        given = {} if options.tasks is None else {"tasks": load_tasks(options.tasks)}
        place = choose(options.sandbox)
        open_sandbox(place).close()  # one that cannot work here is said now, not to each client
        settings = {"sandbox": place, "max_turns": options.max_turns, "reward": options.reward}
        first = kind(**given, **settings)
        _refuse_unfit(first)
    except ModuleNotFoundError as error:
        if error.name != "websockets":
            raise
        remedy = 'pip install "turngym[serve]"'
        print(f"envs: serve needs websockets, which is not installed. Remedy: {remedy}", file=sys.stderr)
        return 2
    except (TaskError, ValueError) as error:
        print(f"envs: {error}", file=sys.stderr)
        return 2
    except SandboxUnavailable as error:
        print(f"envs: {error}", file=sys.stderr)
        return 3
    about = (kind.__doc__ or "").split("\n", 1)[0]
    make = partial(kind, tasks=first.tasks, **settings)
    server = Server(options.id, about, make, limits, token=token, log=to_standard_error)

    def ready(port: int) -> None:
        print(
            f"{options.id}, {len(first.tasks)} tasks, sandbox {place}: http://{options.host}:{port} "
            f"({'token' if token else 'no token'}, at most {limits.sessions} sessions; Ctrl-C ends it)",
            flush=True,
        )

    try:
        run(server, options.host, options.port, ready)
    except CannotListen as error:
        print(f"envs: {error}", file=sys.stderr)
        return 2
    print("ended; every sandbox is closed")
    return 0


def play(env: ConversationEnv, seed: int | None = None, read: Callable[[str], str] = input) -> int:
    """Play one episode in the terminal.

    Args:
        env: The environment; the caller closes it.
        seed: Which task is drawn, where none is fixed.
        read: Gives one line for a prompt; raises EOFError at the end, as `input` does.

    Returns:
        0 if the task was passed, else 1.
    """
    observation, info = env.reset(seed=seed)
    kind = kind_of_env(env.task)
    question = kind is not ClawGymEnv
    words = f"{HELP}\n{SPEAKING if kind is ClawGymUserEnv else ANSWERING}" if question else HELP
    print(f"task {info['task_id']} ({env.max_turns} turns, seed {info['seed']})\n{words}\n\n{observation}\n")
    over = False
    total = 0.0
    while not over:
        command = _command(read, f"[{info['turn'] + 1}/{env.max_turns}] $ ", question)
        if command is not None and not command.strip():
            continue
        observation, reward, terminated, truncated, info = env.step(
            _answer(command) if question and _is_answer(command) else _reply(command)
        )
        over = terminated or truncated
        total += reward
        print(f"{observation}\n" if observation else "")
    print(f"stopped: {info['stop_reason']}")
    for result in info["assertions"]:
        print(f"  {result['verdict']:5} {result['name']}" + (f": {result['detail']}" if result["detail"] else ""))
    verdict = "passed" if info["passed"] else "not passed"
    print(f"{verdict}: rate {info['rate']:.3f}, reward {total:.3f} after {info['turn']} turns")
    return 0 if info["passed"] else 1


def incomplete(lines: Sequence[str]) -> bool:
    """Whether bash would wait for more: an open heredoc or quote, or a backslash at the end."""
    code: list[str] = []
    waiting: list[Heredoc] = []
    for line in lines:
        if waiting:
            if waiting[0].ends(line):
                waiting.pop(0)
            continue
        code.append(line)
        waiting = [] if _open_quote(code) else heredocs(line)
    if waiting:
        return True
    return _open_quote(code) or lines[-1].endswith("\\")


def _open_quote(lines: Iterable[str]) -> bool:
    """Whether a quote is still open at the end of these lines of bash (comments are skipped)."""
    quote = ""
    text = "\n".join(lines)
    i = 0
    while i < len(text):
        char = text[i]
        if char == "\\" and quote != "'":
            i += 1
        elif quote:
            quote = "" if char == quote else quote
        elif char in "'\"`":
            quote = char
        elif char == "#" and (i == 0 or text[i - 1].isspace()):
            i = text.find("\n", i)
            if i < 0:
                break
        i += 1
    return bool(quote)


def _is_answer(command: str | None) -> bool:
    return command is not None and command.startswith("=")


def _answer(command: str | None) -> str:
    """What stands behind the `=`, or between `= <<END` and `END`."""
    text = (command or "")[1:].strip()
    return "\n".join(text.split("\n")[1:-1]) if text.startswith("<<") and "\n" in text else text


def _command(read: Callable[[str], str], prompt: str, question: bool = False) -> str | None:
    """One command (or answer to a question) of one or more lines; `None` at the end of the input."""
    lines: list[str] = []
    try:
        lines.append(read(prompt))
        # An apostrophe in an answer opens no quote; only a heredoc makes it go on.
        while incomplete(lines) and not (question and _is_answer(lines[0]) and "<<" not in lines[0]):
            lines.append(read("> "))
    except EOFError:
        return "\n".join(lines) if lines else None
    return "\n".join(lines)


def _reply(command: str | None) -> str:
    """The command as an agent would send it."""
    return STOP_WORD if command is None or command.strip() == STOP_WORD else fenced(command)


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="python -m envs", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    player = add_command(
        commands,
        "play",
        "carry out a task by hand",
        _play,
        description=HELP,
        example="python -m envs play --task merge-contacts",
    )
    player.add_argument("--task", metavar="ID", help="the task; left out, one is drawn")
    player.add_argument(
        "--tasks",
        metavar="SPEC",
        default="library",
        help=f"where tasks come from: {SPEC}; gsm8k:sample and the like",
    )
    player.add_argument("--seed", metavar="N", type=int, help="which task is drawn")
    server = add_command(
        commands,
        "serve",
        "let clients of OpenEnv play episodes",
        _serve,
        description="Serve an environment to clients of the OpenEnv project, each in a sandbox of its own.",
        example="python -m envs serve ClawGym-v0 --tasks my_tasks/",
    )
    server.add_argument("id", metavar="ID", help=", ".join(environment_ids()))
    server.add_argument(
        "--tasks", metavar="SPEC", help=f"where tasks come from: {SPEC}; left out, the environment's own"
    )
    for command in (player, server):
        command.add_argument("--sandbox", metavar="NAME", default="auto", help=", ".join(NAMES))
        command.add_argument("--max-turns", metavar="N", type=int, help="turn budget; left out, the task's own")
        command.add_argument(
            "--reward", choices=("shaped", "binary", "delta"), default="shaped", help="what an episode pays"
        )
    server.add_argument("--host", metavar="ADDRESS", default="127.0.0.1", help="where to listen; others need a token")
    server.add_argument("--port", metavar="N", type=int, default=8000, help="0 for a free one")
    server.add_argument(
        "--token", metavar="TEXT", help=f"what clients must show; better: {TOKEN_VARIABLE}, which no `ps` shows"
    )
    most = Limits()
    server.add_argument("--max-sessions", metavar="N", type=int, default=most.sessions, help="sessions at a time")
    server.add_argument(
        "--max-message-bytes", metavar="N", type=int, default=most.message_bytes, help="size of one message of a client"
    )
    server.add_argument(
        "--idle-seconds",
        metavar="N",
        type=float,
        default=most.idle_seconds,
        help="longest wait for a client's next message",
    )
    return parser


if __name__ == "__main__":
    leave_with(main)
