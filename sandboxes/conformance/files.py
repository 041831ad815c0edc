"""Files and grading reads: what a command left behind is data, however hostile, and is gone after a reset."""

from __future__ import annotations

from functools import partial

from sandboxes.conformance.check import (
    SECONDS,
    Attack,
    Group,
    Run,
    Step,
    Trial,
    again,
    brief,
    check,
    must,
    must_refuse,
    puts,
    python,
    reads,
    sees,
    without,
)
from sandboxes.sandbox import Backend, EntryKind, FileEntry, SandboxError, Snapshot

FILES = Group("files")


def _refuses(*paths: str) -> Step:
    """A step: reads that must be refused, with the sandbox alive afterwards."""

    def step(trial: Trial) -> None:
        for path in paths:
            must_refuse(partial(trial.sandbox.read, path), f"reading {path!r}", (SandboxError, FileNotFoundError))
            must(trial.sandbox.alive, f"reading {path!r} cost the sandbox")

    return step


def _hashes_alike(trial: Trial) -> None:
    """A step: two hashes of the same workspace are equal."""
    must(trial.sandbox.snapshot_hash() == trial.sandbox.snapshot_hash(), "two hashes of the same workspace differ")


def _hash_sees(*commands: str) -> Step:
    """A step: each of these commands changes the hash."""

    def step(trial: Trial) -> None:
        for command in commands:
            before = trial.sandbox.snapshot_hash()
            trial.run(command)
            must(trial.sandbox.snapshot_hash() != before, f"the hash does not see {command!r}")

    return step


# --- reads ------------------------------------------------------------------------------------------------------------


def _named_not_opened(found: Snapshot) -> bool:
    links = [found[path] for path in ("s1", "s2", "loop", "ring", "d1")]
    return (
        all(entry.kind is EntryKind.SYMLINK and entry.content is None for entry in links)
        and found["s1"].target == "/etc/passwd"
        and (found["ff"].kind, found["ff"].content) == (EntryKind.OTHER, None)
        and found["sparse"].content is None
        and (found["sparse"].size or 0) >= 60 << 20
        and (found["ro/a/f"].content, found["ro/a/f"].mode) == (b"x\n", 0)
        and {"\udcff\udcfe", "new\nline"} <= set(found)
        and "hard" not in found
        and not any(path.startswith(("d1/", "loop/")) for path in found)
    )


FILES.table(
    check(
        "traps-for-the-grader-are-named-and-not-opened",
        "Links out, link loops, a fifo, a sparse giant, odd names, closed directories, all at the same time.",
        Attack(
            "ln -s /etc/passwd s1; ln -s /proc/1/environ s2; ln -s . loop; ln -s loop/loop/loop ring; mkfifo ff; "
            "ln -s /etc d1; touch $'\\xff\\xfe' $'new\\nline'; "
            "truncate -s 40G sparse 2>/dev/null || truncate -s 60M sparse; "
            "mkdir -p ro/a; echo x > ro/a/f; chmod 000 ro/a/f ro/a ro; ln /etc/passwd hard 2>/dev/null; echo g",
            where="/workspace",
            out=b"g\n",
        ),
        sees("every trap is named, none is opened, and no link leads out or is followed", _named_not_opened),
        _hashes_alike,
        Run("stat -c %a ro", code=0, out=b"0\n"),
    ),
    check(
        "reads-follow-no-links",
        "The last part, a part on the way, and a chain of links; to files outside, inside, and to devices.",
        Run(
            "echo secret > /tmp/out; mkdir real; echo in > real/f; ln -s /tmp/out a; ln -s real b; ln -s a c; "
            "ln -s real/f d; ln -s /etc e; ln -s /proc/self/environ f; ln -s /dev/zero g; ln -s /proc/self/cwd h"
        ),
        _refuses("a", "b/f", "c", "d", "e/passwd", "f", "g", "h/real/f"),
        reads("real/f", b"in\n"),
    ),
    check(
        "reads-open-no-fifo-socket-or-directory",
        "Things that would answer never, or with something else than bytes of a file.",
        Run(
            "mkfifo fifo; mkdir dir; "
            "python3 -c \"import socket; socket.socket(socket.AF_UNIX).bind('socket')\" 2>/dev/null; "
            "mknod null c 1 3 2>/dev/null; :"
        ),
        _refuses("fifo", "dir", "dir/", "socket", "null", "missing", "fifo/x"),
        sees(
            "fifo and dir are what they are",
            lambda found: (found["fifo"].kind, found["dir"].kind) == (EntryKind.OTHER, EntryKind.DIR),
        ),
    ),
)


@FILES.check()
def reads_do_not_leave_the_workspace(trial: Trial) -> None:
    """Absolute paths and paths with dots, refused by the host and, past the host, by the supervisor."""
    trial.run("echo secret > /tmp/out; mkdir -p a")
    for path in ("../tmp/out", "/etc/passwd", "a/../../tmp/out", "./a", "", "a//b", "a\0b", ".."):
        must_refuse(partial(trial.sandbox.read, path), f"the host lets {path!r} through", (ValueError,))
        must_refuse(
            partial(trial.sandbox._request, {"op": "read", "path": path}),
            f"the supervisor reads {path!r}",
            (SandboxError, FileNotFoundError),
        )
        must(trial.sandbox.alive, f"reading {path!r} cost the sandbox")


# --- what goes in -----------------------------------------------------------------------------------------------------


@FILES.check()
def puts_do_not_leave_the_workspace(trial: Trial) -> None:
    """Absolute paths and paths with dots, refused by the host and, past the host, by the supervisor."""
    for path in ("../tmp/planted", "/tmp/planted", "a/../../tmp/planted", "", "a/./b", "a\0b", "."):
        must_refuse(partial(trial.sandbox.put, {path: b"x"}), f"the host lets {path!r} through", (ValueError,))
        head = {"op": "put", "entries": [[path, "file", 0o644, None, 1]]}
        must_refuse(partial(trial.sandbox._request, head, b"x"), f"the supervisor writes {path!r}")
        must(trial.sandbox.alive, f"putting {path!r} cost the sandbox")
    must(trial.out("ls -A /tmp") == "", "something was written outside")


_IN_THE_WAY = ("link", "way/f", "fifo", "dir", "closed/f", "dangling", "locked", "plain/f", "hard")
_KEPT = {
    "a.bin": FileEntry(content=bytes(range(256)) * 300),
    "empty": FileEntry(),
    "run": FileEntry(content=b"#!/bin/sh\necho ran\n", mode=0o755),
    "secret": FileEntry(content=b"s", mode=0o600),
    "void": FileEntry(EntryKind.DIR, mode=0o700),
    "link": FileEntry(EntryKind.SYMLINK, target="a.bin"),
    "\udcff x\ny": FileEntry(content=b"odd"),
}


def _as_put(found: Snapshot) -> bool:
    return found["link"].target == "a.bin" and all(
        found[path].content == (wanted.content if wanted.kind is EntryKind.FILE else None)
        and (wanted.kind is EntryKind.SYMLINK or found[path].mode == wanted.mode)
        for path, wanted in _KEPT.items()
    )


FILES.table(
    check(
        "puts-replace-what-stands-in-the-way",
        "Planted links, fifos, directories and closed places where the files of a grader go.",
        Run(
            "mkdir /tmp/outside; echo old > /tmp/victim; ln -s /tmp/victim link; ln -s /tmp/outside way; mkfifo fifo; "
            "mkdir -p dir/deep/er; echo y > dir/deep/er/f; chmod 000 dir/deep; mkdir closed; chmod 000 closed; "
            "ln -s nowhere dangling; echo locked > locked; chmod 000 locked; ln /tmp/victim hard 2>/dev/null; "
            "echo f > plain"
        ),
        puts({path: f"new {path}" for path in _IN_THE_WAY}),
        *(reads(path, f"new {path}".encode()) for path in _IN_THE_WAY),
        Run("cat /tmp/victim; ls -A /tmp/outside; cat link way/f dir plain/f | wc -l", code=0, out=b"old\n0\n"),
    ),
    check(
        "files-keep-bytes-modes-and-links",
        "What goes in comes out: every byte, modes, directories, links, names that are no text.",
        lambda trial: trial.sandbox.open(_KEPT),
        sees("the paths are those that were put", lambda found: set(found) == set(_KEPT)),
        sees("contents, modes and links are those that were put", _as_put),
        Run("./run; stat -c %s link a.bin", code=0, out=b"ran\n5\n76800\n"),
    ),
)


# --- what is too much -------------------------------------------------------------------------------------------------


@FILES.check(unsafe=True)
def sparse_giants_do_not_fill_the_host(trial: Trial) -> None:
    """A hundred sparse files that claim gigabytes in sum."""
    trial.run(
        "for i in $(seq 100); do truncate -s 60M s$i || break; done; truncate -s 100G giant; echo answer > answer",
    )
    found = trial.sandbox.snapshot()
    total = sum(len(entry.content or b"") for entry in found.values())
    must(total <= trial.limits.workspace_mb << 20, f"a snapshot of {total} bytes")
    must(found["answer"].content == b"answer\n", "the real file has no content beside them")
    must(len(trial.sandbox.read("s1")) <= trial.limits.file_mb << 20, "a read gave more than the limit of a file")


@FILES.check()
def many_small_files_push_no_answer_out(trial: Trial) -> None:
    """More entries than a snapshot holds, deep in a tree, beside a shallow file that a task asks for."""
    most = trial.limits.snapshot_entries
    trial.run(
        f"mkdir -p a/b; cd a/b; seq {most + 500} | xargs touch 2>/dev/null; cd /workspace; echo yes > zz-answer",
        timeout=60,
    )
    found = trial.sandbox.listing()
    must(len(found) <= most, f"{len(found)} entries are listed, the limit is {most}")
    must(trial.sandbox.snapshot().cut, "the snapshot does not say that paths are missing")
    must("zz-answer" in found and trial.sandbox.read("zz-answer") == b"yes\n", "the answer is not among them")


_LONG_TREES = {
    "paths of 30,000 bytes": "n=$(printf %0250d 0); for i in {1..120}; do mkdir $n; cd $n; done; touch {1..2500}; "
    "echo m",
    "links of 4,000 bytes": python("import os\nfor n in range(2000): os.symlink('t' * 4000, str(n))\nprint('m')"),
    "names that are no text": python(
        "import os\nx = b'\\xff' * 240\nfor n in range(12): os.mkdir(x); os.chdir(x)\n"
        "for n in range(4000): os.mkdir(x + b'%d' % n)\nprint('m')"
    ),
}


@FILES.check()
def text_of_a_tree_is_bounded_and_the_cut_is_told(trial: Trial) -> None:
    """More text of paths and links than an answer holds, beside a shallow file that a task asks for."""
    for what, command in _LONG_TREES.items():
        trial.again()
        made = trial.run(f"echo yes > answer; mkdir junk; cd junk; {command}", timeout=3 * SECONDS)
        must(made.stdout == b"m\n", f"{what}: {brief(made)}")
        _, found = trial.sandbox.run_and_snapshot("cd /workspace; :", timeout=SECONDS)
        must(found.cut and found["answer"].content == b"yes\n", f"{what}: cut {found.cut}, {len(found)} paths")
        must(found == trial.sandbox.snapshot(), f"{what}: two looks at one tree differ")
        must("answer" in trial.sandbox.listing(), f"{what}: the answer is not listed")
        _hashes_alike(trial)
    trial.again()
    must(not trial.sandbox.snapshot().cut, "an empty workspace is called cut")


@FILES.check()
def file_above_the_cap_is_named_and_hashed(trial: Trial) -> None:
    """A file one byte too large for a snapshot, changed in its last byte."""
    size = trial.limits.snapshot_file_bytes + 1
    trial.run(f"head -c {size} /dev/zero > big")
    entry = trial.sandbox.snapshot()["big"]
    must((entry.content, entry.size) == (None, size), f"{entry.size} bytes")
    _hash_sees(f"printf x | dd of=big bs=1 seek={size - 1} conv=notrunc 2>/dev/null")(trial)
    must(trial.sandbox.read("big") == bytes(size - 1) + b"x", "the content is not what was written")


@FILES.check()
def hash_sees_content_mode_kind_and_name_and_nothing_else(trial: Trial) -> None:
    """Equal workspaces have equal hashes, whatever their times and their history."""
    trial.sandbox.open({"a": b"1", "d/b": b"2"})
    first = trial.sandbox.snapshot_hash()
    for command in ("printf 2 > a", "chmod 600 a", "rm a; ln -s d/b a", "mv a aa", "mkdir e", "rm a; mkfifo a"):
        trial.sandbox.open({"a": b"1", "d/b": b"2"})
        _hash_sees(command)(trial)
    trial.sandbox.open({"d/b": b"2", "a": b"1"})
    trial.run("touch -d 2001-01-01 a d; cat a d/b; cd /tmp")
    must(trial.sandbox.snapshot_hash() == first, "equal workspaces, different hashes")


@FILES.check()
def writer_that_was_kept_cannot_swap_a_file_for_a_link(trial: Trial) -> None:
    """A process kept on purpose swaps a file and a directory for links out while they are read."""
    trial.run("echo secret > /tmp/out; mkdir /tmp/outdir; echo secret > /tmp/outdir/f")
    swap = (
        "import os, threading\n"
        "os.chdir('/workspace')\n"
        "while True:\n"
        "    for make in (lambda: open('n', 'w').write('mine'), lambda: os.symlink('/tmp/out', 'n'), lambda: "
        "os.mkfifo('n')):\n"
        "        try: make(); os.rename('n', 'f')\n"
        "        except OSError: pass\n"
        "    try: os.mkdir('e'); open('e/f', 'w').write('mine'); os.rename('d', '/tmp/x'); os.rename('e', 'd')\n"
        "    except OSError: pass\n"
        "    try: os.symlink('/tmp/outdir', 'l'); os.rename('d', 'old'); os.rename('l', 'd')\n"
        "    except OSError: pass\n"
        "    os.system('rm -rf old d e')\n"
    )
    command = f"(setsid {python(swap)} >/dev/null 2>&1 &); sleep 0.3"
    trial.sandbox.run(command, timeout=SECONDS, keep_background=True)
    for path in ("f", "d/f") * 25:
        try:
            data = trial.sandbox.read(path)
        except (SandboxError, FileNotFoundError) as error:
            if not trial.sandbox.alive:
                raise SandboxError("the sandbox was lost to a writer in the background") from error
            continue
        must(b"secret" not in data, f"{path} was read through a link")
    for entry in trial.sandbox.snapshot().values():
        must(b"secret" not in (entry.content or b""), "a snapshot went through a link")


# --- what a reset has to remove ---------------------------------------------------------------------------------------


def _reset_after(command: str) -> list[Step]:
    """Steps: after the command a look is taken and the episode ends; the workspace must be empty."""
    return [
        Run(command, timeout=60, timed_out=None, has=b"made"),
        sees("there is something", bool),
        lambda trial: trial.sandbox.snapshot_hash(),
        again,
        Run(
            "find . -mindepth 1 2>&1 | head -3; find /tmp -mindepth 1 2>&1 | head -3; echo x > f && rm f",
            code=0,
            out=b"",
        ),
        sees("nothing is left after a reset", lambda found: not found),
    ]


_ODD_NAMES = (
    r"$'new\nline' $'\xff\xfe' -rf --help '*' ' lead' 'trail ' $'tab\t' $'\e[31m' '\' '\\n' '...' '-' '~' "
    r"'$(reboot)' "
    r"'`reboot`' $'\x01\x7f' '.wipe-0' '.hidden' \" \' '%s%n' 'ü' " + "$(printf 'x%.0s' $(seq 255))"
)
_MAKE_ODD_NAMES = f'for n in {_ODD_NAMES}; do : > "./$n" && mkdir "/tmp/$n" && : > "/tmp/$n/$n"; done; echo made'
_SEEN_ODD_NAMES = {"new\nline", "\udcff\udcfe", "-rf", " lead", "trail ", "x" * 255, "\\", ".wipe-0", "ü"}

FILES.table(
    check(
        "hash-of-sparse-giants-reads-no-more-than-a-few-workspaces",
        "400 sparse files of 60 MB, and a small one that changes.",
        Run("for i in $(seq 400); do truncate -s 60M s$i || break; done; echo 1 > small", timed_out=None),
        _hashes_alike,
        _hash_sees("echo 2 > small"),
        unsafe=True,
    ),
    check(
        "tree-of-1500-levels-resets-to-nothing",
        "A path longer than any system call takes, in the workspace and in /tmp, with a closed directory at its end.",
        *_reset_after(
            python(
                "import os, sys\n"
                "for root in ('/workspace', '/tmp'):\n"
                "    os.chdir(root)\n"
                "    for i in range(1500): os.mkdir('d' * 9); os.chdir('d' * 9)\n"
                "    open('f', 'w').write('x'); os.mkdir('shut'); os.chmod('shut', 0); os.chmod('.', 0)\n"
                "print('made')"
            )
        ),
    ),
    check(
        "ten-thousand-folders-reset-to-nothing",
        "Flat ones, and chains of a hundred levels.",
        *_reset_after(
            python(
                "import os\n"
                "os.mkdir('flat')\n"
                "for i in range(5000): os.mkdir('flat/%d' % i)\n"
                "for i in range(50):\n"
                "    for j in range(100): os.mkdir('d'); os.chdir('d')\n"
                "    os.chdir('/workspace'); os.rename('d', str(i))\n"
                "print('made')"
            )
        ),
    ),
    check(
        "closed-trees-reset-to-nothing",
        "Directories of mode 000 in directories of mode 000, and the workspace itself closed.",
        *_reset_after(
            "for p in a/b/c/d x/y/z; do mkdir -p $p; echo x > $p/f; chmod 000 $p/f; done; "
            "chmod 000 a/b/c/d a/b/c a/b a x/y/z; chmod 111 x/y; chmod 444 x; mkdir /tmp/shut; touch /tmp/shut/f; "
            "chmod 000 /tmp/shut; chmod 000 /tmp /workspace; echo made"
        ),
    ),
    check(
        "odd-names-reset-to-nothing",
        "Newlines, invalid UTF-8, a leading dash, 255 bytes, blanks at the ends, a backslash, names like our own.",
        Run(_MAKE_ODD_NAMES, timed_out=None),
        sees("all odd names", lambda found: set(found) >= _SEEN_ODD_NAMES),
        reads("trail ", b""),
        *_reset_after(_MAKE_ODD_NAMES),
    ),
    check(
        "special-files-and-hard-links-reset-to-nothing",
        "Fifos, sockets, hard links, links to the workspace itself, files held open by the dead.",
        *_reset_after(
            "mkfifo f; ln -s /workspace w; ln -s / r; ln -s /etc e; echo x > a; for i in $(seq 50); do ln a h$i; done; "
            "mkdir d; ln -s ../d d/d; chmod 1000 d; chmod 7777 a; mkdir -m 2777 s; "
            "python3 -c \"import socket; socket.socket(socket.AF_UNIX).bind('k')\" 2>/dev/null; exec 9>open; echo made"
        ),
    ),
    check(
        "shared-memory-folder-resets-to-nothing",
        "Files, closed directories and deep trees in /dev/shm.",
        Run(
            "mkdir -p /dev/shm/a/b; echo x > /dev/shm/a/b/f; chmod 000 /dev/shm/a/b /dev/shm/a; echo y > /dev/shm/.h",
            code=0,
        ),
        again,
        Run("ls -A /dev/shm", code=0, out=b""),
        unsafe=True,
        exceptions=without(Backend.LANDLOCK, Backend.LOCAL, reason="there is no /dev/shm of its own"),
    ),
)
