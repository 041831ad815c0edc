"""Families that keep things safe: archives and checksums."""

from __future__ import annotations

import base64
import hashlib
import io
import re
import tarfile
from random import Random
from typing import Any

from tasks.assertions.command import Command
from tasks.families.office.parts import Draft, OfficeFamily, count, equals, gone, kept, lines_like, per_line, write
from tasks.families.office.pools import FOLDERS, TECHNICAL, prose, say, topics


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
