"""Chat endpoints that stumble, each as a real one does: wrappers around a script of `fake_endpoint`."""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections.abc import Callable
from typing import Any

from tests.agents.policies.fake_endpoint import Answer, Script

KNOWN = frozenset({"model", "messages", "max_tokens", "temperature"})
CUT = Answer(200, b'{"choices": [{"message"', Content_Length="4000")


def slow_tail(script: Script, seconds: float = 0.3, every: int = 10) -> Script:
    """One reply in `every` takes `seconds`."""
    count = itertools.count()

    def answer(body: dict[str, Any]) -> Any:
        if next(count) % every == every - 1:
            time.sleep(seconds)
        return script(body)

    return answer


def limited(script: Script, window: float = 0.4, most: int = 40) -> Script:
    """No more than `most` requests a window, refused ones included in none; it never says for how long to wait."""
    lock, state = threading.Lock(), [0.0, 0.0]

    def answer(body: dict[str, Any]) -> Any:
        with lock:
            now = time.monotonic()
            if now - state[0] > window:
                state[:] = [now, 0]
            state[1] += 1
            taken = state[1] <= most
        return script(body) if taken else Answer(429, {"error": {"message": "rate limit", "code": "rate_limited"}})

    return answer


def once(script: Script, bad: Answer, at: int = 5) -> Script:
    """One answer is `bad`."""
    count = itertools.count()
    return lambda body: bad if next(count) == at else script(body)


def strict(script: Script) -> Script:
    """Refuses keys that it does not know, the seed among them."""

    def answer(body: dict[str, Any]) -> Any:
        if unknown := sorted(body.keys() - KNOWN):
            return Answer(422, {"detail": [{"type": "extra_forbidden", "loc": ["body", key]} for key in unknown]})
        return script(body)

    return answer


def changed(script: Script, change: Callable[[dict[str, Any]], None]) -> Script:
    """Each choice is changed."""

    def answer(body: dict[str, Any]) -> Any:
        said = json.loads(json.dumps(script(body)))
        change(said["choices"][0])
        return said

    return answer


def in_parts(choice: dict[str, Any]) -> None:
    """The reply's text comes in parts, a thought before it."""
    text = choice["message"]["content"]
    choice["message"]["content"] = [
        {"type": "thinking", "thinking": "hm"},
        {"type": "text", "text": text[:2]},
        {"type": "text", "text": text[2:]},
    ]


def end_turn(choice: dict[str, Any]) -> None:
    """Another word for the end of a reply."""
    choice["finish_reason"] = {"stop": "end_turn", "length": "max_tokens"}[choice["finish_reason"]]


STUMBLING: dict[str, Callable[[Script], Script]] = {
    "a tail of slow replies": slow_tail,
    "40 in a window without Retry-After": limited,
    "one 500": lambda script: once(script, Answer(500, {"error": {"message": "boom"}})),
    "one cut body": lambda script: once(script, CUT),
    "one page that is no JSON": lambda script: once(script, Answer(200, b"<html>gateway</html>")),
    "no seed": strict,
    "content as parts": lambda script: changed(script, in_parts),
    "end_turn": lambda script: changed(script, end_turn),
}
"""By name; nothing may be lost at any of them."""
EXTRA: dict[str, dict[str, None]] = {"no seed": {"seed": None}}
"""What a user adds to the requests there."""
