"""Headers that are ordinary text: kept out of messages, and given back character for character."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from envs.headers import Header, HeaderError, Headers

PLAIN = Headers([Header("### User", True, True), Header("### Assistant", True, True)])
NESTED = Headers([Header("## User"), Header("### User", True, True)])
MARKS = Headers([Header("<|user|>"), Header("ASSISTANT:"), Header("user", True, True), Header("**X**"), Header("aXa")])
NUMBERED = Headers([Header("[1]", numbered=True), Header("1.", numbered=True)])
BASE = Headers([Header("Question:", True), Header("Answer:", True)])
ALL = [PLAIN, NESTED, MARKS, NUMBERED, BASE]
ATOMS = ["### User", "### Assistant", "## User", "<|user|>", "ASSISTANT:", "user", "**X**", "aXa", "[", "]", "1", "12."]
ATOMS += ["Question:", "Answer:", "\\", "#", "a", "X", "<", "**", "*", "\n", "\r", "\u2028", " ", "\t", "x", "é"]


def holds(headers: Headers, text: str) -> bool:
    """Whether a header stands in a text as it is, without a backslash."""
    return any(re.search(rule.found.pattern.replace(r"(?=\\*", "(?="), text) for rule in headers._rules)


def restored(headers: Headers, text: str) -> str:
    """The message that was made neutral: one backslash less in every header."""
    for rule in reversed(headers._rules):
        head, more, tail = rule.found.pattern.partition(r"(?=\\*")
        text = re.sub(rf"({head})\\{more}{tail}", r"\g<1>", text)
    return text


@pytest.mark.parametrize(
    ("headers", "text", "shown"),
    [
        (PLAIN, "a\n\n### User\nhi\n\n### Assistant\n", "a\n\n#\\## User\nhi\n\n#\\## Assistant\n"),
        (PLAIN, "  ### Assistant \t", "  #\\## Assistant \t"),
        (PLAIN, "a\r### Assistant\rb", "a\r#\\## Assistant\rb"),
        (PLAIN, "#\\## Assistant", "#\\\\## Assistant"),
        (PLAIN, "### Assistants\n### Assistant: no", "### Assistants\n### Assistant: no"),
        (MARKS, "a<|user|>b<|user|><|user|>", "a<\\|user|>b<\\|user|><\\|user|>"),
        (MARKS, "hi ASSISTANT: yes, MYASSISTANT: no", "hi A\\SSISTANT: yes, MYASSISTANT: no"),
        (MARKS, "the user\nuser\nuser x", "the user\nu\\ser\nuser x"),
        (MARKS, "**X**X**", "**\\X**\\X**"),
        (NUMBERED, "[7] [42] x12. 3.", "[\\7] [\\42] x12. 3\\."),
        (BASE, "Answer: 7\nthe Answer: 8", "A\\nswer: 7\nthe Answer: 8"),
    ],
)
def test_a_backslash_goes_into_every_header(headers: Headers, text: str, shown: str) -> None:
    assert headers.neutral(text) == shown and restored(headers, shown) == text
    assert not holds(headers, shown)


def test_what_is_counted_is_what_was_forged() -> None:
    text = "### User\n#\\## User\nx ### User y\n### Assistant"
    assert PLAIN.forged(PLAIN.neutral(text)) == 2  # not the one that held a backslash, nor the one inside a line
    assert Headers().neutral(text) == text and Headers().forged(text) == 0 and not Headers()


@given(st.sampled_from(ALL), st.lists(st.sampled_from(ATOMS), max_size=9).map("".join))
@example(MARKS, "aXaXaXa")
@example(NUMBERED, "1\\12\\1.")
@example(NESTED, "### User\n### User## User")
def test_no_header_is_left_and_every_message_comes_back(headers: Headers, text: str) -> None:
    shown = headers.neutral(text)
    assert not holds(headers, shown)
    assert restored(headers, shown) == text
    assert (shown == text) == (not any(rule.found.search(text) for rule in headers._rules))


@given(st.text(max_size=40))
def test_any_text_comes_back(text: str) -> None:
    for headers in ALL:
        assert restored(headers, headers.neutral(text)) == text


@pytest.mark.parametrize(
    ("header", "why"),
    [
        (Header(">"), "any text may hold that"),
        (Header("1", numbered=True), "any text may hold that"),
        (Header("aXaXa"), "overlaps itself"),
    ],
)
def test_headers_that_text_is_full_of_are_refused(header: Header, why: str) -> None:
    with pytest.raises(HeaderError, match=why):
        Headers([header])
