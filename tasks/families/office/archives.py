"""Families on what keeps files safe: archives, checksums, permissions, links."""

from __future__ import annotations

import base64
import hashlib
import io
import re
import tarfile
from random import Random
from typing import Any

from tasks.assertions.files import FileExists
from tasks.assertions.run import Command
from tasks.families.office.parts import (
    FOLDERS,
    PEOPLE,
    TECHNICAL,
    Draft,
    OfficeFamily,
    count,
    equals,
    gone,
    kept,
    lines_like,
    mode,
    per_line,
    prose,
    say,
    topics,
    write,
)

# -- Families that keep things safe: archives and checksums -----------------------------------------------------------


def _tar(files: dict[str, str]) -> dict[str, str]:
    """Return an uncompressed archive as a `FileSpec`: the same bytes everywhere."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for path, text in files.items():
            entry = tarfile.TarInfo(path)
            entry.size, entry.mtime, entry.mode = len(text.encode()), 1_700_000_000, 0o644
            archive.addfile(entry, io.BytesIO(text.encode()))
    return {"base64": base64.b64encode(out.getvalue()).decode()}


def _sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _pack(rng: Random, level: int) -> Draft:
    project, *names = topics(rng, 5 + level)
    files: dict[str, Any] = {
        f"{project}/{'' if i % 2 else 'data/'}{name}.txt": prose(rng, 2) for i, name in enumerate(names[:3])
    }
    packed = sorted(files)
    left = []
    for name in names[3:] if level > 1 else ():
        left.append(f"{project}/{name}.tmp")
    files |= {path: "half\n" for path in left}
    listing = "".join(f"{path}\n" for path in packed)
    skip = " Files that end in .tmp do not belong into it." if left else ""
    intent = say(
        rng,
        "The project is over. Pack the folder {project}/ into {project}.tar.gz (paths in it start with {project}/), "
        "list the files that are in it in contents.txt (paths, sorted, no folders), and delete the folder "
        "{project}/.{skip}",
        "Please archive {project}/ as the gzipped tar {project}.tar.gz with the folder's name in the paths. "
        "contents.txt says which files it has, one path a line, sorted, without folders. After that remove {project}/ "
        "itself.{skip}",
        "Make {project}.tar.gz from {project}/, write the sorted paths of the packed files ({project}/..., files "
        "only) into contents.txt, and then get rid of the original folder.{skip}",
        project=project,
        skip=skip,
    )
    checks = [
        Command(
            command=f"tar -tzf {project}.tar.gz | grep -v '/$' | sed 's|^\\./||' | LC_ALL=C sort",
            stdout=listing,
            name="what is packed",
        ),
        Command(
            command=f'd=$(mktemp -d) && tar -xzf {project}.tar.gz -C "$d" && cd "$d" && cat {" ".join(packed)}',
            stdout="".join(files[path] for path in packed),
            name="every file can be read back",
        ),
        equals("contents.txt", listing),
        gone(project),
    ]
    fixed = "--sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner"
    return Draft(
        intent,
        files,
        checks,
        [
            f"tar {fixed} --exclude='*.tmp' -cf - {project} | gzip -n > {project}.tar.gz",
            f"tar -tzf {project}.tar.gz | grep -v '/$' | LC_ALL=C sort > contents.txt",
            f"rm -r {project}",
        ],
        [
            f"tar {fixed} -cf - -T - <<'EOF' | gzip -n > {project}.tar.gz\n{listing}EOF",
            write("contents.txt", listing),
            f"rm -r {project}",
        ],
    )


def _restore(rng: Random, level: int) -> Draft:
    top, *names = topics(rng, 4 + level)
    saved = {f"{top}/{name}.txt": prose(rng, 2) for name in names}
    now: dict[str, Any] = dict(saved)
    spoilt, lost = f"{top}/{names[0]}.txt", [f"{top}/{name}.txt" for name in names[1:level]]
    now[spoilt] = "garbage\n"
    for path in lost:
        del now[path]
    edited = f"{top}/{names[-1]}.txt"
    now[edited] = saved[edited] + "a new line of today\n"
    now["backup.tar"] = _tar(saved)
    what = ", ".join((spoilt, *lost))
    restored = "".join(f"{path}\n" for path in sorted((spoilt, *lost)))
    intent = say(
        rng,
        "Restore from backup.tar exactly these files: {what}. What is there under these names is broken or gone. "
        "Everything else in {top}/ has newer changes and must not be overwritten. Note the paths you restored in "
        "restored.txt, sorted.",
        "I have ruined some files: {what}. Please get them back from backup.tar, only them, since the rest of {top}/ "
        "is newer than the backup. List them, sorted, in restored.txt.",
        "backup.tar holds an older state of {top}/. Take {what} from it and put them where they belong; leave all "
        "other files alone. In restored.txt write the restored paths, one a line, sorted.",
        what=what,
        top=top,
    )
    back = {path: saved[path] for path in (spoilt, *lost)}
    return Draft(
        intent,
        now,
        [
            *(equals(path, text) for path, text in back.items()),
            equals("restored.txt", restored),
            *kept(edited, "backup.tar"),
        ],
        [f"tar -xmf backup.tar {' '.join(back)}", f"printf '%s\\n' {' '.join(back)} | sort > restored.txt"],
        ["tar -xmf backup.tar -T - <<'EOF'\n" + "\n".join(back) + "\nEOF", write("restored.txt", restored)],
    )


def _manifest(rng: Random, level: int) -> Draft:
    top = rng.choice(FOLDERS)
    names = topics(rng, 3 + level)
    files: dict[str, Any] = {
        f"{top}/{'sub/' if level > 1 and i % 2 else ''}{name}.dat": prose(rng, 1) for i, name in enumerate(names)
    }
    hashed = dict(files)
    if level == 3:
        files[f"{top}/.cache"] = "not part of it\n"
    files[f"{top}/README.txt"] = "what this is\n"
    total = sum(len(text) for text in hashed.values())
    intent = say(
        rng,
        "Before I send the data away: write SHA256SUMS, in the format of sha256sum, for all .dat files in {top}/ and "
        "its subfolders, with paths that start with {top}/, sorted by path. size.txt gets the sum of their sizes in "
        "bytes.",
        "Please make a checksum file SHA256SUMS over the .dat files under {top}/ (lines as sha256sum prints them, "
        "paths such as {top}/..., ordered by path), and put the total number of bytes of these files in size.txt.",
        "I need SHA256SUMS so that 'sha256sum -c SHA256SUMS' works from here: every .dat file in {top}/ or below, "
        "path {top}/..., sorted by path, nothing else. And the total size of these files in bytes, in size.txt.",
        top=top,
    )
    find = f"find {top} -name '*.dat' -type f"
    return Draft(
        intent,
        files,
        [
            lines_like("SHA256SUMS", *(f"{_sha(text)} [ *]{re.escape(path)}" for path, text in sorted(hashed.items()))),
            equals("size.txt", str(total)),
            Command(command="sha256sum -c --quiet SHA256SUMS", name="sha256sum accepts it"),
            *kept(top),
        ],
        [f"{find} | LC_ALL=C sort | xargs sha256sum > SHA256SUMS", f"{find} | xargs cat | wc -c > size.txt"],
        ["xargs sha256sum > SHA256SUMS <<'EOF'\n" + "\n".join(sorted(hashed)) + "\nEOF", write("size.txt", str(total))],
        ("developer", "photographer", "student", "system administrator"),
    )


def _verify(rng: Random, level: int) -> Draft:
    names = topics(rng, 4 + level)
    good = {f"disk/{name}.img": prose(rng, 2) for name in names}
    files: dict[str, Any] = dict(good)
    bad = [f"disk/{name}.img" for name in rng.sample(names[:-1], 1 + (level > 1))]
    for path in bad:
        files[path] = good[path].replace("a", "o", 1) + ("" if level < 3 else "\n")
    absent = [f"disk/{names[-1]}.img"] if level == 3 else []
    for path in absent:
        del files[path]
    order = sorted(good, key=lambda path: path[::-1])
    files["disk.sha256"] = "".join(f"{_sha(good[path])}  {path}\n" for path in order)
    damaged = "".join(f"{path}\n" for path in sorted(bad))
    gone_text = "".join(f"{path}\n" for path in absent)
    notes = " Files that are missing altogether go to missing.txt instead." if absent else ""
    intent = say(
        rng,
        "Check the files in disk/ against disk.sha256. Those whose checksum is wrong move to quarantine/ (same file "
        "name), and their old paths go to damaged.txt, one a line, sorted.{notes} Good files stay.",
        "disk.sha256 was made when all was well. Find out which files of disk/ differ from it by now, move them into "
        "quarantine/, and list them as disk/NAME in damaged.txt, sorted.{notes}",
        "Some of disk/ may be damaged. Compare with the checksums in disk.sha256: move every file that fails to "
        "quarantine/ and write its path (disk/...) to damaged.txt, in sorted order.{notes}",
        notes=notes,
    )
    check = "sha256sum -c disk.sha256 2> /dev/null | sed -n 's/: FAILED$//p' | LC_ALL=C sort > damaged.txt"
    commands = [check, "mkdir -p quarantine && xargs mv -t quarantine < damaged.txt"]
    other = [write("damaged.txt", damaged), "mkdir -p quarantine", per_line('mv "$x" quarantine/', bad)]
    checks = [
        equals("damaged.txt", damaged),
        count("quarantine/*", len(bad)),
        *(equals(path.replace("disk/", "quarantine/"), files[path]) for path in bad),
        *map(gone, bad),
    ]
    if absent:
        commands.insert(0, "sha256sum -c disk.sha256 2> /dev/null | sed -n 's/: FAILED open or read$//p' > missing.txt")
        other.append(write("missing.txt", gone_text))
        checks.append(equals("missing.txt", gone_text))
    return Draft(
        intent,
        files,
        [*checks, *kept("disk.sha256", *(path for path in good if path not in [*bad, *absent]))],
        commands,
        other,
        TECHNICAL,
    )


ARCHIVES_FAMILIES = (
    OfficeFamily("pack_project", "archive a folder and remove it", _pack),
    OfficeFamily("restore_files", "take single files out of an archive", _restore),
    OfficeFamily("checksum_manifest", "write the checksums of files", _manifest),
    OfficeFamily("verify_checksums", "find damaged files and set them aside", _verify),
)


# -- Families that work on what stands beside the content: permission bits and links ----------------------------------


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
