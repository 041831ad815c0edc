"""Families on texts: pages and their links, reports, minutes, letters."""

from __future__ import annotations

from random import Random
from typing import Any

from tasks.assertions.files import LineCount
from tasks.assertions.tables import CsvCell, JsonFileValue
from tasks.families.office.parts import (
    PEOPLE,
    TECHNICAL,
    Draft,
    OfficeFamily,
    cents,
    contains,
    count,
    csv_table,
    dates,
    equals,
    gone,
    kept,
    money,
    per_line,
    prose,
    rows,
    say,
    topics,
    write,
)

# -- Families that work on pages: front matter, an index, links, words ------------------------------------------------


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


# -- Families that write texts out of others: open points, counts, a report, minutes, letters -------------------------


def _todos(rng: Random, level: int) -> Draft:
    names = sorted(topics(rng, 2 + level))
    files: dict[str, Any] = {}
    found = []
    for i, name in enumerate(names):
        path = f"src/{'parts/' if level > 1 and i % 2 else ''}{name}.py"
        lines = [f"{word} = {rng.randint(1, 99)}" for word in topics(rng, 7)]
        for at in sorted(rng.sample(range(7), rng.randint(1, 2))):
            what = f"{rng.choice(('check', 'rename', 'drop', 'explain'))} {lines[at].split()[0]}"
            lines[at] += f"  # TODO: {what}"
            found.append((path, at + 1, what))
        if level == 3:
            lines[-1] += '; text = "no todo here, TODO later"'
            found = [item for item in found if item[:2] != (path, 7)]
            lines[-1] = lines[-1].replace("# TODO:", "# done:")
        files[path] = "".join(f"{line}\n" for line in lines)
    found.sort()
    if not found:  # each file had its only one in the last line
        files[path] = "kiln = 1  # TODO: check kiln\n" + files[path]
        found = [(path, 1, "check kiln")]
    text = "".join(f"{path}:{line}: {what}\n" for path, line, what in found)
    intent = say(
        rng,
        "Collect the open points of the .py files in src/ and below: every comment '# TODO: something' gives a line "
        "'path:line: something' in todo.txt, for example src/a.py:3: something, sorted by path and line. Put their "
        "number into todo_count.txt.",
        "I want a list of all '# TODO: ...' comments under src/ (Python files). todo.txt: one line each, path, colon, "
        "line number, colon, blank, the text after 'TODO: '; sorted. todo_count.txt: how many there are.",
        "Go through src/ with its subfolders and write down what is marked '# TODO: ' in todo.txt, in the form "
        "src/file.py:LINE: TEXT, by path, then line. The number of entries goes to todo_count.txt.",
    )
    grep = (
        "grep -rn --include=*.py '# TODO: ' src | sed 's/^\\([^:]*:[0-9]*\\):.*# TODO: /\\1: /' "
        "| LC_ALL=C sort > todo.txt"
    )
    return Draft(
        intent,
        files,
        [
            equals("todo.txt", text),
            LineCount(path="todo.txt", equals=len(found), loose=True),
            equals("todo_count.txt", str(len(found))),
            *kept("src"),
        ],
        [grep, "wc -l < todo.txt > todo_count.txt"],
        [write("todo.txt", text), write("todo_count.txt", str(len(found)))],
        TECHNICAL,
    )


def _word_counts(rng: Random, level: int) -> Draft:
    names = topics(rng, 2 + 2 * level)
    numbers = {}
    files: dict[str, Any] = {}
    for i, name in enumerate(names):
        words = [rng.choice(topics(rng, 9)) for _ in range(rng.randint(6, 30))]
        numbers[f"{i + 1:02}-{name}"] = len(words)
        text = ""
        while words:
            many = rng.randint(3, 7)
            text, words = text + " ".join(words[:many]) + "\n", words[many:]
        files[f"chapters/{i + 1:02}-{name}.txt"] = text + ("\n" if level > 1 else "")
    total = sum(numbers.values())
    most = max(numbers, key=lambda name: (numbers[name], name))
    if list(numbers.values()).count(numbers[most]) > 1:  # one must be the longest
        files[f"chapters/{most}.txt"] += "indeed\n"
        numbers[most] += 1
        total += 1
    if level == 3:
        files["chapters/cut.bak"] = prose(rng, 3)
    table = rows(("chapter", "words"), *numbers.items(), ("total", total))
    intent = say(
        rng,
        "How long is the text? Write words.csv with the header chapter,words: one line for each .txt file in "
        "chapters/ (name without .txt), sorted by name, and a last line total. The name of the longest chapter, "
        "without .txt, goes to longest.txt.",
        "Count the words of each .txt file in chapters/. Result: words.csv, header chapter,words, chapters by name "
        "without the extension, then a line total,SUM. Put the chapter with the most words (name only, without .txt) "
        "in longest.txt.",
        "My editor asks for a word count. In words.csv (chapter,words) list the .txt files of chapters/ in order, "
        "without extension, and finish with total. In longest.txt just name the longest one, also without .txt.",
    )
    each = "for f in chapters/*.txt; do n=$(basename $f .txt); echo $n,$(wc -w < $f); done > body.tmp"
    join = "(echo chapter,words; cat body.tmp; awk -F, '{s+=$2} END {print \"total,\" s}' body.tmp) > words.csv"
    return Draft(
        intent,
        files,
        [
            csv_table("words.csv", table),
            equals("longest.txt", most),
            CsvCell(path="words.csv", column="words", where={"chapter": "total"}, equals=total),
            *kept("chapters"),
        ],
        [each, join, "sort -t, -k2,2n body.tmp | tail -n 1 | cut -d, -f1 > longest.txt; rm body.tmp"],
        [write("words.csv", table), write("longest.txt", most)],
        ("writer", "student"),
    )


def _report(rng: Random, level: int) -> Draft:
    teams = sorted(rng.sample(PEOPLE, 2 + level))
    files: dict[str, Any] = {}
    facts = {}
    for team in teams:
        done, still, spent = rng.randint(1, 12), rng.randint(0, 9), money(rng)
        facts[team] = (done, still, spent)
        lines = [f"done: {done}", f"open: {still}", f"mood: {rng.choice(('good', 'fair'))}"]
        if level > 1:
            rng.shuffle(lines)
        files[f"team/{team}.txt"] = "".join(f"{line}\n" for line in lines)
    costs = [(team, part) for team in teams for part in _parts(rng, facts[team][2], level)]
    rng.shuffle(costs)
    files["costs.csv"] = rows(("who", "amount"), *((team, cents(part)) for team, part in costs))
    lines = [f"{team}: {done} done, {still} open, {cents(spent)} spent" for team, (done, still, spent) in facts.items()]
    sums = [sum(fact[i] for fact in facts.values()) for i in range(3)]
    text = "\n".join(("# Week", "", *lines, "", f"All: {sums[0]} done, {sums[1]} open, {cents(sums[2])} spent")) + "\n"
    numbers: dict[str, Any] = {"done": sums[0], "open": sums[1]}
    intent = say(
        rng,
        "Write the weekly report, report.md, from team/*.txt (done and open tasks of each) and costs.csv (what they "
        "spent, several lines each). First '# Week' and an empty line, then per person, by name, a line like 'Ada: 3 "
        "done, 1 open, 12.50 spent', an empty line, and the same for 'All:'. Also write totals.json with the keys "
        "done and open (numbers).",
        "Please put together report.md: heading '# Week', blank line, one line for each person in team/ in "
        "alphabetical order ('Ada: 3 done, 1 open, 12.50 spent'; the sum of the amounts is from costs.csv), blank "
        "line, and a line 'All: ...' with the sums. totals.json gets the sums of done and open as numbers.",
        "I need report.md and totals.json. Sources are the files team/NAME.txt and the table costs.csv. The report: "
        "'# Week', an empty line, lines of the form 'Ada: 3 done, 1 open, 12.50 spent' sorted by name, an empty line, "
        "'All: ...' in the same form. The JSON: an object with the total numbers done and open.",
    )
    lines_of = (
        "for f in team/*.txt; do n=$(basename $f .txt); echo \"$n: $(sed -n 's/^done: //p' $f) done, "
        "$(sed -n 's/^open: //p' $f) open, $(awk -F, -v n=$n '$1 == n {s+=$2} END {printf \"%.2f\", s}' costs.csv) "
        'spent"; done > lines.tmp'
    )
    sum_of = (
        "awk '{d+=$2; o+=$4; s+=$6} END {printf \"All: %d done, %d open, %.2f spent\\n\", d, o, s}' lines.tmp > sum.tmp"
    )
    return Draft(
        intent,
        files,
        [
            equals("report.md", text),
            contains("report.md", lines[0]),
            contains("report.md", "All: "),
            JsonFileValue(path="totals.json", at="$", equals=numbers),
            *kept("costs.csv", "team"),
        ],
        [
            lines_of,
            sum_of,
            "(printf '# Week\\n\\n'; cat lines.tmp; echo; cat sum.tmp) > report.md",
            'awk \'{printf "{\\"done\\": %d, \\"open\\": %d}\\n", $2, $4}\' sum.tmp > totals.json; rm *.tmp',
        ],
        [write("report.md", text), write("totals.json", f'{{"done": {sums[0]}, "open": {sums[1]}}}')],
        ("office assistant", "developer", "bookkeeper"),
    )


def _parts(rng: Random, amount: int, level: int) -> list[int]:
    """Return amounts that add up to `amount`."""
    cuts = sorted(rng.sample(range(1, amount), level))
    return [b - a for a, b in zip([0, *cuts], [*cuts, amount], strict=True)]


def _split(rng: Random, level: int) -> Draft:
    names = topics(rng, 3 + level)
    text = "Minutes of a long day.\n\n" if level > 1 else ""
    parts = {}
    for i, name in enumerate(names):
        body = prose(rng, 2 + (i % 2))
        if level == 3 and i == 0:
            body += f"=={names[1]} is not a heading\n"
        parts[f"parts/{i + 1}-{name}.txt"] = body
        text += f"== {name}\n{body}"
    before = " What stands before the first heading is not needed." if level > 1 else ""
    intent = say(
        rng,
        "Split minutes.txt at its headings, the lines '== name'. Each part, without its heading, becomes a file in "
        "parts/ called NUMBER-name.txt, counted from 1: {first}, and so on.{before} Keep minutes.txt.",
        "minutes.txt has got too long. Please make one file per section in parts/: number (from 1), hyphen, name of "
        "the section, .txt, for instance {first}. A section begins with a line '== name', which is not part of the "
        "file.{before} The original stays.",
        "Take minutes.txt apart. Lines that start with '== ' (with a blank) are headings; the lines below each go to "
        "parts/N-HEADING.txt, N being 1, 2, 3 ... ({first} is the first).{before} Leave minutes.txt itself unchanged.",
        first=next(iter(parts)),
        before=before,
    )
    awk = 'awk \'/^== / {n++; f="parts/" n "-" $2 ".txt"; next} n {print > f}\' minutes.txt'
    return Draft(
        intent,
        {"minutes.txt": text},
        [*(equals(path, body) for path, body in parts.items()), count("parts/*", len(parts)), *kept("minutes.txt")],
        ["mkdir -p parts", awk],
        [write(path, body) for path, body in parts.items()],
        ("writer", "office assistant", "student"),
    )


def _mail_merge(rng: Random, level: int) -> Draft:
    people = rng.sample(PEOPLE, 2 + level)
    facts = [(name, cents(money(rng)), day) for name, day in zip(people, dates(rng, len(people)), strict=True)]
    form = "Dear {name},\n\nyour invoice of {amount} EUR is due on {date}.\n"
    form += "Thank you, {name}!\n" if level > 1 else ""
    form += "Prices include 5% & tax/fees.\n" if level == 3 else ""
    letters = {f"letters/{name}.txt": form.format(name=name, amount=amount, date=day) for name, amount, day in facts}
    intent = say(
        rng,
        "Write the letters: for each row of clients.csv fill in letter.txt, whose places are {{name}}, {{amount}} and "
        "{{date}}, and save it as letters/NAME.txt, for example {first}.",
        "letter.txt is a form with {{name}}, {{amount}} and {{date}}. Please make a filled-in copy for everyone in "
        "clients.csv, in letters/, named after the person ({first}). Leave the form and the table unchanged.",
        "Do a mail merge of letter.txt with clients.csv. Each person gets a file NAME.txt in letters/ (like {first}), "
        "with {{name}}, {{amount}} and {{date}} replaced by the values of the row.",
        first=next(iter(letters)),
    )
    loop = (
        "mkdir -p letters && tail -n +2 clients.csv | while IFS=, read -r n a d; do "
        'sed "s/{name}/$n/g; s/{amount}/$a/g; s/{date}/$d/g" letter.txt > letters/$n.txt; done'
    )
    return Draft(
        intent,
        {"clients.csv": rows(("name", "amount", "date"), *facts), "letter.txt": form},
        [
            *(equals(path, text) for path, text in letters.items()),
            count("letters/*", len(letters)),
            *kept("clients.csv", "letter.txt"),
        ],
        [loop],
        [
            "mkdir -p letters",
            per_line(
                'IFS=, read -r n a d <<< "$x"; sed "s/{name}/$n/g; s/{amount}/$a/g; '
                's/{date}/$d/g" letter.txt > letters/$n.txt',
                map(",".join, facts),
            ),
        ],
        ("office assistant", "bookkeeper", "shop keeper", "photographer"),
    )


REPORTS_FAMILIES = (
    OfficeFamily("collect_todos", "list the open points in source files", _todos),
    OfficeFamily("word_counts", "count the words of chapters", _word_counts),
    OfficeFamily("weekly_report", "write a report from several inputs", _report),
    OfficeFamily("split_minutes", "split a text at its headings", _split),
    OfficeFamily("mail_merge", "fill in a form for each row of a table", _mail_merge),
)
