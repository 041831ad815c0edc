"""Families that decide what stands where: duplicates, an outline, a selection."""

from __future__ import annotations

from random import Random

from tasks.families.office.parts import (
    Draft,
    OfficeFamily,
    contains,
    count,
    equals,
    folder,
    gone,
    kept,
    move_each,
    moved,
    per_line,
    write,
)
from tasks.families.office.pools import FOLDERS, prose, say, topics


def _duplicates(rng: Random, level: int) -> Draft:
    top = rng.choice(FOLDERS)
    names = sorted(topics(rng, 4 + 2 * level))
    bodies = [prose(rng, 2) for _ in range(2 + level)]
    owner = [i % len(bodies) for i in range(len(names))]
    rng.shuffle(owner)
    files = {f"{top}/{name}.txt": bodies[which] for name, which in zip(names, owner, strict=True)}
    if level == 3:  # nearly the same is not the same
        files[f"{top}/zebra.txt"] = bodies[0].upper()
    seen: set[str] = set()
    extra = []
    for path, body in sorted(files.items()):
        if body in seen:
            extra.append(path)
        seen.add(body)
    left = [path for path in files if path not in extra]
    listed = "".join(f"{path}\n" for path in extra)
    intent = say(
        rng,
        "There are files in {top}/ with the same content under several names. Of each such group keep the one whose "
        "name comes first in the alphabet and delete the others. List what you deleted in removed.txt, with the "
        "folder ({top}/...), one a line, sorted.",
        "Please get rid of the duplicates in {top}/ (same bytes, whatever the name): the alphabetically first name "
        "survives. Write the paths you removed, such as {top}/name.txt, sorted into removed.txt.",
        "Find duplicate files in {top}/ by content. Keep only the first by name of each group. removed.txt gets the "
        "paths of the deleted files ({top}/...), sorted, one per line.",
        top=top,
    )
    find = f"sha256sum {top}/* | LC_ALL=C sort -k2 | awk 'seen[$1]++ {{print $2}}' > removed.txt"
    return Draft(
        intent,
        files,
        [equals("removed.txt", listed), *map(gone, extra), *kept(*left)],
        [find, "xargs rm < removed.txt"],
        [write("removed.txt", listed), per_line('rm "$x"', extra)],
    )


def _folder_plan(rng: Random, level: int) -> Draft:
    root, *names = topics(rng, 8)
    shape = [(0, f"{root}/"), (1, f"{names[0]}/"), (2, f"{names[1]}.md"), (1, f"{names[2]}/")]
    if level > 1:
        shape += [(2, f"{names[3]}/"), (3, f"{names[4]}.md"), (1, f"{names[5]}.md")]
    if level == 3:
        shape += [(0, f"{names[6]}/"), (1, f"{names[0]}/"), (2, f"{names[1]}.md")]
    plan = "".join("  " * depth + name + "\n" for depth, name in shape)
    at: list[str] = []
    paths = []
    for depth, name in shape:
        at = [*at[:depth], name]
        paths.append("".join(at))
    checks = [folder(path[:-1]) if path.endswith("/") else equals(path, "") for path in paths]
    intent = say(
        rng,
        "plan.txt shows the folders I want for a new project: two blanks per level, names with a slash at the end are "
        "folders, the others empty files. Please create all of it here.",
        "Create the tree that is drawn in plan.txt. Indentation is two blanks a level; a trailing / means folder, "
        "anything else is a file, for now empty. Leave plan.txt as it is.",
        "Set up folders and empty files as plan.txt outlines them (indented by two blanks per level, folders end in "
        "/).",
    )
    walk = (
        "awk '{n=match($0,/[^ ]/)-1; d=n/2; part[d]=substr($0,n+1); p=\"\"; for(i=0;i<=d;i++) p=p part[i]; print p}'"
        ' plan.txt | while IFS= read -r p; do case "$p" in */) mkdir -p "$p";; *) : > "$p";; esac; done'
    )
    files_made = sum(not path.endswith("/") for path in paths)
    return Draft(
        intent,
        {"plan.txt": plan},
        [*checks, count("**/*.md", files_made), *kept("plan.txt")],
        [walk],
        [
            per_line('mkdir -p "$x"', [path for path in paths if path.endswith("/")]),
            per_line(': > "$x"', [path for path in paths if not path.endswith("/")]),
        ],
    )


def _pick_list(rng: Random, level: int) -> Draft:
    top = rng.choice(FOLDERS)
    names = [f"{name}.txt" for name in topics(rng, 5 + level)]
    wanted, absent, others = names[: 2 + level], names[2 + level : 3 + level], names[3 + level :]
    files = {f"{top}/{name}": prose(rng, 2) for name in (*wanted, *others)}
    order = [*wanted, *absent]
    rng.shuffle(order)
    lines = list(order)
    if level > 1:
        lines.insert(1, "# checked with the customer")
    if level == 3:
        lines.insert(3, "")
        lines.append(f"# {others[0]}")
    files["wanted.txt"] = "".join(f"{line}\n" for line in lines)
    pairs = [(f"{top}/{name}", f"bundle/{name}") for name in wanted]
    comments = " Lines that are empty or start with # are no names." if level > 1 else ""
    intent = say(
        rng,
        "Copy the files that wanted.txt names from {top}/ to bundle/. Names for which there is no file go into "
        "missing.txt, one a line.{comments} {top}/ stays as it is.",
        "Put together bundle/: a copy of each file of {top}/ that is listed in wanted.txt. If a listed file does not "
        "exist, note its name in missing.txt.{comments} Do not move or change the originals.",
        "For a customer I need the files of wanted.txt, they lie in {top}/, copied into bundle/.{comments} Tell me in "
        "missing.txt which ones are not there (one name a line).",
        top=top,
        comments=comments,
    )
    loop = (
        f"mkdir -p bundle && grep -v -e '^#' -e '^$' wanted.txt | while IFS= read -r f; do "
        f'if [ -e "{top}/$f" ]; then cp "{top}/$f" bundle/; else echo "$f" >> missing.txt; fi; done'
    )
    return Draft(
        intent,
        files,
        [
            *moved(pairs, files),
            count("bundle/*", len(pairs)),
            contains("missing.txt", absent[0]),
            equals("missing.txt", f"{absent[0]}\n"),
            *kept(top),
        ],
        [loop],
        [move_each(pairs, "cp"), write("missing.txt", absent[0])],
    )


FOLDERS_FAMILIES = (
    OfficeFamily("remove_duplicates", "delete files whose content is there twice", _duplicates),
    OfficeFamily("folder_plan", "make the folders and files of an outline", _folder_plan),
    OfficeFamily("pick_from_list", "copy the files that a list names", _pick_list),
)
