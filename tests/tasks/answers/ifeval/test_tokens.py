from __future__ import annotations

import pytest

from tasks.answers.ifeval.text import tokens, word_tokens


@pytest.mark.parametrize(
    ("text", "expected"),  # what `word_tokenize` of NLTK 3.10.4 gives
    [
        ("Hello, world.", "Hello|,|world|."),
        ("I can't, cannot and won't.", "I|ca|n't|,|can|not|and|wo|n't|."),
        ("It's Mr. Smith's. They'll go.", "It|'s|Mr.|Smith|'s|.|They|'ll|go|."),
        ('He said "hi" twice.', "He|said|``|hi|''|twice|."),
        ("\u201cTea\u201d isn\u2019t", "\u201c|Tea|\u201d|isn|\u2019|t"),
        ("1,000.50 at 12:30; a:b", "1,000.50|at|12:30|;|a|:|b"),
        ("(a) [b] {c} <i>d</i>", "(|a|)|[|b|]|{|c|}|<|i|>|d|<|/i|>"),
        ("well--known... yes", "well|--|known|...|yes"),
        ("gonna wanna go, gimme d'ye 'tis more'n", "gon|na|wan|na|go|,|gim|me|d|'ye|'|tis|more|'n"),
        ("cost $5 & 10% #x @y *z*", "cost|$|5|&|10|%|#|x|@|y|*|z|*"),
        ("'quoted' `x` ``y''", "'|quoted|'|`|x|`|``|y|''"),
    ],
)
def test_tokens(text: str, expected: str) -> None:
    assert tokens(text) == expected.split("|")


def test_word_tokens_hold_a_letter_or_digit() -> None:
    assert word_tokens("Well, it's 5.") == ["Well", "it", "'s", "5"]
