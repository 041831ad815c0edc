from __future__ import annotations

import time
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.answers.final_number import final_number
from tasks.answers.number_equals import NumberEquals, NumberMode, extract_number
from tasks.assertions.base import Outcome

RIGHT = [
    ("#### $1,234.00", "1234"),
    ("-3", "-3"),
    ("####42", "42"),
    ("#### −5", "-5"),
    ("#### -$5", "-5"),
    ("#### $-5", "-5"),
    ("-$5", "-5"),
    ("So the answer is **18**.", "18"),
    ("The final answer is: $\\boxed{\\$8{,}000}$", "8000"),
    ("#### 70 000", "70000"),
    ("\\boxed{8\\,000}", "8000"),
    ("#### 1/2", "0.5"),
    ("#### 1 1/2", "1.5"),
    ("\\boxed{1\\frac{1}{2}}", "3/2"),
    ("\\boxed{-\\frac12}", "-0.5"),
    ("#### ½", "1/2"),
    ("#### 2½", "2.5"),
    ("#### 18.", "18"),
    ("#### 18 eggs per day", "18"),
    ("#### 9*2=18", "18"),
    ("#### 18 = 9*2", "18"),
    ("The answer is 18 because 9*2=18.", "18"),
    ("**Answer:** 18", "18"),
    ("Answer: $18", "18"),
    ("Final Answer\n\n18", "18"),
    ("### Answer\n18 dollars", "18"),
    ("#### Step 1: add\n3+4=7\n#### Step 2: sub\nShe has 5 left.", "5"),
    ("#### 1. Compute the total\n9*2 = 18\n\nShe makes $18.", "18"),
    ("#### 18. I hope it is correct.", "18"),
    ("#### x = 18", "18"),
    ("<answer>42</answer>", "42"),
    ("<answer> The total is 42 eggs </answer>", "42"),
    ("#### negative 5", "-5"),
    ("#### 2 million", "2000000"),
    ("#### $5k", "5000"),
    ("#### 1.5e3", "1500"),
    ("#### 1.5 \\times 10^3", "1500"),
    ("\\boxed{18\\text{ dollars}}", "18"),
    ("\\boxed{x=18}", "18"),
    ("$$\\boxed{18}$$", "18"),
    ("She makes **18**", "18"),
    ("**She makes 18 dollars.**", "18"),
    ("\\(18\\)", "18"),
    ("the total is $18$.", "18"),
    ("18", "18"),
    ("A: 18", "18"),
    ("90 minutes or 1.5 hours is long. The answer is 90 minutes or 1.5 hours", "90"),
    ("#### 50%", "50"),
    ("#### 50 percent", "50"),
    ("The answer is 18!", "18"),
    ("It costs $.50", "1/2"),
    ("\\boxed{18}^\\circ", "18"),
    ("18°", "18"),
    ("So she pays € 1.50", "3/2"),
    ("#### - 5", "-5"),
    ("Answer: – 5", "-5"),
    ("- 5 apples", "5"),
    ("Total – 5 eggs", "5"),
    ("She earned 18 dollars / day", "18"),
    ("The answer is 18 - I hope", "18"),
    ("The answer to the question is 18", "18"),
    ("answer = 18", "18"),
    ("\\fbox{18}", "18"),
    ("The answer is 18<|im_end|>", "18"),
    ("answer is 18\\).", "18"),
    ("The answer is `18`", "18"),
    ("1,00,000", "100000"),
    ("#### 18\n\nThe answer is correct.", "18"),
    ("#### <<9*2=18>>18", "18"),
    ("9*2=<<9*2=18>>18", "18"),
    ("Total: 18.0", "18"),
    ("#### +18", "18"),
    ("#### 1_000", "1000"),
    ("_18_", "18"),
    ("The answer is:\n\n18", "18"),
    ("#### ４２", "42"),
    ("THE ANSWER IS 18", "18"),
    ("Answer: 18 (since 9 * 2 = 18)", "18"),
    ("#### 5 out of 7", "5"),
    ("#### 7th", "7"),
    ("The answer is USD 18", "18"),
    ("The answer is Rs. 18", "18"),
    ("#### 18 USD", "18"),
    ("The answer is 18€", "18"),
    ("It is 15 − 20 = −5", "-5"),
    ("It is 15 - 20 = -5.", "-5"),
    ("#### 18/day", "18"),
    ("#### 1.0", "1"),
    ("#### 3/1", "3"),
    ("#### 0", "0"),
    ("#### -0", "0"),
    ("She has 12 left.\n\n#### 12\n\nNote: done", "12"),
    ("<answer>\n18\n</answer>", "18"),
    ("\\boxed{18.}", "18"),
    ("\\boxed{ -7 }", "-7"),
    ("\\boxed{90^\\circ}", "90"),
    ("\\boxed{5 \\text{ m}^2}", "5"),
    ("\\boxed{\\mathbf{18}}", "18"),
    ("the answer is therefore $18.", "18"),
    ("#### **18**", "18"),
    ("#### \\$18", "18"),
    ("#### \\$18.00 per 3 hours", "18"),
    ("#### 18 for 3 people", "18"),
    ("The answer is -\\$5", "-5"),
    ("The answer is $-\\$5$", "-5"),
    *(
        (message, "18")
        for message in (
            "#### 18 (eighteen)",
            "#### 18 dollars",
            "#### 18 eggs per day",
            "\\boxed{18 eggs per day}",
            "\\boxed{18 \\text{ eggs}/\\text{day}}",
            "\\boxed{18\\text{ m/s}}",
            "\\boxed{18 \\text{ km/h}}",
            "\\boxed{\\$18/\\text{hour}}",
            "\\boxed{18\\,\\mathrm{cm}^3}",
            "\\boxed{18 m}",
            "\\boxed{\\text{Total} = 18}",
            "\\boxed{x_1 = 18}",
            "\\boxed{9 \\times 2 = 18}",
            "\\boxed{x = 9*2 = 18}",
            "\\boxed{\\textbf{18}}",
            "\\boxed{\\left(18\\right)}",
            "\\boxed{\\text{The answer is } 18 \\text{ dollars}}",
            "\\boxed{18\\%}",
            "\\boxed{18 \\text{ square feet}}",
            "\\boxed{18 dollars}",
            "\\boxed{+18}",
            "\\boxed{18\\text{元}}",
            "\\boxed{18 a day}",
            "The answer is \\boxed{18}.",
            "The answer is: $x = \\boxed{18}$.",
            "Answer - \\boxed{18}",
            "- \\boxed{18}",
            "So 9 \\times 2 = \\boxed{18} dollars.",
            "Therefore, she makes \\boxed{18}, which is right.",
            "\\[ \\boxed{18} \\]",
            "$$= \\boxed{18}$$",
            "\\therefore \\boxed{18}",
            "He needs at least \\boxed{18} eggs",
            "<answer>So, the total is 18 eggs.</answer>",
            "<answer>$18</answer>",
            "<answer>18 (eighteen)</answer>",
            "The answer is 18, not 20.",
            "The answer is 18 eggs, and that is final.",
            "#### 18 out of 20",
            "She has (18) eggs",
            "The total is **18**.",
            "The answer is 18 if we count all.",
            "It is $x = 18$",
            "18 more than Tom",
            "Total: 18",
            "The answer is approximately 18.",
            "The answer is $18 a day.",
            "#### 18",
            "The answer is 18, as she does not eat 2 of them.",
            "\\boxed{18\\text{ times}}",
            "The answer is 18 times",
            "#### 18\nThe answer is not an integer in general.",
            "The rest did not wear blue: \\boxed{18}",
            "#### 18\nThe answer does not include the 2 broken eggs.",
            "#### 18\nThe answer is not given in book 5.",
        )
    ),
]
WRONG = [
    ("#### 10-5", "5"),
    ("#### 10-5", "10"),
    ("10-5", "10"),
    ("10 - 5", "5"),
    ("10 – 5", "5"),
    ("x-5", "-5"),
    ("#### 9*2", "9"),
    ("#### 9 × 2", "9"),
    ("#### 5 or 6", "5"),
    ("#### 5 or 6", "6"),
    ("5 or 6", "6"),
    ("5 or 6", "5"),
    ("#### 5, 6, 7", "5"),
    ("#### 6:30", "6"),
    ("6:30", "30"),
    ("#### 1.2.3", "1.2"),
    ("1.2.3", "3"),
    ("#### 3,5", "3"),
    ("#### 1.234,50", "1.234"),
    ("#### 1,2345", "1"),
    ("#### 5^2", "5"),
    ("5^2", "2"),
    ("#### 5²", "5"),
    ("\\boxed{5!}", "5"),
    ("\\boxed{5\\sqrt{2}}", "5"),
    ("\\boxed{}", "18"),
    ("18 \\boxed{}", "18"),
    ("#### 18/5", "18"),
    ("#### 1/2/3", "1/2"),
    ("#### 5x", "5"),
    ("#### 2 hours and 30 minutes", "2"),
    ("#### 2 hours 30 minutes", "2"),
    ("#### 5 - 10", "5"),
    ("#### 5–10", "5"),
    ("5–10", "10"),
    ("#### 5 to 10", "5"),
    ("between 5 to 10", "10"),
    ("COVID-19", "19"),
    ("COVID-19", "-19"),
    ("#### 2 million", "2"),
    ("#### 5k", "5"),
    ("#### 1 1/2", "1"),
    ("#### 2½", "2"),
    ("#### 1.5 \\times 10^3", "1.5"),
    ("9 times 2", "2"),
    ("9 plus 2", "2"),
    ("\\boxed{3, 5}", "5"),
    ("\\boxed{3,5}", "3"),
    ("<answer>3 or 5</answer>", "5"),
    ("The answer is 5 and 6", "5"),
    ("answer is $5 - $3", "5"),
    ("#### 70 000", "70"),
    ("#### 12 345 678", "12"),
    ("10 minus 5", "5"),
    ("10 minus 5", "-5"),
    ("2(5)", "5"),
    ("#### 5(2)", "5"),
    ("(2)5", "5"),
    ("9 * 2", "2"),
    ("9*2", "2"),
    ("x*2", "2"),
    ("9**2", "2"),
    ("#### 5 eggs or 6 eggs", "5"),
    ("#### 5 eggs or 6", "5"),
    ("#### 9 ÷ 2", "9"),
    ("#### 5/0", "5"),
    ("#### 3:4", "3"),
    ("3 : 4", "4"),
    ("#### --5", "5"),
    ("#### --5", "-5"),
    ("#### -+5", "5"),
    ("18 ± 2", "18"),
    ("18 ± 2", "2"),
    ("\\boxed{2\\pi}", "2"),
    ("#### 5√2", "5"),
    ("", "0"),
    ("   ", "0"),
    ("#### 0.5.", "0"),
    ("\\frac{1}{2}", "2"),
    ("The answer is 18\nThe answer is 20-1", "18"),
    ("#### 1e3", "1"),
    ("5 and 6", "6"),
    ("3,5", "5"),
    ("1.234,50", "50"),
    ("#### 5 / 6 / 7", "5"),
    ("H2", "2"),
    ("#### < 5", "5"),
    ("#### <5", "5"),
    ("> 5", "6"),
    ("x > 5", "5"),
    ("#### $5 or $6", "5"),
    ("$5 or $6", "6"),
    ("$200,000 - $130,000", "130000"),
    ("-5", "5"),
    ("−5", "5"),
    ("#### 5+", "5"),
    ("12 dollars - 5 dollars", "5"),
    ("The answer is not 5.", "6"),
    ("#### 5·3", "5"),
    ("#### 5 \\cdot 3", "5"),
    ("#### 5%-6%", "5"),
    ("5\\%", "6"),
]
HOSTILE = [
    *"7,#$-.{\\½−( =*<>~^",
    "oxed{",
    "\\boxed{",
    "\\boxed{{}",
    "answer",
    "answer is ",
    "The answer is ",
    "####",
    "#### ",
    "####5-",
    "1/",
    "1,",
    "1,000,",
    "1 ",
    "\\frac{1}{",
    "</answer>",
    "<answer>",
    "9*",
    "A4 ",
    "A4\\",
    "\n",
    "\n####1-2",
    "x=",
    "A:",
    "5 or ",
    "**",
    "_",
    "a ",
    "18 maybe ",
    "18, ",
    "not 18 ",
    "\\boxed{x}",
    "\\boxed{18}",
    "\\sqrt{",
    "answer isn't ",
    "18 if ",
    "answer is not ",
    "-(",
    "a b ",
]

PUBLISHED_TOO = ("7", ",", "$", "-", "#### ", "The answer is ")


def verdict(message: str, gold: str, mode: NumberMode = NumberMode.FIXED) -> str:
    return str(NumberEquals(gold=gold, mode=mode).check(Outcome({}, {}, message)).verdict)


@pytest.mark.parametrize(("message", "gold"), RIGHT)
def test_right_answers_pass(message: str, gold: str) -> None:
    assert verdict(message, gold) == "pass", extract_number(message)


@pytest.mark.parametrize(("message", "gold"), WRONG)
def test_wrong_answers_fail(message: str, gold: str) -> None:
    assert verdict(message, gold) == "fail", extract_number(message)


@given(
    st.integers(-(10**9), 10**9),
    st.sampled_from(
        ["#### {}", "The answer is {}.", "so \\boxed{{{}}}", "**Answer:** {}", "<answer>{}</answer>", "{}", "A: {}"]
    ),
    st.sampled_from(["{}", "{:,}", "{}.00", "**{}**", "{} apples", "{}%"]),
    st.sampled_from(["", "First 3 + 4 = 7.\n", "#### 5 was a guess.\n", "The answer is 5. No:\n", "\\boxed{5}? No:\n"]),
)
def test_a_number_is_read_back_and_its_place_is_right(number: int, marker: str, form: str, head: str) -> None:
    if marker == "{}" and "3 + 4" not in head:
        head = ""  # without a marker of its own the last number loses against a marker before it
    message = head + marker.format(form.format(number))
    found = final_number(message)
    assert found is not None and found.number == number, (message, found)
    assert message[found.start : found.end].strip() == found.value
    assert verdict(message, str(number)) == "pass"
    assert verdict(message, str(number + 1)) == "fail"
    assert number == 0 or verdict(message, str(-number)) == "fail"


@given(st.text(alphabet="0123456789.,-−$#{}\\ \nabox=*/<>½answeri:", max_size=80))
def test_any_text_is_judged_without_an_exception(message: str) -> None:
    for mode in NumberMode:
        found = extract_number(message, mode)
        assert found is None or 0 <= found.start <= found.end <= len(message)


@pytest.mark.parametrize("unit", HOSTILE)
def test_a_megabyte_of_junk_costs_time_linear_in_its_size(unit: str) -> None:
    for tail in ("", "5"):
        for mode in NumberMode if unit in PUBLISHED_TOO else [NumberMode.FIXED]:
            message = (unit * (1_000_000 // len(unit))) + tail
            start = time.process_time()
            verdict(message, "5", mode)
            assert time.process_time() - start < 10, mode  # a quadratic rule takes hours; each takes well under 1 s


@pytest.mark.parametrize(
    ("reply", "value"),
    [
        ("The answer is 1.5 hours (90 minutes).", Fraction(3, 2)),
        ("#### 90 minutes (1.5 hours)", 90),
        ("The answer is 36 minus 7, which is 29.", 29),
        ("The answer is 36 - 7, which equals 29 apples", 29),
        ("The answer is 36 minus 7, which is not 29.", None),
        ("The answer is 18 (20).", None),
        ("#### 2\u200b9", 29),
        ("\\boxed{2\u20609}", 29),
        ("it makes 2\u00ad9", 29),
        ("#### 9\u202e2", 92),
    ],
)
def test_restated_worked_out_and_with_what_is_invisible(reply: str, value: Fraction | None) -> None:
    found = final_number(reply)
    assert found is not None and found.number == value
    assert found.problem or found.value == "".join(filter(str.isprintable, reply[found.start : found.end]))
