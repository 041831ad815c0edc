"""The two readings of each official id, on texts that tell them apart, and on plain passes and failures."""

from __future__ import annotations

from typing import Any

import pytest

from tasks.answers.instructions import IFEVAL, Semantics, follows, make

AL, LT = "at least", "less than"
Case = tuple[str, dict[str, Any], str, bool, bool]
"""Id, arguments, text, verdict in the fixed reading, verdict in the reference reading."""

KEYWORDS: list[Case] = [
    ("keywords:existence", {"keywords": ["sea", "rock"]}, "Rock and SEA.", True, True),
    ("keywords:existence", {"keywords": ["sea", "rock"]}, "Only the sea.", False, False),
    ("keywords:existence", {"keywords": ["art"]}, "smart", False, True),
    ("keywords:existence", {"keywords": ["a.c"]}, "abc", False, True),
    ("keywords:existence", {"keywords": ["C++"]}, "I know C++, too.", True, True),
    ("keywords:existence", {"keywords": ["ice cream"]}, "ice\ncream", True, False),
    ("keywords:existence", {"keywords": ["\u732b"]}, "\u767d\u732b\u304c\u3044\u308b", True, True),
    ("keywords:frequency", {"keyword": "art", "frequency": 2, "relation": AL}, "start smart", False, True),
    ("keywords:frequency", {"keyword": "art", "frequency": 2, "relation": AL}, "Art for art.", True, True),
    ("keywords:frequency", {"keyword": "art", "frequency": 2, "relation": LT}, "Art for art.", False, False),
    ("keywords:existence", {"keywords": ["cat"]}, "The _cat_ sat.", True, True),
    ("keywords:existence", {"keywords": ["cat"]}, "The _cats_ sat.", False, True),
    ("keywords:frequency", {"keyword": "cat", "frequency": 2, "relation": AL}, "The _cat_ and __cat__.", True, True),
    ("keywords:forbidden_words", {"forbidden_words": ["cat"]}, "The _cat_ and __cat__ sat.", False, True),
    ("keywords:forbidden_words", {"forbidden_words": ["cat"]}, "The _black cat_ sat.", False, True),
    ("keywords:forbidden_words", {"forbidden_words": ["cat"]}, "The _cats_ sat.", True, True),
    ("keywords:forbidden_words", {"forbidden_words": ["art"]}, "smart", True, True),
    ("keywords:forbidden_words", {"forbidden_words": ["art"]}, "The ART.", False, False),
    ("keywords:forbidden_words", {"forbidden_words": ["a.t"]}, "the art", True, False),
    ("keywords:letter_frequency", {"letter": "Z", "let_frequency": 2, "let_relation": AL}, "zZ", True, True),
    ("keywords:letter_frequency", {"letter": "!", "let_frequency": 2, "let_relation": AL}, "a!b", False, False),
    ("keywords:letter_frequency", {"letter": "!", "let_frequency": 2, "let_relation": LT}, "a!b", True, True),
]
LENGTHS: list[Case] = [
    ("length_constraints:number_words", {"num_words": 3, "relation": AL}, "a b c", True, True),
    ("length_constraints:number_words", {"num_words": 3, "relation": LT}, "a b c", False, False),
    ("length_constraints:number_sentences", {"num_sentences": 2, "relation": AL}, "Hi Dr. Li. Come in.", True, True),
    ("length_constraints:number_sentences", {"num_sentences": 3, "relation": AL}, "Hi Dr. Li. Come in.", False, False),
    ("length_constraints:number_sentences", {"num_sentences": 5, "relation": AL}, "Hi" + " ." * 20, False, True),
    ("length_constraints:number_sentences", {"num_sentences": 3, "relation": AL}, "? " * 9, False, True),
    ("length_constraints:number_sentences", {"num_sentences": 2, "relation": LT}, "Hi. ! ! !", True, False),
    ("length_constraints:number_sentences", {"num_sentences": 2, "relation": AL}, "Really?! (Yes!) \u2026", True, True),
    ("length_constraints:number_paragraphs", {"num_paragraphs": 2}, "a\n***\nb", True, True),
    ("length_constraints:number_paragraphs", {"num_paragraphs": 2}, "***\na\n***\nb\n***", True, True),
    ("length_constraints:number_paragraphs", {"num_paragraphs": 2}, "a\n***\n \n***\nb", False, False),
    ("length_constraints:number_paragraphs", {"num_paragraphs": 1}, "a\n\nb", True, True),
]
NTH = "length_constraints:nth_paragraph_first_word"
SECOND = {"num_paragraphs": 2, "nth_paragraph": 2, "first_word": "Sea"}
LENGTHS += [
    (NTH, SECOND, "One.\n\nSea, two.", True, True),
    (NTH, SECOND, "One.\n\nThe sea.", False, False),
    (NTH, SECOND, "One.\n\nSea.\n\nThree.", False, False),
    (NTH, SECOND, "One.\n\n\n\nSea.", True, False),
    (NTH, SECOND, "One.\n \nSea.", True, False),
    (NTH, SECOND, "One.\n\n**Sea** two.", True, False),
    (NTH, SECOND, "One.\n\n'Sea's", True, True),
]
CONTENTS: list[Case] = [
    ("detectable_content:number_placeholders", {"num_placeholders": 2}, "[a] [b c]", True, True),
    ("detectable_content:number_placeholders", {"num_placeholders": 2}, "[a] [b\nc]", False, False),
    ("detectable_content:number_placeholders", {"num_placeholders": 2}, "[a] []", False, True),
    ("detectable_content:number_placeholders", {"num_placeholders": 1}, "- [ ] to do", False, True),
    ("detectable_content:number_placeholders", {"num_placeholders": 1}, "[[name]", True, True),
    ("detectable_content:postscript", {"postscript_marker": "P.S."}, "Bye\np.s. one more", True, True),
    ("detectable_content:postscript", {"postscript_marker": "P.S."}, "Bye\n**P. S.** one more", True, True),
    ("detectable_content:postscript", {"postscript_marker": "P.S."}, "Bye\nP.S.\nOne more", True, True),
    ("detectable_content:postscript", {"postscript_marker": "P.S."}, "Bye P.S.", False, True),
    ("detectable_content:postscript", {"postscript_marker": "P.S."}, "Bye\nP.S.", False, True),
    ("detectable_content:postscript", {"postscript_marker": "P.S."}, "Bye\nP.P.S. two", False, True),
    ("detectable_content:postscript", {"postscript_marker": "P.P.S"}, "Bye\nP.P.S two", True, True),
    ("detectable_content:postscript", {"postscript_marker": "P.P.S"}, "Bye\nP.S. one", False, False),
    ("detectable_content:postscript", {"postscript_marker": "N.B."}, "Bye\nN.B. this", True, True),
]
BULLETS = "detectable_format:number_bullet_lists"
FORMATS: list[Case] = [
    (BULLETS, {"num_bullets": 2}, "- a\n* b", True, True),
    (BULLETS, {"num_bullets": 2}, "- a\n* b\n- c", False, False),
    (BULLETS, {"num_bullets": 1}, "- a\n---\nb", True, False),
    (BULLETS, {"num_bullets": 1}, "- a\n-5 degrees", True, False),
    (BULLETS, {"num_bullets": 1}, "- a\n*soft* words", True, False),
    (BULLETS, {"num_bullets": 1}, "- a\n* * *", True, False),
    (BULLETS, {"num_bullets": 1}, "**a**\n  * b", True, True),
    (BULLETS, {"num_bullets": 2}, "*\n* a\n* b", True, True),
    ("detectable_format:constrained_response", {}, "My answer is no.", True, True),
    ("detectable_format:constrained_response", {}, "No.", False, False),
    ("detectable_format:constrained_response", {}, "My answer is no. My answer is yes.", False, True),
    ("detectable_format:number_highlighted_sections", {"num_highlights": 2}, "*a* and **b c**", True, True),
    ("detectable_format:number_highlighted_sections", {"num_highlights": 2}, "*a* and * *", False, False),
    ("detectable_format:number_highlighted_sections", {"num_highlights": 1}, "2 * 3 * 4", False, True),
    ("detectable_format:number_highlighted_sections", {"num_highlights": 1}, "2*3*4", False, True),
    ("detectable_format:number_highlighted_sections", {"num_highlights": 1}, "* a\n* b", False, False),
    ("detectable_format:number_highlighted_sections", {"num_highlights": 1}, "* a *b c", False, True),
    ("detectable_format:number_highlighted_sections", {"num_highlights": 1}, "***very***", True, True),
    ("detectable_format:number_highlighted_sections", {"num_highlights": 1}, "_*very*_", True, True),
    (
        "detectable_format:number_highlighted_sections",
        {"num_highlights": 1},
        "\u8fd9\u662f*\u9ad8\u4eae*\u4e86",
        True,
        True,
    ),
]
SECTIONS = "detectable_format:multiple_sections"
TWO = {"section_spliter": "Section", "num_sections": 2}
FORMATS += [
    (SECTIONS, TWO, "Section 1\na\n**Section 2** b", True, True),
    (SECTIONS, TWO, "Section 1\na", False, False),
    (SECTIONS, TWO, "Section 1\nas Section 1 says", False, True),
    (SECTIONS, TWO, "Subsection 1\nSection 2", False, False),
    (SECTIONS, TWO, "_Section 1_\na\n__Section 2__", True, True),
    (SECTIONS, {"section_spliter": "S.", "num_sections": 1}, "Sx 1", False, True),
    ("detectable_format:json_format", {}, '{"a": [1, null]}', True, True),
    ("detectable_format:json_format", {}, '```json\n{"a": 1}\n```', True, True),
    ("detectable_format:json_format", {}, 'Here: {"a": 1}', False, False),
    ("detectable_format:json_format", {}, '{"a": NaN}', False, True),
    ("detectable_format:json_format", {}, "[" * 20_000, False, False),
    ("detectable_format:json_format", {}, "1" * 5_000, True, False),
    ("detectable_format:title", {}, "<<The Sea>>\nText", True, True),
    ("detectable_format:title", {}, "<<>>\nText", False, False),
    ("detectable_format:title", {}, "<< >>\nText", False, False),
    ("detectable_format:title", {}, "<<The\nSea>>", False, False),
    ("detectable_format:title", {}, "<< >> << >>", False, True),
    ("detectable_format:title", {}, "int x = a<<b; c>>d", False, True),
    ("detectable_format:title", {}, "int x = a<<<b; c>>>d", False, True),
    ("detectable_format:title", {}, "x = a <<b; c>>d", False, True),
    ("detectable_format:title", {}, "x = a<<b; c>> d", False, True),
    ("detectable_format:title", {}, "1 << 2 and 3 >> 1", False, True),
    ("detectable_format:title", {}, "The title is << The Sea >>", True, True),
    ("detectable_format:title", {}, "a<<b; <<On shifts>>", True, True),
    ("detectable_format:title", {}, "<<Why a<<b; c>>d matters>>", True, True),
    ("detectable_format:title", {}, "_Title:<<The Sea>>_", True, True),
    ("detectable_format:title", {}, "\u9898<<\u6d77>>\u6587", True, True),
]
REPEAT = {"prompt_to_repeat": "Name a river. "}
REPLIES: list[Case] = [
    ("combination:two_responses", {}, "a\n******\nb", True, True),
    ("combination:two_responses", {}, "******a******b******", True, True),
    ("combination:two_responses", {}, "a\n******\n a", False, False),
    ("combination:two_responses", {}, "a", False, False),
    ("combination:two_responses", {}, "a******b******c", False, False),
    ("combination:two_responses", {}, "a************b", False, False),
    ("combination:repeat_prompt", REPEAT, " NAME a river. The Ebro.", True, True),
    ("combination:repeat_prompt", REPEAT, "Sure. Name a river. The Ebro.", False, False),
    ("startend:end_checker", {"end_phrase": "The end."}, 'So be it. the END."\n', True, True),
    ("startend:end_checker", {"end_phrase": "The end."}, "The end. Or not.", False, False),
    ("startend:quotation", {}, ' "all of it"\n', True, True),
    ("startend:quotation", {}, '"not all" of it', False, False),
    ("startend:quotation", {}, '"', False, False),
    ("startend:quotation", {}, '""', False, True),
    ("punctuation:no_comma", {}, "a; b\uff0c c", True, True),
    ("punctuation:no_comma", {}, "a, b", False, False),
]
DE = {"language": "de"}
CASING: list[Case] = [
    ("language:response_language", DE, "Der Hund schl\u00e4ft auf der Wiese hinter dem Haus.", True, True),
    ("language:response_language", DE, "The dog sleeps on the meadow behind the house.", False, False),
    ("language:response_language", DE, "12 345", False, True),
    ("language:response_language", DE, "DER HUND SCHL\u00c4FT AUF DER WIESE HINTER DEM HAUS", True, True),
    ("language:response_language", {"language": "en"}, "excellent service as usual", True, False),
    ("change_case:english_lowercase", {}, "excellent service as usual", True, False),
    ("change_case:english_lowercase", {}, "the dog sleeps on the meadow behind the house.", True, True),
    ("change_case:english_lowercase", {}, "The dog sleeps on the meadow behind the house.", False, False),
    ("change_case:english_lowercase", {}, "der hund schl\u00e4ft auf der wiese hinter dem haus.", False, False),
    ("change_case:english_lowercase", {}, "123", False, False),
    ("change_case:english_capital", {}, "SALE ENDS TODAY", True, True),
    ("change_case:english_capital", {}, "NO REFUNDS", True, False),
    ("change_case:english_capital", {}, "Sale ends today", False, False),
    ("change_case:english_capital", {}, "DER HUND SCHL\u00c4FT AUF DER WIESE HINTER DEM HAUS", False, False),
    ("change_case:capital_word_frequency", {"capital_frequency": 2, "capital_relation": AL}, "I SEE.", True, True),
    ("change_case:capital_word_frequency", {"capital_frequency": 2, "capital_relation": AL}, "Now SEE.", False, False),
    ("change_case:capital_word_frequency", {"capital_frequency": 2, "capital_relation": LT}, "I SEE.", False, False),
]
CASES = [*KEYWORDS, *LENGTHS, *CONTENTS, *FORMATS, *REPLIES, *CASING]


@pytest.mark.parametrize(("id", "kwargs", "text", "fixed", "reference"), CASES)
def test_verdicts(id: str, kwargs: dict[str, Any], text: str, fixed: bool, reference: bool) -> None:
    found = make(id, kwargs)
    assert follows(found, text, Semantics.FIXED) is fixed
    assert follows(found, text, Semantics.REFERENCE) is reference


@pytest.mark.parametrize("known", IFEVAL, ids=lambda known: known.id)
def test_every_id_has_a_text_that_follows_and_one_that_does_not(known: Any) -> None:
    verdicts = {(fixed, reference) for id, _, _, fixed, reference in CASES if id == known.id}
    assert (True, True) in verdicts and (False, False) in verdicts
