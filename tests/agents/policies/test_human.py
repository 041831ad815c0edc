from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from agents.policies.human import HumanPolicy
from agents.policy import FinishReason, Policy, PolicyError, Request, Sampling, abilities
from agents.rollout import Job, RolloutEngine
from tests.agents.fakes import FakeEnv, task
from tests.agents.speakers import Put
from tests.shared_data import REPOSITORY

SAMPLING = Sampling(1.0, 200)


def lines(*typed: str) -> Callable[[str], str]:
    """Reads these lines, then the end of the input."""
    waiting: Iterator[str] = iter(typed)

    def read(prompt: str) -> str:
        try:
            return next(waiting)
        except StopIteration:
            raise EOFError from None

    return read


def say(*typed: str, **request: object) -> tuple[str, FinishReason, list[str]]:
    shown: list[str] = []
    policy = HumanPolicy(read=lines(*typed), write=shown.append)
    (completion,) = policy.complete([Request("c", [72, 105], seed=0, **request)], SAMPLING)  # type: ignore[arg-type]
    return policy.tokenizer.decode(completion.ids), completion.finish, shown


END = "<|im_end|>"


def test_is_a_policy_of_text() -> None:
    policy = HumanPolicy(read=lines())
    assert isinstance(policy, Policy)
    can = abilities(policy)
    assert (can.own_ids, can.logprobs, can.entropies, can.every_control) == (False, False, False, False)


@pytest.mark.parametrize(
    ("typed", "text"),
    [
        (["hello", "", "world", ".", "not read"], f"hello\n\nworld{END}"),
        (["..", ".", "x"], f".{END}"),
        (["."], END),
        (["$ ls"], f"```bash\nls\n```{END}"),
        (["$ cat > a <<'X'", "two", "X", "not read"], f"```bash\ncat > a <<'X'\ntwo\nX\n```{END}"),
        (["half"], f"half{END}"),
        (["$ echo 'half"], f"```bash\necho 'half\n```{END}"),
        ([], f"TASK_COMPLETE{END}"),
    ],
)
def test_how_a_reply_is_typed(typed: list[str], text: str) -> None:
    said, finish, shown = say(*typed)
    assert said == text and finish is FinishReason.STOP
    assert "full stop" in shown[0] and shown[1] == "Hi"


def test_caps_and_stops_hold_for_people_too() -> None:
    said, finish, shown = say("hello", ".", max_tokens=3)
    assert (said, finish) == ("hel", FinishReason.LENGTH) and shown[-1] == "(the reply was cut at 3 tokens)"
    assert say("4", "Question: 5", ".", stops=("\nQ", "t"))[:2] == ("4\nQ", FinishReason.STOP_TEXT)


def test_controls_are_refused() -> None:
    with pytest.raises(PolicyError, match="takes no token control"):
        say("x", ".", control=Put({}))


def test_a_person_plays_an_episode_and_knows_no_probabilities() -> None:
    shown: list[str] = []
    policy = HumanPolicy(read=lines("$ echo one", "what", ".", "$ echo two"), write=shown.append)
    with RolloutEngine(policy, FakeEnv, slots=1, workers=1) as engine:
        (episode,) = engine.run([Job(task(), 0, 0)], SAMPLING).trajectories
    assert [turn.action for turn in episode.turns] == ["command", "malformed", "command", "submit"]
    assert episode.passed and all(turn.logprobs is None and turn.entropies is None for turn in episode.turns)
    with pytest.raises(ValueError, match="no log-probabilities"):
        episode.flat()
    assert "Say one and two." in shown[1]
    assert "ok echo one" in shown[2] and "Say one and two." not in shown[2]  # only what is new


def test_giving_up_holds_for_every_later_conversation() -> None:
    policy = HumanPolicy(read=lines(), write=lambda text: None)
    for name in ("a", "b"):
        (completion,) = policy.complete([Request(name, [1], seed=0)], SAMPLING)
        assert policy.tokenizer.decode(completion.ids) == f"TASK_COMPLETE{END}"


PROGRAM = """
from agents.policies.human import HumanPolicy
from agents.policy import Request, Sampling
policy = HumanPolicy()
for turn in range(2):
    (one,) = policy.complete([Request("c", [72, 105], seed=0)], Sampling(1.0, 99))
    print("said", one.ids)
"""


def test_at_a_terminal() -> None:
    leader, follower = pty.openpty()
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "TERM": "dumb"}
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdin=follower, stdout=subprocess.PIPE, text=True, env=environment
    )
    os.close(follower)
    try:
        os.write(leader, b"hi\n.\n\x04")  # a reply, then Ctrl-D at the start of the next one
        out, _ = process.communicate(timeout=120)
    finally:
        process.kill()
        os.close(leader)
    assert f"said {[*b'hi', 257]}" in out
    assert f"said {[*b'TASK_COMPLETE', 257]}" in out
