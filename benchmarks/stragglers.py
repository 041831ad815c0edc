"""Rollouts over a server of which one reply in ten takes a second: nobody should wait for another one's slow reply.

    python -m benchmarks.stragglers
    python -m benchmarks.stragglers --episodes 64 --slow 2 --share 0.05
    python -m benchmarks.stragglers --peer PYTHON   # an interpreter with `verifiers<0.2`

All contenders play the same conversations with the same slow replies, in turns within one run, against a played chat
endpoint in a process of its own. The limit is 1.3 times the wall time of the bare threads.

- bare threads: a thread per conversation, which sends its messages and reads the reply; nothing else.
- stream: `OpenAIPolicy.stream`, driven by a loop that asks again whenever a reply has come.
- engine: `RolloutEngine.run` with an environment that answers at once.
- verifiers: its multi-turn environment, in an interpreter of its own (`benchmarks.peers.verifiers_loop`).
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import subprocess
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.connection import Connection
from typing import Any

import requests

from agents.chat import ChatTemplate, Conversation
from agents.policies.openai import OpenAIPolicy
from agents.policy import Completion, Request, Sampling
from agents.rollout import Job, RolloutEngine
from benchmarks.peers import verifiers_loop
from envs.actions import STOP_WORD, ActionKind, Submit, fenced, parse
from envs.conversation import ConversationEnv, Exchange
from tasks.assertions.base import Outcome
from tasks.task import Task

LIMIT = 1.3
FAST = 0.02
"""Seconds of a usual reply."""
SAMPLING = Sampling(1.0, 64)


@dataclass(frozen=True, slots=True)
class Work:
    """What is played.

    Attributes:
        episodes: Conversations, all of them at once.
        turns: Replies in each.
        share: Of the replies, those that are slow.
        slow: Seconds that these take.
    """

    episodes: int
    turns: int
    share: float
    slow: float


# -- the endpoint, in a process of its own ----------------------------------------------------------------------------


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    work: Work

    def do_POST(self) -> None:
        messages = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["messages"]
        turn = sum(message["role"] == "assistant" for message in messages)
        # Which reply is slow depends on conversation and turn alone: the contenders meet the same ones.
        name = next(message["content"] for message in messages if message["role"] == "user")
        lot = zlib.crc32(f"{name}:{turn}".encode()) % 10_000 / 10_000
        time.sleep(self.work.slow if lot < self.work.share else FAST)
        text = fenced(f"echo {turn}") if turn < self.work.turns - 1 else STOP_WORD
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        head = {"id": "reply", "object": "chat.completion", "created": 0, "model": "m"}
        body = json.dumps({**head, "choices": [choice]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        """Say nothing."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 512


def _serve(work: Work, ready: Connection) -> None:
    _Handler.work = work
    server = _Server(("127.0.0.1", 0), _Handler)
    ready.send(server.server_address[1])
    server.serve_forever()


@contextmanager
def endpoint(work: Work) -> Iterator[str]:
    """The address of the played endpoint, for the length of a block."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_serve, args=(work, there), daemon=True)
    process.start()
    try:
        yield f"http://127.0.0.1:{here.recv()}/v1"
    finally:
        process.terminate()
        process.join()


# -- the contenders: each plays all conversations, and returns how many replies it got --------------------------------


def intent(index: int) -> str:
    """What the user says first, which names the conversation."""
    return f"conversation {index}"


def bare_threads(url: str, work: Work) -> int:
    """A thread per conversation."""
    counts = [0] * work.episodes

    def talk(index: int) -> None:
        messages = [{"role": "user", "content": intent(index)}]
        with requests.Session() as session:
            session.trust_env = False
            for turn in range(work.turns):
                body = {"model": "m", "messages": messages, "temperature": 1.0, "max_tokens": 64, "seed": turn}
                answer = session.post(f"{url}/chat/completions", json=body, timeout=60).json()
                text = answer["choices"][0]["message"]["content"]
                messages += [{"role": "assistant", "content": text}, {"role": "user", "content": "ok"}]
                counts[index] += 1

    threads = [threading.Thread(target=talk, args=(index,)) for index in range(work.episodes)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts)


def streamed(policy: OpenAIPolicy, work: Work) -> int:
    """The policy's stream alone."""
    template, woken, replies = ChatTemplate(policy.tokenizer), threading.Event(), 0
    talks = {f"{index}": Conversation(template) for index in range(work.episodes)}
    turns = dict.fromkeys(talks, 0)
    stream = policy.stream(SAMPLING, woken.set)
    for index, talk in enumerate(talks.values()):
        talk.start("", intent(index))
    stream.ask([Request(name, talk.ids, 0) for name, talk in talks.items()])
    while replies < work.episodes * work.turns:
        woken.wait()
        woken.clear()
        ready = []
        for name, answer in stream.advance():
            if not isinstance(answer, Completion):
                raise answer
            replies, turns[name] = replies + 1, turns[name] + 1
            talks[name].reply(answer.ids, answer.finish)
            if turns[name] < work.turns:
                talks[name].observe("ok")
                ready.append(Request(name, talks[name].ids, turns[name]))
        stream.ask(ready)
    stream.close()
    return replies


class Answers(ConversationEnv):
    """Says `ok` to everything until the agent submits; there is nothing to grade."""

    def __init__(self) -> None:
        super().__init__((), prompt_style="compact")

    def _lay(self, task: Task) -> str:
        return task.intent

    def _exchange(self, reply: str) -> Exchange:
        action = parse(reply)
        if isinstance(action, Submit):
            return Exchange("", ActionKind.SUBMIT, final_message=action.text)
        return Exchange("ok", ActionKind.COMMAND, command="echo", exit_code=0)

    def _outcome(self) -> Outcome:
        return Outcome({}, {}, self._final)

    def _anchor(self) -> str:
        return ""

    def _release(self) -> None:
        """Nothing is held."""


def engine(policy: OpenAIPolicy, work: Work) -> int:
    """The rollout engine."""
    tasks = [
        Task.model_validate(
            {
                "id": f"talk-{index}",
                "intent": intent(index),
                "budget": {"max_turns": work.turns},
                "assertions": [{"kind": "file_exists", "path": "said"}],
                "oracle": {"commands": ["true"]},
                "family": "stragglers",
            }
        )
        for index in range(work.episodes)
    ]
    with RolloutEngine(policy, Answers, slots=work.episodes, workers=2) as made:
        result = made.run([Job(task, 0, 0) for task in tasks], SAMPLING)
    lost = [trajectory.error for trajectory in result.trajectories if trajectory.stop_reason == "infrastructure"]
    if lost:
        raise RuntimeError(f"{len(lost)} episodes were lost, the first with: {lost[0]}")
    return result.timing.turns


def verifiers(python: str, url: str, work: Work) -> tuple[float, int]:
    """Seconds and replies of the peer."""
    command = [python, verifiers_loop.__file__, url, str(work.episodes), str(work.turns)]
    ended = subprocess.run(command, capture_output=True, text=True)
    if ended.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{ended.stderr[-2000:]}")
    said = json.loads(ended.stdout.splitlines()[-1])
    return said["seconds"], said["replies"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=32)
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--share", type=float, default=0.1, help="of the replies, those that are slow")
    parser.add_argument("--slow", type=float, default=1.0, help="seconds that these take")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--peer", metavar="PYTHON", help="an interpreter with verifiers<0.2")
    args = parser.parse_args()
    work = Work(args.episodes, args.turns, args.share, args.slow)
    walls: dict[str, list[float]] = {}
    with endpoint(work) as url:
        policy = OpenAIPolicy("m", base_url=url, concurrency=work.episodes)
        contenders: dict[str, Callable[[], int]] = {
            "bare threads": lambda: bare_threads(url, work),
            "stream": lambda: streamed(policy, work),
            "engine": lambda: engine(policy, work),
        }
        for _ in range(args.repeats):
            for name, play in contenders.items():
                start = time.perf_counter()
                replies = play()
                walls.setdefault(name, []).append(time.perf_counter() - start)
                _check(name, replies, work)
            if args.peer:
                seconds, replies = verifiers(args.peer, url, work)
                walls.setdefault("verifiers", []).append(seconds)
                _check("verifiers", replies, work)
        policy.close()
    print(
        f"{work.episodes} conversations of {work.turns} replies, {100 * work.share:g} % of them take {work.slow:g} s, "
        f"the others {FAST:g} s"
    )
    for name, taken in walls.items():
        ratio = statistics.median(own / bare for own, bare in zip(taken, walls["bare threads"], strict=True))
        limit = f" (limit {LIMIT})" if name in ("stream", "engine") else ""
        said = "" if name == "bare threads" else f"  ratio {ratio:.2f}{limit}"
        over = "  ABOVE THE LIMIT" if limit and ratio > LIMIT else ""
        print(f"{name:<14} {statistics.median(taken):6.2f} s{said}{over}")


def _check(name: str, replies: int, work: Work) -> None:
    if replies != work.episodes * work.turns:
        raise RuntimeError(f"{name} got {replies} replies instead of {work.episodes * work.turns}")


if __name__ == "__main__":
    main()
