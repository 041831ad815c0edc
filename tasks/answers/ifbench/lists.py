"""IFBench instructions that ask for a list, a table, or one certain text."""

from __future__ import annotations

import csv
import io
import re
from datetime import date
from itertools import pairwise

from tasks.answers.ifbench.base import (
    AFRICA,
    CAPITAL_NAMES,
    CAPITALS,
    OPTIONAL_AFRICA,
    bare,
    ifbench,
    letters,
    plain,
    without_punctuation,
    words,
)
from tasks.answers.ifeval import TEXT
from tasks.answers.ifeval.text import sentences

# -- Instructions on lists: other bullets, bullets below bullets, bullets after sentences -----------------------------

_BULLET = re.compile(r"\s*\*(?:\s+\S|[^*\s][^*]*$)")
"""A line that begins with one `*`; `**bold**` and `*italic*` are no bullets."""
_SUB_BULLET = re.compile(r"\s*-(?!-)\s*\S")
_USUAL = re.compile(r"\s*[*\u2022\u25e6\u25aa+-]\s")
_RULE = re.compile(r"[-*_]{3,}")
"""A line across the page."""
_CLOSING = "\"'*_)]}\u2019\u201d` \t\n"


@ifbench.add(
    "format:list",
    kind="bullets of the list",
    says="is a list with '{sep}' for bullets",
    arguments={"sep": TEXT},
    fix="the text must stand at the beginning of a line with an item behind it, and no usual bullet beside it",
)
def format_list(text: str, sep: str) -> bool:
    """A list of at least two items whose bullets are a given text.

    Look at the beginnings of lines.
    """
    bullet = sep.strip()
    filled: list[bool] = []
    for line in (line.strip() for line in text.split("\n")):
        if _RULE.fullmatch(line) and line != bullet:
            continue
        if line.startswith(bullet):
            filled.append(bool(words(line.removeprefix(bullet))))
        elif _USUAL.match(line):
            return False
        elif filled:
            filled[-1] = filled[-1] or bool(words(line))  # the item may stand below its bullet
    return len(filled) > 1 and all(filled)


@format_list.published
def _(text: str, sep: str) -> bool:
    """Count it anywhere."""
    return text.count(sep) >= 2


@ifbench.add(
    "format:sub-bullets",
    kind="bullets and sub-bullets",
    says="has bullets * with at least one sub-bullet - each",
    fix="only lines that begin with `*` and `-` are bullets, not bold text or hyphens; there must be a bullet",
)
def format_sub_bullets(text: str) -> bool:
    """Bullets `*`, each with at least one sub-bullet `-`.

    Look at the beginnings of lines.
    """
    has_sub: list[bool] = []
    for line in text.split("\n"):
        if _BULLET.match(line):
            has_sub.append(False)
        elif has_sub and _SUB_BULLET.match(line):
            has_sub[-1] = True
    return bool(has_sub) and all(has_sub)


@format_sub_bullets.published
def _(text: str) -> bool:
    """Look for a hyphen after each asterisk; a text without asterisks passes."""
    return all("-" in piece for piece in text.split("*")[1:])


@ifbench.add(
    "format:no_bullets_bullets",
    kind="sentences before bullets",
    says="has at least two sentences that end in a period, then at least two bullets *",
    fix="blank lines, and text after the bullets, are allowed; the sentences must end in periods; bold is no bullet",
)
def format_no_bullets_bullets(text: str) -> bool:
    """At least two sentences that end in a period, then at least two bullets `*`.

    Count the bullets that stand behind two such sentences.
    """
    prose: list[str] = []
    count, bullets = 0, 0
    for line in (*text.split("\n"), ""):
        if not _BULLET.match(line):
            prose.append(line)
            continue
        if count < 2:
            found = sentences("\n".join(prose))
            count += sum(sentence.rstrip(_CLOSING).endswith(".") for sentence in found)
        prose = []
        bullets += count >= 2
    return bullets >= 2


@format_no_bullets_bullets.published
def _(text: str) -> bool:
    """A blank line ends the sentences, and after the first bullet each line must be one."""
    reading, count, bullets = True, 0, 0
    for line in text.split("\n"):
        if line.strip().startswith("*"):
            if count < 2:
                return False
            reading, bullets = False, bullets + 1
        elif reading:
            found = len(sentences(line.strip()))
            reading, count = found > 0, count + found
        else:
            return False
    return bullets >= 2


# -- Instructions to write a table: CSV with certain columns and so many rows -----------------------------------------

_CITIES = ("ID", "Country", "City", "Year", "Count")
_PRODUCTS = ("ProductID", "Category", "Brand", "Price", "Stock")
_STUDENTS = ("StudentID", "Subject", "Grade", "Semester", "Score")


@ifbench.add(
    "custom:csv_city",
    kind="the CSV table",
    says=f"is a comma-separated table {', '.join(_CITIES)} with 7 rows",
    fix="blank lines and blanks behind commas are allowed",
)
def custom_csv_city(text: str) -> bool:
    """A CSV table of seven rows.

    Blank lines do not count.
    """
    return _cities([row for row in _rows(text.strip(), skipinitialspace=True) if row])


@custom_csv_city.published
def _(text: str) -> bool:
    """Header as written, seven rows of five fields."""
    return _cities(_rows(text))


@ifbench.add(
    "custom:csv_special_character",
    kind="the CSV table",
    says=f"is a comma-separated table {', '.join(_PRODUCTS)} with 14 rows and a quoted special character",
    fix="the rows behind the one with the special character are looked at too; blank lines are allowed",
)
def custom_csv_special_character(text: str) -> bool:
    """A CSV table of fourteen rows with a special character in a quoted field.

    Look at all rows.
    """
    lines = "\n".join(line for line in text.strip().split("\n") if line.strip())
    rows = _rows(lines.replace('"', '"""'), skipinitialspace=True)
    complete = len(rows) == 15 and all(len(row) == 5 for row in rows)
    return complete and _header_fits(lines, _PRODUCTS, r",[ \t]*") and any(any(map(_special, r)) for r in rows[1:])


@custom_csv_special_character.published
def _(text: str) -> bool:
    """Look at the rows until one has such a field."""
    if not _header_fits(text, _PRODUCTS, r",[ \t]*"):
        return False
    rows = _rows(text.replace('"', '"""'))
    if len(rows) != 15:
        return False
    for row in rows[1:]:
        if len(row) != 5:
            return False
        if any(map(_special, row)):
            return True
    return False


@ifbench.add(
    "custom:csv_quotes",
    kind="the CSV table",
    says=f"is a tab-separated table {', '.join(_STUDENTS)} with 3 rows, each field in double quotes",
    fix="blank lines are allowed",
)
def custom_csv_quotes(text: str) -> bool:
    """A table of three rows, tabs between fields, each field in double quotes.

    Blank lines do not count.
    """
    return _students("\n".join(line for line in text.strip().split("\n") if line.strip()))


@custom_csv_quotes.published
def _students(text: str) -> bool:
    """Header, then three rows of five quoted fields."""
    if not _header_fits(text, _STUDENTS, r"\t *"):
        return False
    rows = _rows(text.replace('"', '"""'), delimiter="\t")
    quoted = all(field.strip()[:1] == '"' == field.strip()[-1:] for row in rows for field in row)
    return len(rows) == 4 and all(len(row) == 5 for row in rows) and quoted


def _cities(rows: list[list[str]]) -> bool:
    return len(rows) == 8 and tuple(rows[0]) == _CITIES and all(len(row) == 5 for row in rows)


def _rows(text: str, delimiter: str = ",", skipinitialspace: bool = False) -> list[list[str]]:
    """Read a table; none where it is no CSV."""
    try:
        return list(csv.reader(io.StringIO(text), delimiter=delimiter, skipinitialspace=skipinitialspace))
    except csv.Error:
        return []


def _header_fits(text: str, names: tuple[str, ...], between: str) -> bool:
    """Whether the first line has the names, each with or without quotes."""
    pattern = between.join(f'(?:{name}|"{name}")' for name in names)
    return re.fullmatch(pattern, text.split("\n", 1)[0].strip()) is not None


def _special(field: str) -> bool:
    """Whether a field is in quotes that hold something other than letters, digits, underscores and blanks."""
    line = field.split("\n", 1)[0]
    return line.startswith('"') and re.search(r"[^\w\s]", line[1 : line.rfind('"')]) is not None


# -- Instructions that are whole tasks, one prompt each: lists, reversed sentences, questions -------------------------

_NUMBER = re.compile(r"\d+")
_DATE = re.compile(r"(\d{4})-(\d\d)-(\d\d)")
_DAYS = (0, 31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_QUESTION_NUMBER = re.compile(r"Question \d+[.|):;]?\s*")
_QUESTION = re.compile(r"\W*Question\b\s*\d*\W*")
_LETTERED = re.compile(r"[A-Ea-e][.|)]\s*\w")
_OPTION = re.compile(r"[\W_]*([A-Ea-e1-5])[.):][\W_]*\w")
_FORWARD = re.compile(r"\b(?:the|is|of|us|united|states|national|animal|symbol|bald|eagle)\b")
_FORWARD_PAIRS = re.compile(r"\b(?:bald eagle|national (?:animal|symbol|bird)|united states|is the|of the)\b")
_PARAGRAPH_END = re.compile(r"\n[^\S\n]*+\n")


@ifbench.add(
    "custom:multiples",
    kind="the numbers asked for",
    says="has the numbers 14, 21, 28, 35, 42, 49 and no others",
)
def custom_multiples(text: str) -> bool:
    """The multiples of 7 from 10 to 50."""
    return _NUMBER.findall(text) == [str(number) for number in range(14, 51, 7)]


@ifbench.add(
    "custom:mcq_count_length",
    kind="questions and options",
    says="is four questions with five options each, each question longer than the one before",
    fix="the label needs no number and may be bold; five different option labels, in letters or digits",
)
def custom_mcq_count_length(text: str) -> bool:
    """Four questions with the label `Question`, each longer than the one before, five options each.

    Cut at lines that begin with the label.
    """
    blocks: list[tuple[list[str], list[str]]] = []  # lines of the question, labels of its options
    for line in (line.strip() for line in text.split("\n")):
        label, option = _QUESTION.match(line), _OPTION.match(line)
        if label:
            blocks.append(([line[label.end() :]], []))
        elif line and not blocks:
            return False
        elif option:
            blocks[-1][1].append(option[1].upper())
        elif line and not blocks[-1][1]:
            blocks[-1][0].append(line)
    lengths = [len(" ".join(question).strip()) for question, _ in blocks]
    five = all(len(options) == len(set(options)) == 5 for _, options in blocks)
    return len(blocks) == 4 and five and lengths[0] > 0 and _grow(lengths)


@custom_mcq_count_length.published
def _(text: str) -> bool:
    """Cut at numbered labels; lettered options."""
    if text[text.find("Question") :] != text:
        return False
    blocks = [block.strip() for block in _QUESTION_NUMBER.split(text) if block.strip()]
    lengths: list[int] = []
    for block in blocks:
        lines = [line.strip() for line in block.split("\n")]
        options = [index for index, line in enumerate(lines) if _LETTERED.match(line)]
        if len(options) != 5:
            return False
        lengths.append(len(" ".join(lines[: options[0]]).strip()))
    return len(blocks) == 4 and _grow(lengths)


@ifbench.add(
    "custom:reverse_newline",
    kind="the list of countries",
    says="lists the countries of Africa in reverse alphabetical order, one a line",
    fix="the lines must name the 54 countries, each once (Western Sahara may be there), not just be in order",
)
def custom_reverse_newline(text: str) -> bool:
    """The countries of Africa in reverse alphabetical order, one a line.

    All countries, from the first line that names one.
    """
    keys = [key for key in map(letters, text.split("\n")) if key]
    start = next((index for index, key in enumerate(keys) if key in AFRICA), len(keys))
    listed = keys[start:]
    names = [AFRICA.get(key, "") for key in listed]
    wanted = set(AFRICA.values()) - OPTIONAL_AFRICA
    complete = len(names) == len(set(names)) and set(names) - OPTIONAL_AFRICA == wanted
    return complete and all(before > after for before, after in pairwise(listed))


@custom_reverse_newline.published
def _(text: str) -> bool:
    """At least 52 lines in order from the one that holds Zimbabwe."""
    lines = [line for line in map(bare, text.split("\n")) if line]
    start = next((index for index, line in enumerate(lines) if "Zimbabwe" in line), len(lines))
    names = [plain(line) for line in lines[start:]]
    return len(names) >= 52 and all(before >= after for before, after in pairwise(names))


@ifbench.add(
    "custom:word_reverse",
    kind="reversed order of words",
    says="names the bald eagle in a sentence with its words in reverse order",
    fix="nothing may stand in its forward order (`bald eagle`, `of the`, `is the` and the like)",
)
def custom_word_reverse(text: str) -> bool:
    """A sentence about the bald eagle with its words in reverse order.

    Look for it, and for what would stand forwards only in a sentence that is not reversed.
    """
    found = words(text.lower())
    backwards, forwards = " ".join(found[::-1]), " ".join(found)
    return re.search(r"\bbald eagle\b", backwards) is not None and not _FORWARD_PAIRS.search(forwards)


@custom_word_reverse.published
def _(text: str) -> bool:
    """Look for the answer in the words read backwards."""
    return "bald eagle" in " ".join(without_punctuation(text.lower()).split()[::-1])


@ifbench.add(
    "custom:character_reverse",
    kind="reversed order of letters",
    says="names the bald eagle in a sentence with its letters in reverse order",
    fix="nothing may stand in its forward order (`the`, `is`, `eagle` and the like)",
)
def custom_character_reverse(text: str) -> bool:
    """A sentence about the bald eagle with its letters in reverse order.

    Look for it, and for words that are words only forwards.
    """
    lower = " ".join(text.lower().split())
    return "elgae dlab" in lower and not _FORWARD.search(lower)


@custom_character_reverse.published
def _(text: str) -> bool:
    """Look for the answer backwards."""
    return "elgae dlab" in text.lower()


@ifbench.add(
    "custom:sentence_alphabet",
    kind="first letters of sentences",
    says="has 26 sentences that begin with a, b, c and so on",
    fix="quotes, list marks and Markdown before the first word are passed over, headings and numbers are no sentences",
)
def custom_sentence_alphabet(text: str) -> bool:
    """26 sentences that begin with the letters of the alphabet in order.

    Look at the first letter of each sentence that has one, paragraph by paragraph.
    """
    blocks = (block for block in _PARAGRAPH_END.split(text) if not block.lstrip().startswith("#"))
    starts = (
        next((character for character in sentence.lower() if character.isalpha()), "")
        for block in blocks
        for sentence in sentences(block)
    )
    return "".join(starts) == "abcdefghijklmnopqrstuvwxyz"


@custom_sentence_alphabet.published
def _(text: str) -> bool:
    """Look at the first character of each sentence."""
    starts = [sentence.split()[:1] for sentence in sentences(text)]
    return len(starts) == 26 and all(
        start and start[0].lower()[0] == chr(97 + index) for index, start in enumerate(starts)
    )


@ifbench.add(
    "custom:european_capitals_sort",
    kind="the list of capitals",
    says="lists the European capitals north of 45 degrees from north to south, with commas",
    fix="Kyiv (50.45 degrees north) belongs to the list; other spellings, and a full stop at the end, are allowed",
)
def custom_european_capitals_sort(text: str) -> bool:
    """The European capitals north of 45 degrees, from north to south.

    Compare with the whole list.
    """
    found = [part.strip() for part in plain(text).strip().removesuffix(".").split(",")]
    return [CAPITAL_NAMES.get(name, name) for name in found] == CAPITALS


@custom_european_capitals_sort.published
def _(text: str) -> bool:
    """Compare with a list that lacks Kyiv."""
    found = [part.strip() for part in plain(text).split(",") if part.strip()]
    return found == [name for name in CAPITALS if name != "Kyiv"]


@ifbench.add(
    "custom:date_format_list",
    kind="the list of dates",
    says="is a list of dates YYYY-MM-DD with commas between them",
    fix="each must be a day of the calendar (no month or day 00), and there must be more than one",
)
def custom_date_format_list(text: str) -> bool:
    """Dates `YYYY-MM-DD` with commas between them, from the life of Napoleon.

    Check the calendar.
    """
    parts = text.strip().split(",")
    return len(parts) > 1 and all(_possible(part.strip()) and _real(part.strip()) for part in parts)


@custom_date_format_list.published
def _(text: str) -> bool:
    """Check years and upper bounds."""
    return all(_possible(part.strip()) for part in text.strip().split(","))


def _possible(text: str) -> bool:
    match = _DATE.fullmatch(text)
    year, month, day = (int(part) for part in match.groups()) if match else (0, 0, 0)
    return 1769 <= year <= 1821 and month <= 12 and (month == 0 or day <= _DAYS[month])


def _grow(lengths: list[int]) -> bool:
    return all(before < after for before, after in pairwise(lengths))


def _real(text: str) -> bool:
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True
