"""Files and grading reads: what a command left behind is data, however hostile, and is gone after a reset."""

from __future__ import annotations

from sandboxes.conformance.check import SECONDS, Group, Trial, Wrong, brief, must, python, without
from sandboxes.sandbox import Backend, EntryKind, FileEntry, SandboxError

GROUP = Group("files")

_TRAPS = (
    "ln -s /etc/passwd s1; ln -s /proc/1/environ s2; ln -s . loop; ln -s loop/loop/loop ring; mkfifo ff; ln -s /etc "
    "d1; "
    "touch $'\\xff\\xfe' $'new\\nline'; truncate -s 40G sparse 2>/dev/null || truncate -s 60M sparse; "
    "mkdir -p ro/a; echo x > ro/a/f; chmod 000 ro/a/f ro/a ro; ln /etc/passwd hard 2>/dev/null; echo g"
)


def _refused(trial: Trial, path: str) -> None:
    """A read that must be refused, with the sandbox alive afterwards. Raises Wrong."""
    try:
        data = trial.sandbox.read(path)
    except (SandboxError, FileNotFoundError):
        must(trial.sandbox.alive, f"reading {path!r} cost the sandbox")
        return
    raise Wrong(f"reading {path!r} gave {len(data)} bytes: {data[:60]!r}")


@GROUP.check()
def traps_for_the_grader_are_named_and_not_opened(trial: Trial) -> None:
    """Links out, link loops, a fifo, a sparse giant, odd names, closed directories, all at the same time."""
    result = trial.attack(_TRAPS, where="/workspace")
    must(result.stdout == b"g\n", brief(result))
    found = trial.sandbox.snapshot()
    for path in ("s1", "s2", "loop", "ring", "d1"):
        entry = found[path]
        must(entry.kind is EntryKind.SYMLINK and entry.content is None, f"{path}: {entry}")
    must(found["s1"].target == "/etc/passwd", f"s1 points to {found['s1'].target!r}")
    must(found["ff"].kind is EntryKind.OTHER and found["ff"].content is None, f"ff: {found['ff']}")
    must(found["sparse"].content is None and (found["sparse"].size or 0) >= 60 << 20, f"sparse: {found['sparse'].size}")
    must(found["ro/a/f"].content == b"x\n" and found["ro/a/f"].mode == 0, f"ro/a/f: {found['ro/a/f']}")
    must({"\udcff\udcfe", "new\nline"} <= set(found), f"odd names are missing in {sorted(found)}")
    must("hard" not in found, "a hard link to a file outside could be made")
    must(not any(path.startswith(("d1/", "loop/")) for path in found), "a link was followed")
    first = trial.sandbox.snapshot_hash()
    must(first == trial.sandbox.snapshot_hash(), "two hashes of the same workspace differ")
    must(trial.out("stat -c %a ro") == "0\n", "a look changed the mode of a closed directory")


@GROUP.check()
def reads_follow_no_links(trial: Trial) -> None:
    """The last part, a part on the way, and a chain of links; to files outside, inside, and to devices."""
    trial.run(
        "echo secret > /tmp/out; mkdir real; echo in > real/f; ln -s /tmp/out a; ln -s real b; ln -s a c; ln -s "
        "real/f d"
    )
    trial.run("ln -s /etc e; ln -s /proc/self/environ f; ln -s /dev/zero g; ln -s /proc/self/cwd h")
    for path in ("a", "b/f", "c", "d", "e/passwd", "f", "g", "h/real/f"):
        _refused(trial, path)
    must(trial.sandbox.read("real/f") == b"in\n", "an ordinary file is not read")


@GROUP.check()
def reads_open_no_fifo_socket_or_directory(trial: Trial) -> None:
    """Things that would answer never, or with something else than bytes of a file."""
    trial.run(
        "mkfifo fifo; mkdir dir; python3 -c \"import socket; socket.socket(socket.AF_UNIX).bind('socket')\" "
        "2>/dev/null; "
        "mknod null c 1 3 2>/dev/null; :"
    )
    for path in ("fifo", "dir", "dir/", "socket", "null", "missing", "fifo/x"):
        _refused(trial, path)
    kinds = {path: entry.kind for path, entry in trial.sandbox.snapshot().items()}
    must(kinds["fifo"] is EntryKind.OTHER and kinds["dir"] is EntryKind.DIR, f"kinds {kinds}")


@GROUP.check()
def reads_do_not_leave_the_workspace(trial: Trial) -> None:
    """Absolute paths and paths with dots, refused by the host and, past the host, by the supervisor."""
    trial.run("echo secret > /tmp/out; mkdir -p a")
    for path in ("../tmp/out", "/etc/passwd", "a/../../tmp/out", "./a", "", "a//b", "a\0b", ".."):
        try:
            trial.sandbox.read(path)
        except ValueError:
            pass
        else:
            raise Wrong(f"the host lets {path!r} through")
        try:
            trial.sandbox._request({"op": "read", "path": path})
        except (SandboxError, FileNotFoundError):
            must(trial.sandbox.alive, f"reading {path!r} cost the sandbox")
        else:
            raise Wrong(f"the supervisor reads {path!r}")


@GROUP.check()
def puts_do_not_leave_the_workspace(trial: Trial) -> None:
    """Absolute paths and paths with dots, refused by the host and, past the host, by the supervisor."""
    for path in ("../tmp/planted", "/tmp/planted", "a/../../tmp/planted", "", "a/./b", "a\0b", "."):
        try:
            trial.sandbox.put({path: b"x"})
        except ValueError:
            pass
        else:
            raise Wrong(f"the host lets {path!r} through")
        try:
            trial.sandbox._request({"op": "put", "entries": [[path, "file", 0o644, None, 1]]}, b"x")
        except SandboxError:
            must(trial.sandbox.alive, f"putting {path!r} cost the sandbox")
        else:
            raise Wrong(f"the supervisor writes {path!r}")
    must(trial.out("ls -A /tmp") == "", "something was written outside")


@GROUP.check()
def puts_replace_what_stands_in_the_way(trial: Trial) -> None:
    """Planted links, fifos, directories and closed places where the files of a grader go."""
    trial.run(
        "mkdir /tmp/outside; echo old > /tmp/victim; ln -s /tmp/victim link; ln -s /tmp/outside way; mkfifo fifo; "
        "mkdir -p dir/deep/er; echo y > dir/deep/er/f; chmod 000 dir/deep; mkdir closed; chmod 000 closed; ln -s "
        "nowhere dangling; "
        "echo locked > locked; chmod 000 locked; ln /tmp/victim hard 2>/dev/null; echo f > plain"
    )
    paths = ("link", "way/f", "fifo", "dir", "closed/f", "dangling", "locked", "plain/f", "hard")
    trial.sandbox.put({path: f"new {path}" for path in paths})
    for path in paths:
        must(trial.sandbox.read(path) == f"new {path}".encode(), f"{path} holds {trial.sandbox.read(path)!r}")
    seen = trial.out("cat /tmp/victim; ls -A /tmp/outside; cat link way/f dir plain/f | wc -l")
    must(seen == "old\n0\n", f"a link was followed: {seen!r}")


@GROUP.check()
def files_keep_bytes_modes_and_links(trial: Trial) -> None:
    """What goes in comes out: every byte, modes, directories, links, names that are no text."""
    files = {
        "a.bin": FileEntry(content=bytes(range(256)) * 300),
        "empty": FileEntry(),
        "run": FileEntry(content=b"#!/bin/sh\necho ran\n", mode=0o755),
        "secret": FileEntry(content=b"s", mode=0o600),
        "void": FileEntry(EntryKind.DIR, mode=0o700),
        "link": FileEntry(EntryKind.SYMLINK, target="a.bin"),
        "\udcff x\ny": FileEntry(content=b"odd"),
    }
    trial.sandbox.open(files)
    found = trial.sandbox.snapshot()
    must(set(found) == set(files), f"paths {sorted(found)}")
    for path, wanted in files.items():
        seen = found[path]
        must(seen.content == (wanted.content if wanted.kind is EntryKind.FILE else None), f"content of {path!r}")
        must(seen.kind is EntryKind.SYMLINK or seen.mode == wanted.mode, f"mode of {path!r}: {seen.mode:o}")
    must(
        found["link"].target == "a.bin" and trial.out("./run; stat -c %s link a.bin") == "ran\n5\n76800\n",
        "link or mode",
    )


@GROUP.check(unsafe=True)
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


@GROUP.check()
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


@GROUP.check()
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
        must(trial.sandbox.snapshot_hash() == trial.sandbox.snapshot_hash(), f"{what}: two hashes differ")
    trial.again()
    must(not trial.sandbox.snapshot().cut, "an empty workspace is called cut")


@GROUP.check(unsafe=True)
def hash_of_sparse_giants_reads_no_more_than_a_few_workspaces(trial: Trial) -> None:
    """400 sparse files of 60 MB, and a small one that changes."""
    trial.run("for i in $(seq 400); do truncate -s 60M s$i || break; done; echo 1 > small")
    first = trial.sandbox.snapshot_hash()
    must(first == trial.sandbox.snapshot_hash(), "two hashes of the same workspace differ")
    trial.run("echo 2 > small")
    must(first != trial.sandbox.snapshot_hash(), "the hash does not see a small file beside giants")


@GROUP.check()
def file_above_the_cap_is_named_and_hashed(trial: Trial) -> None:
    """A file one byte too large for a snapshot, changed in its last byte."""
    size = trial.limits.snapshot_file_bytes + 1
    trial.run(f"head -c {size} /dev/zero > big")
    entry = trial.sandbox.snapshot()["big"]
    must((entry.content, entry.size) == (None, size), f"{entry.size} bytes")
    first = trial.sandbox.snapshot_hash()
    trial.run(f"printf x | dd of=big bs=1 seek={size - 1} conv=notrunc 2>/dev/null")
    must(first != trial.sandbox.snapshot_hash(), "the hash does not see the change")
    must(trial.sandbox.read("big") == bytes(size - 1) + b"x", "the content is not what was written")


@GROUP.check()
def hash_sees_content_mode_kind_and_name_and_nothing_else(trial: Trial) -> None:
    """Equal workspaces have equal hashes, whatever their times and their history."""
    trial.sandbox.open({"a": b"1", "d/b": b"2"})
    first = trial.sandbox.snapshot_hash()
    for command in ("printf 2 > a", "chmod 600 a", "rm a; ln -s d/b a", "mv a aa", "mkdir e", "rm a; mkfifo a"):
        trial.sandbox.open({"a": b"1", "d/b": b"2"})
        trial.run(command)
        must(trial.sandbox.snapshot_hash() != first, f"the hash does not see {command!r}")
    trial.sandbox.open({"d/b": b"2", "a": b"1"})
    trial.run("touch -d 2001-01-01 a d; cat a d/b; cd /tmp")
    must(trial.sandbox.snapshot_hash() == first, "equal workspaces, different hashes")


@GROUP.check()
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
    for _ in range(25):
        for path in ("f", "d/f"):
            try:
                data = trial.sandbox.read(path)
            except (SandboxError, FileNotFoundError):
                continue
            must(b"secret" not in data, f"{path} was read through a link")
        if not trial.sandbox.alive:
            raise SandboxError("the sandbox was lost to a writer in the background")
    for entry in trial.sandbox.snapshot().values():
        must(b"secret" not in (entry.content or b""), "a snapshot went through a link")


# --- what a reset has to remove ---------------------------------------------------------------------------------------


def _resets(trial: Trial, command: str) -> None:
    """After the command, a look is taken and the episode ends: the workspace must be empty. Raises Wrong."""
    made = trial.run(command, timeout=60)
    must(b"made" in made.stdout, brief(made))
    must(trial.sandbox.snapshot() != {}, "a snapshot saw nothing")
    trial.sandbox.snapshot_hash()
    trial.again()
    left = trial.out("find . -mindepth 1 2>&1 | head -3; find /tmp -mindepth 1 2>&1 | head -3; echo x > f && rm f")
    must(left == "", f"left after a reset: {left!r}")
    must(trial.sandbox.snapshot() == {}, "left in the snapshot after a reset")


@GROUP.check()
def tree_of_1500_levels_resets_to_nothing(trial: Trial) -> None:
    """A path longer than any system call takes, in the workspace and in /tmp, with a closed directory at its end."""
    code = (
        "import os, sys\n"
        "for root in ('/workspace', '/tmp'):\n"
        "    os.chdir(root)\n"
        "    for i in range(1500): os.mkdir('d' * 9); os.chdir('d' * 9)\n"
        "    open('f', 'w').write('x'); os.mkdir('shut'); os.chmod('shut', 0); os.chmod('.', 0)\n"
        "print('made')"
    )
    _resets(trial, python(code))


@GROUP.check()
def ten_thousand_folders_reset_to_nothing(trial: Trial) -> None:
    """Flat ones, and chains of a hundred levels."""
    code = (
        "import os\n"
        "os.mkdir('flat')\n"
        "for i in range(5000): os.mkdir('flat/%d' % i)\n"
        "for i in range(50):\n"
        "    for j in range(100): os.mkdir('d'); os.chdir('d')\n"
        "    os.chdir('/workspace'); os.rename('d', str(i))\n"
        "print('made')"
    )
    _resets(trial, python(code))


@GROUP.check()
def closed_trees_reset_to_nothing(trial: Trial) -> None:
    """Directories of mode 000 in directories of mode 000, and the workspace itself closed."""
    _resets(
        trial,
        "for p in a/b/c/d x/y/z; do mkdir -p $p; echo x > $p/f; chmod 000 $p/f; done; "
        "chmod 000 a/b/c/d a/b/c a/b a x/y/z; chmod 111 x/y; chmod 444 x; mkdir /tmp/shut; touch /tmp/shut/f; "
        "chmod 000 /tmp/shut; chmod 000 /tmp /workspace; echo made",
    )


@GROUP.check()
def odd_names_reset_to_nothing(trial: Trial) -> None:
    """Newlines, invalid UTF-8, a leading dash, 255 bytes, blanks at the ends, a backslash, names like our own."""
    names = (
        r"$'new\nline' $'\xff\xfe' -rf --help '*' ' lead' 'trail ' $'tab\t' $'\e[31m' '\' '\\n' '...' '-' '~' "
        r"'$(reboot)' "
        r"'`reboot`' $'\x01\x7f' '.wipe-0' '.hidden' \" \' '%s%n' 'ü' " + "$(printf 'x%.0s' $(seq 255))"
    )
    command = f'for n in {names}; do : > "./$n" && mkdir "/tmp/$n" && : > "/tmp/$n/$n"; done; echo made'
    made = trial.run(command)
    found = trial.sandbox.snapshot()
    for name in ("new\nline", "\udcff\udcfe", "-rf", " lead", "trail ", "x" * 255, "\\", ".wipe-0", "ü"):
        must(name in found, f"{name!r} is not in the snapshot ({brief(made)})")
    must(trial.sandbox.read("trail ") == b"", "a name with a blank at its end cannot be read")
    _resets(trial, command)


@GROUP.check()
def special_files_and_hard_links_reset_to_nothing(trial: Trial) -> None:
    """Fifos, sockets, hard links, links to the workspace itself, files held open by the dead."""
    _resets(
        trial,
        "mkfifo f; ln -s /workspace w; ln -s / r; ln -s /etc e; echo x > a; for i in $(seq 50); do ln a h$i; done; "
        "mkdir d; ln -s ../d d/d; chmod 1000 d; chmod 7777 a; mkdir -m 2777 s; "
        "python3 -c \"import socket; socket.socket(socket.AF_UNIX).bind('k')\" 2>/dev/null; exec 9>open; echo made",
    )


@GROUP.check(unsafe=True, exceptions=without(Backend.LANDLOCK, Backend.LOCAL, reason="there is no /dev/shm of its own"))
def shared_memory_folder_resets_to_nothing(trial: Trial) -> None:
    """Files, closed directories and deep trees in /dev/shm."""
    trial.out("mkdir -p /dev/shm/a/b; echo x > /dev/shm/a/b/f; chmod 000 /dev/shm/a/b /dev/shm/a; echo y > /dev/shm/.h")
    trial.again()
    must(trial.out("ls -A /dev/shm") == "", "something is left")
