from __future__ import annotations

from typing import Any

import pytest

from tests.tasks.answers.ifbench.readings import BOTH, NEITHER, ONLY_FIXED, ONLY_PUBLISHED, readings

LETTERS = {"options": "a), b), c), d)"}
KNOW = {"options": "I know or I don't know"}


@pytest.mark.parametrize(
    ("id", "kwargs", "text", "expected"),
    [
        ("format:newline", {}, "One\n\ntwo,\n-\nthree", BOTH),
        ("format:newline", {}, "One two\nthree", NEITHER),
        ("format:newline", {}, "One two\n \nthree", ONLY_PUBLISHED),
        ("format:newline", {}, "One\n \ntwo", ONLY_FIXED),
        ("format:newline", {}, "...", ONLY_PUBLISHED),
        ("format:no_whitespace", {}, "one,two", BOTH),
        ("format:no_whitespace", {}, "one\u00a0two", NEITHER),
        ("format:line_indent", {}, "a\n b\n  c", BOTH),
        ("format:line_indent", {}, "a\n\n\n b\n  c", ONLY_FIXED),
        ("format:line_indent", {}, "a\n\tb\n\t\tc", ONLY_FIXED),
        ("format:line_indent", {}, "a\n b\n c", NEITHER),
        ("format:line_indent", {}, "a", ONLY_PUBLISHED),
        ("format:emoji", {}, "Hello there \U0001f600. Bye \U0001f44b!", BOTH),
        ("format:emoji", {}, "Hello there. \U0001f600 Bye! \U0001f44b", BOTH),
        ("format:emoji", {}, "I like it \u2764\ufe0f.", BOTH),
        ("format:emoji", {}, "Hello there. Bye \U0001f44b!", NEITHER),
        ("format:emoji", {}, "Hello there.\U0001f600 Bye.\U0001f44b", BOTH),
        ("format:emoji", {}, "Hello.\U0001f600 Then bye. See you.\U0001f44b", NEITHER),
        ("format:emoji", {}, "Vive la France \U0001f1eb\U0001f1f7.", ONLY_FIXED),
        ("format:emoji", {}, "We are 1\ufe0f\u20e3.", ONLY_FIXED),
        ("format:emoji", {}, "My family \U0001f468\u200d\U0001f469\u200d\U0001f467.", BOTH),
        ("format:emoji", {}, "We are 5.", NEITHER),
        ("format:title_case", {}, "The Lord Of The Rings", BOTH),
        ("format:title_case", {}, "The Lord of the Rings", ONLY_FIXED),
        ("format:title_case", {}, "of Mice and Men", NEITHER),
        ("format:title_case", {}, "Don't Look Back", ONLY_FIXED),
        ("format:title_case", {}, "My iPhone Is New", BOTH),
        ("format:title_case", {}, "The Lord of the rings", NEITHER),
        ("format:title_case", {}, "123.", ONLY_PUBLISHED),
        ("format:output_template", {}, "My Answer: a\nMy Conclusion: b\nFuture Outlook: c", BOTH),
        ("format:output_template", {}, "Sure. My Answer: a My Conclusion: b Future Outlook: c", ONLY_PUBLISHED),
        ("format:output_template", {}, "My Answer: a Future Outlook: c My Conclusion: b", ONLY_PUBLISHED),
        ("format:output_template", {}, "My Answer: My Conclusion: b Future Outlook: c", ONLY_PUBLISHED),
        ("format:output_template", {}, "My Answer: [answer] My Conclusion: b Future Outlook: c", ONLY_PUBLISHED),
        ("format:output_template", {}, "My Answer: a My Conclusion: b", NEITHER),
        ("format:options", {"options": "yes/no/maybe"}, "Maybe.", BOTH),
        ("format:options", {"options": "yes/no/maybe"}, "Yes, it is", NEITHER),
        ("format:options", {"options": "yes/no/maybe"}, "yes/no/maybe", NEITHER),
        ("format:options", KNOW, "i know", BOTH),
        ("format:options", KNOW, "I don't know.", BOTH),
        ("format:options", KNOW, "I don\u2019t know.", ONLY_FIXED),
        ("format:options", {"options": "an orange or a pear"}, "an orange", ONLY_FIXED),
        ("format:options", LETTERS, "b)", BOTH),
        ("format:options", LETTERS, "b)\n", ONLY_FIXED),
        ("format:options", LETTERS, "b) because", NEITHER),
    ],
)
def test_readings(id: str, kwargs: dict[str, Any], text: str, expected: tuple[bool, bool]) -> None:
    assert readings(id, text, **kwargs) == expected
