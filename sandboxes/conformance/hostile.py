"""Hostile inputs, drawn from a seed: whatever a command does, the sandbox answers every request and judges rightly.

After each input a clean command has the right output and exit code, every look at the files answers, files go in, and
a reset leaves nothing. What the agent's own shell suffers is its own doing. Each kind of input is a check; one that
fails says its seed, and `command(kind, seed)` gives the input again.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from shlex import quote

from sandboxes.conformance.check import SECONDS, Check, Trial, Wrong, brief, must, python
from sandboxes.sandbox import SandboxError

COUNT = 16
"""Inputs of each kind in the list."""
_TIMEOUT = 1.0
"""Seconds of one input: many never end by themselves."""
_BYTES = [bytes([n]) for n in range(1, 256) if n != 0x2F]
_ODD = (
    "\n",
    "\r",
    " ",
    "\t",
    "-",
    "-rf",
    "--",
    "*",
    "~",
    "$(id)",
    "`id`",
    "\\",
    "'",
    '"',
    "%s",
    "\u202e",
    "\ud83d",
    "..x",
)
_SHELL_FDS = (201, 202, 203, 204)

Draw = Callable[[random.Random], str]
KINDS: dict[str, Draw] = {}
"""What is tried, by theme: each draws a command."""


def _kind(draw: Draw) -> Draw:
    KINDS[draw.__name__.strip("_").replace("_", "-")] = draw
    return draw


def _some(dice: random.Random, least: int, most: int, draw: Callable[[], str], between: str = "; ") -> str:
    return between.join(draw() for _ in range(dice.randint(least, most)))


def _word(data: bytes) -> str:
    """Bytes as a word of bash."""
    return "$'" + "".join(f"\\x{byte:02x}" for byte in data) + "'"


def _name(dice: random.Random) -> bytes:
    length = dice.choice((1, 3, 20, 255))
    kind = dice.randrange(4)
    if kind == 0:
        return b"".join(dice.choice(_BYTES) for _ in range(length))
    if kind == 1:
        return dice.choice(_ODD).encode("utf-8", "surrogatepass")[:255] + b"x" * dice.choice((0, 1, 200))
    return (dice.choice((b"\xff", b"\xed\xa0\x80", b"\n", b"\x01", b"a")) * 255)[:length]


@_kind
def _names(dice: random.Random) -> str:
    def one() -> str:
        name, other = _word(_name(dice)), _word(_name(dice))
        make = dice.choice(("mkdir -- {0}; : > ./{0}/{1}", "echo x > ./{0}", "ln -s -- {1} {0}", "mkfifo -- {0}"))
        return make.format(name, other)

    return _some(dice, 5, 40, one)


@_kind
def _trees(dice: random.Random) -> str:
    code = (
        "import os, sys\n"
        "depth, length, files, wide, mode = map(int, sys.argv[1:])\n"
        "letter = b'\\xff' if wide % 2 else b'd'\n"
        "for n in range(depth):\n"
        "    for m in range(wide): os.mkdir(letter * (length - 1) + b'%d' % m)\n"
        "    os.chdir(letter * (length - 1) + b'0')\n"
        "for n in range(files): open('f%d' % n, 'w').close()\n"
        "if mode: os.chmod('.', 0)\n"
    )
    depth, length = dice.choice((1, 10, 120, 130, 700)), dice.choice((1, 2, 60, 250))
    return python(code, *map(str, (depth, length, dice.choice((0, 10, 3000)), dice.randint(1, 5), dice.randrange(2))))


@_kind
def _sizes(dice: random.Random) -> str:
    def one() -> str:
        name, size = f"s{dice.randrange(99)}", dice.choice(("0", "1", "1M", "1048577", "60M", "64M", "100G", "8E"))
        return dice.choice(
            (f"truncate -s {size} {name}", f"head -c {size} /dev/zero > {name}", f"fallocate -l {size} {name}")
        )

    many = f"for i in $(seq {dice.choice((1, 50, 400))}); do truncate -s {dice.choice(('1M', '60M'))} m$i; done"
    return _some(dice, 1, 4, one) + "; " + many


@_kind
def _special_files(dice: random.Random) -> str:
    def one() -> str:
        n = dice.randrange(1000)
        target = dice.choice(("/dev/zero", "/proc/1/mem", "/dev/tty", "/proc/self/fd/1", "/", "/dev/fd/201"))
        return dice.choice(
            (
                f"mkfifo f{n}",
                f"mknod b{n} b 254 0; mknod c{n} c 1 {dice.randrange(12)}",
                python(f"import socket; socket.socket(socket.AF_UNIX).bind('k{n}')"),
                f"ln -s {target} l{n}",
                f"ln -s l{n} m{n}; ln -s m{n} l{n}; ln -s . d{n}; ln -s ../here e{n}",
                f"echo x > a{n}; for i in $(seq {dice.choice((2, 300))}); do ln a{n} h{n}_$i; done",
                f"ln /etc/passwd p{n}; ln /usr/bin/env q{n}; ln /proc/self/environ r{n}",
                f"mkdir -m {dice.choice(('0', '1777', '7777', '300', '111'))} m{n}d; : > m{n}d/f",
            )
        )

    return _some(dice, 2, 8, one)


@_kind
def _modes(dice: random.Random) -> str:
    made = "mkdir -p a/b/c x/y/z /tmp/t/u; echo 1 > a/b/c/f; echo 2 > x/y/g; echo 3 > a/h; : > /tmp/t/u/v"
    places = [
        "a",
        "a/b",
        "a/b/c",
        "a/b/c/f",
        "x",
        "x/y",
        "x/y/z",
        "x/y/g",
        "a/h",
        ".",
        "/workspace",
        "/tmp",
        "/tmp/t",
        "/tmp/t/u",
        "/dev/shm",
    ]
    modes = ["000", "111", "222", "333", "400", "444", "555", "700", "1000", "1777", "7777", "2755", "4755"]
    one = lambda: f"chmod {dice.choice(modes)} {dice.choice(places)}"  # noqa: E731
    return f"umask {dice.choice(('0', '777', '022', '077'))}; {made}; {_some(dice, 2, 12, one)}"


@_kind
def _descriptors(dice: random.Random) -> str:
    def one() -> str:
        fd = dice.choice((*range(10), *_SHELL_FDS, *_SHELL_FDS, 200, 205, 254, 255))
        other = dice.choice((0, 1, 2, *_SHELL_FDS))
        return dice.choice(
            (
                f"exec {fd}>&-",
                f"exec {fd}<&-",
                f"exec {fd}>&{other}",
                f"exec {other}<&{fd}",
                f"printf 'x\\0y%.0s' {{1..{dice.choice((1, 2000))}}} >&{fd}",
                f"exec {fd}<>/workspace/file{fd}",
                f"echo x > /proc/self/fd/{fd}; echo x > /proc/$$/fd/{fd}; echo x > /proc/$PPID/fd/{fd}",
                f"cat <&{fd} | head -c 99",
                f"read -t 0.1 -u {fd} x; mapfile -u {fd} y",
                'for i in {3..255}; do eval "exec $i>&-"; done',
                'for i in {3..255}; do eval "echo q >&$i"; eval "exec $i</dev/zero"; done',
            )
        )

    end = dice.choice(("", "; kill -9 $$", "; exit 5", "; exec true", "; exec >&-"))
    return f"{{ {_some(dice, 1, 10, one)}; }} 2>/dev/null{end}"


@_kind
def _forged_states(dice: random.Random) -> str:
    texts = (
        "exit 0", "exec true", "while :; do :; done", "kill -9 $$", "declare -r PATH=/workspace", "trap 'exit 0' EXIT",
        "enable -n builtin eval exit", "readonly PWD HOME", "set -n", "alias exit=true", "exec 204<&- 201>&-", "((",
        "printf() { :; }; declare -rf printf", "ulimit -n 3", "cd /; umask 777", "'",
        "shopt -s extdebug; trap false DEBUG",
    )  # fmt: skip
    fields = [
        dice.choice(("a:b", "", "braceexpand:hashall", "/etc\n", *texts)) for _ in range(dice.choice((8, 8, 8, 3)))
    ]
    dump = "\\0".join(field.replace("\\", "").replace("'", "'\\''").replace("%", "") for field in fields)
    end = dice.choice(
        ("kill -9 $$", "exec 201>&-; exit 3", "exec 201>&-; kill -9 $$", "exec true", "exec 201</dev/null")
    )
    return f"printf '{dump}\\0#STATE-OK' >&201; {end}"


@_kind
def _signals(dice: random.Random) -> str:
    targets = ["1", "$PPID", "$$", "0", "-1", "-$PPID", "-$$"]
    one = lambda: f"kill -{dice.randint(1, 64)} {dice.choice(targets)}"  # noqa: E731
    every = f"for p in $(ls /proc | grep -E '^[0-9]+$'); do kill -{dice.choice((9, 19, 18, 15, 10, 2))} $p; done"
    storm = f"(while :; do {one()}; {one()}; done) &"
    first = dice.choice((f"{every}; ", storm, ""))
    return f"trap '' {dice.randint(1, 31)}; {{ {first}{_some(dice, 3, 20, one)}; }} 2>/dev/null; sleep 0.1"


@_kind
def _limits(dice: random.Random) -> str:
    def one() -> str:
        value = dice.choice(("0", "1", "3", "64", "100000", "unlimited"))
        return dice.choice(
            (
                f"ulimit -{dice.choice('cdefilmnpqrstuvx')} {value}",
                f"ulimit -S{dice.choice('nfuv')} {value}",
                f"nice -n {dice.randint(-20, 19)} true; renice {dice.randint(-20, 19)} -p $$ $PPID 1",
                "chrt -f -p 99 $$; chrt -i -p 0 $$; ionice -c 3 -p $$; taskset -p 1 $$",
                f"prlimit --pid {dice.choice(('1', '$PPID', '$$'))} --nofile=3 --as=1 --cpu=1",
                "exec setsid bash -c 'sleep 0.1; exit 9'",
                "echo -1000 > /proc/self/oom_score_adj; echo 1 > /proc/$PPID/oom_score_adj",
            )
        )

    return f"{{ {_some(dice, 1, 6, one)}; }} 2>/dev/null; ls | cat; exit {dice.randrange(256)}"


_OPTIONS = "allexport errexit errtrace functrace noclobber noexec noglob nounset posix verbose xtrace keyword physical"
_SHOPTS = "extdebug expand_aliases nocasematch failglob nullglob extglob inherit_errexit sourcepath xpg_echo lastpipe"
_BUILTINS = "printf builtin eval exit declare command trap source read shopt pwd return unset set test"
_ENDINGS = (":", "exit 0", "kill -9 $$", "exec true", "return 5", "while :; do :; done")


@_kind
def _shell_states(dice: random.Random) -> str:
    def one() -> str:
        size = dice.choice((10, 3000, 30_000))
        builtin, ending = dice.choice(_BUILTINS.split()), dice.choice(_ENDINGS)
        return dice.choice(
            (
                f"v=$(head -c {100 * size} /dev/zero | tr '\\0' {dice.choice('x1')}); export v",
                f'for i in $(seq {size // 10}); do eval "v$i=$i"; eval "f$i() {{ echo $i; }}"; done',
                f"eval \"big() {{ $(yes 'echo word;' | head -n {size}) }}\"",
                "readonly PATH HOME PWD OLDPWD IFS BASH_ENV _tg_c _tg_d _tg_p SHELLOPTS",
                f"IFS={quote(dice.choice(('/', 'a', '', chr(10), '0123456789')))}; PATH=; CDPATH=/; GLOBIGNORE='*'",
                "export BASH_ENV=/workspace/e ENV=/workspace/e; echo 'echo no; exit 3; while :; do :; done' > e",
                f"trap {quote(ending)} {dice.choice(('EXIT', 'DEBUG', 'ERR', 'RETURN', 'USR1'))}",
                f"set -o {dice.choice(_OPTIONS.split())}",
                f"shopt -s {dice.choice(_SHOPTS.split())}",
                f"{builtin}() {{ {ending}; }}; export -f {builtin}",
                f"alias {builtin}={quote(ending)} echo='exit 0' exec=true",
                "enable -n echo test printf; hash -p /workspace/x ls; declare -n r=s s=r; declare -A m=([a]=b)",
                "exec > /dev/null 2>&1 < /dev/zero; LC_ALL=xx; POSIXLY_CORRECT=1; BASH_COMPAT=3.1; unset HOME",
                "command_not_found_handle() { exit 0; }; export -f command_not_found_handle; PS4='$(exit 3)'; TMOUT=1",
                "PROMPT_COMMAND='exit 0'; cd /; cd /tmp; mkdir -p gone/x; cd gone/x; rm -rf /tmp/gone",
            )
        )

    return _some(dice, 1, 6, one) + dice.choice(("", "; exit 7", "; kill -9 $$", "; exec true"))


@_kind
def _outputs(dice: random.Random) -> str:
    def one() -> str:
        size = dice.choice(("0", "1", "65535", "65537", "1M", "9M"))
        source = dice.choice(("/dev/zero", "/dev/urandom", "<(yes $'\\e[2J\\xff\\xfe')", "<(yes '')"))
        return f"head -c {size} {source} {dice.choice(('', '>&2', '| tee /dev/stderr'))}"

    return _some(dice, 1, 3, one) + dice.choice(("", "; exec >&- 2>&-; sleep 0.1", " &", "; echo a > >(sleep 3; cat)"))


@_kind
def _texts(dice: random.Random) -> str:
    size = dice.choice((10, 1000, 30_000))
    mixed = list("$(){}[]'\"`\\;&|<>#!~*? \n\t\r") + [
        "if ",
        "do ",
        "done ",
        "fi ",
        "case ",
        "esac ",
        "<<E\n",
        "$(",
        "((",
        "\0",
    ]
    return dice.choice(
        (
            "".join(dice.choice(mixed) for _ in range(min(size, 200))),
            "".join(chr(dice.choice((dice.randint(1, 127), dice.randint(0xDC80, 0xDCFF)))) for _ in range(size)),
            "".join(chr(dice.randint(1, 0x10FFFF)) for _ in range(min(size, 500))),
            "(" * size + dice.choice(("", ")" * size)),
            "echo " + "$(" * (size // 10) + ")" * (size // 10),
            "{ " * size + "}" * size,
            f"echo {'x' * dice.choice(((1 << 20) - 5, 1 << 20))}",
            "cat <<'E'\n" + "\\'\"$`!\n" * size + dice.choice(("", "E\n")),
            "f() { f; f; }; f",
            f"echo {{1..{size * 100}}} | tail -c 9; x=$((2**63)); echo ${{x:9:-99}}; : ${{y:?}}",
            "echo a\0b",
            "#" * size + "\n" * size,
        )
    )


@_kind
def _storms(dice: random.Random) -> str:
    count = dice.choice((5, 40, 150, 400))
    job = dice.choice(
        (
            "sleep 100",
            "(while :; do :; done)",
            "setsid -f sleep 100",
            "(trap '' TERM HUP INT; while :; do echo x >> w; done)",
            "nohup bash -c 'kill -STOP $$'",
            "(setsid bash -c 'while :; do (sleep 0.01 &); done')",
            python("import os, time\nfor n in range(5): os.fork()\ntime.sleep(9)"),
        )
    )
    start = dice.choice((f"{job} &", f"({job} & disown)", f"coproc {{ {job}; }}", f"{{ {job}; }} > >(cat) &"))
    return f"for i in $(seq {count}); do {start} done 2>/dev/null; {dice.choice(('wait', 'exit 4', 'kill -9 $$', ':'))}"


def command(kind: str, seed: int) -> str:
    """The input of one kind and seed: the same on every machine."""
    return KINDS[kind](random.Random(f"{kind} {seed}"))


def survive(trial: Trial, kind: str, seed: int) -> None:
    """Run one input, and prove that the sandbox is what it was.

    Raises:
        Wrong: Something does not hold; the message says the input.
    """
    text = command(kind, seed)
    sandbox, dice = trial.sandbox, random.Random(seed)
    try:
        result = sandbox.run(text, timeout=_TIMEOUT)
        _judges(trial, dice, "after the input")
        sandbox.run("/bin/true; exit 3", timeout=_TIMEOUT)  # its own shell may be of no use any more
        sandbox.listing()
        found = sandbox.snapshot()
        must(sandbox.snapshot_hash() == sandbox.snapshot_hash(), "two hashes of one workspace differ")
        for path in dice.sample(sorted(found), min(3, len(found))):
            content = found[path].content
            try:
                data = sandbox.read(path)
                must(content is None or data == content, f"{path[:80]!r} reads differently than in the snapshot")
            except SandboxError:
                must(content is None, f"{path[:80]!r} is in the snapshot and is not read")
        _refuses(trial, dice.choice(("nothing", "\udcff\n", "a/" * 300 + "b", "x" * 5000)))
        try:
            sandbox.put({"put/by us": trial.token})
            must(sandbox.read("put/by us") == trial.token.encode(), "a file that was put reads differently")
        except SandboxError:
            must(sandbox.alive, "a put cost the sandbox")  # it may be full
        _judges(trial, dice, "after all looks")
        trial.again()
        must(sandbox.listing() == [], "something is left after a reset")
        must(sandbox.run("pwd; exit 9", timeout=SECONDS).exit_code == 9, "the next episode has another exit code")
    except (Wrong, SandboxError) as error:
        raise Wrong(f"{kind} {seed}: {text[:300]!r}: {error}") from error
    except Exception as error:  # no other is in the contract
        raise Wrong(f"{kind} {seed}: {text[:300]!r}: {type(error).__name__}: {error}") from error
    must(result.timed_out or 0 <= result.exit_code < 256, f"{kind} {seed}: {brief(result)}")


def _judges(trial: Trial, dice: random.Random, when: str) -> None:
    code = dice.randrange(256)
    seen = trial.run(f"echo {trial.token}; cd /workspace; exit {code}", clean=True)
    right = (seen.exit_code, seen.stdout, seen.timed_out) == (code, f"{trial.token}\n".encode(), False)
    must(right, f"a clean command that exits with {code} {when}: {brief(seen)}")


def _refuses(trial: Trial, path: str) -> None:
    try:
        trial.sandbox.read(path)
    except (FileNotFoundError, SandboxError):
        must(trial.sandbox.alive, "a read cost the sandbox")


def _check(kind: str) -> Check:
    def body(trial: Trial) -> None:
        for seed in range(COUNT):
            survive(trial, kind, seed)

    about = (
        f"{COUNT} inputs drawn from seeds; after each every request is answered, and a clean command judges rightly."
    )
    return Check(
        f"hostile-{kind}-cost-nothing", "hostile", body, about, stress=kind in ("storms", "signals"), unsafe=True
    )


CHECKS = [_check(kind) for kind in KINDS]
