from __future__ import annotations

import pytest

from envs.answer_prompts import answer_style
from envs.prompts import (
    COMPACT_CUT,
    LINE_CUT,
    LISTING_CUT,
    STANDARD_CUT,
    STYLES,
    Compact,
    Standard,
    cut,
    listing,
    prompt_style,
)
from envs.questions import GSM8K_FORM
from sandboxes.sandbox import CommandResult, EntryKind, FileEntry
from tests.envs.fakes import task


def result(exit_code: int = 0, out: str = "", err: str = "", **more: object) -> CommandResult:
    return CommandResult(exit_code, out.encode(), err.encode(), **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (result(), "ok"),
        (result(out="a\nb\n"), "ok\na\nb"),
        (result(out="a\n", err="warning\n"), "ok\na"),
        (result(err="warning\n"), "ok\nwarning"),
        (result(2, "out\n", "err\n"), "exit 2\nerr"),
        (result(1, "out\n"), "exit 1\nout"),
        (result(1), "exit 1"),
        (result(137, "part", timed_out=True), "timeout"),
        (result(out="x" * 500), "ok\n" + "x" * COMPACT_CUT),
        (result(1, err="y" * 500), "exit 1\n" + "y" * COMPACT_CUT),
    ],
)
def test_compact_observations(given: CommandResult, expected: str) -> None:
    assert Compact().observation(given) == expected


def test_compact_says_little() -> None:
    style = Compact()
    assert style.system(task()) == ""
    assert style.first(task(), ["notes.txt"]) == task().intent
    assert style.feedback("empty reply") == "error: empty reply"


def test_standard_explains_the_protocol() -> None:
    text = Standard().system(task())
    assert "```bash" in text and "TASK_COMPLETE" in text and "4 turns" in text and "10 seconds" in text


def test_standard_shows_who_asks_what_and_where() -> None:
    given = task(persona={"role": "bookkeeper", "context": "closes the year"})
    text = Standard().first(given, ["a.txt", "empty/"])
    assert text.index("bookkeeper") < text.index(given.intent) < text.index("a.txt\nempty/")
    assert "(empty)" in Standard().first(task(), [])


def test_standard_shows_each_stream() -> None:
    style = Standard()
    assert style.observation(result()) == "exit code: 0\n(no output)"
    assert style.observation(result(2, "a\n", "b\n")) == "exit code: 2\nstdout:\na\nstderr:\nb"
    late = style.observation(result(137, "part", timed_out=True, seconds=10.0))
    assert late.startswith("exit code: 137 (stopped after 10 seconds: out of time)") and late.endswith("part")
    assert "incomplete" in style.observation(result(out="x", truncated=True))


def test_standard_cuts_to_head_and_tail() -> None:
    text = "H" * STANDARD_CUT + "T" * STANDARD_CUT
    shown = Standard().observation(result(out=text))
    half = STANDARD_CUT // 2
    assert f"{'H' * half}\n[{STANDARD_CUT} characters left out]\n{'T' * half}" in shown
    assert "H" * (half + 1) not in shown


def test_standard_feedback_gives_the_reason_and_the_form() -> None:
    text = Standard().feedback("more than one bash block; nothing was run")
    assert "more than one bash block" in text and "```bash" in text and "TASK_COMPLETE" in text


def test_cut_keeps_short_texts() -> None:
    assert cut("abc", 3) == "abc"
    assert cut("abcdef", 4) == "ab\n[2 characters left out]\nef"


def test_listing_shows_files_links_and_empty_folders() -> None:
    folder = FileEntry(EntryKind.DIR, None, 0o755)
    files = {
        "b": folder,
        "b/x.txt": FileEntry(content=b""),
        "a": folder,
        "link": FileEntry(EntryKind.SYMLINK, None, 0o777, "b/x.txt"),
        "bad\udcff": FileEntry(content=b""),
        "e\u0301t\u00e9.csv": FileEntry(content=b""),
    }
    shown = listing(files)
    assert shown == ["a/", "b/x.txt", "bad\ufffd", "e\u0301t\u00e9.csv", "link -> b/x.txt"]
    "\n".join(shown).encode()


def test_a_long_listing_is_cut() -> None:
    text = Standard().first(task(), [f"f{i}" for i in range(LISTING_CUT + 7)])
    assert "(and 7 more)" in text and f"f{LISTING_CUT}\n" not in text


def test_styles_have_stable_and_distinct_hashes() -> None:
    hashes = {style.hash() for style in STYLES.values()}
    assert len(hashes) == len(STYLES)
    assert Standard().hash() == STYLES["standard"].hash()

    class Loud(Compact):
        def feedback(self, reason: str) -> str:
            return f"ERROR: {reason}"

    assert Loud().hash() != Compact().hash()


def test_styles_are_found_by_name() -> None:
    style = Compact()
    assert prompt_style("compact").name == "compact" and prompt_style(style) is style
    with pytest.raises(ValueError, match="standard, compact"):
        prompt_style("compacted")


@pytest.mark.parametrize(
    ("observation", "line"),
    [
        ("ok\nshort", "ok\nshort"),
        (
            "exit code: 1\nstdout:\n" + "a b\n" * 100,
            ("exit code: 1 stdout: " + "a b " * 100)[: LINE_CUT - 6] + " [cut]",
        ),
        ("ok\n\n" + " " * LINE_CUT + "\nend", "ok end"),
        ("", ""),
    ],
)
def test_an_older_observation_is_a_line(observation: str, line: str) -> None:
    assert Standard().line(observation) == line and len(line) <= LINE_CUT
    assert Compact().line(observation) == line


def test_an_older_observation_of_running_text_still_begins_the_next_reply() -> None:
    style = answer_style("base", GSM8K_FORM)
    seen = style.observation(result(out="Question: again\n" + "number " * 30))
    assert seen.endswith("\n\nAnswer:") and len(seen) > LINE_CUT
    line = style.line(seen)
    assert line.startswith("\n\nok Q\\uestion: again number") and line.endswith(" [cut]\n\nAnswer:")
    assert style.line(style.observation(result())) == style.observation(result())
