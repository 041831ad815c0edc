"""One spelling for what is written in many, before anything is parsed."""

from __future__ import annotations

import re
from fractions import Fraction

from tasks.answers.math.exact import factor, one_spelling
from tasks.answers.number_words import number_in_words

# -- One spelling for what has several notations: numbers in words, repeating decimals, binomials, polar form, sets ---

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


# -- One spelling for what is written in many: a linear pass over the text of an answer, before anything is parsed ----

_UNICODE = str.maketrans(
    {
        "\u2212": "-", "\u2013": "-", "\u2010": "-", "\u2011": "-", "\uff0d": "-", "\u00d7": r"\cdot ",
        "\u22c5": r"\cdot ", "\u00b7": r"\cdot ", "\u00f7": "/", "\u2215": "/", "\u2044": "/", "\u03c0": r"\pi ",
        "\u221e": r"\infty ", "\u00b0": r"^\circ ", "\u2264": r"\le ", "\u2265": r"\ge ", "\u2260": r"\ne ",
        "\u2208": r"\in ", "\u222a": r"\cup ", "\u2229": r"\cap ", "\u00b1": r"\pm ", "\u2248": r"\approx ",
        "\u2026": r"\ldots ", "\u00a0": " ", "\u2009": " ", "\u202f": " ", "\u2003": " ",
        **dict.fromkeys("\u200b\u200c\u200d\u200e\u200f\u2060\u2061\ufeff\u00ad", ""),  # invisible
        "\u2062": r"\cdot ", "\u2063": ",", "\u2064": "+",  # invisible, but an operator
        "\u03b8": r"\theta ", "\u03b1": r"\alpha ", "\u03b2": r"\beta ", "\u2205": r"\emptyset ",
        "\u00bd": r"\frac{1}{2}", "\u00bc": r"\frac{1}{4}", "\u00be": r"\frac{3}{4}", "\u2153": r"\frac{1}{3}",
        "\u2154": r"\frac{2}{3}", "\u00b2": "^{2}", "\u00b3": "^{3}",
        **{chr(0x2070 + power): f"^{{{power}}}" for power in range(4, 10)},
        "\u211d": r"\mathbb{R}", "\u2124": r"\mathbb{Z}",
        "\u211a": r"\mathbb{Q}", "\u2102": r"\mathbb{C}", "\u2216": r"\setminus ", "\uff0c": ",",
    }
)  # fmt: skip
_RENAMED = {
    "dfrac": "frac", "tfrac": "frac", "cfrac": "frac", "dbinom": "binom", "tbinom": "binom", "leq": "le", "geq": "ge",
    "leqslant": "le", "geqslant": "ge", "neq": "ne", "lt": "<", "gt": ">", "times": "cdot", "ast": "cdot", "div": "/",
    "dots": "ldots", "cdots": "ldots", "dotsc": "ldots", "vee": "lor", "wedge": "land",
    "lbrace": "{", "rbrace": "}", "lbrack": "[", "rbrack": "]", "langle": "(", "rangle": ")", "varnothing": "emptyset",
    "lvert": "|", "rvert": "|", "vert": "|", "colon": ":", "degree": "^\\circ ", "uppi": "pi",
    "backslash": "setminus", "smallsetminus": "setminus", "measuredangle": "angle",
}  # fmt: skip
_GONE = frozenset(
    (
        "left", "right", "big", "Big", "bigg", "Bigg", "bigl", "bigr", "Bigl", "Bigr", "biggl", "biggr", "displaystyle",
        "textstyle", "quad", "qquad", "limits", "thinspace", "medspace", "thickspace", "hfill", "mathstrut", "strut",
        "nonumber",
    )
)  # fmt: skip
_TEXTS = frozenset(
    (
        "text", "textbf", "textit", "textrm", "textsf", "texttt", "mathrm", "mathbf", "mathsf", "mathit", "mathtt",
        "mbox", "hbox", "bf", "rm",
    )
)  # fmt: skip
# Functions and letters without their backslash; not within a longer word.
_PLAIN = re.compile(
    r"(?<![\\A-Za-z])(?:(infinity|infty|inf|oo)|(arcsin|arccos|arctan|sinh|cosh|tanh|sin|cos|tan|cot|sec|csc|log|ln|"
    r"sqrt|exp|pi|theta|alpha|beta|gamma|lambda|sigma|omega|phi))(?![A-Za-z])"
)
_TOKEN = re.compile(r"\\[A-Za-z]+|\\.|\s+|.", re.DOTALL)
_TEXT_SPAN = re.compile(r"(\\text\{[^{}]*\})")
_COMMANDS = re.compile(r"\\([A-Za-z]+)\*?")
# \text{for $x$ days}: maths inside a text leaves it.
_DOLLARS_IN_TEXT = re.compile(r"\\(?:text|textbf|textrm|mbox)\s*\{([^{}$]*)\$([^$]*)\$([^{}$]*)\}")
# \$5.00, -\$3: an amount of money and nothing else gets a unit, for dollars around maths are taken off.
_DOLLARS = re.compile(r"\A\$?\s*(-?)\s*\\\$\s*(-?[\d.,]*\d)\s*\.?\$?\Z")
# \mathrm{d}, \operatorname{e}, \imath: a letter set upright is that letter.
_UPRIGHT = re.compile(
    r"\\(?:mathrm|operatorname|mathit|rm)(?:\s*\{\s*([dei])\s*\}|\s+([dei])(?![A-Za-z]))|\\(i)math(?![A-Za-z])"
)
# \mathbb{R}, \mathbf R, \Bbb{R}: one spelling for the sets of numbers.
_SETS = re.compile(r"\\(?:mathbb|mathbf|Bbb)\s*(?:\{\s*)?([RZQC])(?![A-Za-z])(?:\s*\})?")
_ARGUMENTS = {r"\frac": 2, r"\binom": 2, r"\sqrt": 1}
_DIGITS = 30
"""Digits of a number in a mixed number; longer ones are left to be parsed."""


def normalise(text: str) -> str:
    r"""Return an answer in one spelling.

    Typographic signs become LaTeX, spacing and size commands go, `\dfrac12` becomes `\frac{1}{2}`, thousands that are
    marked as such (`8{,}000`, `8,\!000`) and mixed numbers become one number, plain `pi/2` and `exp(16)` LaTeX. Dollars
    and a full stop at the end go. Nothing is evaluated.
    """
    text = re.sub(r"\u221a\s*(?:(?=[({])|(\d+|[A-Za-z]))", _root, text.translate(_UNICODE).strip())
    text = re.sub(
        r"\\\\(?:\[[^\[\]]{0,9}\])?", r"\\cr ", text
    )  # the end of a row, before anything looks at backslashes
    text = re.sub(r"(\d)(?:\{,\}|,\s*\\!)\s*(?=\d{3})", r"\1", text)
    text = re.sub(r"(?<=\d)\\,(?=\d{3}(?!\d))", "", text)
    text = re.sub(r"(?<![\d.,])\d{1,3}(?: \d{3})+(?![\d.]| ?/)", lambda match: match.group().replace(" ", ""), text)
    text = _DOLLARS_IN_TEXT.sub(r"\\text{\1} \2 \\text{\3}", text)
    text = _DOLLARS.sub(r"\1\2\\text{ dollars}", text)
    text = re.sub(r"(?:\\\$|\$)", "", text)
    text = re.sub(r"\\[!,;:> ]|~|\\(?=\s)", " ", text)
    text = text.replace(r"\%", "%").replace(r"\#", "#").replace(r"\&", " and ")
    text = text.replace(r"\(", " ").replace(r"\)", " ") if r"\(" in text else text
    text = re.sub(r"\\\[|(?<!\\)\\\]", " ", text)
    text = _UPRIGHT.sub(lambda match: f" {match.group(1) or match.group(2) or match.group(3)}", text)
    text = _SETS.sub(lambda match: rf"\mathbb{{{match.group(1)}}}", text)
    text = _COMMANDS.sub(_command, text)
    text = re.sub(r"\\not\s*=", r"\\ne ", text)
    text = re.sub(r"\\text\s*\{", r"\\text{", text)
    text = re.sub(r"\^\s*\{?\s*\\circ\s*\}?", r"^\\circ ", text)
    text = re.sub(
        r"(\\(?:sin|cos|tan|cot|sec|csc)\s*[({]?\s*)(\d+(?:\.\d+)?)\s*\^\\circ",
        r"\1\\frac{\2\\pi}{180}",
        text,
    )
    text = in_words(text)
    parts = _TEXT_SPAN.split(text)
    text = "".join(part if number % 2 else _plain(part) for number, part in enumerate(parts))
    text = _wrap_arguments(text)
    text = notations(re.sub(r"\s+", " ", _numbers(text)))
    text = re.sub(r"\s+", " ", text).strip()
    return _trim(text)


def _root(match: re.Match[str]) -> str:
    return rf"\sqrt{{{match.group(1)}}}" if match.group(1) else r"\sqrt"


def _command(match: re.Match[str]) -> str:
    name = match.group(1)
    if name in _GONE:
        return " "
    if name in _TEXTS:
        return r"\text"
    if name in ("boxed", "fbox"):
        return " "
    new = _RENAMED.get(name)
    if new is None:
        return match.group()
    if new in "{}":
        return "\\" + new
    return f"\\{new} " if new.isalpha() else new


def _plain(text: str) -> str:
    """Give what is written without LaTeX its commands: functions, products, powers, comparisons, and/or."""
    text = text.replace("**", "^").replace("*", r"\cdot ")
    text = text.replace("<=", r"\le ").replace(">=", r"\ge ").replace("!=", r"\ne ").replace("+/-", r"\pm ")
    text = re.sub(r"\.\.\.+", r"\\ldots ", text)
    text = re.sub(r"(?<![\\A-Za-z])U(?=\s*[\[(])(?<=[\])] U|.[\])]U)", r"\\cup ", text)
    text = _PLAIN.sub(lambda match: r"\infty " if match.group(1) else f"\\{match.group(2)} ", text)
    text = _calls(text, re.compile(r"\\sqrt\s*\("), r"\sqrt{")
    text = _calls(text, re.compile(r"\\exp\s*\("), "e^{")
    text = _calls(text, re.compile(r"\^\s*\("), "^{")
    text = re.sub(r"(?<!\\log )(?<!\\log)([\^_])\s*(-?\d+(?:\.\d+)?)", r"\1{\2}", text)
    text = re.sub(r"(\\log\s*_)\s*(\d)", r"\1{\2} ", text)
    # Powers of powers stand for themselves from the right.
    return re.sub(r"\^\{([^{}]*)\}\s*\^\{([^{}]*)\}(?!\s*\^)", r"^{\1^{\2}}", text)


def _calls(text: str, opening: re.Pattern[str], new: str) -> str:
    """Turn `name(...)` into `new...}`."""
    out: list[str] = []
    stack: list[bool] = []  # of each open parenthesis, whether it became a brace
    at = 0
    for match in re.finditer(f"{opening.pattern}|[()]", text):
        out.append(text[at : match.start()])
        at = match.end()
        if match.group() == ")":
            out.append("}" if stack and stack.pop() else ")")
        elif match.group() == "(":
            stack.append(False)
            out.append("(")
        else:
            stack.append(True)
            out.append(new)
    return "".join([*out, text[at:]])


def _wrap_arguments(text: str) -> str:
    r"""Put braces around what `\frac`, `\binom` and `\sqrt` take: `\frac12`, `\sqrt5`."""
    if not any(command in text for command in _ARGUMENTS):
        return text
    out: list[str] = []
    waiting: list[int] = []  # arguments that the command at each depth still takes
    levels: list[list[int]] = []
    bracket = False  # inside the [3] of a root
    for match in _TOKEN.finditer(text):
        token = match.group()
        if bracket:
            out.append(token)
            bracket = token != "]"
            continue
        if token in _ARGUMENTS:
            if waiting:  # a command that is itself an argument: \frac\sqrt{2}2
                out.append("{")
                waiting[-1] -= 1
                waiting.append(-1)
            out.append(token)
            waiting.append(_ARGUMENTS[token])
            continue
        if token.isspace() and waiting:
            continue
        if token == "[" and waiting and out[-1] == r"\sqrt":
            out.append(token)
            bracket = True
        elif token == "{":
            out.append(token)
            levels.append(waiting)
            waiting = []
        elif token == "}":
            out.append(token)
            waiting = levels.pop() if levels else []
            _took(out, waiting)
        elif waiting:
            out.append("{" + token + "}")
            _took(out, waiting)
        else:
            out.append(token)
    return "".join(out)


def _took(out: list[str], waiting: list[int]) -> None:
    """One argument is complete; so may be the commands that waited for it."""
    if not waiting:
        return
    waiting[-1] -= 1
    while waiting and waiting[-1] == 0:
        waiting.pop()
        if waiting and waiting[-1] == -1:
            waiting.pop()
            out.append("}")


def _numbers(text: str) -> str:
    r"""Mixed numbers become fractions, `1/2` `\frac{1}{2}`, `2(3)` a product."""

    def mixed(match: re.Match[str]) -> str:
        whole, top, bottom = (match.group(number) for number in (1, 2, 3))
        if max(len(whole), len(top), len(bottom)) > _DIGITS or int(top) >= int(bottom):
            return match.group()
        return rf"\frac{{{int(whole) * int(bottom) + int(top)}}}{{{bottom}}}"

    text = re.sub(r"(?<![\d.,^_{\w])(\d+)\s*\\frac\{\s*(\d+)\s*\}\{\s*(\d+)\s*\}", mixed, text)
    text = re.sub(r"(?<![\d.,/\w])(\d+)(?: +| ?\+ ?(?=\d+/\d+$))(\d+) ?/ ?(\d+)(?![\d/.])", mixed, text)
    text = re.sub(r"(?<![\w.)}/,])(\d+) ?/ ?(\d+)(?![\d.,])", r"\\frac{\1}{\2}", text)
    text = re.sub(r"(?<=, )(\d+) ?/ ?(\d+)(?![\d.])", r"\\frac{\1}{\2}", text)
    text = re.sub(r"(\d\.\d+)[eE]([+-]?\d+)(?!\w)", r"\1\\cdot 10^{\2}", text)
    return re.sub(r"(?<=\d)\s*(?=\()", r"\\cdot ", text) if re.search(r"\d\s*\(", text) else text


def _trim(text: str) -> str:
    """Take off full stops and blanks at the end, markup around it, and braces around everything."""
    while True:
        shorter = text.strip(" \t`").rstrip(".;,:").strip()
        if shorter.startswith("{") and shorter.endswith("}") and _whole(shorter):
            shorter = shorter[1:-1]
        if shorter == text:
            return text
        text = shorter


def _whole(text: str) -> bool:
    """Whether the first brace closes at the very end."""
    depth = 0
    for match in re.finditer(r"\\.|[{}]", text, re.DOTALL):
        if match.group() in "{}":
            depth += 1 if match.group() == "{" else -1
            if depth == 0:
                return match.end() == len(text)
    return False
