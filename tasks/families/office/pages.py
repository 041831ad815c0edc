"""Families that work on pages: front matter, an index, links, words."""

from __future__ import annotations

from random import Random
from typing import Any

from tasks.families.office.parts import Draft, OfficeFamily, contains, equals, gone, kept, write
from tasks.families.office.pools import PEOPLE, dates, prose, say, topics


def _publish(rng: Random, level: int) -> Draft:
    names, days = topics(rng, 4 + level), sorted(dates(rng, 4 + level))
    limit = days[1 + level]
    order = list(range(len(names)))
    rng.shuffle(order)
    files: dict[str, Any] = {}
    due = []
    for place, i in enumerate(order):
        state = "draft" if i in (0, 1, len(days) - 1) else rng.choice(("draft", "published", "hidden"))
        body = "A note: status: draft is what we write first.\nstatus: draft\n" if level > 1 else prose(rng, 2)
        extra = f"author: {rng.choice(PEOPLE)}\n" if level == 3 and i % 2 else ""
        path = f"posts/{names[place]}.md"
        files[path] = f"---\ntitle: {names[place].capitalize()}\n{extra}date: {days[i]}\nstatus: {state}\n---\n\n{body}"
        if state == "draft" and days[i] <= limit:
            due.append(path)
    due.sort()
    after = {path: files[path].replace("status: draft", "status: published", 1) for path in due}
    listed = "".join(f"{path}\n" for path in due)
    intent = say(
        rng,
        "Publish what is due: in posts/, every .md file whose front matter says status: draft and a date not after "
        "{limit} gets status: published there. List the changed files in published.txt (posts/..., one a line, "
        "sorted). Texts below the front matter stay.",
        "Some posts in posts/ are to go live. If date in the front matter is {limit} or earlier and status is draft, "
        "set status to published. Change nothing else, and write the paths (posts/name.md) sorted into published.txt.",
        "For all Markdown files in posts/: a draft dated up to and including {limit} becomes published (status in the "
        "front matter, between the two --- lines only). published.txt gets the paths of those you changed, in sorted "
        "order.",
        limit=limit,
    )
    find = (
        "for f in posts/*.md; do d=$(sed -n '2,/^---/s/^date: //p' \"$f\"); s=$(sed -n '2,/^---/s/^status: //p' "
        '"$f"); '
        f'if [ "$s" = draft ] && ! [[ "$d" > "{limit}" ]]; then echo "$f"; fi; done | sort > published.txt'
    )
    edit = "sed -i '2,/^---/s/^status: draft$/status: published/'"
    return Draft(
        intent,
        files,
        [
            equals("published.txt", listed),
            *(equals(path, text) for path, text in after.items()),
            *kept(*(path for path in files if path not in after)),
        ],
        [find, f"xargs {edit} < published.txt"],
        [write("published.txt", listed), *(write(path, text) for path, text in after.items())],
        ("writer", "developer", "shop keeper"),
    )


def _index(rng: Random, level: int) -> Draft:
    names = sorted(topics(rng, 3 + level))
    files: dict[str, Any] = {}
    lines = []
    for i, name in enumerate(names):
        title = " ".join(word.capitalize() for word in topics(rng, 2))
        text = f"# {title}\n\n{prose(rng, 1)}\n## Details\n"
        if level > 1 and i == 1:
            text = f"{prose(rng, 1)}\n{text}"
        if level == 3 and i == 0:  # without a title
            title, text = name, f"{prose(rng, 2)}\n## Details\n"
        files[f"docs/{name}.md"] = text
        lines.append(f"- [{title}]({name}.md)")
    files["docs/notes.txt"] = "# not a page\n"
    index = "# Contents\n\n" + "\n".join(lines) + "\n"
    notes = " A page without such a line is listed under its file name without .md." if level == 3 else ""
    intent = say(
        rng,
        "Write docs/index.md, a list of the pages in docs/: the line '# Contents', an empty line, then for each .md "
        "file, sorted by file name, '- [Title](file.md)', where the title is its first line that starts with '# "
        "'.{notes}",
        "docs/ needs a table of contents, docs/index.md. First '# Contents' and a blank line, then one line per "
        "Markdown page in order of the file names: - [Title](name.md). Titles are the first-level headings (# "
        "...).{notes}",
        "Please generate docs/index.md. It starts with '# Contents' and a blank line. Below it, a link for each other "
        ".md file of docs/ like '- [Its Heading](its-file.md)', by file name; the heading is the first one with a "
        "single #.{notes}",
        notes=notes,
    )
    loop = (
        "(printf '# Contents\\n\\n'; for f in docs/*.md; do n=${f#docs/}; [ $n = index.md ] && continue; "
        "t=$(sed -n 's/^# //p' $f | head -n 1); echo \"- [${t:-${n%.md}}]($n)\"; done) > index.tmp"
    )
    return Draft(
        intent,
        files,
        [
            equals("docs/index.md", index),
            contains("docs/index.md", lines[0]),
            contains("docs/index.md", *lines[1:]),
            *kept(*files),
        ],
        [loop, "mv index.tmp docs/index.md"],
        [write("docs/index.md", index)],
    )


def _rename_page(rng: Random, level: int) -> Draft:
    old, new, *others = topics(rng, 4 + level)
    files: dict[str, Any] = {f"docs/{old}.md": f"# {old.capitalize()}\n\n{prose(rng, 1)}"}
    after = {}
    for i, name in enumerate(others):
        text = f"# {name.capitalize()}\n\nSee [more]({old}.md) about the {old}.\n"
        if level > 1:
            text += f"Also [there]({old}.md#part-{i}) and [here](my-{old}.md).\n"
        if level == 3 and i == 1:  # mentions it, but does not link
            text = f"# {name.capitalize()}\n\nThe file {old}.md was long.\n"
        path = f"docs/{name}.md"
        files[path] = text
        after[path] = text.replace(f"]({old}.md", f"]({new}.md")
    if level > 1:
        files[f"docs/my-{old}.md"] = "# Mine\n"
    changed = {path: text for path, text in after.items() if text != files[path]}
    intent = say(
        rng,
        "Rename the page docs/{old}.md to docs/{new}.md and correct the Markdown links to it in all other pages of "
        "docs/. Only links (in round brackets) change; where the text just mentions {old}, leave it.",
        "docs/{old}.md should be called docs/{new}.md. Do that, and make sure that links like ({old}.md) in docs/ "
        "lead to the new name. Words in the running text and links to other pages stay.",
        "The page {old}.md in docs/ gets the new name {new}.md. Move it and repair all links in the other .md files "
        "of docs/ that lead there, with or without #anchor; change nothing else.",
        old=old,
        new=new,
    )
    return Draft(
        intent,
        files,
        [
            equals(f"docs/{new}.md", files[f"docs/{old}.md"]),
            gone(f"docs/{old}.md"),
            *(equals(path, text) for path, text in changed.items()),
            *kept(*(p for p in files if p not in changed and p != f"docs/{old}.md")),
        ],
        [f"mv docs/{old}.md docs/{new}.md", f"sed -i 's/](\\({old}\\)\\.md/]({new}.md/g' docs/*.md"],
        [f"mv docs/{old}.md docs/{new}.md", *(write(path, text) for path, text in changed.items())],
        ("writer", "developer", "student"),
    )


def _replace_word(rng: Random, level: int) -> Draft:
    old, new, *names = topics(rng, 5 + level)
    files: dict[str, Any] = {}
    for i, name in enumerate(names):
        place = ("", "chapters/", "archive/")[i % 3]
        longer = f" {old}s and {old}like" if level > 1 else ""
        word = old if i != 1 or level < 3 else f"over{old}"
        files[f"{place}{name}.txt"] = (
            f"{rng.choice(PEOPLE)} saw the {word}.{longer}\n{word}, said {rng.choice(PEOPLE)}\n"
        )
    after = {}
    for path, text in files.items():
        if not path.startswith("archive/"):
            changed = text.replace(f"the {old}.", f"the {new}.").replace(f"\n{old},", f"\n{new},")
            if changed != text:
                after[path] = changed
    listed = "".join(f"{path}\n" for path in sorted(after))
    intent = say(
        rng,
        "Replace the word {old} by {new} in all .txt files here and in chapters/, but not in archive/. Only the whole "
        "word counts, longer words that contain it stay. List the files that changed in changed.txt, paths as "
        "chapters/x.txt or x.txt, sorted.",
        "From now on it is called {new}, not {old}. Please correct the .txt files (this folder and chapters/; "
        "archive/ stays as it was), whole words only, and write the paths of the changed ones (x.txt, chapters/x.txt) "
        "to changed.txt, sorted.",
        "Find the word {old} in the .txt files of this folder and of chapters/ and put {new} there. Do not touch "
        "archive/ or words such as {old}s. changed.txt gets a sorted list of the files you changed, as x.txt or "
        "chapters/x.txt.",
        old=old,
        new=new,
    )
    find = f"grep -lw {old} *.txt chapters/*.txt | LC_ALL=C sort > list.tmp"
    return Draft(
        intent,
        files,
        [
            *(equals(path, text) for path, text in after.items()),
            equals("changed.txt", listed),
            *kept(*(path for path in files if path not in after)),
        ],
        [find, f"xargs sed -i 's/\\b{old}\\b/{new}/g' < list.tmp", "mv list.tmp changed.txt"],
        [*(write(path, text) for path, text in after.items()), write("changed.txt", listed)],
        ("writer", "student", "office assistant"),
    )


PAGES_FAMILIES = (
    OfficeFamily("publish_drafts", "change the front matter of the posts that are due", _publish),
    OfficeFamily("page_index", "write a contents page from titles", _index),
    OfficeFamily("rename_page", "rename a page and repair the links to it", _rename_page),
    OfficeFamily("replace_word", "replace a whole word across files", _replace_word),
)
