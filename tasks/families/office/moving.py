"""Families that move, rename, pick and delete files."""

from __future__ import annotations

from random import Random

from tasks.families.office.parts import (
    FOLDERS,
    PEOPLE,
    Draft,
    OfficeFamily,
    contains,
    count,
    dates,
    equals,
    folder,
    gone,
    kept,
    move_each,
    moved,
    per_line,
    prose,
    rows,
    say,
    topics,
    write,
)

# -- Families that move and rename files by a rule or a list ----------------------------------------------------------


def _by_extension(rng: Random, level: int) -> Draft:
    top, kinds = rng.choice(FOLDERS), rng.sample(("pdf", "txt", "csv", "md", "jpg", "log"), 1 + level)
    names = topics(rng, 2 * len(kinds) + 1)
    stems = [f"{name} copy" if level == 3 and i % 3 == 0 else name for i, name in enumerate(names)]
    pairs = [
        (f"{top}/{stem}.{kinds[i // 2]}", f"{top}/{kinds[i // 2]}/{stem}.{kinds[i // 2]}")
        for i, stem in enumerate(stems[:-1])
    ]
    files = {old: prose(rng, 1) for old, _ in pairs}
    still = f"{top}/keep/{names[-1]}.{kinds[0]}"
    files[still] = prose(rng, 1)
    intent = say(
        rng,
        "Please sort {top}/ by file type: every file that lies directly in {top}/ goes into a subfolder named after "
        "its extension without the dot ({top}/{one}/ for .{one} files, and so on). Leave {top}/keep/ as it is.",
        "{top}/ has become a mess. Make one folder per extension in it, such as {top}/{one}/, and move the files from "
        "{top}/ itself into them under their own names. Nothing in {top}/keep/ should move.",
        "I want the loose files of {top}/ grouped by extension: {top}/{one}/ holds the .{one} files, the other types "
        "likewise. Do not touch {top}/keep/.",
        top=top,
        one=kinds[0],
    )
    return Draft(
        intent,
        files,
        [*moved(pairs, files), count(f"{top}/*", 0), *kept(still)],
        [f"mkdir -p {top}/{kind} && mv {top}/*.{kind} {top}/{kind}/" for kind in kinds],
        [move_each(pairs)],
    )


def _by_month(rng: Random, level: int) -> Draft:
    top, goal = rng.sample(FOLDERS, 2)
    days = dates(rng, 3 + level, *((2024,) if level == 1 else (2023, 2024)))
    names = topics(rng, len(days) + 2)
    pairs = []
    for i, day in enumerate(days):
        name = f"{names[i]} {'notes ' if level == 3 and i == 0 else ''}{day}.txt".replace(
            " ", "_" if level < 3 else " "
        )
        pairs.append((f"{top}/{name}", f"{goal}/{day[:4]}/{day[5:7]}/{name}"))
    files = {old: prose(rng, 2) for old, _ in pairs}
    still = [f"{top}/{names[-1]}.txt"]
    if level > 1:  # a number that is no date
        still.append(f"{top}/{names[-2]}-{rng.randint(2000, 2029)}.txt")
    files |= {path: prose(rng, 1) for path in still}
    intent = say(
        rng,
        "File the dated notes: every .txt file in {top}/ whose name ends in a date like 2024-03-09 moves to "
        "{goal}/YEAR/MONTH/ ({goal}/2024/03/ in this case), under the same name. Files without such a date stay in "
        "{top}/.",
        "Move what carries a full date (YYYY-MM-DD, at the end of the name before .txt) out of {top}/ into "
        "{goal}/YYYY/MM/. Keep the names. All other files remain in {top}/.",
        "Sort {top}/ by month. A name that ends in YYYY-MM-DD.txt says where the file goes: {goal}/YYYY/MM/. Leave "
        "files that have no such date where they are.",
        top=top,
        goal=goal,
    )
    loop = (
        f"for f in {top}/*[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9].txt; do d=${{f%.txt}}; d=${{d: -10}}; "
        f'to={goal}/${{d:0:4}}/${{d:5:2}}; mkdir -p "$to" && mv "$f" "$to/"; done'
    )
    return Draft(
        intent, files, [*moved(pairs, files), count(f"{top}/*", len(still)), *kept(*still)], [loop], [move_each(pairs)]
    )


def _tidy_names(rng: Random, level: int) -> Draft:
    top = rng.choice(FOLDERS)
    words = topics(rng, 12)
    sub = ["", "", "old/"] if level == 3 else [""]
    pairs = []
    for i in range(2 + level):
        joint = rng.choice((" ", "_")) if level > 1 else " "
        name = joint.join((words[2 * i].capitalize(), words[2 * i + 1].upper(), str(rng.randint(1, 40)))) + ".TXT"
        new = name.lower().replace(" ", "-").replace("_", "-")
        where = sub[i % len(sub)]
        pairs.append((f"{top}/{where}{name}", f"{top}/{where}{new}"))
    still = f"{top}/{words[-1]}-final.txt"
    files = {path: prose(rng, 1) for path in (*(old for old, _ in pairs), still)}
    signs = "blanks" if level == 1 else "blanks and underscores"
    where = " and the folders in it" if level == 3 else ""
    intent = say(
        rng,
        "Our file names in {top}/{where} follow no rule. Rename the files: all letters (of the extension, too) in "
        "lower case, and a hyphen for each of the {signs}. Files whose names are fine already stay.",
        "Please clean up the names of the files in {top}/{where}: lower case throughout, including the extension, and "
        "every one of the {signs} becomes '-'. Contents stay as they are.",
        "The web server chokes on the file names in {top}/{where}. Make them lower case (extension included) with "
        "hyphens in place of {signs}; do not change what is in the files.",
        top=top,
        where=where,
        signs=signs,
    )
    loop = (
        f"find {top} -type f | while IFS= read -r f; do b=${{f##*/}}; n=$(echo \"$b\" | tr 'A-Z _' 'a-z--'); "
        '[ "$b" = "$n" ] || mv "$f" "${f%/*}/$n"; done'
    )
    return Draft(
        intent,
        files,
        [*moved(pairs, files), *(gone(old) for old, _ in pairs), *kept(still)],
        [loop],
        [move_each(pairs)],
    )


def _from_table(rng: Random, level: int) -> Draft:
    top, event = rng.choice(("photos", "scans", "pictures")), rng.choice(topics(rng, 3))
    numbers = rng.sample(range(1000, 9999), 4 + level)
    old = [f"IMG_{number}.jpg" for number in numbers[:-1]]
    new = [f"{event}-{i:02}.jpg" for i in range(1, len(old) + 1)]
    table = list(zip(old, new, strict=True))
    if level == 3:  # two files change names with each other
        table[0], table[1] = (old[0], old[1]), (old[1], old[0])
    files = {f"{top}/{name}": f"picture {name} {rng.choice(PEOPLE)}\n" for name in old}
    lost = [f"IMG_{numbers[-1]}.jpg"] if level > 1 else []
    lines = [*table, *((name, f"{event}-99.jpg") for name in lost)]
    rng.shuffle(lines)
    pairs = [(f"{top}/{a}", f"{top}/{b}") for a, b in table]
    expected = moved(pairs, files)
    expected += [equals("missing.txt", "".join(f"{name}\n" for name in lost))] if lost else []
    files["names.csv"] = rows(("old", "new"), *lines)
    files[f"{top}/cover.jpg"] = "picture of the cover\n"
    intent = say(
        rng,
        "Rename the pictures in {top}/ as names.csv says (column old, column new). Pictures that are not in the table "
        "keep their names.{lost}",
        "names.csv lists for files in {top}/ the old and the new name. Please carry out these renames, nothing "
        "else.{lost}",
        "Give the files in {top}/ the names from names.csv: 'old' becomes 'new'. What the table does not mention "
        "stays.{lost}",
        top=top,
        lost=" Write the old names of which there is no file into missing.txt, one a line." if lost else "",
    ) + (" Mind that some files swap names: no picture may get lost." if level == 3 else "")
    loop = (
        f'mkdir -p .new && tail -n +2 names.csv | while IFS=, read -r a b; do if [ -e "{top}/$a" ]; then '
        f'mv "{top}/$a" ".new/$b"; else echo "$a" >> missing.txt; fi; done'
    )
    back = [(f"{top}/{a}", f".new/{b}") for a, b in table]
    other = [move_each(back), f"mv .new/* {top}/ && rmdir .new"] + (
        [write("missing.txt", "".join(f"{name}\n" for name in lost))] if lost else []
    )
    return Draft(
        intent,
        files,
        [*expected, *kept("names.csv", f"{top}/cover.jpg"), count(f"{top}/*", len(old) + 1)],
        [loop, f"mv .new/* {top}/ && rmdir .new"],
        other,
    )


def _flatten(rng: Random, level: int) -> Draft:
    top, goal = rng.sample(FOLDERS, 2)
    a, b, c, *names = topics(rng, 9)
    places = [a, f"{a}/{b}", c, f"{c}/{a}", f"{c}/{a}/{b}"][: 2 + level]
    name = names[0] if level > 1 else ""  # the same name in several folders
    olds = [f"{place}/{name or names[i]}.txt" for i, place in enumerate(places)]
    pairs = [(f"{top}/{old}", f"{goal}/{old.replace('/', '_')}") for old in olds]
    files = {old: prose(rng, 2) for old, _ in pairs}
    intent = say(
        rng,
        "I need all files of the tree {top}/ in the one folder {goal}/. So that none overwrites another, put the "
        "folders into the name: {old} becomes {new}. Afterwards {top}/ should be gone.",
        "Flatten {top}/: move each file below it to {goal}/, its path below {top}/ written with underscores for the "
        "slashes ({old} -> {new}). Remove the empty {top}/ in the end.",
        "Our upload tool takes no subfolders. Move everything from below {top}/ into {goal}/, so that for example "
        "{old} is then {new}, and delete what is left of {top}/.",
        top=top,
        goal=goal,
        old=pairs[0][0],
        new=pairs[0][1],
    )
    loop = (
        f"mkdir -p {goal} && find {top} -type f | while IFS= read -r f; do n=${{f#{top}/}}; "
        f'mv "$f" "{goal}/${{n//\\//_}}"; done'
    )
    return Draft(
        intent,
        files,
        [*moved(pairs, files), gone(top), count(f"{goal}/*", len(pairs))],
        [loop, f"rm -r {top}"],
        [move_each(pairs), f"rm -r {top}"],
    )


MOVING_FAMILIES = (
    OfficeFamily("sort_by_extension", "move files into a folder per extension", _by_extension),
    OfficeFamily("file_by_month", "move dated files into folders per year and month", _by_month),
    OfficeFamily("tidy_names", "rename files by a rule", _tidy_names),
    OfficeFamily("rename_from_table", "rename files as a CSV table says", _from_table),
    OfficeFamily("flatten_tree", "move a tree of files into one folder", _flatten),
)


# -- Families that decide what stands where: duplicates, an outline, a selection --------------------------------------


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
