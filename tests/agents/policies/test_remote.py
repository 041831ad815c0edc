from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest

from agents.policies.remote import Outage, RemoteStream, together
from agents.policy import Answer, Completion, FinishReason, PolicyError, Request, SomeFailed, Stream
from tasks.endpoints.flight import Flight, GivenUp
from tasks.endpoints.http import HttpError


def reply(token: int) -> Completion:
    return Completion([token], None, None, None, [False], FinishReason.LENGTH)


def all_of(calls: list[Callable[[], int]], workers: int) -> list[int]:
    done = together(lambda call, flight: reply(call()), calls, workers, Outage())
    return [completion.ids[0] for completion in done]


def left() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "turngym-call"]


# -- all at once ----------------------------------------------------------------------------------------------------


def test_results_keep_the_order_of_the_calls_whoever_is_first() -> None:
    gates = [threading.Event() for _ in range(4)]

    def call(index: int) -> int:
        if index < 3:
            assert gates[index + 1].wait(20)  # ends after its successor
        gates[index].set()
        return index

    assert all_of([lambda i=i: call(i) for i in range(4)], 4) == [0, 1, 2, 3]  # type: ignore[misc]
    assert all_of([], 4) == []


def test_never_more_at_a_time_than_the_limit() -> None:
    lock, now, most = threading.Lock(), 0, 0

    def call() -> int:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        threading.Event().wait(0.01)
        with lock:
            now -= 1
        return 0

    all_of([call] * 12, 3)
    assert 1 <= most <= 3
    assert left() == []


def test_a_failure_is_a_result_and_a_defect_is_raised() -> None:
    failure = PolicyError("no")

    def fail() -> int:
        raise failure

    with pytest.raises(SomeFailed) as caught:
        all_of([fail, lambda: 7], 1)
    first, second = caught.value.answers
    assert first is failure and isinstance(second, Completion) and second.ids == [7]
    begun: list[int] = []

    def defect() -> int:
        raise KeyError("x")

    with pytest.raises(KeyError, match="x"):
        all_of([defect, lambda: begun.append(1) or 0], 1)
    assert begun == []


def test_an_interrupt_returns_at_once_and_begins_no_further_call() -> None:
    under_way, over = threading.Event(), threading.Event()
    begun: list[int] = []

    def call(index: int) -> int:
        begun.append(index)
        if index == 1:
            under_way.set()
            os.kill(os.getpid(), signal.SIGINT)
        over.wait(30)  # it does not notice that it was hung up
        return 0

    before = set(threading.enumerate())
    with pytest.raises(KeyboardInterrupt):
        all_of([lambda i=i: call(i) for i in range(20)], 2)  # type: ignore[misc]
    assert under_way.is_set() and len(begun) == 2
    stayed = set(threading.enumerate()) - before
    assert all(thread.daemon for thread in stayed), "the process could not end"
    over.set()
    for thread in stayed:
        thread.join(20)
    assert len(begun) == 2, "no call began after the interrupt"


# -- one by one -----------------------------------------------------------------------------------------------------


class Server:
    """Answers a request when the test says so, with what the test says."""

    def __init__(self) -> None:
        self.outage = Outage()
        self.hung_up: PolicyError = GivenUp("given up")
        self.asked = threading.Semaphore(0)
        self.gates: dict[str, threading.Event] = {}
        self.answers: dict[str, Answer | BaseException] = {}
        self.woken = threading.Semaphore(0)

    def stream(self, workers: int = 4) -> RemoteStream[Request]:
        def call(request: Request, flight: Flight) -> Completion:
            self.asked.release()
            while not self.gates[request.conversation].wait(0.005):
                if flight.stopped.is_set():
                    raise self.hung_up
            answer = self.answers[request.conversation]
            if isinstance(answer, BaseException):
                raise answer
            return answer

        return RemoteStream(lambda request: request, call, workers, self.outage, self.woken.release)

    def requests(self, names: str) -> list[Request]:
        self.gates |= {name: threading.Event() for name in names}
        return [Request(name, [1], 0) for name in names]

    def answer(self, name: str, answer: Answer | BaseException) -> None:
        self.answers[name] = answer
        self.gates[name].set()
        assert self.woken.acquire(timeout=20), "whoever waits was not woken"


def test_replies_leave_one_by_one_and_requests_join() -> None:
    server = Server()
    stream: Stream = server.stream()
    assert not stream.working and stream.advance() == []
    stream.ask(server.requests("ab"))
    server.answer("b", reply(2))
    assert stream.advance() == [("b", reply(2))] and stream.advance() == []
    stream.ask(server.requests("c"))
    server.answer("c", failure := PolicyError("of this one"))
    assert stream.advance() == [("c", failure)]
    server.answer("a", reply(1))
    stream.ask(server.requests("b"))  # the same conversation goes on
    server.answer("b", reply(3))
    assert stream.advance() == [("a", reply(1)), ("b", reply(3))]
    stream.close()
    stream.close()
    assert left() == []


def test_closing_hangs_up_what_is_under_way_and_begins_nothing() -> None:
    server = Server()
    stream = server.stream(workers=2)
    stream.ask(server.requests("abcd"))
    for _ in range(2):
        assert server.asked.acquire(timeout=20)
    stream.close()
    assert left() == [] and stream.advance() == []
    assert not server.asked.acquire(timeout=0.05) and not server.woken.acquire(timeout=0)


def test_what_was_cut_short_by_closing_is_no_sign_of_an_outage() -> None:
    server = Server()
    server.hung_up = failed(503)  # it waited for another attempt
    for _ in range(3):
        stream = server.stream(workers=2)
        stream.ask(server.requests("ab"))
        for _ in range(2):
            assert server.asked.acquire(timeout=20)
        stream.close()
    assert server.outage._failures == [] and server.outage._under_way == set()


def test_what_has_ended_is_told_before_the_error_that_ends_all() -> None:
    server = Server()
    stream = server.stream()
    stream.ask(server.requests("abc"))
    server.answer("a", reply(1))
    for name in "bc":
        server.answer(name, failed(None))
    said = stream.advance()
    assert said[0] == ("a", reply(1)) and [name for name, _ in said] == ["a", "b"]
    assert server.woken.acquire(timeout=0), "whoever waits must look again"
    with pytest.raises(PolicyError, match="all 2 requests"):
        stream.advance()
    stream.close()


def test_a_defect_is_raised_where_the_answers_are_taken() -> None:
    server = Server()
    stream = server.stream()
    stream.ask(server.requests("a"))
    server.answer("a", KeyError("x"))
    with pytest.raises(KeyError, match="x"):
        stream.advance()
    stream.close()


# -- a server that is not there for anyone --------------------------------------------------------------------------


def failed(status: int | None) -> HttpError:
    return HttpError(f"status {status}", status=status)


def play(script: str, outage: Outage | None = None) -> PolicyError | None:
    """Small letters begin a call, capital ones end it, followed by how: `+` well, `-` no answer, `5` 500, `4` 400."""
    outage = outage or Outage()
    how: dict[str, Answer] = {"+": reply(1), "-": failed(None), "5": failed(500), "4": failed(400), "1": failed(401)}
    calls: dict[str, Any] = {}
    found: list[PolicyError | None] = []
    for mark, after in zip(script, script[1:] + " ", strict=True):
        if mark.islower():
            calls[mark] = outage.began()
        elif mark.isupper():
            found.append(outage.ended(calls.pop(mark.lower()), how[after]))
    assert all(error is None for error in found[:-1]), "it was over before"
    return found[-1]


@pytest.mark.parametrize(
    "script",
    [
        "aA-bB-",  # a lone one, twice in a row
        "abcA-B-C-",  # everyone under way
        "abA-cC-B-",  # the one that was under way at the first failure, though another came and failed meanwhile
        "aA1bB1",
        "abcA5B-C5",  # not all could be a prompt's fault
        "abcdA5B5C5D5",
        "aA5bB5cC5dD5",
    ],
)
def test_it_is_an_outage(script: str) -> None:
    error = play(script)
    assert error is not None and "requests since the last reply failed, the first with: status" in str(error)
    assert not isinstance(error, HttpError)


@pytest.mark.parametrize(
    "script",
    [
        "aA-",
        "abA-cC-dD-eE-",  # b is still under way: it may be slow, and the others may have failed alone
        "aA-bB+cC-",
        "aA-bB4cC-",  # a refusal of one prompt shows the server at work
        "abA-B+cC-",
        "abA5B5",  # two prompts that it stumbles over
        "aA5bB5cC5",
        "aA4bB4cC4dD4eE4",  # each has failed alone
    ],
)
def test_it_is_none(script: str) -> None:
    assert play(script) is None


def test_a_call_that_was_hung_up_is_not_waited_for() -> None:
    outage = Outage()
    slow = outage.began()
    assert play("aA-", outage) is None
    outage.given_up(slow)
    assert play("bB-", outage) is not None
