"""Families that work on what stands beside the content: permission bits and links."""

from __future__ import annotations

from random import Random
from typing import Any

from tasks.assertions.command import Command
from tasks.assertions.files import FileExists
from tasks.families.office.parts import Draft, OfficeFamily, equals, gone, kept, mode, per_line, write
from tasks.families.office.pools import PEOPLE, TECHNICAL, prose, say, topics


def _modes(rng: Random, level: int) -> Draft:
    names = topics(rng, 5 + level)
    files: dict[str, Any] = {}
    wanted = {}
    for i, name in enumerate(names):
        kind = ("sh", "key", "txt")[i % 3]
        path = f"server/{('bin', 'keys', 'docs')[i % 3]}/{name}.{kind}"
        if level > 1 and i == 3:
            path = f"server/docs/{name}.sh"  # a script in an odd place
        files[path] = {
            "text": "#!/bin/sh\necho ok\n" if path.endswith("sh") else prose(rng, 1),
            "mode": rng.choice(("0666", "0664", "0777") if kind != "sh" else ("0644", "0600")),
        }
        wanted[path] = {"sh": "0755", "key": "0600", "txt": "0644"}[kind]
    intent = say(
        rng,
        "Set the permissions below server/ right: scripts (.sh) 755, key files (.key) 600, texts (.txt) 644, wherever "
        "in server/ they lie. Only permissions, no contents.",
        "The permissions of the files in server/ and its folders are a mess. Every .sh gets 755, every .key 600 and "
        "every .txt 644. Do not change what is in the files.",
        "Please go through server/ and give all *.sh files mode 0755, all *.key files mode 0600 and all *.txt files "
        "0644, in every subfolder; leave names and contents.",
    )
    commands = [
        f"find server -name '*.{kind}' -exec chmod {bits} {{}} +"
        for kind, bits in (("sh", "755"), ("key", "600"), ("txt", "644"))
    ]
    lines = "\n".join(f"{bits} {path}" for path, bits in wanted.items())
    return Draft(
        intent,
        files,
        [*(mode(path, bits) for path, bits in wanted.items()), *kept("server")],
        commands,
        [f"while read -r m f; do chmod $m $f; done <<'EOF'\n{lines}\nEOF"],
        TECHNICAL,
    )


def _writable(rng: Random, level: int) -> Draft:
    names = topics(rng, 5 + level)
    files: dict[str, Any] = {}
    tight = {}
    for i, name in enumerate(names):
        path = f"site/{'img/' if i % 2 else ''}{name}.{rng.choice(('html', 'css', 'png'))}"
        bits = rng.choice((0o666, 0o646, 0o777)) if i < 1 + level else rng.choice((0o644, 0o664, 0o755))
        files[path] = {"text": prose(rng, 1), "mode": f"{bits:04o}"}
        if bits & 0o002:
            tight[path] = f"{bits & ~0o002:04o}"
    still = {path: spec["mode"] for path, spec in files.items() if path not in tight}
    listed = "".join(f"{path}\n" for path in sorted(tight))
    intent = say(
        rng,
        "Security found files that everybody may write. List all such files (write bit for others) in site/ and below "
        "in open.txt, as site/..., sorted, and take exactly that one right away from them. Other bits stay.",
        "Find every file under site/ that is world-writable, write the paths, sorted, into open.txt, and then remove "
        "the write permission for others, only this one, from each of them.",
        "Please write a sorted list of the world-writable files of site/ (with subfolders) to open.txt (paths as "
        "site/...). Then do chmod o-w for these; all other permissions remain as they are.",
    )
    first = next(iter(still))
    return Draft(
        intent,
        files,
        [
            equals("open.txt", listed),
            *(mode(path, bits) for path, bits in tight.items()),
            mode(first, still[first]),
            *kept("site"),
        ],
        ["find site -type f -perm -o+w | LC_ALL=C sort > open.txt", "xargs chmod o-w < open.txt"],
        [write("open.txt", listed), per_line("chmod o-w $x", tight)],
        TECHNICAL,
    )


def _links(rng: Random, level: int) -> Draft:
    names = topics(rng, 6 + level)
    versions = [f"v{number}" for number in rng.sample(range(1, 9), 2)]
    new, old = max(versions), min(versions)
    files: dict[str, Any] = {
        f"store/{version}/{name}.lib": f"{name} {version} {rng.choice(PEOPLE)}\n"
        for version in (old, new)
        for name in names[:4]
    }
    files |= {f"lib/{name}.lib": {"symlink": f"../store/{old}/{name}.lib"} for name in names[: 1 + level]}
    dead = [f"lib/{name}.lib" for name in names[4 : 5 + level]]
    files |= {path: {"symlink": f"../store/{old}/{path[4:]}"} for path in dead}
    files["lib/own.lib"] = f"not a link, mentions {old}\n"
    live = [f"lib/{name}.lib" for name in names[: 1 + level]]
    listed = "".join(f"{path}\n" for path in sorted(dead))
    intent = say(
        rng,
        "The symbolic links in lib/ lead to store/{old}/. Remove those that lead nowhere and list them (lib/...), "
        "sorted, in dead.txt. Let the others lead to the files of the same name in store/{new}/, by relative links. "
        "lib/own.lib and store/ stay.",
        "Switch lib/ from {old} to {new}: each working symbolic link is to point to ../store/{new}/ and its own name. "
        "Links that are broken are deleted, their paths go to dead.txt in sorted order (lib/NAME). Leave lib/own.lib "
        "and store/ alone.",
        "Please clean up the links in lib/. First delete the dangling ones, noting their paths (lib/..., sorted) in "
        "dead.txt; then re-point the rest from ../store/{old}/ to ../store/{new}/ as relative symbolic links. No "
        "other file changes.",
        old=old,
        new=new,
    )
    again = f"for f in lib/*; do [ -L $f ] && ln -sf ../store/{new}/${{f#lib/}} $f; done; true"
    links = [
        Command(command=f"readlink {path}", stdout=f"../store/{new}/{path[4:]}", name=f"link {path}") for path in live
    ]
    return Draft(
        intent,
        files,
        [
            equals("dead.txt", listed),
            *map(gone, dead),
            *links,
            equals(live[0], files[f"store/{new}/{live[0][4:]}"]),
            FileExists(path="lib/own.lib"),
            *kept("lib/own.lib", "store"),
        ],
        ["find lib -xtype l | LC_ALL=C sort > dead.txt", "xargs rm < dead.txt", again],
        [write("dead.txt", listed), per_line("rm $x", dead), per_line(f"ln -sf ../store/{new}/${{x#lib/}} $x", live)],
        TECHNICAL,
    )


PERMISSIONS_FAMILIES = (
    OfficeFamily("set_modes", "set permissions by kind of file", _modes),
    OfficeFamily("close_writable", "find and close world-writable files", _writable),
    OfficeFamily("switch_links", "re-point links and remove dead ones", _links),
)
