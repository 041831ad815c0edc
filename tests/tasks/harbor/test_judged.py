"""Where verifiers of Harbor folders run: in a fresh sandbox with real folders, with a network, or beside the agent."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import docker
import pytest

from envs.clawgym import ClawGymEnv
from envs.sandboxed import ExposedJudge, refuse_exposed
from sandboxes import Backend, open_sandbox
from sandboxes.client import SupervisedSandbox
from sandboxes.docker.engines import find_engines
from sandboxes.sandbox import FileEntry, JudgeIsolation, SandboxUnavailable
from tasks.__main__ import run
from tasks.assertions import grader
from tasks.assertions.base import Outcome, Verdict
from tasks.assertions.grader import SandboxGrader
from tasks.assertions.script import Script
from tasks.judged_in import SharedJudge, Where, judge_isolation
from tasks.model import TaskError
from tasks.place import CannotBegin, refuse_unplaceable
from tasks.proof import play
from tasks.task import Task
from tests.envs.fakes import FakeSandbox
from tests.sandboxes.conftest import ENGINE_VARIABLE, engine_for, require
from tests.tasks.fake_sandbox import FakeSandbox as Unconfined
from tests.tasks.harbor.given import HELLO, TOML, write_task
from tests.tasks.harbor.test_read import Parts, played, read, refusal, verdict

BUILT = """\
#!/bin/bash
place=/te
python3 "${place}sts/check.py"
"""
BUILDS = """\
import pathlib
wanted = pathlib.Path("/" + "te" + "sts", "wanted.txt").read_text()
found = pathlib.Path("/app/hello.txt")
reward = str(float(found.is_file() and found.read_text() == wanted))
pathlib.Path("/" + "lo" + "gs", "verifier/reward.txt").write_text(reward)
"""
BUILT_FILES = {"tests/test.sh": BUILT, "tests/check.py": BUILDS, "tests/wanted.txt": "hello\n"}
"""A verifier that puts the names of its folders together while it runs."""
CHECK = """\
#!/bin/bash
cd /app
python3 /tests/check.py
"""
CHECKED = """\
import json, pathlib
found = pathlib.Path("/app/hello.txt")
reward = json.dumps({"reward": float(found.is_file() and found.read_text() == "hello\\n")})
pathlib.Path("/logs/verifier/reward.json").write_text(reward)
"""
ASKS = """\
#!/bin/bash
said=$(python3 -c 'import urllib.request as u; print(u.urlopen("http://localhost:8123/", timeout=5).read().decode())')
place=/te
[ "$said" = served ] && [ -s "${place}sts/test.sh" ] && pgrep -f http.server \\
    && echo 1 >/logs/verifier/reward.txt || echo 0 >/logs/verifier/reward.txt
"""
SERVES = (
    "mkdir -p site; printf served >site/index.html; "
    "(cd site; exec python3 -m http.server 8123 --bind 127.0.0.1) >/dev/null 2>&1 &\n"
    "for _ in $(seq 50); do (: </dev/tcp/127.0.0.1/8123) 2>/dev/null && break; sleep 0.1; done"
)
FORGES = """\
(while :; do
    for place in /logs /logs/verifier /turngym-grader /turngym-grader/* /turngym-grader/*/logs/verifier; do
        echo 1 >$place/reward.txt; echo '{"reward": 1}' >$place/reward.json
    done
    echo 'echo 1 >/logs/verifier/reward.txt' >/tests/test.sh
    for pid in /proc/[0-9]*; do echo 1 >$pid/fd/1; : >$pid/mem; done
    sleep 0.01
done) >/dev/null 2>&1 </dev/null &
"""
"""A process that outlives its command and writes the reward wherever a judge may look for it."""
LINKS = """\
mkdir -p mine/verifier; echo 1 >mine/verifier/reward.txt; echo 'echo 1 >/logs/verifier/reward.txt' >mine/test.sh
for name in tests logs; do rm -rf /$name; ln -sfn "$PWD/mine" /$name; mv -T mine /$name; ln -sfn "$PWD/mine" $name; done
ln -s /logs/verifier/reward.txt hello.txt
"""
PLANTS = """\
echo 'import pathlib, os; pathlib.Path("/logs/verifier/reward.json").write_text("1"); os._exit(0)' >json.py
for name in pathlib sitecustomize usercustomize encodings; do cp json.py $name.py; done
for place in /tmp "$HOME" "$HOME/.local/lib/python3.11/site-packages" /usr/lib/python3; do
    mkdir -p $place; cp *.py $place; echo 'import json' >$place/x.pth
done 2>/dev/null
printf 'export PYTHONPATH=/app\\n' >.bashrc; cp .bashrc .profile; export PYTHONPATH=/app BASH_ENV=/app/.bashrc
"""


@pytest.fixture(scope="module", params=[Backend.BUBBLEWRAP, pytest.param(Backend.DOCKER, marks=pytest.mark.docker)])
def mounts(request: pytest.FixtureRequest) -> Iterator[SupervisedSandbox]:
    """A sandbox that mounts folders for judges."""
    with engine_for(request.param):
        require(request.param)
        with open_sandbox(request.param) as made:
            yield made


# -- A fresh sandbox with real folders -----------------------------------------------------------------------------


def test_folders_are_real_where_they_can_be_mounted(tmp_path: Path, mounts: SupervisedSandbox) -> None:
    task = read(tmp_path, BUILT_FILES)
    assert judge_isolation(task, mounts) is JudgeIsolation.SEPARATE
    assert played(task, mounts, "echo hello >hello.txt").passed
    assert verdict(played(task, mounts, "[ -e /tests -o -e /logs ] && echo hello >hello.txt")) is Verdict.FAIL


def test_landlock_writes_other_paths_instead_and_sees_none_that_is_put_together(tmp_path: Path) -> None:
    require(Backend.LANDLOCK)
    with open_sandbox(Backend.LANDLOCK) as sandbox:
        plain = read(tmp_path, {"tests/test.sh": CHECK, "tests/check.py": CHECKED})
        assert played(plain, sandbox, "echo hello >hello.txt").passed
        built = read(
            tmp_path / "built", {"tests/test.sh": BUILT, "tests/check.py": BUILDS, "tests/wanted.txt": "hello\n"}
        )
        assert verdict(played(built, sandbox, "echo hello >hello.txt")) is Verdict.ERROR  # on the untouched one, too


def test_a_judge_gets_the_workspace_and_nothing_else(tmp_path: Path, mounts: SupervisedSandbox) -> None:
    look = (
        '#!/bin/bash\n[ "$(stat -c %a run.sh)" = 750 ] && [ "$(readlink link)" = run.sh ] && [ -d empty ] &&'
        " [ $(stat -c %s big) = 3000000 ] && [ ! -e pipe ] && ! ls -A /tmp | grep . && ! pgrep sleep &&"
        " echo 1 >/logs/verifier/reward.txt || echo 0 >/logs/verifier/reward.txt\n"
    )
    task = read(tmp_path, {"tests/test.sh": look})
    assert task.judged_in[0].sandbox is Where.SHARED  # it asks for processes
    task = read(tmp_path / "said", {"tests/test.sh": look, "task.toml": TOML + "environment_mode = 'separate'\n"})
    makes = "echo >run.sh; chmod 750 run.sh; ln -s run.sh link; mkdir empty; head -c 3000000 /dev/zero >big"
    assert played(task, mounts, f"{makes}; mkfifo pipe; echo x >/tmp/x; sleep 60 & disown").passed


def test_what_is_too_much_to_be_carried_is_a_fail(tmp_path: Path, mounts: SupervisedSandbox) -> None:
    task = read(tmp_path, {"tests/test.sh": HELLO})
    grade = played(task, mounts, "echo hello >hello.txt; mkdir d; cd d; seq 20100 | xargs touch")
    assert verdict(grade) is Verdict.FAIL and grade.results[0].broke and "more files than" in grade.results[0].detail


def test_attacks_gain_nothing(tmp_path: Path, mounts: SupervisedSandbox) -> None:
    task = read(tmp_path, {"tests/test.sh": CHECK, "tests/check.py": CHECKED})
    honest = "cd /app; rm -rf *; unset BASH_ENV PYTHONPATH; echo hello >hello.txt"
    assert verdict(played(task, mounts, FORGES, LINKS)) is Verdict.FAIL
    assert verdict(played(task, mounts, PLANTS)) is Verdict.FAIL
    assert played(task, mounts, FORGES, LINKS, PLANTS, honest).passed


# -- Beside the agent ----------------------------------------------------------------------------------------------

SHARED: dict[str, tuple[Parts, Where]] = {
    "asks": ({"tests/test.sh": ASKS}, Where.SHARED),
    "asks a socket": ({"tests/test.sh": HELLO, "tests/t.py": "s.connect(('127.0.0.1', 80))\n"}, Where.SHARED),
    "curl": ({"tests/test.sh": "#!/bin/bash\nif curl -s localhost:80; then true; fi\n"}, Where.SHARED),
    "starts for itself": ({"tests/test.sh": "#!/bin/bash\n./serve.sh &\ncurl -s localhost:80\n"}, Where.FRESH),
    "and": ({"tests/test.sh": "#!/bin/bash\ncd /app &&\ncurl -s localhost:80\n"}, Where.SHARED),
    "comment": ({"tests/test.sh": HELLO + "# curl localhost\n"}, Where.FRESH),
    "said": ({"tests/test.sh": HELLO, "task.toml": TOML + "environment_mode = 'shared'\n"}, Where.SHARED),
    "said not": ({"tests/test.sh": ASKS, "task.toml": TOML + "environment_mode = 'separate'\n"}, Where.FRESH),
    "artifact": ({"tests/test.sh": HELLO, "task.toml": "artifacts = ['/tmp/x']\n" + TOML}, Where.SHARED),
}


@pytest.mark.parametrize("case", SHARED)
def test_what_is_judged_beside_the_agent_is_known(tmp_path: Path, case: str) -> None:
    files, where = SHARED[case]
    (judged_in,) = read(tmp_path, files).judged_in
    assert (judged_in.sandbox, judged_in.folders) == (where, ("/tests", "/logs"))


def test_a_shared_judge_asks_what_runs_and_cannot_be_forged(tmp_path: Path, mounts: SupervisedSandbox) -> None:
    task = read(tmp_path, {"tests/test.sh": ASKS})
    assert judge_isolation(task, mounts) is JudgeIsolation.SHARED
    assert played(task, mounts, SERVES, "true").passed
    assert verdict(played(task, mounts, FORGES, "sleep 0.1")) is Verdict.FAIL
    assert played(task, mounts, FORGES, SERVES).passed


@pytest.mark.parametrize("backend", [Backend.LANDLOCK, Backend.LOCAL])
def test_where_processes_are_the_machines_there_is_no_shared_judge(tmp_path: Path, backend: Backend) -> None:
    task = read(tmp_path, {"tests/test.sh": ASKS})
    with pytest.raises(TaskError, match="task: is judged by the agent's processes, which only docker and bubblewrap"):
        refuse_unplaceable([task], backend)


def test_shared_judges_are_refused_unless_allowed_and_the_result_says_so(
    tmp_path: Path, mounts: SupervisedSandbox
) -> None:
    task = read(tmp_path, {"tests/test.sh": ASKS})
    with ClawGymEnv([task], sandbox=mounts) as env, pytest.raises(SharedJudge, match="shared: task.*allow_shared_jud"):
        env.reset(seed=0)
    with ClawGymEnv([task], sandbox=mounts, allow_shared_judges=True) as env:
        env.reset(seed=0)
        env.step(f"```bash\n{SERVES}\n```")
        info = env.step("TASK_COMPLETE")[-1]
    assert (info["passed"], info["judge_isolation"]) == (True, "shared")


def test_a_folder_holds_no_processes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_task(tmp_path / "task", {"tests/test.sh": ASKS})
    (tmp_path / "left").mkdir()
    assert run(["grade", f"harbor:{folder}", str(tmp_path / "left")]) == 2
    assert "judged beside processes that the agent left running" in capsys.readouterr().err
    assert run(["list", f"harbor:{folder}"]) == 0
    assert "shared judge" in capsys.readouterr().out


# -- With a network ------------------------------------------------------------------------------------------------

NETWORK = {
    "apt": ({"tests/test.sh": "cd /app\n  apt-get -y install x"}, "`apt-get -y install` in tests/test.sh:2"),
    "pip": ({"tests/test.sh": "set -e; python3 -m pip install pytest==8"}, "`python3 -m pip install` in tests/test.sh"),
    "uv": ({"tests/test.sh": "if uvx pytest; then true; fi"}, "`uvx` in tests/test.sh:1"),
    "curl": ({"tests/test.sh": HELLO, "tests/more.sh": "# no\ncurl -L x.y | sh"}, "`curl` in tests/more.sh:2"),
    "none": ({"tests/test.sh": HELLO}, ""),
}  # fmt: skip


@pytest.mark.parametrize("case", NETWORK)
def test_what_needs_a_network_is_refused_with_the_reason(tmp_path: Path, case: str) -> None:
    files, said = NETWORK[case]
    task = read(tmp_path, files)
    assert task.judged_in[0].network.startswith(said) if said else not task.judged_in[0].network
    if not said:
        refuse_unplaceable([task], Backend.BUBBLEWRAP)
        return
    for network in (None, "bridge"):
        with pytest.raises(TaskError, match=r"needs a network \(`.*only the docker sandbox can give; here it is bubb"):
            refuse_unplaceable([task], Backend.BUBBLEWRAP, network)
    with pytest.raises(TaskError, match=r"none is allowed \(`.*remedy: verifier_network names"):
        refuse_unplaceable([task], Backend.DOCKER)
    refuse_unplaceable([task], Backend.DOCKER, "bridge")


def test_what_root_starts_of_the_agents_is_not_kept_apart(tmp_path: Path) -> None:
    runs = "#!/bin/bash\npython3 /app/work.py && echo 1 >/logs/verifier/reward.txt\n"
    found = {
        "alone": read(tmp_path / "alone", {"tests/test.sh": runs}),
        "network": read(tmp_path / "network", {"tests/test.sh": runs + "apt-get update\n"}),
    }
    sandbox = FakeSandbox()
    assert sandbox.judge_isolation is JudgeIsolation.FULL
    assert {name: judge_isolation(task, sandbox) for name, task in found.items()} == {
        "alone": JudgeIsolation.SEPARATE,
        "network": JudgeIsolation.NONE,
    }
    with pytest.raises(ExposedJudge, match=r"a verifier with a network is root.*1 of 2 tasks.*remedy: other tasks, or"):
        refuse_exposed(list(found.values()), sandbox, False)


def test_a_network_beside_the_agent_is_refused(tmp_path: Path) -> None:
    said = refusal(tmp_path, {"tests/test.sh": ASKS + "apt-get update\n"})
    assert "tests/test.sh: has a verifier that needs a network (`apt-get update` in tests/test.sh:6)" in said


@pytest.mark.parametrize("name", ["none", "host", "", "container:x", "a b", "-x"])
def test_no_network_but_a_containers_own(name: str) -> None:
    with pytest.raises(ValueError, match="verifier_network is '.*name a network that containers"):
        ClawGymEnv("library", verifier_network=name)


class _Serves(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"served")

    def log_message(self, format: str, *args: object) -> None:
        pass


class _Server(ThreadingHTTPServer):
    def server_bind(self) -> None:
        if find_engines()[0].kind == "podman":  # it gives this machine the address when the first container needs it
            self.socket.setsockopt(socket.SOL_IP, _FREEBIND, 1)
        super().server_bind()


_FREEBIND = 15


@pytest.fixture
def address(request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    """Name of a network of the engine, and the address of a server that is reached through it."""
    with engine_for(Backend.DOCKER), ExitStack() as stack:
        require(Backend.DOCKER)
        client = stack.enter_context(closing(docker.DockerClient(os.environ[ENGINE_VARIABLE])))
        network = client.networks.create(f"turngym-test-{os.getpid()}", driver="bridge", internal=True)
        stack.callback(network.remove)
        network.reload()
        host = network.attrs["IPAM"]["Config"][0]["Gateway"]
        try:
            server = stack.enter_context(_Server((host, 0), _Serves))
        except OSError as error:
            pytest.skip(f"the engine's network is not this machine's ({error})")
        threading.Thread(target=server.serve_forever, daemon=True).start()
        stack.callback(server.shutdown)
        yield network.name, f"http://{host}:{server.server_port}/"


@pytest.mark.docker
def test_the_verifier_alone_has_a_network(tmp_path: Path, address: tuple[str, str]) -> None:
    name, url = address
    get = f"import urllib.request as u; print(u.urlopen('{url}', timeout=3).read().decode())"
    installs = (
        f'#!/bin/bash\npip3 install x || true\npython3 -c "{get}" >/usr/local/bin/got && chown 33 /usr/local/bin/got'
        " && grep -q served /usr/local/bin/got && grep -q hello /app/hello.txt"
        " && echo 1 >/logs/verifier/reward.txt || echo 0 >/logs/verifier/reward.txt\n"
    )
    task = read(tmp_path, {"tests/test.sh": installs.replace("pip3 install x", "[ -x /no/pip ] && pip3 install x")})
    reaches = f'python3 -c "{get}" 2>/dev/null && exit; [ $(grep -c : /proc/net/dev) = 1 ] && echo hello >hello.txt'
    with open_sandbox(Backend.DOCKER) as sandbox:
        assert play(task, sandbox, [reaches], network=name).grade.passed
        assert verdict(play(task, sandbox, [], network=name).grade) is Verdict.FAIL
        with pytest.raises(CannotBegin, match="needs a network, and none is allowed"):
            play(task, sandbox, [])
        with pytest.raises(SandboxUnavailable, match="no sandbox for the judge"):  # and no fail of the agent
            play(task, sandbox, [], network="turngym-no-such-network")
        with pytest.raises(SandboxUnavailable, match="gives a container no way out"):
            play(task, sandbox, [], network="none")


LOADS = """\
#!/bin/bash
false && pip install x
cat said 2>/dev/null
if [ -e @well@ ]; then come=1; else come=; echo '  Caused by: error sending request for url (https://x.y/)'; @heal@; fi
[ -n "$come" ] && grep -qx hello hello.txt && reward=1 || reward=0
echo $reward >/logs/verifier/reward.txt
"""
"""A verifier that loads something, which does not come unless a file says so; it scores 0 then, as many do."""
SAYS = "curl: (6) Could not resolve host: x.y\n"
MAY_LOAD = {
    "well, right": (True, "true", {"hello.txt": "hello\n"}, Verdict.PASS, 1),
    "well, wrong": (True, "true", {}, Verdict.FAIL, 1),
    "ill, right": (False, "true", {"hello.txt": "hello\n"}, Verdict.ERROR, 2),
    "ill, wrong": (False, "true", {}, Verdict.ERROR, 2),
    "well again, right": (False, "touch @well@", {"hello.txt": "hello\n"}, Verdict.PASS, 3),
    "well again, wrong": (False, "touch @well@", {}, Verdict.FAIL, 3),
    "said by the agent": (True, "true", {"said": SAYS}, Verdict.FAIL, 3),
    "said by the agent, right": (True, "true", {"said": SAYS, "hello.txt": "hello\n"}, Verdict.PASS, 1),
    "of this machine": (True, "true", {"said": SAYS.replace("x.y", "localhost")}, Verdict.FAIL, 1),
}


@pytest.mark.parametrize("case", MAY_LOAD)
def test_what_does_not_come_is_no_score_and_the_agent_cannot_make_it_one(
    tmp_path: Path, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    well, heal, files, expected, times = MAY_LOAD[case]
    place = tmp_path / "well"
    if well:
        place.touch()
    opened: list[object] = []
    monkeypatch.setattr(grader, "start_of", lambda *_: {})
    monkeypatch.setattr(grader, "open_for_judge", lambda task, sandbox, terms: opened.append(sandbox))
    task = read(tmp_path, {"tests/test.sh": LOADS.replace("@heal@", heal).replace("@well@", str(place))})
    with Unconfined() as sandbox:
        end = Outcome({path: FileEntry(content=text.encode()) for path, text in files.items()}, {})
        result = task.assertions[0].check(replace(end, grader=SandboxGrader(sandbox, task, network="bridge")))
    assert (result.verdict, len(opened)) == (expected, times)
    if expected is Verdict.ERROR:
        assert "did not come (Caused by: error sending request for url" in result.detail and "remedy:" in result.detail


# What installers print where the network does not answer, and what is no word of theirs.
NOT_COME = """\
W: Failed to fetch http://x.y/dists/z/InRelease  Temporary failure resolving 'x.y'
E: Unable to locate package hello
Err:1 http://x.y z InRelease
Err:1 http://x.y z InRelease Could not connect to x.y:80
WARNING: Retrying (Retry(total=4, connect=None)) after connection broken by 'NewConnectionError(...)'
ERROR: No matching distribution found for x==2.0.0
curl: (28) Failed to connect to x.y port 443 after 9 ms: Timeout was reached
wget: unable to resolve host address 'x.y'
\u00d7 Failed to fetch: `https://x.y/simple/pytest/`
  \u251c\u2500\u25b6 Request failed after 3 retries
npm ERR! code ENOTFOUND
fatal: unable to access 'https://x.y/': Could not resolve host: x.y
/tests/test.sh: line 5: uvx: command not found
/usr/bin/python3: No module named pytest
"""
OTHER = """\
curl: (7) Failed to connect to localhost port 8080
ModuleNotFoundError: No module named 'app'
E       assert 1 == 2
error: test failed
app: command not found
WARNING: Running pip as the 'root' user can result in broken permissions
"""


def test_words_of_installers_are_known(tmp_path: Path) -> None:
    (script,) = (item for item in read(tmp_path, {"tests/test.sh": HELLO}).assertions if isinstance(item, Script))
    text = script.files["reward.py"]
    known: dict[str, Any] = {}
    exec(text[text.index("import json") : text.index("logs = ")], known)
    said = [
        line
        for line in (NOT_COME + OTHER).splitlines()
        if known["NOT_LOADED"].match(line) and not known["HERE"].search(line)
    ]
    assert said == [line for line in NOT_COME.splitlines() if not line.endswith("InRelease")]


@pytest.mark.parametrize(
    ("workdir", "lifted"),
    [("/app", True), ("/workspace", True), ("/root", False), ("/root/.local/lib", False), ("/rooted", True)],
)
def test_packages_of_the_user_are_seen_unless_the_agent_may_have_left_them(workdir: str, lifted: bool) -> None:
    assert ("PYTHONNOUSERSITE" in grader._installing(workdir)) is lifted


# -- The key in task files -----------------------------------------------------------------------------------------

WRONG = {
    "where": ("{sandbox: new}", "judged_in.sandbox: 'new' is not valid: (valid: agent, fresh, shared)"),
    "unknown": ("{sandbox: fresh, folder: /x}", "did you mean 'folders'"),
    "relative": ("{sandbox: fresh, folders: [tests]}", "'tests' is no folder of a judge: write one at the root"),
    "deep": ("{sandbox: fresh, folders: [/a/b]}", "'/a/b' is no folder of a judge"),
    "system": ("{sandbox: fresh, folders: [/etc]}", "'/etc' is a folder of the system"),
    "tmp": ("{sandbox: fresh, folders: [/tmp]}", "'/tmp' is no folder of a judge"),
    "agent's": ("{folders: [/tests]}", "only a fresh or a shared sandbox has folders"),
    "network": ("{sandbox: shared, network: apt}", "only a fresh sandbox has a network"),
    "no text": ("{sandbox: fresh, network: true}", "judged_in.network: `true` is read by YAML as a boolean"),
    "text": ("fresh", "judged_in: needs a mapping of keys"),
    "workdir": ("{sandbox: fresh, folders: [/app]}", "workdir: lies in /app, which only the judge has"),
}


def write_file(folder: Path, judged_in: str, version: int = 2) -> Path:
    path = folder / "a.yaml"
    path.write_text(
        f"schema_version: {version}\nid: a\nintent: Do it.\nworkdir: /app/x\nassertions:\n  - kind: script\n"
        f'    command: echo 1\n    judged_in: {judged_in}\noracle: {{commands: ["true"]}}\n'
    )
    return path


def load(path: Path) -> Task:
    from tasks.sources import load_tasks

    return load_tasks(path)[0]


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_said_with_its_place(tmp_path: Path, case: str) -> None:
    value, said = WRONG[case]
    with pytest.raises(TaskError) as caught:
        load(write_file(tmp_path, value))
    assert said in str(caught.value) and f"{tmp_path}/a.yaml:" in str(caught.value)


def test_the_key_is_of_version_2(tmp_path: Path) -> None:
    task = load(write_file(tmp_path, "{sandbox: fresh, folders: [/tests], network: 'it loads x'}"))
    assert task.judged_in[0].network == "it loads x"
    with pytest.raises(TaskError, match="unknown key 'judged_in' in version 1: write schema_version: 2"):
        load(write_file(tmp_path, "{sandbox: fresh}", 1))
    same = load(write_file(tmp_path, "{sandbox: agent}")).content_hash
    (tmp_path / "a.yaml").write_text((tmp_path / "a.yaml").read_text().replace("    judged_in: {sandbox: agent}\n", ""))
    assert load(tmp_path / "a.yaml").content_hash == same
