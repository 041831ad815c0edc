from __future__ import annotations

import socket
import threading
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest

from tasks.endpoints import http, throttle
from tasks.endpoints.flight import Flight, GivenUp
from tasks.endpoints.http import HttpError, JsonClient
from tests.agents.policies.fake_endpoint import Answer, Hangup, endpoint

KEY = "sk-secret-0123456789"


@pytest.fixture(autouse=True)
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Waits between attempts are noted and take no time: the clock is moved on."""
    noted: list[float] = []
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")

    def wait(event: threading.Event, seconds: float | None) -> bool:
        assert seconds is not None, "one call alone never waits for another"
        noted.append(seconds)
        return event.is_set()

    monkeypatch.setattr(http, "_wait", wait)
    monkeypatch.setattr(throttle, "_wait", wait)
    monkeypatch.setattr(throttle, "_now", lambda: sum(noted))
    return noted


def scripted(*answers: Any) -> Any:
    rest = list(answers)

    def script(body: dict[str, Any]) -> Any:
        answer = rest.pop(0) if len(rest) > 1 else rest[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    return script


def test_an_object_goes_out_and_one_comes_back() -> None:
    with endpoint(lambda body: {"got": body}) as server:
        client = JsonClient(server.url + "/", key=KEY)
        assert client.post("/chat", {"a": [1, "é"]}) == {"got": {"a": [1, "é"]}}
        assert client.get("models") == {"got": {}}
        assert server.paths == ["/v1/chat", "/v1/models"]
        assert server.headers[0]["Authorization"] == f"Bearer {KEY}"


CUT = Answer(200, b'{"ok"', Content_Length="100")


@pytest.mark.parametrize(
    "first",
    [*(Answer(status, {}) for status in (408, 429, 500, 502, 503, 529)), CUT, Answer(200, b"<html>"), Answer(200, b"")],
)
def test_what_may_pass_is_tried_again(first: Answer, waits: list[float]) -> None:
    with endpoint(scripted(first, Hangup(), {"ok": 1})) as server:
        assert JsonClient(server.url).post("x", {}) == {"ok": 1}
        assert len(server.paths) == 3
    refused = first.status in throttle.BUSY
    assert 0.37 <= waits[0] <= 0.63, "the first wait is half a second"
    assert (0.37 if refused else 0.75) <= waits[1] <= (0.63 if refused else 1.25)


def test_the_wait_doubles_up_to_a_limit_and_outlasts_minutes(waits: list[float]) -> None:
    with endpoint(scripted(Answer(500, {}))) as server, pytest.raises(HttpError, match="11 attempts"):
        JsonClient(server.url).get("x")
    assert len(waits) == 10 and waits[-1] == http.LONGEST_WAIT and all(w <= http.LONGEST_WAIT for w in waits)
    assert sum(waits) > 180


def test_a_limit_is_waited_for_as_long_with_looks_in_between(waits: list[float]) -> None:
    with endpoint(scripted(Answer(429, {}))) as server, pytest.raises(HttpError, match=r"HTTP 429, \d\d attempts"):
        JsonClient(server.url).get("x")
    assert sum(waits) > 180 and waits[-1] == http.LONGEST_LOOK


def test_retry_after_is_honoured_as_number_and_as_date(waits: list[float]) -> None:
    soon = format_datetime(datetime.now(UTC) + timedelta(seconds=30), usegmt=True)
    values = ["7", soon, "599", "-3", "tomorrow"]
    with endpoint(scripted(*(Answer(429, {}, Retry_After=value) for value in values), {"ok": 1})) as server:
        assert JsonClient(server.url).get("x") == {"ok": 1}
    assert waits[0] == 7 and 20 <= waits[1] <= 30 and waits[2] == 599
    assert 0.37 <= waits[3] <= 0.63, "what is no time is not honoured: that is the first wait of our own"
    assert len(waits) == 4, "nor is a time that is over"


def test_a_server_that_asks_for_too_long_a_wait_is_not_waited_for(waits: list[float]) -> None:
    answer = Answer(429, {"detail": "come back tomorrow"}, Retry_After="86400")
    with endpoint(scripted(answer)) as server, pytest.raises(HttpError, match="HTTP 429.*come back tomorrow"):
        JsonClient(server.url).get("x")
    assert waits == []


def test_a_server_that_was_never_there_is_given_up_sooner() -> None:
    with endpoint(scripted({}, Hangup())) as server:
        met = JsonClient(server.url)
        met.get("x")
        with pytest.raises(HttpError, match="no answer, 6 attempts"):
            JsonClient(server.url).get("x")
        with pytest.raises(HttpError, match="no answer, 11 attempts"):
            met.get("x")


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (Answer(400, {"error": {"message": "no such parameter", "type": "invalid"}}), "HTTP 400: no such parameter"),
        (Answer(401, {"error": {"message": "who?"}}), r"HTTP 401 \(is the API key set.*: who\?"),
        (Answer(404, b"<h1>nothing   here</h1>"), r"HTTP 404 \(is the path.*: <h1>nothing here</h1>"),
        (Answer(422, {"detail": [{"loc": "seed"}]}), r"HTTP 422: .*'loc': 'seed'"),
        (Answer(400, {"object": "error", "message": "old form"}), "HTTP 400: old form"),
        (Answer(308, b"", Location="https://elsewhere/v1"), r"HTTP 308 \(a redirect .*\(https://elsewhere/v1\)"),
        (Answer(307, {}, Location="https://elsewhere/v1"), r"HTTP 307 \(a redirect .*\(https://elsewhere/v1\)"),
        (Answer(400, {"error": {"message": "bad \ud800 text"}}), r"HTTP 400: bad \? text"),
        (Answer(429, {"error": {"message": "pay", "code": "insufficient_quota"}}), "HTTP 429: pay"),
        (Answer(429, {"error": {"message": "Request too large for m on tokens per min"}}), "HTTP 429: Request too l"),
        (Answer(400, [{"error": {"code": 400, "message": "in a list"}}]), "HTTP 400: in a list"),
    ],
)
def test_what_stays_wrong_is_said_at_once(answer: Answer, said: str) -> None:
    with endpoint(scripted(answer)) as server:
        with pytest.raises(HttpError, match=said) as caught:
            JsonClient(server.url).post("x", {})
        assert str(caught.value).startswith(f"{server.url}/x: ") and caught.value.status == answer.status
        assert len(server.paths) == 1


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (Answer(200, b"<html>hello</html>"), "not a JSON object but <html>hello</html>"),
        (Answer(200, b""), "not a JSON object but nothing"),
        (Answer(200, [1]), r"not a JSON object but \[1\]"),
    ],
)
def test_what_stays_no_json_is_said(answer: Answer, said: str) -> None:
    with (
        endpoint(scripted(answer)) as server,
        pytest.raises(HttpError, match=f"HTTP 200, 2 attempts: {said}") as caught,
    ):
        JsonClient(server.url, retries=1).post("x", {})
    assert caught.value.status == 200


def test_a_server_that_is_not_there_is_named_with_the_attempts() -> None:
    with endpoint(scripted({})) as server:
        url = server.url
    with pytest.raises(HttpError, match=rf"^{url}/x: no answer, 3 attempts: ConnectionError: ") as caught:
        JsonClient(url, retries=2).get("x")
    assert caught.value.status is None


def test_a_server_that_says_nothing_times_out() -> None:
    over = threading.Event()
    with endpoint(lambda body: over.wait(10) or {}) as server:
        with pytest.raises(HttpError, match=r"no answer, 2 attempts: nothing came for 0\.1 s"):
            JsonClient(server.url, timeout=0.1, retries=1).get("x")
        with pytest.raises(HttpError, match="no answer, 3 attempts"):  # each cost the whole time
            JsonClient(server.url, timeout=0.1).get("x")
        over.set()


def test_the_key_is_in_no_message() -> None:
    masked = "Incorrect API key provided: sk-se********6789, or " + KEY
    with endpoint(scripted(Answer(401, {"error": {"message": masked}}))) as server:
        with pytest.raises(HttpError) as caught:
            JsonClient(server.url, key=f" {KEY}\n").get("x")
        assert server.headers[0]["Authorization"] == f"Bearer {KEY}"
    assert str(caught.value).endswith("Incorrect API key provided: ***, or ***")
    assert "6789" not in str(caught.value) and KEY not in repr(vars(caught.value))
    with pytest.raises(ValueError, match="holds characters that no key has") as refused:
        JsonClient("http://h", key="sk-a\nsk-b")
    assert "sk-" not in str(refused.value)


def test_a_key_is_hidden_before_a_message_is_cut() -> None:
    with (
        endpoint(scripted(Answer(400, {"error": {"message": "x" * 390 + " " + KEY}}))) as server,
        pytest.raises(HttpError) as caught,
    ):
        JsonClient(server.url, key=KEY).get("x")
    assert "sk-" not in str(caught.value) and "***" in str(caught.value)


def test_messages_name_the_key() -> None:
    with endpoint(scripted(Answer(401, {}))) as server, pytest.raises(HttpError, match="is MY_KEY set, and is it this"):
        JsonClient(server.url, key_name="MY_KEY").get("x")


def test_a_call_has_retries_and_final_statuses_of_its_own() -> None:
    with endpoint(scripted(Answer(500, {"detail": "no"}))) as server:
        client = JsonClient(server.url)
        with pytest.raises(HttpError, match=r"HTTP 500: no"):
            client.tell("x", {}, final=(500,))
        with pytest.raises(HttpError, match=r"HTTP 500, 2 attempts: no"):
            client.tell("x", {}, retries=1)
        assert len(server.paths) == 3


def test_an_answer_may_be_no_json_where_only_the_status_matters() -> None:
    with endpoint(scripted(Answer(200, b"Success: it is loaded"))) as server:
        JsonClient(server.url).tell("x", {})
        JsonClient(server.url).tell("health")


def test_proxies_are_left_out_where_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_PROXY")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with endpoint(scripted({"ok": 1})) as server:
        assert JsonClient(server.url, trust_env=False).get("x") == {"ok": 1}
        with pytest.raises(HttpError, match="no answer"):
            JsonClient(server.url, retries=0).get("x")


def test_a_call_that_waits_is_hung_up_and_not_tried_again() -> None:
    asked, over = threading.Event(), threading.Event()

    def silent(body: dict[str, Any]) -> Any:
        asked.set()
        over.wait(60)
        return {}

    flight, caught = Flight(), []
    with endpoint(silent) as server:
        client = JsonClient(server.url)

        def call() -> None:
            try:
                client.post("x", {}, flight=flight)
            except GivenUp as error:
                caught.append(str(error))

        thread = threading.Thread(target=call)
        thread.start()
        assert asked.wait(30)  # the server has it, and does not answer
        flight.stop()
        thread.join(30)
        assert not thread.is_alive() and len(server.paths) == 1
        with pytest.raises(GivenUp):
            client.get("x", flight=flight)
        over.set()
        assert client.get("x") == {}, "the client is good for the next batch"
    assert caught == ["given up"]


def test_a_connection_that_is_being_made_is_hung_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"https://127.0.0.1:{listening.getsockname()[1]}"  # accepts, and never shakes hands
        flight, caught = Flight(), []

        def call() -> None:
            try:
                JsonClient(url, retries=5).get("x", flight=flight)
            except GivenUp as error:
                caught.append(str(error))

        thread = threading.Thread(target=call)
        thread.start()
        accepted, _ = listening.accept()
        accepted.recv(1)
        flight.stop()
        thread.join(8)
        accepted.close()
    assert caught == ["given up"]


def test_no_key_of_a_netrc_file_is_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login me password pw\n")
    monkeypatch.setenv("NETRC", str(netrc))
    with endpoint(scripted({})) as server:
        JsonClient(server.url).get("x")
        assert "Authorization" not in server.headers[0]


@pytest.mark.parametrize("url", ["", "ftp://h/v1", "http://", "api.openai.com/v1", "http://h:port", "http://h/a b"])
def test_what_is_no_address(url: str) -> None:
    with pytest.raises(ValueError, match="no http:// or https:// URL"):
        JsonClient(url)


@pytest.mark.parametrize("url", ["https://me:pw@h/v1", "https://h/v1?key=pw", "https://h/v1#pw"])
def test_an_address_with_a_secret_is_refused_and_not_shown(url: str) -> None:
    with pytest.raises(ValueError, match="the address of h holds") as caught:
        JsonClient(url)
    assert "pw" not in str(caught.value)


def test_settings_that_cannot_be() -> None:
    with pytest.raises(ValueError, match="timeout is 0"):
        JsonClient("http://h", timeout=0)
    with pytest.raises(ValueError, match="retries is -1"):
        JsonClient("http://h", retries=-1)
    for wrong in (float("nan"), float("inf")):
        with pytest.raises(ValueError, match="expected more than 0"):
            JsonClient("http://h", timeout=wrong)


def test_closing_ends_a_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = threading.Event()

    def wait(event: threading.Event, seconds: float | None) -> bool:
        waiting.set()
        return event.wait(30)

    monkeypatch.setattr(throttle, "_wait", wait)
    failures: list[HttpError] = []
    with endpoint(scripted(Answer(503, {}))) as server:
        client = JsonClient(server.url)

        def ask() -> None:
            try:
                client.get("x")
            except HttpError as error:
                failures.append(error)

        thread = threading.Thread(target=ask)
        thread.start()
        assert waiting.wait(20)
        client.close()
        client.close()
        thread.join(20)
        with pytest.raises(ValueError, match="the client was closed"):
            client.get("x")
    assert len(failures) == 1 and failures[0].status == 503
