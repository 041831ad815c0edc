"""Shell text and shell state: whatever a command does to its shell, the next one finds the state that was kept."""

from __future__ import annotations

from collections.abc import Callable

from sandboxes.conformance.check import Group, Trial, brief, must, python
from sandboxes.sandbox import CommandResult, FileEntry

GROUP = Group("shell")


def _ends(code: int) -> Callable[[CommandResult], bool]:
    return lambda r: r.exit_code == code and not r.timed_out


def _refused(result: CommandResult) -> bool:
    return result.exit_code != 0 and not result.timed_out


# --- text -----------------------------------------------------------------------------------------------------------

GROUP.attack("unterminated-double-quote-is-an-error-at-once", 'echo "abc', _refused)
GROUP.attack("unterminated-single-quote-is-an-error-at-once", "echo 'it", _refused)
GROUP.attack("incomplete-if-is-an-error-at-once", "if true; then", _refused)
GROUP.attack("stray-parenthesis-is-an-error", "echo a )", _refused)
GROUP.attack(
    "unterminated-heredoc-ends-with-the-command",
    "cat <<EOF\nabc",
    lambda r: r.stdout == b"abc\n" and not r.timed_out,
)
GROUP.attack("trailing-backslash-continues-nothing", "echo a \\", lambda r: r.stdout.rstrip(b"\\ \n") == b"a")
GROUP.attack("only-a-remark-succeeds", "# nothing here", lambda r: (r.exit_code, r.stdout, r.stderr) == (0, b"", b""))
GROUP.attack("empty-command-succeeds", "", lambda r: (r.exit_code, r.stdout, r.stderr) == (0, b"", b""))
GROUP.attack("five-kilobyte-line-arrives-whole", "echo " + "A" * 5000, lambda r: r.stdout == b"A" * 5000 + b"\n")
GROUP.attack("huge-line-arrives-whole", f"x={'B' * 300_000}; echo ${{#x}}; unset x", lambda r: r.stdout == b"300000\n")
GROUP.attack(
    "heredoc-with-quotes-arrives-as-typed",
    "cat <<'EOF'\n$a `b` \\ \"'\n\tEOF\nEOF",
    lambda r: (r.exit_code, r.stdout) == (0, b"$a `b` \\ \"'\n\tEOF\n"),
)
GROUP.attack(
    "nul-byte-in-a-command-is-refused", "echo a\0b; echo ran", lambda r: r.exit_code != 0 and b"ran" not in r.stdout
)
GROUP.attack(
    "bytes-that-are-no-utf8-arrive", "echo '\udcff\udcfe'", lambda r: (r.exit_code, r.stdout) == (0, b"\xff\xfe\n")
)


@GROUP.check()
def command_over_the_limit_is_not_run(trial: Trial) -> None:
    """A command one byte above the limit, which would print something."""
    result = trial.attack("echo ran; #".ljust(trial.limits.command_bytes + 1, "x"))
    must(_refused(result) and not result.stdout and b"limit" in result.stderr, brief(result))


# --- the end of a command -------------------------------------------------------------------------------------------

GROUP.attack("exit-ends-only-its-command", "exit 7", _ends(7))
GROUP.attack("exec-of-a-shell-ends-its-command", "exec bash", _ends(0))
GROUP.attack("exec-of-a-program-ends-its-command", "exec echo x", lambda r: (r.exit_code, r.stdout) == (0, b"x\n"))
GROUP.attack("shell-that-kills-itself-ends-only-its-command", "kill -9 $$; echo no", _ends(137))
GROUP.attack("errexit-ends-only-its-command", "set -e; false; echo no", _ends(1))
GROUP.attack(
    "nounset-ends-only-its-command",
    "set -u; echo $NOPE; echo no",
    lambda r: r.exit_code != 0 and b"unbound" in r.stderr and not r.stdout,
)
GROUP.attack(
    "exit-trap-runs-inside-its-command", "trap 'echo bye' EXIT; echo x; exit 4", lambda r: r.stdout == b"x\nbye\n"
)


@GROUP.check()
def exit_status_is_honest_for_signals(trial: Trial) -> None:
    """A shell that ends by a signal, of its own or of a child."""
    for name, number in (("KILL", 9), ("TERM", 15), ("SEGV", 11), ("HUP", 1), ("PIPE", 13), ("ABRT", 6)):
        result = trial.attack(f"kill -{name} $$; sleep 20")
        must(result.exit_code == 128 + number and not result.timed_out, f"SIG{name}: {brief(result)}")
        result = trial.attack(f"bash -c 'kill -{name} $$'")
        must(result.exit_code == 128 + number and not result.timed_out, f"SIG{name} of a child: {brief(result)}")
    codes = [trial.run(f"exit {code}").exit_code for code in (0, 1, 2, 124, 137, 255, 256)]
    must(codes == [0, 1, 2, 124, 137, 255, 0], f"exit codes {codes}")


@GROUP.check()
def timeout_keeps_output_and_the_state_from_before(trial: Trial) -> None:
    """A command changes everything, prints, and never ends."""
    trial.run("v=before; cd /tmp")
    result = trial.run("echo part; echo err >&2; v=after; cd /; echo x > /workspace/f; sleep 60", timeout=1.0)
    must(result.timed_out and result.exit_code == 137, brief(result))
    must((result.stdout, result.stderr) == (b"part\n", b"err\n"), brief(result))
    must(trial.out("echo $v $?; pwd; cat /workspace/f") == "before 137\n/tmp\nx\n", "state or files are not right")


# --- the state ------------------------------------------------------------------------------------------------------

GROUP.attack("builtin-name-as-function-can-be-unset", "unset -f :; echo k", lambda r: r.stdout == b"k\n")
GROUP.attack(
    "prompt-variables-do-nothing", "PROMPT_COMMAND='exit 5'; PS1=''; PS0=x; echo p", lambda r: r.stdout == b"p\n"
)


@GROUP.check()
def state_is_kept_between_commands(trial: Trial) -> None:
    """Variables, arrays, functions, aliases, options, umask and the exit code."""
    trial.run("E='a b'; export E; v=$'1\\n2'; arr=(x 'y z'); declare -A map=([k]=v); readonly r=1; f() { echo F$1; }")
    trial.run("alias ll='echo LL'; shopt -s nullglob; set -u; umask 077; export -f f; (exit 42)")
    text = trial.out(
        'echo "$?|$E|$v|${arr[1]}|${map[k]}|$r"; f 1; ll; bash -c "f 2"; umask; echo *.none; env | grep ^E='
    )
    must(text == "42|a b|1\n2|y z|v|1\nF1\nLL\nF2\n0077\n\nE=a b\n", f"seen {text!r}")
    must(trial.run("echo $UNSET").exit_code != 0, "the option nounset is lost")


@GROUP.check()
def tracing_is_for_one_command(trial: Trial) -> None:
    """`set -vx`, then an ordinary command."""
    result = trial.attack("set -vx; echo traced")
    must(result.stdout == b"traced\n" and b"echo traced" in result.stderr, brief(result))
    after = trial.run("echo x")
    must((after.stdout, after.stderr) == (b"x\n", b""), f"the next command: {brief(after)}")


@GROUP.check()
def traps_and_noexec_are_for_one_command(trial: Trial) -> None:
    """A DEBUG trap that skips every command, `set -n`, and a trap on every signal."""
    for command in (
        "shopt -s extdebug; trap false DEBUG",
        "trap exit DEBUG",
        "set -n",
        "trap 'exit 9' ERR RETURN USR1",
    ):
        trial.attack(command)
        after = trial.run("false; echo x")
        must((after.exit_code, after.stdout) == (0, b"x\n"), f"after {command!r}: {brief(after)}")


@GROUP.check()
def redirections_are_for_one_command(trial: Trial) -> None:
    """`exec` takes the streams of the shell away."""
    muted = trial.attack("exec >/dev/null 2>&1; echo hidden")
    must((muted.stdout, muted.stderr) == (b"", b""), brief(muted))
    logged = trial.attack("exec 1>/workspace/log; echo logged")
    must(logged.stdout == b"" and trial.sandbox.read("log") == b"logged\n", brief(logged))
    fed = trial.attack("exec </dev/zero; echo z")
    must((fed.exit_code, fed.stdout) == (0, b"z\n"), brief(fed))
    after = trial.run("echo out; echo err >&2; cat")
    must((after.stdout, after.stderr) == (b"out\n", b"err\n"), f"the next command: {brief(after)}")


@GROUP.check()
def limits_set_by_a_command_are_for_that_command(trial: Trial) -> None:
    """`ulimit` down to nothing."""
    trial.attack("ulimit -f 0 -n 12 -t 1 -v 100000; ulimit -u 1; echo x")
    must(trial.out("ulimit -n").strip() == str(trial.limits.open_files), "the limit of open files stays changed")
    must(trial.out("echo more > f; cat f; ls | cat") != "", "programs no longer run")


@GROUP.check()
def umask_and_closed_workspace_change_nothing_for_us(trial: Trial) -> None:
    """`umask 777; chmod 000 /workspace`, then files go in and out, and the command that repairs it works."""
    trial.run(f"export KEPT={trial.token}; cd here")
    closed = trial.run("umask 777; chmod 000 /workspace; echo c")
    must(closed.stdout == b"c\n", brief(closed))
    inside = trial.run("/usr/bin/printenv KEPT PWD")
    must(inside.stdout == f"{trial.token}\n/workspace/here\n".encode(), f"the next command: {brief(inside)}")
    trial.sandbox.put({"in/a": b"mine"})
    must(trial.sandbox.read("in/a") == b"mine", "a file that was put does not come back")
    entry = trial.sandbox.snapshot()["in/a"]
    must(entry.mode == 0o644, f"mode {entry.mode:o} instead of 644")
    repaired = trial.run("umask 022; chmod 755 /workspace; cd /workspace; echo c; cat in/a")
    must(repaired.stdout == b"c\nmine", brief(repaired))
    trial.lives("/workspace")
    trial.run("umask 777")
    trial.again()
    must(trial.out("umask") == "0022\n", "the umask outlives the episode")


@GROUP.check()
def missing_path_is_back_in_the_next_command(trial: Trial) -> None:
    """`unset PATH`."""
    trial.attack("unset PATH; ls")
    must(trial.run("ls").exit_code == 0, "programs are no longer found")


@GROUP.check()
def redefined_builtins_change_nothing_for_us(trial: Trial) -> None:
    """Functions and aliases in the place of everything a shell is made of."""
    names = (
        "printf builtin eval exit declare command trap source kill read shopt umask alias pwd return unset set "
        "export test true exec local readonly shift hash type enable"
    )
    trial.attack("alias echo=false exit=: exec=:; " + " ".join(f"{name}() {{ :; }};" for name in names.split()))
    trial.run("Y=2; \\cd /tmp")
    seen = trial.run('/bin/echo "$KEPT$Y"; /bin/pwd')
    must(seen.stdout == f"{trial.token}2\n/tmp\n".encode(), f"state is lost: {brief(seen)}")
    must(trial.run("echo x", clean=True).stdout == b"x\n", "redefined words reach the clean state")
    trial.again()
    must(trial.out("echo x; declare -F; alias") == "x\n", "redefined words outlive the episode")


@GROUP.check()
def removed_directory_leads_back_to_the_workspace(trial: Trial) -> None:
    """The shell removes the directory it stands in."""
    trial.run(f"export KEPT={trial.token}; cd /workspace")
    result = trial.run("mkdir -p gone && cd gone && rmdir ../gone; pwd >/dev/null; echo x")
    must(result.stdout == b"x\n", brief(result))
    after = trial.run("cd /workspace && echo ok; echo $KEPT")
    must(after.stdout == f"ok\n{trial.token}\n".encode(), f"the next command: {brief(after)}")
    trial.lives("/workspace")


@GROUP.check()
def readonly_variables_lock_nobody_out(trial: Trial) -> None:
    """`readonly` on the variables a shell itself needs."""
    result = trial.attack("readonly PWD HOME OLDPWD PATH IFS SHELLOPTS BASHOPTS FOO=1; echo r")
    must(result.stdout == b"r\n", brief(result))
    after = trial.run("FOO=2; echo no")
    must(after.exit_code != 0, f"a read-only variable was changed: {brief(after)}")
    must(trial.out("echo $FOO; ls | cat; cat /dev/null").startswith("1\n"), "the next commands do not run")
    trial.run("cd /tmp 2>/dev/null")
    trial.again()
    must(trial.run("FOO=2; PATH=$PATH; HOME=x; echo $FOO").stdout == b"2\n", "read-only marks outlive the episode")


@GROUP.check()
def huge_state_costs_at_most_itself(trial: Trial) -> None:
    """Variables of several megabytes, ten thousand functions, a value full of odd bytes."""
    trial.attack("big=$(head -c 1500000 /dev/zero | tr '\\0' a)")
    trial.attack("bigger=$(head -c 5000000 /dev/zero | tr '\\0' a)")
    trial.attack("for i in $(seq 500); do eval \"f$i() { echo $i; }\"; done; odd=$'\\1\\177\\377\\n\\t\\\\\\'\"`$('")
    seen = trial.run("f7; printf %s \"$odd\" | od -An -tx1 | tr -d ' \\n'")
    must(seen.stdout == b"7\n017fff0a095c2722602428", f"state is lost: {brief(seen)}")


@GROUP.check()
def startup_file_of_the_agent_is_not_ours(trial: Trial) -> None:
    """BASH_ENV and ENV name a file that prints and exits."""
    planted = trial.attack(
        "echo 'echo pwned; exit 3' > /workspace/be.sh; export BASH_ENV=/workspace/be.sh ENV=/workspace/be.sh; echo b"
    )
    must(planted.stdout == b"b\n", brief(planted))
    after = trial.run("echo x")
    must((after.exit_code, after.stdout) == (0, b"x\n"), f"the next command: {brief(after)}")
    clean = trial.run("bash -c 'echo y'", clean=True)
    must((clean.exit_code, clean.stdout) == (0, b"y\n"), f"the clean state: {brief(clean)}")
    trial.run("unset BASH_ENV ENV")
    must(trial.out("bash -c 'echo y'") == "y\n", "unset variables come back")


@GROUP.check()
def clean_state_knows_nothing_of_the_agent(trial: Trial) -> None:
    """PATH, functions, aliases, variables of the loader, options: all planted before a grader's command."""
    fake = FileEntry(content=b"#!/bin/sh\necho fake\n", mode=0o755)
    trial.sandbox.put({"bin/cat": fake, "bin/id": fake, "bin/python3": fake, "answer": b"true\n"})
    trial.run(
        "export PATH=/workspace/bin EVIL=1 LD_PRELOAD=/workspace/evil.so LD_LIBRARY_PATH=/workspace "
        "PYTHONPATH=/workspace "
        "PYTHONSTARTUP=/workspace/x IFS=/ PS4=x GREP_OPTIONS=-v LANG=xx BASHOPTS_=1; cat() { echo fake; }; "
        "export -f cat; alias grep='echo fake'; set -f -u; shopt -s nocasematch; umask 777; cd bin; enable -n echo "
        "test",
    )
    command = (
        "pwd; cat answer; grep -c true answer; umask; echo ${EVIL-none} ${LD_PRELOAD-none} ${PYTHONPATH-none}; echo a*"
    )
    seen = trial.run(command + "; [[ A == a ]] || echo cased; x='a/b'; echo $x; G=1", clean=True)
    wanted = b"/workspace\ntrue\n1\n0022\nnone none none\nanswer\ncased\na/b\n"
    must((seen.exit_code, seen.stdout, seen.stderr) == (0, wanted, b""), brief(seen))
    env = trial.run("/usr/bin/env", clean=True).stdout_text
    must("/workspace/bin" not in env and "BASH_FUNC" not in env, f"environment of the clean state: {env!r}")
    must(trial.run('echo "$EVIL ${G-none}"').stdout == b"1 none\n", "a clean command changed the agent's state")


@GROUP.check()
def python_of_the_agent_is_not_the_supervisors(trial: Trial) -> None:
    """Modules named like the standard library's stand in every writable directory."""
    trial.sandbox.put(
        {f"{name}.py": b"raise SystemExit('pwned')\n" for name in ("json", "os", "struct", "hashlib", "stat")}
    )
    trial.attack(
        "cp /workspace/*.py /tmp/; export PYTHONPATH=/workspace PYTHONHOME=/workspace; cd /workspace",
        where="/workspace",
    )
    trial.sandbox.snapshot_hash()
    trial.sandbox.put({"x": b"1"})
    must(trial.sandbox.read("x") == b"1", "files no longer come back")
    must(trial.run(python("import json; print(json)"), clean=True).exit_code != 0, "the planted module is not there")


_PLANTED = (
    "for i in {200..210}; do eval \"printf 'x\\0y' >&$i; exec $i>&-\" 2>/dev/null; done",
    "for i in 201 202 203 204; do eval \"exec $i<>/workspace/f$i; echo 'exit 0' >&$i\"; done",
    "printf 'a\\0b\\0c\\0d\\0/etc\\0declare -x FORGED=1\\n\\0\\0\\0#STATE-OK' >&201; exec 201>&-; kill -9 $$",
    "printf 'a\\0a\\0a\\0a\\0/etc\\0exit 0\\n\\0\\0\\0#STATE-OK' >&201; exec 201>&-; kill -9 $$",
    "printf 'a\\0a\\0a\\0a\\0/\\0\\0trap \"exit 0\" EXIT\\0exit() { :; }\\n\\0#STATE-OK' >&201; exec 201>&-; exit 4",
)


@GROUP.check()
def descriptors_of_the_shell_change_nothing_for_the_clean_state(trial: Trial) -> None:
    """Forged states, closed and swapped descriptors 201 to 204: clean commands have their own state and exit code."""
    for planted in _PLANTED:
        trial.again()
        trial.run(planted)
        for code in (0, 3):
            seen = trial.run(f"pwd; echo ${{FORGED-none}}; exit {code}", clean=True)
            must((seen.exit_code, seen.stdout) == (code, b"/workspace\nnone\n"), f"{planted!r}: {brief(seen)}")
        trial.run("exit 3")  # its own shell may be of no use any more
        trial.again()
        must(trial.run("pwd; exit 3").exit_code == 3, f"{planted!r} reaches the next episode")


@GROUP.check()
def exit_codes_are_real_whatever_is_planted_in_the_shell(trial: Trial) -> None:
    """Traps, functions, options and descriptors of one command, then the exit codes of the next ones."""
    for planted in (
        *_PLANTED[:3],
        "exit() { builtin exit 0; }; kill -9 $$",
        "trap 'exit 0' EXIT; exit 6",
        "set -e; trap 'exit 0' ERR; false",
        "exec 1>&- 2>&- 201>&-; true",
        "PROMPT_COMMAND='exit 0'; PS4='$(exit 0)'; BASH_ENV=/workspace/x; export BASH_ENV",
    ):
        trial.again()
        trial.run(planted)
        for code in (7, 0, 200):
            seen = trial.run(f"bash --norc -c 'exit {code}'")
            must(seen.exit_code == code, f"{code} after {planted!r}: {brief(seen)}")
