"""The bash that is started ahead of its command, and processes that may outlive theirs."""

from __future__ import annotations

import time

from sandboxes import SupervisedSandbox


def think() -> None:
    """Long enough for the supervisor to start the next bash."""
    time.sleep(0.03)


def test_a_bash_waits_while_nobody_asks(sandbox: SupervisedSandbox) -> None:
    sandbox.run("mark=1")
    think()
    first = sandbox.run("echo $$; echo $BASHPID $SECONDS").stdout_text.split()
    assert first[0] == first[1]
    assert first[2] in ("0", "1")  # bash counts the turns of the clock's seconds: one may fall just here
    hurried = [sandbox.run("echo $mark").stdout for _ in range(3)]
    assert hurried == [b"1\n"] * 3


def test_nothing_of_the_agent_runs_between_two_commands(sandbox: SupervisedSandbox) -> None:
    trap = "for n in declare shopt alias read eval unset builtin exec set source . : trap ulimit echo; do"
    sandbox.run(f'{trap} eval "$n() {{ date >> /workspace/ran; }}"; done; alias read="touch ran"; export TMOUT=1')
    sandbox.run("x='a[$(touch ran)]'; declare -n ref='a[$(touch ran)]'; PROMPT_COMMAND='touch ran'; PS4='$(touch ran)'")
    sandbox.put({"ran": ""})
    before = sandbox.snapshot_hash()
    time.sleep(0.2)
    assert sandbox.snapshot_hash() == before


def test_functions_named_like_builtins_change_only_what_calls_them(sandbox: SupervisedSandbox) -> None:
    sandbox.run("eval() { echo mine; }; unset() { echo mine; }; builtin() { echo mine; }; shopt() { echo mine; }")
    think()
    result = sandbox.run("/bin/echo works; eval 1")
    assert (result.exit_code, result.stdout, result.stderr) == (0, b"works\nmine\n", b"")


def test_a_directory_replaced_while_a_bash_waits_in_it(sandbox: SupervisedSandbox) -> None:
    sandbox.run("mkdir d; cd d; touch old")
    think()
    sandbox.put({"d": "now a file\n"})
    result = sandbox.run("pwd")
    assert result.stdout_text.strip().endswith("workspace")
    assert b"Not a directory" in result.stderr
    sandbox.open({"d/new": ""})
    think()
    assert sandbox.run("cd d; ls").stdout == b"new\n"


def test_a_clean_command_does_not_use_up_the_state(sandbox: SupervisedSandbox) -> None:
    sandbox.run("export A=1; cd /tmp")
    think()
    assert sandbox.run("echo ${A-none}", state="clean").stdout == b"none\n"
    think()
    assert sandbox.run("echo $A; pwd").stdout == b"1\n/tmp\n"


def test_messages_do_not_depend_on_the_pause(sandbox: SupervisedSandbox) -> None:
    for command in (
        "nope",
        'echo "abc',
        "a\nb )",
        "cd /nope",
        "echo $LINENO\nnope",
        "f() {\nnope\n}\nf",
        "${bad",
        "& x",
    ):
        sandbox.open({})
        hurried = sandbox.run(command)
        sandbox.open({})
        think()
        waited = sandbox.run(command)
        assert (hurried.exit_code, hurried.stderr) == (waited.exit_code, waited.stderr), command


def grown_over(sandbox: SupervisedSandbox, size: int) -> int:
    """Wait until what runs in the background has written more than this to `log`; its size in the snapshot then."""
    limit = time.monotonic() + 60
    while True:
        log = sandbox.snapshot().get("log")
        if log is not None and log.content is not None and len(log.content) > size:
            return len(log.content)
        assert time.monotonic() < limit, f"{log} has not grown over {size} bytes"
        time.sleep(0.05)


def test_background_can_be_kept(sandbox: SupervisedSandbox) -> None:
    sandbox.run("(while :; do echo x >> log; sleep 0.01; done) >/dev/null 2>&1 & echo $! > pid", keep_background=True)
    first = grown_over(sandbox, 0)
    assert sandbox.run("[ -d /proc/$(cat pid) ]", keep_background=True).exit_code == 0
    grown_over(sandbox, first)
    sandbox.put({"other": "fits in\n"})
    assert sandbox.run("[ -d /proc/$(cat pid) ]").exit_code == 0, (
        "lives until the end of a command that does not keep it"
    )
    assert sandbox.run("[ -d /proc/$(cat pid) ]").exit_code == 1
    size = len(sandbox.read("log"))
    time.sleep(0.1)
    assert len(sandbox.read("log")) == size


def test_nothing_is_kept_over_a_time_out_or_an_episode(sandbox: SupervisedSandbox) -> None:
    sandbox.run("sleep 300 >/dev/null 2>&1 & echo $! > pid", keep_background=True)
    assert sandbox.run("sleep 20", timeout=0.2, keep_background=True).timed_out
    assert sandbox.run("[ -d /proc/$(cat pid) ]").exit_code == 1
    sandbox.run("sleep 300 >/dev/null 2>&1 & echo $! > /tmp/pid; cat /tmp/pid", keep_background=True)
    pid = sandbox.run("cat /tmp/pid", keep_background=True).stdout_text.strip()
    sandbox.open({})
    assert sandbox.run(f"[ -d /proc/{pid} ]").exit_code == 1
