"""One spelling for what has several notations: numbers in words, repeating decimals, binomials, polar form, sets."""

from __future__ import annotations

import re

_SIZES = {"hundred": 2, "thousand": 3, "million": 6, "billion": 9, "trillion": 12}
_NUMBER_WORDS = {
    word: number
    for number, word in enumerate(
        [
            "zero",
            "one",
            "two",
            "three",
            "four",
            "five",
            "six",
            "seven",
            "eight",
            "nine",
            "ten",
            "eleven",
            "twelve",
            "thirteen",
            "fourteen",
            "fifteen",
            "sixteen",
            "seventeen",
            "eighteen",
            "nineteen",
            "twenty",
        ]
    )
}
_SIZE = re.compile(rf"(?<=[\d}}])\s*(?:\\text\{{\s*({'|'.join(_SIZES)})\b\s*|({'|'.join(_SIZES)})(?![A-Za-z]))")
_SAID = re.compile(
    r"\\text\{\s*(?:so|thus|hence|therefore|,|the|final|answer|value|result|total|it|number|\s)*\s(?:is|equals|:)\s*"
    r"(?:\}|(?=-?[\d.]+\s*\}))",
    re.IGNORECASE,
)
_COUNTED = re.compile(r"\\text\{\s*(-?\d[\d,]*(?:\.\d+)?(?:/\d+)?)((?:\s[A-Za-z .,/-]*)?)\}")
_WORDED_SET = re.compile(
    r"(?:\\text\{)?\s*(?:(?P<none>(?:there (?:is|are) )?no (?:real )?solutions?|(?:the )?empty set)|"
    r"(?:[a-z] (?:is|can be) )?(?:(?:the )?set of )?(?P<all>all|any|every|the)?\s*"
    r"(?:(?P<R>reals?(?: numbers?)?)|(?P<Z>integers?)|(?P<Q>rationals?(?: numbers?)?)|(?P<C>complex numbers?)))"
    r"(?P<but>,? (?:except|other than|excluding|but)(?: for)?)?\s*\}?\s*(?P<rest>.*)",
    re.IGNORECASE | re.DOTALL,
)
_ELEMENTS = re.compile(
    r"(?:[a-z]\s*(?:=|\\ne(?![A-Za-z]))\s*)?((?:[^A-Za-z=<>]|\\(?:frac|sqrt|pi|text\{ ?(?:and|or) ?\}))+)"
)

_BAR = re.compile(r"(?<=[\d.])\s*\\(?:overline|bar)\s*(?:\{\s*(\d+)\s*\}|(\d))")
_DOTTED = re.compile(r"(?<=[\d.])\\dot\s*\{?(\d)\}?(?:(\d*)\\dot\s*\{?(\d)\}?)?")
_ELIDED = re.compile(r"(?<![\d.])(\d*\.\d{0,40}?)((\d{2,12}?)\3{1,40}|(\d)\4\4{1,99})\s*\\ldots(?=\s*$|\s*[,;)\]}])")
_CHOOSE = re.compile(r"\{\s*([^{}]+?)\s*\\choose\s*([^{}]+?)\s*\}|^\s*([^{}]+?)\s*\\choose\s*([^{}]+?)\s*$")
_N = r"\{?\s*(\w+)\s*\}?"
_COMBINATIONS = re.compile(
    rf"(?<![A-Za-z\d)\]}}])(?:\{{\s*\}})?[_^]{_N}\s*(?:\\text\{{C\}}|C)\s*_{_N}"  # {}_{10}C_3, ^{10}C_3
    rf"|(?<![A-Za-z\\])C\s*_{_N}\s*\^{_N}|(?<![A-Za-z\\])C\s*\^{_N}\s*_{_N}"  # C_{10}^3
    r"|(?<![A-Za-z\\])C\s*\(\s*(\d+)\s*,\s*(\d+)\s*\)"
)
_CIS = re.compile(r"\\?(?:text|operatorname|mathrm)?\{?\s*(?<![A-Za-z])cis\s*\}?\s*(?=[\d({\\-])")
_ANGLED = re.compile(
    r"\s*([\d.]+|\\sqrt\{\d+\})\s*\\angle\s*(-?[^A-Za-z\\]*(?:\\frac\{[^{}]*\}\{\d+\}|\\pi|\^\\circ)?[^A-Za-z\\]*)"
)
_DEGREES = re.compile(r"(-?\d+(?:\.\d+)?)\s*\^\\circ")
_MODULUS = re.compile(
    r"[({]*\s*\\(?:pmod|bmod|mod|text\{\s*\(?mod(?:ulo)?\b)\s*\}?\s*\{?\s*(\d+)\s*[)}]*\s*$|\(\s*mod\s*(\d+)\s*\)\s*$"
)


def in_words(text: str) -> str:
    r"""Turn words for numbers and sets into maths: `\text{5 apples}`, `1.25\text{ million}`, `no solution`."""
    text = _SAID.sub(lambda match: "" if match.group().endswith("}") else r"\text{", text)
    if counted := _COUNTED.fullmatch(text):
        text = counted.group(1) + (rf"\text{{{counted.group(2)}}}" if counted.group(2).strip() else "")
    if (word := re.sub(r"\\text\{\s*([A-Za-z]+)\s*\}", r"\1", text).strip().lower()) in _NUMBER_WORDS:
        return str(_NUMBER_WORDS[word])
    text = _SIZE.sub(_size, text)
    if "mod" in text:
        text = _MODULUS.sub(lambda match: rf"\pmod{{{match.group(1) or match.group(2)}}}", text)
    if (worded := _WORDED_SET.fullmatch(text)) and (found := _set(worded)):
        return found
    return text


def _size(match: re.Match[str]) -> str:
    power = rf"\cdot 10^{{{_SIZES[match.group(1) or match.group(2)]}}}"
    return power if match.group(1) is None else power + r"\text{ "


def _set(worded: re.Match[str]) -> str:
    if worded.group("none"):
        return r"\emptyset" if not worded.group("but") and not worded.group("rest") else ""
    name = next(letter for letter in "RZQC" if worded.group(letter))
    if not worded.group("all") and not (name == "R" and "number" in worded.group("R").lower()):
        return ""  # "integer" alone is a word
    if not worded.group("but"):
        return "" if worded.group("rest") else rf"\mathbb{{{name}}}"
    elements = _ELEMENTS.fullmatch(worded.group("rest").replace(r"\text{", r"\text{ ").rstrip("} "))
    if elements is None:
        return ""
    listed = re.sub(r"\\text\{ *(?:and|or) *\}", ",", elements.group(1)).strip()
    return rf"\mathbb{{{name}}}\setminus\{{{listed}\}}"


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
    if "cis" in text and (cis := _CIS.search(text)):
        text = _polar(text[: cis.start()], text[cis.end() :]) or text
    elif r"\angle" in text and (angled := _ANGLED.fullmatch(text)):
        text = _polar(angled.group(1), angled.group(2)) or text
    return text


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
