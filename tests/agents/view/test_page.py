from __future__ import annotations

import base64
import hashlib
import json
import re
import zlib
from pathlib import Path
from typing import Any

import pytest

from agents.__main__ import main
from agents.commands import UsageError
from agents.view.page import shell, write_page
from tests.agents.view.made import episode, run_folder, turn, write


def islands(page: Path) -> dict[str, Any]:
    """What the page holds, decoded."""
    found = re.findall(r'<script type="application/octet-stream" id="([\w-]+)">([\w+/=]*)</script>', page.read_text())
    return {name: json.loads(zlib.decompress(base64.b64decode(text))) for name, text in found}


def test_the_page_holds_every_episode(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = run_folder(tmp_path / "run")
    assert main(["view", str(folder)]) == 0
    page = folder / "episodes.html"
    assert re.fullmatch(rf"6 episodes, 0\.\d MB: {re.escape(str(page))}", capsys.readouterr().out.strip())
    held = islands(page)
    index, wanted = held.pop("index"), held.pop("wanted")
    assert wanted == {}  # none of the library's tasks has the hash of these
    assert [name for name in held] == [f"part-{part['id']}" for part in index["parts"]]
    assert [len(held[f"part-{part['id']}"]) for part in index["parts"]] == [
        len(part["rows"]) for part in index["parts"]
    ]
    assert index["intents"] == {"merge": "Merge the two lists."}


def test_same_episodes_same_bytes(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run")
    pages = []
    for name in ("a.html", "b.html"):
        write_page([folder], tmp_path / name)
        pages.append((tmp_path / name).read_bytes())
    assert pages[0] == pages[1]


def test_no_text_of_an_episode_stands_in_the_page(tmp_path: Path) -> None:
    evil = "</script><script>alert(1)</script><!--"
    path = write(tmp_path / "evil.jsonl", [episode(evil, turns=[turn(0, evil, observation=evil)], family=evil)])
    out = tmp_path / "page.html"
    write_page([path], out)
    assert "alert" not in out.read_text()
    assert islands(out)["part-0"][0]["turns"][0]["observation"] == evil


@pytest.mark.parametrize("live", [False, True])
def test_only_our_script_may_run_and_only_a_live_page_may_ask(live: bool) -> None:
    text = "".join(shell(live=live))
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', text)
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    for kind, pattern in (("script-src", r"<script>(.*?)</script>"), ("style-src", r"<style>(.*?)</style>")):
        (inside,) = re.findall(pattern, text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
        assert rules[kind] == f"'sha256-{digest}'"
    assert rules["default-src"] == "'none'" and ("connect-src" in rules) is live
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|@[A-Z]+@", text)


def test_nothing_to_show_is_said_and_leaves_no_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"step": 1}\n')
    with pytest.raises(UsageError, match="no episodes there"):
        write_page([tmp_path], tmp_path / "page.html")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["metrics.jsonl"]
    assert main(["view", str(tmp_path / "gone")]) == 2
    assert "is not there" in capsys.readouterr().err
    assert main(["view", str(run_folder(tmp_path / "run")), "--model", "no-such-model"]) == 2
    assert "no-such-model" in capsys.readouterr().err
