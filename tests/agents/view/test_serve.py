from __future__ import annotations

import http.client
import json
import re
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from agents.__main__ import main
from agents.commands import UsageError
from agents.view.collect import Collection
from agents.view.pack import Tokenizers
from agents.view.serve import Followed, Server, serve
from agents.view.wanted import Wanted
from tests.agents.view.made import episode, run_folder, write


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return run_folder(tmp_path / "run")


@pytest.fixture
def server(folder: Path) -> Iterator[Server]:
    with Server(Followed(Collection([folder], Tokenizers(), Wanted(), growing=True))) as made:
        thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def get(server: Server, path: str, host: str | None = None) -> tuple[int, bytes, dict[str, str]]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
    connection.request("GET", path, headers={"Host": host or server.hosts[0]})
    answer = connection.getresponse()
    body, headers = answer.read(), dict(answer.getheaders())
    connection.close()
    return answer.status, body, headers


def test_the_page_its_index_and_its_parts(server: Server, folder: Path) -> None:
    base = f"/{server.secret}/"
    status, page, headers = get(server, base)
    assert status == 200 and b"connect-src 'self'" in page and headers["Cache-Control"] == "no-store"
    index = json.loads(get(server, f"{base}index?have=-1")[1])
    assert index["alive"] == [part["id"] for part in index["parts"]] and index["error"] == ""
    assert json.loads(zlib.decompress(get(server, f"{base}wanted")[1])) == {}
    packed = get(server, f"{base}part/{index['alive'][0]}")[1]
    assert len(json.loads(zlib.decompress(packed))) == len(index["parts"][0]["rows"])
    have = max(index["alive"])
    assert json.loads(get(server, f"{base}index?have={have}")[1])["parts"] == []
    write(folder / "trajectories" / "step_000003.jsonl", [episode("fresh")])
    news = json.loads(get(server, f"{base}index?have={have}")[1])
    assert [part["rows"][0][0] for part in news["parts"]] == ["fresh"] and len(news["alive"]) == len(index["alive"]) + 1


def test_a_damaged_file_is_said_and_the_rest_is_shown(server: Server, folder: Path) -> None:
    path = folder / "trajectories" / "step_000003.jsonl"
    write(path, [episode("whole")])
    with open(path, "a") as file:
        file.write('{"task_id": 1}\n')
    for _ in range(2):
        index = json.loads(get(server, f"/{server.secret}/index?have=-1")[1])
        assert "step_000003.jsonl:2: not a trajectory" in index["error"] and len(index["alive"]) >= 3


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1", "localhost:1"])
def test_another_host_gets_nothing(server: Server, host: str) -> None:
    assert get(server, f"/{server.secret}/", host)[0] == 403
    assert get(server, f"/{server.secret}/index", host)[0] == 403


@pytest.mark.parametrize(
    "path", ["/", "/index", "/wrong/index", "/{}", "/{}/part/999", "/{}/part/../index", "/{}/x", "/%00"]
)
def test_without_the_secret_there_is_nothing(server: Server, path: str) -> None:
    assert get(server, path.format(server.secret))[0] == 404


def test_it_listens_on_this_machine_alone(server: Server) -> None:
    assert server.server_address[0] == "127.0.0.1" and server.hosts[1].startswith("localhost:")
    assert get(server, f"/{server.secret}/", server.hosts[1])[0] == 200


def test_a_port_that_is_taken_is_said(server: Server, folder: Path) -> None:
    with pytest.raises(UsageError, match="cannot be had"):
        serve([folder], Tokenizers(), Wanted(), port=server.server_port)


def test_the_command_says_where_it_serves_and_ends_with_ctrl_c(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(server: Server) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Server, "serve_forever", interrupted)
    assert main(["view", str(folder), "--serve"]) == 0
    first, last = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/[\w-]{20,}/ \(Ctrl-C ends it; this machine only\)", first)
    assert last == "ended"
