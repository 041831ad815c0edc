"""The page in headless Chromium: what a person does with it, and what hostile episodes may not do."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agents.view.collect import Collection
from agents.view.pack import Tokenizers
from agents.view.page import write_page
from agents.view.serve import Followed, Server
from agents.view.wanted import Wanted, wanted
from tasks.sources import load_tasks
from tests.agents.view.browser import CHROMIUM, Browser, browser
from tests.agents.view.made import check, command, episode, failed, run_folder, turn, write

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="needs chromium"),
    pytest.mark.xdist_group("episodes page"),  # one browser for all
]
SIZES = [(1280, 800), (390, 844)]
ROWS = "[...document.querySelectorAll('.row')].map(row => row.getAttribute('aria-label'))"
TITLE = "document.querySelector('#reader h2')?.textContent"
FRAGMENT = "decodeURIComponent(location.hash)"
HIDDEN = "\u202egnp.exe\u2066 \u200f\u200b\x1b[31mred\x1b[0m \x07\u0085\u2028\ufeff \ud800 \U000e0041 \u3164 \r\n"
LONG = "z" * 1_000_000
EVIL = "</script><script>window.hit = 1</script><img src=x onerror='window.hit = 2'><!-- {{1}} &amp; " + HIDDEN

STARTS_AT = """
import os, pathlib, sys
from tests.agents.view.browser import browser
number = int(sys.argv[1])
while os.open(os.devnull, os.O_RDONLY) < number - 1:
    pass
with browser(pathlib.Path(sys.argv[2])) as window:
    print(window.run("6 * 7"))
"""
"""Starts a browser in a process whose first free descriptor is that number."""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = run_folder(tmp_path_factory.mktemp("run"))
    write_page([folder], folder / "episodes.html")
    return (folder / "episodes.html").as_uri()


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> str:
    turns = [
        command(0, EVIL, observation="x" * 1_000_000),
        turn(1, EVIL, observation="\n".join(["y" * 3000] * 50), action="malformed"),
        turn(2, "", observation=""),
    ]
    odd = episode(EVIL, 0, turns, family=EVIL, sampling=EVIL, error=EVIL, stop_reason="infrastructure", passed=None)
    odd.assertions = [check(f"file_equals:{EVIL}", "fail", f"{EVIL}: no match for '{EVIL}'", "file_matches"),
                      {"name": "constructor", "kind": "__proto__", "verdict": "toString", "detail": None}]  # fmt: skip
    turns[1].notes = {"__defineGetter__": 1.0, "constructor": 2.0, "toString": 3.0}
    odd.task_hash = "__proto__"
    odd.notes, odd.environment = (
        {EVIL: EVIL, "losses": [{"turn": 0, "command": EVIL, "end": "x", "error": EVIL}]},
        {EVIL: 1},
    )
    path = write(
        tmp_path_factory.mktemp("evil") / "evil.jsonl",
        [odd, episode(EVIL, 1), episode("__proto__"), episode(LONG, sampling=LONG, family=LONG)],
    )
    write_page([path], path.with_suffix(".html"))
    return path.with_suffix(".html").as_uri()


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("home")) as made:
        yield made


@pytest.fixture
def window(chromium: Browser) -> Iterator[Browser]:
    """No test may leave a word on the console or a request behind."""
    chromium.console.clear()
    chromium.requests.clear()
    yield chromium
    assert chromium.console == []
    assert [one for one in chromium.requests if not one.startswith("file:") and "127.0.0.1" not in one] == []


@pytest.mark.parametrize("size", SIZES)
def test_keys(window: Browser, page: str, size: tuple[int, int]) -> None:
    window.open(page, *size)
    assert len(window.run(ROWS)) == 6
    window.press("j")
    window.wait(f"{TITLE} === 'merge'")
    assert window.run(FRAGMENT) == "#e=trajectories/step_000001.jsonl:0"
    window.press("j")
    window.wait("document.querySelectorAll('.turn').length === 3")
    window.press("ArrowRight")
    window.press("ArrowRight")
    assert window.run("document.querySelector('.turn.current b').textContent") == "Turn 1"
    window.press("ArrowLeft")
    assert window.run("document.querySelector('.turn.current b').textContent") == "Turn 0"
    window.press("k")
    window.wait("document.querySelectorAll('.turn').length === 2")
    window.press("c")
    window.wait("document.querySelector('.pairs')")
    window.press("f")
    window.press("Escape")
    window.wait("!document.querySelector('.pairs')")
    window.press("Escape")
    window.wait("!document.querySelector('.sheet')")
    window.press("ArrowDown")  # the list has the focus now
    window.wait("document.querySelector('.sheet')")
    window.press("?")
    assert window.run("document.getElementById('help').open && document.querySelectorAll('#keys dt').length") == 9
    window.run("document.getElementById('help').close()")
    window.press("/")
    assert window.run("document.activeElement.id") == "f-q"
    window.press("j")  # a letter of the search now
    assert window.run("document.getElementById('f-q').value") == "j"
    window.press("Escape")
    assert window.run("document.activeElement.id") == "list"
    assert window.run("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize(
    ("fragment", "found"),
    [
        ("task=held", 1), ("family=tables", 1), ("pass=passed", 3), ("pass=failed", 2), ("pass=no grade", 1),
        ("stop=max_turns", 3), ("step=1", 3), ("arm=held-out greedy", 1), ("failed=out.csv", 3), ("failed=all_of", 0),
        ("with=think control", 3), ("q=two lists", 4), ("q=sort", 1), ("q=no such file", 0),
        ("q=NO SUCH file&deep=1", 3),
        ("pass=failed&step=2", 1), ("sort=worst first", 6),
    ],
)  # fmt: skip
def test_filters(window: Browser, page: str, fragment: str, found: int) -> None:
    window.open(f"{page}#{fragment.replace(' ', '%20')}")
    window.wait(f"{ROWS}.length === {found}", 5)
    said = window.run("document.getElementById('count').textContent")
    assert said.startswith("6 episodes" if found == 6 else f"{found} of 6 episodes")
    if found == 0:
        assert "No episode is like that" in window.run("document.getElementById('rows').textContent")
    window.run("document.getElementById('f-clear').click()")
    window.wait(f"{ROWS}.length === 6", 5)


def test_a_choice_filters_and_stands_in_the_address(window: Browser, page: str) -> None:
    window.open(page)
    window.run(
        "{const f = document.getElementById('f-pass'); f.value = 'failed';"
        "f.dispatchEvent(new Event('input', {bubbles: true}))}"
    )
    assert len(window.run(ROWS)) == 2 and window.run("location.hash") == "#pass=failed"
    assert "0 of 2 graded passed" in window.run("document.getElementById('count').textContent")


@pytest.mark.parametrize("size", SIZES)
def test_an_episode_says_all_that_is_recorded(window: Browser, page: str, size: tuple[int, int]) -> None:
    window.open(f"{page}#e=trajectories/step_000001.jsonl:1", *size, dark=True)
    window.wait("document.querySelector('.sheet')")
    text = window.run("document.getElementById('reader').innerText")
    for part in ("failed", "Merge the two lists.", "4 lines", "5 lines", "Attempts at this task: 2 of 4 graded passed",
                 "exit 1", "signal −0.500", "advantage −0.750", "think capped", "7 tokens of thought", "timed out",
                 "1 rejected candidate", "3 tokens put in", "cut at the cap of 12", "malformed", "uncertainty 0.500",
                 "cat a.txt", "no such file"):  # fmt: skip
        assert part in text, part
    assert "```" not in text
    assert window.run("document.querySelectorAll('svg.strip').length") == 3
    assert (
        window.run(
            "document.querySelectorAll('svg.strip')[1].querySelector('.forced').getAttribute('d').match(/M/g).length"
        )
        == 3
    )
    window.run("document.querySelectorAll('details').forEach(one => { one.open = true })")
    window.wait("document.querySelector('.tok')")
    assert "rm -rf" in window.run("document.getElementById('reader').textContent")
    tokens = "[...document.querySelectorAll('.tokens')][0].textContent"
    assert window.run(tokens) == "First I look.\n```bash\nls\n```∎"
    assert str(2**62 + 1) in window.run("document.getElementById('reader').textContent")
    assert window.run("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize("size", SIZES)
def test_two_attempts_side_by_side(window: Browser, page: str, size: tuple[int, int]) -> None:
    window.open(f"{page}#e=trajectories/step_000001.jsonl:0&vs=trajectories/step_000001.jsonl:1", *size)
    window.wait("document.querySelector('.first')")
    assert window.run("document.querySelector('.first').textContent") == "first difference, turn 1: another command"
    assert "turn 0 is the same on both sides" in window.run("document.getElementById('reader').textContent")
    a, b = window.run(
        "[...document.querySelectorAll('.turn.differs')].slice(0, 2).map(one => one.getBoundingClientRect().x)"
    )
    assert (a < b) is (size[0] > 860)  # beside one another, or one above the other on a phone
    assert window.run("document.documentElement.scrollWidth <= innerWidth")


def test_what_was_recorded_without_uncertainty_says_so(window: Browser, tmp_path: Path) -> None:
    bare, text = turn(0, "hello"), turn(0, "hello")
    bare.entropies, text.ids, text.forced, text.entropies, text.logprobs = None, [], [], None, None
    path = write(tmp_path / "bare.jsonl", [episode(turns=[bare]), episode(turns=[text])])
    write_page([path], tmp_path / "bare.html")
    for place, said in enumerate(
        ("Recorded without entropies: no strip.", "Recorded as text, without tokens: no strip.")
    ):
        window.open(f"{(tmp_path / 'bare.html').as_uri()}#e=bare.jsonl:{place}")
        window.wait("document.querySelector('.sheet')")
        assert said in window.run("document.getElementById('reader').textContent")
        assert not window.run("document.querySelector('svg.strip')")


@pytest.mark.parametrize("size", SIZES)
def test_hostile_text_neither_breaks_nor_misleads(window: Browser, hostile: str, size: tuple[int, int]) -> None:
    window.open(hostile, *size)
    assert len(window.run(ROWS)) == 4
    for key in ("j", "c"):
        window.press(key)
        window.wait("document.querySelector('.sheet')" if key == "j" else "document.querySelector('.first')")
        window.run("document.querySelectorAll('details').forEach(one => { one.open = true })")
        assert window.run("window.hit") is None
        assert window.run("document.querySelectorAll('img, #reader script').length") == 0
        shown = window.run("document.body.textContent")
        seen = [letter for letter in HIDDEN if letter not in " \n" and not letter.isalnum() and letter not in ".[;"]
        assert [f"U+{ord(letter):04X}" for letter in seen if letter in shown.replace("\r\n", "")] == []
        reader = window.run("document.getElementById('reader').textContent")
        for named in ("<U+202E>", "<U+001B>", "<U+D800>", "<U+E0041>", "<U+3164>", "<U+000D>", "<U+2028>"):
            assert named in reader, named
    window.press("Escape")
    window.wait("document.querySelector('.more:not([hidden])')")
    more = "[...document.querySelectorAll('.more:not([hidden])')].find(one => one.textContent.includes('997,000'))"
    size_of = f"{more.replace('.more:not([hidden])', '.more')}?.previousSibling.textContent.length"
    assert window.run(size_of) == 3000
    assert (
        window.run(
            f"(() => {{ const b = {more}; const pre = b.previousSibling; b.click(); return pre.textContent.length }})()"
        )
        == 103_000
    )
    assert window.run("document.documentElement.scrollWidth <= innerWidth")
    window.run("location.hash = '#e=evil.jsonl:3'")
    window.wait("document.querySelector('#reader h2')?.textContent.startsWith('zzz')")
    assert window.run("document.body.innerText.length") < 20_000  # nothing but the value of a choice holds all of it


@pytest.mark.parametrize(
    "fragment", ["e=%3Cimg src=x%3E", "e=nothing&vs=nothing", "sort=constructor&pass=%E2%80%AE", "%%%"]
)
def test_a_hostile_link_is_only_text(window: Browser, page: str, fragment: str) -> None:
    window.open(f"{page}#{fragment}")
    assert window.run("document.querySelectorAll('img').length") == 0
    if fragment.startswith("e="):
        assert "There is no episode" in window.run("document.getElementById('reader').textContent")


def test_a_live_page_follows(window: Browser, tmp_path: Path) -> None:
    folder = run_folder(tmp_path)
    with Server(Followed(Collection([folder], Tokenizers(), Wanted(), growing=True))) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            window.open(f"{server.address}#e=trajectories/step_000001.jsonl:1")
            window.wait("document.querySelector('.sheet')")
            write(folder / "trajectories" / "step_000003.jsonl", [failed("fresh", 0)])
            window.wait(f"{ROWS}.length === 7", 10)
            assert json.loads(window.run("JSON.stringify(document.getElementById('live').textContent)")) == "live"
            assert window.run(TITLE) == "merge"
            window.run("location.hash = '#e=trajectories/step_000003.jsonl:0'")
            window.wait(f"{TITLE} === 'fresh'")
            window.run("location.hash = ''")
        finally:
            server.shutdown()
            thread.join()


def test_what_a_task_wanted_stands_beside_the_finding(window: Browser, tmp_path: Path) -> None:
    task = load_tasks("library")[0]
    asked = next(one for one in task.assertions if one.kind.startswith("file_") and wanted(task)["checks"][named(one)])
    checks = [check(named(asked), "fail", "out: no match for 'x...'", "file_matches")]
    path = write(tmp_path / "e.jsonl", [episode(task.id, task_hash=task.content_hash, assertions=checks), failed()])
    write_page([path], tmp_path / "e.html")
    window.open(f"{(tmp_path / 'e.html').as_uri()}#e=e.jsonl:0")
    window.wait("document.querySelector('.checks')")
    pairs = "[...document.querySelectorAll('.checks dt')].map(one => [one.textContent, one.nextSibling.textContent])"
    rows = dict(window.run(pairs))
    key, value = wanted(task)["checks"][named(asked)][0]
    assert value in rows[key] and "should match" not in rows
    text = window.run("document.getElementById('reader').textContent")
    assert task.intent in text and "the workspace at the start" in text and "not at hand" not in text
    window.run("location.hash = '#e=e.jsonl:1'")
    window.wait(f"{TITLE} === 'merge'")
    text = window.run("document.getElementById('reader').textContent")
    assert "not the contents at the end. The task is not at hand, or has changed since" in text


def named(one: Any) -> str:
    return str(one.name or one.default_name())


def test_a_tool_call_is_shown_as_its_command(window: Browser, tmp_path: Path) -> None:
    first, second = 'echo "a"', "ls name"
    draft = '<think>maybe <tool_call>{"name": "rm"}</tool_call></think>I look.'
    replies = [
        (first, f"{draft}\n<tool_call>\n{json.dumps({'name': 'bash', 'arguments': {'command': first}})}\n</tool_call>"),
        (
            second,
            f"<tool_call>\n<function=bash>\n<parameter=command>\n{second}\n</parameter>\n</function>\n</tool_call>",
        ),
        (second, json.dumps({"name": "bash", "parameters": {"command": second}})),
        (second, f"[TOOL_CALLS] [{json.dumps({'name': 'bash', 'arguments': {'command': second}})}]"),
        (second, f"<tool_call> is a word.\n```bash\n{second}\n```"),
    ]
    turns = [turn(place, reply, command=run) for place, (run, reply) in enumerate(replies)]
    write(tmp_path / "calls.jsonl", [episode(turns=turns)])
    write_page([tmp_path / "calls.jsonl"], tmp_path / "episodes.html")
    window.open(f"{(tmp_path / 'episodes.html').as_uri()}#e=calls.jsonl:0", *SIZES[0])
    window.wait("document.querySelector('.sheet')")
    text = window.run("document.getElementById('reader').innerText")
    assert first in text and text.count(second) == 4
    assert "I look." in text and "is a word." in text
    assert not any(mark in text for mark in ("arguments", "parameter", "[TOOL_CALLS]", "```"))


@pytest.mark.parametrize("number", [5, 27, 30])
def test_a_browser_starts_whatever_descriptors_are_free(number: int, tmp_path: Path) -> None:
    command = [sys.executable, "-c", STARTS_AT, str(number), str(tmp_path)]
    assert subprocess.run(command, check=True, capture_output=True, text=True, close_fds=True).stdout == "42\n"
