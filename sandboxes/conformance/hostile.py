"""Hostile inputs, drawn from a seed: whatever a command does, the sandbox answers every request and judges rightly.

After each input a clean command has the right output and exit code, every look at the files answers, files go in, and
a reset leaves nothing. What the agent's own shell suffers is its own doing. Each kind of input is a check; one that
fails says its seed, and `command(kind, seed)` gives the input again.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from shlex import quote

from sandboxes.conformance.check import SECONDS, Check, Trial, Wrong, brief, must, python
from sandboxes.sandbox import SandboxError

SEEDS = range(16)
"""Of the inputs of each kind in the list."""
_TIMEOUT = 1.0
"""Seconds of one input: many never end by themselves."""

Word = Sequence[object] | Callable[[random.Random], str]
"""What may stand in a place of a template: one of these, or what a function draws."""


@dataclass(frozen=True)
class Kind:
    """A kind of input: some lines, each a template whose `<words>` are drawn.

    Attributes:
        lines: Templates, of which each line is one. The same word twice in a line is drawn once.
        words: What may stand in their places.
        counts: How many lines, drawn too.
        begin: What stands before them, one of these templates.
        end: What stands after them, likewise.
        between: What stands between two lines.
        stress: It uses up the machine for a moment.
    """

    lines: Sequence[str]
    words: Mapping[str, Word] = field(default_factory=dict)
    counts: Sequence[int] = (1,)
    begin: Sequence[str] = ("",)
    end: Sequence[str] = ("",)
    between: str = "; "
    stress: bool = False

    def draw(self, dice: random.Random) -> str:
        """One input."""
        lines = [self._filled(self.lines, dice) for _ in range(dice.choice(self.counts))]
        return self._filled(self.begin, dice) + self.between.join(lines) + self._filled(self.end, dice)

    def _filled(self, templates: Sequence[str], dice: random.Random) -> str:
        drawn: dict[str, str] = {}

        def word(found: re.Match[str]) -> str:
            name = found[1]
            if name not in drawn:
                words = self.words[name]
                drawn[name] = words(dice) if callable(words) else str(dice.choice(words))
            return drawn[name]

        return re.sub(r"<([a-z]+)>", word, dice.choice(templates))


# --- what is drawn ----------------------------------------------------------------------------------------------------

_BYTES = [bytes([n]) for n in range(1, 256) if n != 0x2F]
_ODD = (
    *("\n", "\r", " ", "\t", "-", "-rf", "--", "*", "~", "$(id)", "`id`", "\\", "'", '"', "%s", "\u202e", "\ud83d"),
    "..x",
)


def _name(dice: random.Random) -> str:
    """A word of bash that names a file oddly."""
    length = dice.choice((1, 3, 20, 255))
    kind = dice.randrange(4)
    if kind == 0:
        data = b"".join(dice.choice(_BYTES) for _ in range(length))
    elif kind == 1:
        data = dice.choice(_ODD).encode("utf-8", "surrogatepass")[:255] + b"x" * dice.choice((0, 1, 200))
    else:
        data = (dice.choice((b"\xff", b"\xed\xa0\x80", b"\n", b"\x01", b"a")) * 255)[:length]
    return "$'" + "".join(f"\\x{byte:02x}" for byte in data) + "'"


def _words(text: str) -> list[str]:
    return text.split()


def _letters(most: int, draw: Callable[[random.Random], str]) -> Callable[[random.Random], str]:
    """Draws a text of letters that are drawn one by one."""
    return lambda dice: "".join(draw(dice) for _ in range(min(dice.choice(_LENGTHS), most)))


def _times(text: str, divided: int = 1) -> Callable[[random.Random], str]:
    """Draws how often a text stands there."""
    return lambda dice: text * (dice.choice(_LENGTHS) // divided)


_LENGTHS = (10, 1000, 30_000)
_MIXED = [*"$(){}[]'\"`\\;&|<>#!~*? \n\t\r", "if ", "do ", "done ", "fi ", "case ", "esac ", "<<E\n", "$(", "((", "\0"]
_TREE = """
import os, sys
depth, length, files, wide, mode = map(int, sys.argv[1:])
letter = b'\\xff' if wide % 2 else b'd'
for n in range(depth):
    for m in range(wide): os.mkdir(letter * (length - 1) + b'%d' % m)
    os.chdir(letter * (length - 1) + b'0')
for n in range(files): open('f%d' % n, 'w').close()
if mode: os.chmod('.', 0)
"""
_SHELL_FDS = (201, 202, 203, 204)
_FORGED = (
    "a:b", "", "braceexpand:hashall", "/etc\n",
    "exit 0", "exec true", "while :; do :; done", "kill -9 $$", "declare -r PATH=/workspace", "trap 'exit 0' EXIT",
    "enable -n builtin eval exit", "readonly PWD HOME", "set -n", "alias exit=true", "exec 204<&- 201>&-", "((",
    "printf() { :; }; declare -rf printf", "ulimit -n 3", "cd /; umask 777", "'",
    "shopt -s extdebug; trap false DEBUG",
)  # fmt: skip
_ENDINGS = (":", "exit 0", "kill -9 $$", "exec true", "return 5", "while :; do :; done")
_JOBS = (
    "sleep 100",
    "(while :; do :; done)",
    "setsid -f sleep 100",
    "(trap '' TERM HUP INT; while :; do echo x >> w; done)",
    "nohup bash -c 'kill -STOP $$'",
    "(setsid bash -c 'while :; do (sleep 0.01 &); done')",
    python("import os, time\nfor n in range(5): os.fork()\ntime.sleep(9)"),
)

# --- the kinds --------------------------------------------------------------------------------------------------------

KINDS = {
    "names": Kind(
        ("mkdir -- <name>; : > ./<name>/<other>", "echo x > ./<name>", "ln -s -- <other> <name>", "mkfifo -- <name>"),
        {"name": _name, "other": _name},
        counts=range(5, 41),
    ),
    "trees": Kind(
        [python(_TREE, "<depth>", "<length>", "<files>", "<wide>", "<mode>")],
        {
            "depth": (1, 10, 120, 130, 700),
            "length": (1, 2, 60, 250),
            "files": (0, 10, 3000),
            "wide": range(1, 6),
            "mode": (0, 1),
        },
    ),
    "sizes": Kind(
        ("truncate -s <size> s<n>", "head -c <size> /dev/zero > s<n>", "fallocate -l <size> s<n>"),
        {
            "size": ("0", "1", "1M", "1048577", "60M", "64M", "100G", "8E"),
            "n": range(99),
            "many": (1, 50, 400),
            "each": ("1M", "60M"),
        },
        counts=range(1, 5),
        end=["; for i in $(seq <many>); do truncate -s <each> m$i; done"],
    ),
    "special-files": Kind(
        (
            "mkfifo f<n>",
            "mknod b<n> b 254 0; mknod c<n> c 1 <minor>",
            python("import socket; socket.socket(socket.AF_UNIX).bind('k<n>')"),
            "ln -s <target> l<n>",
            "ln -s l<n> m<n>; ln -s m<n> l<n>; ln -s . d<n>; ln -s ../here e<n>",
            "echo x > a<n>; for i in $(seq <links>); do ln a<n> h<n>_$i; done",
            "ln /etc/passwd p<n>; ln /usr/bin/env q<n>; ln /proc/self/environ r<n>",
            "mkdir -m <mode> m<n>d; : > m<n>d/f",
        ),
        {
            "n": range(1000),
            "minor": range(12),
            "target": ("/dev/zero", "/proc/1/mem", "/dev/tty", "/proc/self/fd/1", "/", "/dev/fd/201"),
            "links": (2, 300),
            "mode": ("0", "1777", "7777", "300", "111"),
        },
        counts=range(2, 9),
    ),
    "modes": Kind(
        ["chmod <mode> <place>"],
        {
            "mask": ("0", "777", "022", "077"),
            "mode": _words("000 111 222 333 400 444 555 700 1000 1777 7777 2755 4755"),
            "place": _words("a a/b a/b/c a/b/c/f x x/y x/y/z x/y/g a/h . /workspace /tmp /tmp/t /tmp/t/u /dev/shm"),
        },
        counts=range(2, 13),
        begin=[
            "umask <mask>; mkdir -p a/b/c x/y/z /tmp/t/u; echo 1 > a/b/c/f; echo 2 > x/y/g; echo 3 > a/h; "
            ": > /tmp/t/u/v; "
        ],
    ),
    "descriptors": Kind(
        (
            "exec <fd>>&-",
            "exec <fd><&-",
            "exec <fd>>&<other>",
            "exec <other><&<fd>",
            "printf 'x\\0y%.0s' {1..<many>} >&<fd>",
            "exec <fd><>/workspace/file<fd>",
            "echo x > /proc/self/fd/<fd>; echo x > /proc/$$/fd/<fd>; echo x > /proc/$PPID/fd/<fd>",
            "cat <&<fd> | head -c 99",
            "read -t 0.1 -u <fd> x; mapfile -u <fd> y",
            'for i in {3..255}; do eval "exec $i>&-"; done',
            'for i in {3..255}; do eval "echo q >&$i"; eval "exec $i</dev/zero"; done',
        ),
        {
            "fd": (*range(10), *_SHELL_FDS, *_SHELL_FDS, 200, 205, 254, 255),
            "other": (0, 1, 2, *_SHELL_FDS),
            "many": (1, 2000),
        },
        counts=range(1, 11),
        begin=["{ "],
        end=[f"; }} 2>/dev/null{end}" for end in ("", "; kill -9 $$", "; exit 5", "; exec true", "; exec >&-")],
    ),
    "forged-states": Kind(
        [text.replace("\\", "").replace("'", "'\\''").replace("%", "") for text in _FORGED],
        counts=(8, 8, 8, 3),
        between="\\0",
        begin=["printf '"],
        end=[
            f"\\0#STATE-OK' >&201; {end}"
            for end in (
                "kill -9 $$",
                "exec 201>&-; exit 3",
                "exec 201>&-; kill -9 $$",
                "exec true",
                "exec 201</dev/null",
            )
        ],
    ),
    "signals": Kind(
        ["kill -<signal> <target>"],
        {
            "signal": range(1, 65),
            "another": range(1, 65),
            "caught": range(1, 32),
            "deadly": (9, 19, 18, 15, 10, 2),
            "target": ("1", "$PPID", "$$", "0", "-1", "-$PPID", "-$$"),
            "victim": ("1", "$PPID", "$$", "0", "-1", "-$PPID", "-$$"),
        },
        counts=range(3, 21),
        begin=(
            "trap '' <caught>; { for p in $(ls /proc | grep -E '^[0-9]+$'); do kill -<deadly> $p; done; ",
            "trap '' <caught>; { (while :; do kill -<signal> <target>; kill -<another> <victim>; done) & ",
            "trap '' <caught>; { ",
        ),
        end=["; } 2>/dev/null; sleep 0.1"],
        stress=True,
    ),
    "limits": Kind(
        (
            "ulimit -<limit> <value>",
            "ulimit -S<soft> <value>",
            "nice -n <nice> true; renice <nice> -p $$ $PPID 1",
            "chrt -f -p 99 $$; chrt -i -p 0 $$; ionice -c 3 -p $$; taskset -p 1 $$",
            "prlimit --pid <pid> --nofile=3 --as=1 --cpu=1",
            "exec setsid bash -c 'sleep 0.1; exit 9'",
            "echo -1000 > /proc/self/oom_score_adj; echo 1 > /proc/$PPID/oom_score_adj",
        ),
        {
            "limit": "cdefilmnpqrstuvx",
            "soft": "nfuv",
            "value": ("0", "1", "3", "64", "100000", "unlimited"),
            "nice": range(-20, 20),
            "pid": ("1", "$PPID", "$$"),
            "code": range(256),
        },
        counts=range(1, 7),
        begin=["{ "],
        end=["; } 2>/dev/null; ls | cat; exit <code>"],
    ),
    "shell-states": Kind(
        (
            "v=$(head -c <size>00 /dev/zero | tr '\\0' <letter>); export v",
            'for i in $(seq <few>); do eval "v$i=$i"; eval "f$i() { echo $i; }"; done',
            "eval \"big() { $(yes 'echo word;' | head -n <size>) }\"",
            "readonly PATH HOME PWD OLDPWD IFS BASH_ENV _tg_c _tg_d _tg_p SHELLOPTS",
            "IFS=<ifs>; PATH=; CDPATH=/; GLOBIGNORE='*'",
            "export BASH_ENV=/workspace/e ENV=/workspace/e; echo 'echo no; exit 3; while :; do :; done' > e",
            "trap <quoted> <event>",
            "set -o <option>",
            "shopt -s <shopt>",
            "<builtin>() { <ending>; }; export -f <builtin>",
            "alias <builtin>=<quoted> echo='exit 0' exec=true",
            "enable -n echo test printf; hash -p /workspace/x ls; declare -n r=s s=r; declare -A m=([a]=b)",
            "exec > /dev/null 2>&1 < /dev/zero; LC_ALL=xx; POSIXLY_CORRECT=1; BASH_COMPAT=3.1; unset HOME",
            "command_not_found_handle() { exit 0; }; export -f command_not_found_handle; PS4='$(exit 3)'; TMOUT=1",
            "PROMPT_COMMAND='exit 0'; cd /; cd /tmp; mkdir -p gone/x; cd gone/x; rm -rf /tmp/gone",
        ),
        {
            "size": (10, 3000, 30_000),
            "few": (1, 300, 3000),
            "letter": "x1",
            "ifs": [quote(value) for value in ("/", "a", "", "\n", "0123456789")],
            "ending": _ENDINGS,
            "quoted": [quote(ending) for ending in _ENDINGS],
            "event": ("EXIT", "DEBUG", "ERR", "RETURN", "USR1"),
            "option": _words(
                "allexport errexit errtrace functrace noclobber noexec noglob nounset posix verbose xtrace keyword "
                "physical"
            ),
            "shopt": _words(
                "extdebug expand_aliases nocasematch failglob nullglob extglob inherit_errexit sourcepath xpg_echo "
                "lastpipe"
            ),
            "builtin": _words(
                "printf builtin eval exit declare command trap source read shopt pwd return unset set test"
            ),
        },
        counts=range(1, 7),
        end=("", "; exit 7", "; kill -9 $$", "; exec true"),
    ),
    "outputs": Kind(
        ["head -c <size> <source> <where>"],
        {
            "size": ("0", "1", "65535", "65537", "1M", "9M"),
            "source": ("/dev/zero", "/dev/urandom", "<(yes $'\\e[2J\\xff\\xfe')", "<(yes '')"),
            "where": ("", ">&2", "| tee /dev/stderr"),
        },
        counts=range(1, 4),
        end=("", "; exec >&- 2>&-; sleep 0.1", " &", "; echo a > >(sleep 3; cat)"),
    ),
    "texts": Kind(
        (
            "<mixed>",
            "<bytes>",
            "<unicode>",
            "<open><close>",
            "<open>",
            "echo <subshells>",
            "<braces>}",
            "echo <long>",
            "cat <<'E'\n<lines>",
            "cat <<'E'\n<lines>E\n",
            "f() { f; f; }; f",
            "echo {1..<size>00} | tail -c 9; x=$((2**63)); echo ${x:9:-99}; : ${y:?}",
            "echo a\0b",
            "<remark>\n",
        ),
        {
            "mixed": _letters(200, lambda dice: dice.choice(_MIXED)),
            "bytes": _letters(
                30_000, lambda dice: chr(dice.choice((dice.randint(1, 127), dice.randint(0xDC80, 0xDCFF))))
            ),
            "unicode": _letters(500, lambda dice: chr(dice.randint(1, 0x10FFFF))),
            "open": _times("("),
            "close": _times(")"),
            "subshells": _times("$(" * 10 + ")" * 10, 100),
            "braces": _times("{ "),
            "long": lambda dice: "x" * dice.choice(((1 << 20) - 5, 1 << 20)),
            "lines": _times("\\'\"$`!\n"),
            "size": _LENGTHS,
            "remark": _times("#"),
        },
    ),
    "storms": Kind(
        [
            f"for i in $(seq <count>); do {start} done 2>/dev/null; <end>"
            for job in _JOBS
            for start in (f"{job} &", f"({job} & disown)", f"coproc {{ {job}; }}", f"{{ {job}; }} > >(cat) &")
        ],
        {"count": (5, 40, 150, 400), "end": ("wait", "exit 4", "kill -9 $$", ":")},
        stress=True,
    ),
}
"""What is tried, by theme."""


def command(kind: str, seed: int) -> str:
    """The input of one kind and seed: the same on every machine."""
    return KINDS[kind].draw(random.Random(f"{kind} {seed}"))


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
        for seed in SEEDS:
            survive(trial, kind, seed)

    about = (
        f"{len(SEEDS)} inputs drawn from seeds; after each every request is answered, "
        "and a clean command judges rightly."
    )
    return Check(f"hostile-{kind}-cost-nothing", "hostile", body, about, stress=KINDS[kind].stress, unsafe=True)


CHECKS = [_check(kind) for kind in KINDS]
