"""One spelling for what has several notations: numbers in words, repeating decimals, binomials, polar form, sets."""

from __future__ import annotations

import re
from fractions import Fraction

from tasks.assertions.math.units import factor, one_spelling
from tasks.assertions.number_words import number_in_words

_SIZES = {"hundred": 2, "thousand": 3, "million": 6, "billion": 9, "trillion": 12}
# 1.25 million, 3\text{ thousand people}: a size behind a digit or a brace, in a text or outside.
_SIZE = re.compile(rf"(?<=[\d}}])\s*(?:\\text\{{\s*({'|'.join(_SIZES)})\b\s*|({'|'.join(_SIZES)})(?![A-Za-z]))")
# \text{the answer is } 5: words that only introduce a value, which may stand in the same text.
_SAID = re.compile(
    r"\\text\{\s*(?:so|thus|hence|therefore|,|the|final|answer|value|result|total|it|number|\s)*\s(?:is|equals|:)\s*"
    r"(?:\}|(?=-?[\d.]+\s*\}))",
    re.IGNORECASE,
)
# \text{5 apples}: the number leaves the text, so that it is compared as a number.
_COUNTED = re.compile(r"\\text\{\s*(-?\d[\d,]*(?:\.\d+)?(?:/\d+)?)((?:\s[A-Za-z .,/-]*)?)\}")
# \text{negative } 3, \text{-}5, {-}7: a sign, not part of an exponent or an index.
_MINUS = re.compile(r"\\text\{\s*(?:-|(?:negative|minus)(?=\s*\}))\s*\}|(?<![\^_A-Za-z}\]])\{\s*-\s*\}")
# \text{all } x > 3: the word adds nothing to the condition.
_ALL = re.compile(r"\\text\{\s*all\s*\}\s*(?=[a-z]\s*(?:[<>]|\\(?:le|ge|ne)(?![A-Za-z])))")
_WHOLE = re.compile(
    r",?\s*\(?(?:\\text\{,?\s*(?:where|for|with|for (?:all|any|some|every))\s*\}\s*)?"
    r"(?:(?P<in>[kmn])\s*\\in\s*\\mathbb\{Z\}"
    r"|\\text\{,?\s*(?:where|for|with)(?: an?| all| any| some| every)? integers?\s*\}?\s*(?P<of>[kmn])\s*\}?"
    r"|\\text\{,?\s*(?:where|for)\s*(?:\}\s*)?(?P<is>[kmn])\s*(?:\\text\{\s*)?(?:is )?(?:an? |any )?integer\s*\})\)?\Z"
)
"""What may be left out behind a family such as `2\\pi k`: that `k` is a whole number."""
_SIGNED = {
    "positive": r"(0,\infty)", "negative": r"(-\infty,0)", "nonzero": r"\mathbb{R}\setminus\{0\}",
    "nonnegative": r"[0,\infty)", "nonpositive": r"(-\infty,0]",
}  # fmt: skip
# 5 feet 3 inches, 2 hr and 30 min: one number of the smaller unit.
_TWO_UNITS = re.compile(
    r"(?:\\text\{\s*)?(\d{1,6})\s*(?:\\text\{)?\s*([a-z]+)\.?,?(?:\s*and)?\s*\}?\s*(?:\\text\{\s*and\s*\})?\s*"
    r"(\d{1,6}(?:\.\d{1,6})?)\s*(?:\\text\{)?\s*([a-z]+)\.?\s*\}?"
)
# 1011 base two, 12 (in base 8): digits with their base in words.
_BASE_WORD = re.compile(
    r"(?:\\text\{\s*)?([0-9A-F]{1,40})\s*(?:\\text\{)?\s*,?\s*\(?(?:in )?base[ -]*(?:\}\s*)?"
    r"(\d{1,2}|ten|two|three|eight)\)?\s*\}?"
)
# Brackets turned outward, as some countries write open ends: ]0,1[.
_OUTWARD = re.compile(r"([\[\](])([^\[\]()]+,[^\[\]()]+)([\[\])])")
_OTHER_WORDS = {"DNE": r"\text{does not exist}", "none": r"\emptyset", "None": r"\emptyset"}
# Sets in words: no solution, all positive real numbers, all reals except 2 and 3.
_WORDED_SET = re.compile(
    r"(?:\\text\{)?\s*(?:(?P<none>(?:there (?:is|are) )?no (?:real )?solutions?|(?:the )?empty set)|"
    r"(?:[a-z] (?:is|can be) )?(?:(?:the )?set of )?(?P<all>all|any|every|the)?\s*"
    r"(?P<sign>positive|negative|non-?zero|non-?negative|non-?positive)?\s*"
    r"(?:(?P<R>reals?(?: numbers?)?)|(?P<Z>integers?)|(?P<Q>rationals?(?: numbers?)?)|(?P<C>complex numbers?)))"
    r"(?P<but>,? (?:except|other than|excluding|but)(?: for)?"
    r"| (?P<than>greater|larger|less|smaller) than(?P<equal> or equal to)?)?"
    r"\s*\}?\s*(?P<rest>.*)",
    re.IGNORECASE | re.DOTALL,
)
# What may stand behind `greater than`: one number, fraction, root or multiple of pi, and no word.
_BOUND = re.compile(r"-?(?:[\d./ ]|\\(?:frac|sqrt|pi)(?![A-Za-z])|[{}](?=[-\d{}\\]|$))+")
# What may stand behind `except`: values with commas or `and` between them, a name and a sign before the first.
_ELEMENTS = re.compile(
    r"(?:[a-z]\s*(?:=|\\ne(?![A-Za-z]))\s*)?((?:[^A-Za-z=<>]|\\(?:frac|sqrt|pi|text\{ ?(?:and|or) ?\}))+)"
)

# 0.1\overline{6}, 0.1\bar6.
_BAR = re.compile(r"(?<=[\d.])\s*\\(?:overline|bar)\s*(?:\{\s*(\d+)\s*\}|(\d))")
# 0.1\dot{6}, 0.\dot{1}4\dot{2}: dots on the first and the last digit of the period.
_DOTTED = re.compile(r"(?<=[\d.])\\dot\s*\{?(\d)\}?(?:(\d*)\\dot\s*\{?(\d)\}?)?")
# 0.1212\ldots, 0.333\ldots: a period that is written twice, one digit three times; fewer could be anything.
_ELIDED = re.compile(r"(?<![\d.])(\d*\.\d{0,40}?)((\d{2,12}?)\3{1,40}|(\d)\4\4{1,99})\s*\\ldots(?=\s*$|\s*[,;)\]}])")
# {n \choose k}, or the two alone.
_CHOOSE = re.compile(r"\{\s*([^{}]+?)\s*\\choose\s*([^{}]+?)\s*\}|^\s*([^{}]+?)\s*\\choose\s*([^{}]+?)\s*$")
_N = r"\{?\s*(\w+)\s*\}?"
_COMBINATIONS = re.compile(
    rf"(?<![A-Za-z\d)\]}}])(?:\{{\s*\}})?[_^]{_N}\s*(?:\\text\{{C\}}|C)\s*_{_N}"  # {}_{10}C_3, ^{10}C_3
    rf"|(?<![A-Za-z\\])C\s*_{_N}\s*\^{_N}|(?<![A-Za-z\\])C\s*\^{_N}\s*_{_N}"  # C_{10}^3
    r"|(?<![A-Za-z\\])C\s*\(\s*(\d+)\s*,\s*(\d+)\s*\)"
)
# 2 cis 30^\circ, however the three letters are wrapped; an angle must follow.
_CIS = re.compile(r"\\?(?:text|operatorname|mathrm)?\{?\s*(?<![A-Za-z])cis\s*\}?\s*(?=[\d({\\-])")
# 5\angle 30^\circ: polar form as engineers write it.
_ANGLED = re.compile(
    r"\s*([\d.]+|\\sqrt\{\d+\})\s*\\angle\s*(-?[^A-Za-z\\]*(?:\\frac\{[^{}]*\}\{\d+\}|\\pi|\^\\circ)?[^A-Za-z\\]*)"
)
_DEGREES = re.compile(r"(-?\d+(?:\.\d+)?)\s*\^\\circ")
# One term of 2\text{i} - \hat{j}: sign, size and axis of a vector.
_ALONG = re.compile(
    r"\s*(?P<sign>[-+])?\s*(?P<size>(?:[\d. ]|\\(?:frac|sqrt|pi)(?![A-Za-z])|\{[\d ]+\}|\([^()A-Za-z]*\))*)"
    r"\\(?:text|hat|vec)\s*\{\s*(?:\\(?:hat|text|vec)\s*\{)?\s*\\?(?P<axis>[ijk])(?:math)?\s*\}+"
)
# 3 (mod 7), 3 \pmod 7, 3 \bmod{7}, at the end only.
_MODULUS = re.compile(
    r"[({]*\s*\\(?:pmod|bmod|mod|text\{\s*\(?mod(?:ulo)?\b)\s*\}?\s*\{?\s*(\d+)\s*[)}]*\s*$|\(\s*mod\s*(\d+)\s*\)\s*$"
)


def in_words(text: str) -> str:
    r"""Turn words for numbers and sets into maths: `\text{5 apples}`, `1.25\text{ million}`, `no solution`."""
    text = _SAID.sub(lambda match: "" if match.group().endswith("}") else r"\text{", text)
    if counted := _COUNTED.fullmatch(text):
        text = counted.group(1) + (rf"\text{{{counted.group(2)}}}" if counted.group(2).strip() else "")
    text = _MINUS.sub("-", text)
    text = _ALL.sub("", text)
    if r"\mathbb{Z}" in text or "integer" in text:
        text = _of_whole_numbers(text)
    if "base" in text and (based := _BASE_WORD.fullmatch(text)):
        return rf"{based.group(1)}_{{{based.group(2)}}}"
    if (two := _TWO_UNITS.fullmatch(text)) and (times := factor(one_spelling(two[2]), one_spelling(two[4]))):
        total = int(two[1]) * times + Fraction(two[3])
        if times > 1:
            return rf"\frac{{{total.numerator}}}{{{total.denominator}}}\text{{ {two[4]}}}"
    if text[:1] in "[](" and (outward := _OUTWARD.fullmatch(text)):
        opened, closed = outward[1], outward[3]  # ]0,1[ is (0,1)
        text = f"{'(' if opened == ']' else opened}{outward[2]}{')' if closed == '[' else closed}"
    bare = re.sub(r"\\text\{([^{}]*)\}", r"\1", text).strip()
    if bare in _OTHER_WORDS:
        return _OTHER_WORDS[bare]
    if (number := number_in_words(bare) if bare.replace("-", "").replace(" ", "").isalpha() else None) is not None:
        fraction = rf"\frac{{{abs(number.numerator)}}}{{{number.denominator}}}"
        return str(number) if number.denominator == 1 else f"{'-' if number < 0 else ''}{fraction}"
    text = _SIZE.sub(_size, text)
    if "mod" in text:
        text = _MODULUS.sub(lambda match: rf"\pmod{{{match.group(1) or match.group(2)}}}", text)
    if (worded := _WORDED_SET.fullmatch(text)) and (found := _set(worded)):
        return found
    return text


def _of_whole_numbers(text: str) -> str:
    found = _WHOLE.search(text)
    if found is None:
        return text
    name = found.group("in") or found.group("of") or found.group("is")
    used = re.search(rf"(?<![A-Za-z\\]){name}(?![A-Za-z])", text[: found.start()])
    return text[: found.start()] if used and r"\{" not in text else text


def _size(match: re.Match[str]) -> str:
    power = rf"\cdot 10^{{{_SIZES[match.group(1) or match.group(2)]}}}"
    return power if match.group(1) is None else power + r"\text{ "


def _set(worded: re.Match[str]) -> str:
    if worded.group("none"):
        return r"\emptyset" if not worded.group("but") and not worded.group("rest") else ""
    name = next(letter for letter in "RZQC" if worded.group(letter))
    if not worded.group("all") and not (name == "R" and "number" in worded.group("R").lower()):
        return ""  # "integer" alone is a word
    if worded.group("than") or worded.group("sign"):
        return _ray(worded) if name == "R" and worded.group("all") else ""
    if not worded.group("but"):
        return "" if worded.group("rest") else rf"\mathbb{{{name}}}"
    elements = _ELEMENTS.fullmatch(worded.group("rest").replace(r"\text{", r"\text{ ").rstrip("} "))
    if elements is None:
        return ""
    listed = re.sub(r"\\text\{ *(?:and|or) *\}", ",", elements.group(1)).strip()
    return rf"\mathbb{{{name}}}\setminus\{{{listed}\}}"


def _ray(worded: re.Match[str]) -> str:
    """`all positive real numbers`, `all real numbers greater than or equal to 3`."""
    if worded.group("sign"):
        plain = not (worded.group("but") or worded.group("rest"))
        return _SIGNED[worded.group("sign").lower().replace("-", "")] if plain else ""
    bound = _BOUND.fullmatch(
        worded.group("rest").rstrip("} ") if worded.group("rest").count("{") == 0 else worded.group("rest")
    )
    if bound is None:
        return ""
    if worded.group("than").lower() in ("greater", "larger"):
        return f"{'[' if worded.group('equal') else '('}{bound.group()},\\infty)"
    return f"(-\\infty,{bound.group()}{']' if worded.group('equal') else ')'}"


def notations(text: str) -> str:
    """Give repeating decimals, binomials, polar form and congruences one spelling each."""
    if r"\ldots" in text:
        text = _ELIDED.sub(lambda match: rf"{match.group(1)}\overline{{{match.group(3) or match.group(4)}}}", text)
    if "." in text:
        text = _BAR.sub(lambda match: rf"\overline{{{match.group(1) or match.group(2)}}}", text)
        text = _DOTTED.sub(lambda match: rf"\overline{{{''.join(filter(None, match.groups()))}}}", text)
    if r"\choose" in text:
        text = _CHOOSE.sub(lambda match: _binom(*filter(None, match.groups())), text)
    if "C" in text:
        text = _COMBINATIONS.sub(_binomial, text)
    if any(unit in text for unit in (r"\text{i}", r"\hat", r"\vec", r"\text{j}")):
        text = _vector(text) or text
    if "cis" in text and (cis := _CIS.search(text)):
        text = _polar(text[: cis.start()], text[cis.end() :]) or text
    elif r"\angle" in text and (angled := _ANGLED.fullmatch(text)):
        text = _polar(angled.group(1), angled.group(2)) or text
    return text


def _vector(text: str) -> str:
    r"""Write `2\mathbf{i} - \mathbf{j}` as a column; empty for anything else."""
    entries: dict[str, str] = {}
    at = 0
    for match in _ALONG.finditer(text):
        if match.start() != at or match.group("axis") in entries or not (match.group("sign") or at == 0):
            return ""
        at = match.end()
        entries[match.group("axis")] = f"{match.group('sign') or ''}{match.group('size').strip() or '1'}".replace(
            "+", ""
        )
    if at != len(text.rstrip()) or len(entries) < 2:
        return ""
    rows = r"\cr ".join(entries.get(axis, "0") for axis in ("ijk" if "k" in entries else "ij"))
    return rf"\begin{{pmatrix}}{rows}\end{{pmatrix}}"


def _binomial(match: re.Match[str]) -> str:
    one, other, low, high, over, under, first, second = match.groups()
    pair = (one, other) if one else (low, high) if low else (under, over) if under else (first, second)
    return _binom(*pair)


def _binom(above: str, below: str) -> str:
    return rf"\binom{{{above}}}{{{below}}}"


def _polar(size: str, angle: str) -> str:
    """Write polar form as a power of e; empty where it is not clear how far the angle goes."""
    size = size.strip() or "1"
    if re.search(r"[-+,=]", size[1:]) or re.search(r"[+,=<>]|(?<=.)-", angle.strip("(){} ")):
        return ""
    angle = _DEGREES.sub(r"\\frac{\1\\pi}{180}", angle.strip())
    return rf"{size} e^{{i\cdot ({angle})}}"
