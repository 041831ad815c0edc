r"""Numbers as people and models write them, read exactly: one grammar for answers of word problems.

Read are signs (`-5`, `−5`, `-$5`, `negative 5`), groups (`8,000`, `8{,}000`, `8 000`, `1,00,000`), decimals (`12.5`,
`12,5`, `1.875,00`), fractions (`1/2`, `1 1/2`, `\frac{1}{2}`, `½`), powers of ten (`1.5e3`, `1.5 \times 10^3`), words
of size (`2 million`, `$5k`), percent (dropped), currency and units. A number that is only a part of something longer
(`10-5`, `6:30`, `1.2.3`, `5 or 6`) is none: `after` and `before` find out. Values are `int` or `Fraction`, no `float`.
"""

from __future__ import annotations

import re as fast_re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import cast

import regex as re  # possessive quantifiers of `re` match wrongly before Python 3.11.5 (gh-106052)

Number = int | Fraction
"""An exact value; both kinds compare and hash alike."""

_GAP = r"[\s*_]"
SENTENCE = fast_re.compile(
    rf"{_GAP}(?:(?<=[.!?:]{_GAP})(?:"
    rf"(?<!\bMr\.{_GAP})(?<!\bMrs\.{_GAP})(?<!\b[MD][sr]\.{_GAP})(?<!\bSt\.{_GAP}){_GAP}*"
    r"(?=[A-Z*_\"“(]|[a-z] ?= ?[-$0-9])"
    r"|(?:(?<=[a-z]{4}[.!] )|(?<=[0-9][0-9%][.!] ))(?<!pprox\. )(?=\$?[0-9]))|(?<=\n))"
)
"""What stands between two sentences; what it begins with comes first, and so it is found fast."""
CLOCK = fast_re.compile(r"\b[0-9]{1,2}(?::[0-9]{2})?\ ?[ap]\.?m\b|\b[0-9]{1,2}:[0-9]{2}\b", fast_re.IGNORECASE)
ATTRIBUTE = fast_re.compile(r"-[A-Za-z]{2}|(?:st|nd|rd|th)\b")
"""Behind a number that says which or of what kind: `the 300-liter tank`, `the 4th bus`."""

MOST_CHARACTERS = 100
"""A number written longer than this is not read: no answer is, and arithmetic on it must not cost time."""
_MOST_POWER = 30

_DASHES = "\u2010\u2011\u2012\u2013\u2212\ufe63\uff0d\u207b"  # hyphens, figure and en dash, minus, small and full width
_SPACES = "\u00a0\u2002\u2003\u2007\u2009\u200a\u202f\u3000\t"
_SAME = {
    **dict.fromkeys(map(ord, _DASHES), "-"),
    **dict.fromkeys(map(ord, _SPACES), " "),
    **dict.fromkeys(map(ord, "\u02bc\uff07"), "'"),
    **dict.fromkeys(map(ord, "\u2044\u2215\uff0f"), "/"),
    **dict.fromkeys(map(ord, "\u00b7\u22c5\u2219\u2217"), "\u00d7"),
    **{0xFF0B: "+", 0xFF04: "$", 0xFE69: "$", 0xFF05: "%", 0xFF0C: ",", 0xFF0E: ".", 0xFF1A: ":", 0xFF1D: "="},
    **{
        code: str(unicodedata.decimal(chr(code)))
        for code in range(128, 0x20000)  # the planes that have letters; those behind them would only cost time
        if chr(code).isdecimal()
    },
}
_ODD = frozenset(map(chr, _SAME))
_RARE = fast_re.compile(r"[^\x00-\x08\n-\x7f]")
"""All that may be odd or invisible, and little else: found faster than each character is looked up."""
INVISIBLE = frozenset(
    "\u00ad\u200b\u200c\u200d\u200e\u200f\u2060\u2061\ufeff\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
)
"""Characters that nobody sees, so they neither end nor change a number."""
_VULGAR = {
    chr(code): Fraction(int(top or 0), int(bottom))
    for code in (0xBC, 0xBD, 0xBE, *range(0x2150, 0x215F))
    for top, _, bottom in [unicodedata.normalize("NFKC", chr(code)).partition("\u2044")]
    if bottom
}
_WORDS = {"hundred": 2, "thousand": 3, "k": 3, "million": 6, "m": 6, "mn": 6, "billion": 9, "b": 9, "bn": 9}
_WORDS["trillion"] = 12

_SIZE = "hundred|thousand|million|billion|trillion"
_GROUPED = r"""(?: [1-9][0-9]{0,2} (?P<%(s)s> ,|\{,\}|\\,|,\\!|\\!,|['’_\ ] ) [0-9]{3}
                     (?: (?P=%(s)s) [0-9]{3} )*+ (?![0-9])
                 | [1-9][0-9]? (?: ,[0-9]{2}(?=,) )++ ,[0-9]{3} (?![0-9])
                 | [0-9]++ )"""
_FRAC = r"""\\[dtc]?frac\ ?(?: \{\ ?(?P<%(n)s>-?[0-9]{1,40}+)\ ?\} | (?P<%(n)s1>[0-9]) )
                        \ ?(?: \{\ ?(?P<%(d)s>[0-9]{1,40}+)\ ?\} | (?P<%(d)s1>[0-9]) )"""

CORE = re.compile(
    rf"""(?:
        {_FRAC % {"n": "top", "d": "bottom"}}
      | (?P<vulgar>[{"".join(_VULGAR)}])
      | (?P<whole>{_GROUPED % {"s": "s1"}})
        (?: (?: \ | -(?=\\) | \\[ ,;!] | \ and\ )? {_FRAC % {"n": "mtop", "d": "mbottom"}}
          | (?: \ | \\[ ,;] | \ and\ ) (?P<mixtop>[0-9]{{1,9}}+) / (?P<mixbottom>[0-9]{{1,9}}+)
          | \ ?(?P<mixvulgar>[{"".join(_VULGAR)}])
          | \ ?/\ ?(?P<over>{_GROUPED % {"s": "s2"}})
        )
      | (?P<comma>(?:[1-9][0-9]{{0,2}}(?:\.[0-9]{{3}})++ | [0-9]++),[0-9]{{1,2}}(?![0-9]|[.,][0-9]))
      | (?P<plain>{_GROUPED % {"s": "s3"}} (?: \.[0-9]++ )? | \.[0-9]++ )
        (?: [eE](?P<power>[-+]?[0-9]{{1,3}})(?![0-9A-Za-z])
          | \ ?(?:\\times|\\cdot|[×*xX])\ ?10\ ?\^\ ?
              (?: \{{\ ?(?P<ten>[-+]?[0-9]{{1,3}})\ ?\}} | (?P<ten1>[-+]?[0-9]{{1,3}}) )
        )?
    )
    (?: (?: \ |\\[ ,;]|\\(?:text|mathrm|textbf)\{{\ ? ){{0,2}}
        (?P<word>(?i:{_SIZE}))\b(?:\ ?\}})?
      | (?P<letter>[kKMB]|mn|bn)(?![A-Za-z0-9])
    )?
    (?: \ ?\\?% | :00(?=\ ?[apAP]\.?[mM]\b) )?""",
    re.VERBOSE,
)
"""One number without its sign; match it where a digit, `.`, `\\frac` or a vulgar fraction stands."""

SIGN = r"(?:[-+]\ ?|(?:negative|minus)\ )"
CURRENCY = (
    r"(?:\\?\$|[€£¥₹₩₱₦₫₴₪฿¢₽₺]|\\(?:pounds|euro|textdollar)\b|(?:US|CA|AU|NZ|HK|A|C|S|R)\\?\$"
    r"|(?:USD|EUR|GBP|INR|CAD|AUD|JPY|CNY|PHP|Rs\.?|RM)\b)"
)

# What makes a number the beginning of something longer. Closing marks of markup are passed over first; `*` closes only
# where no operand follows it.
_CLOSE = r"(?: \*++(?![0-9A-Za-z($\\.]) | __? | ` | [\"”’)\]}$] | \\[)\]] )*+"
_NEXT = r"\(?\ ?-?\ ?(?:\\?[$€£¥₹])?\ ?\.?[0-9]"  # an operand: a digit after any brackets, sign and currency
_COUNT = (
    r"(?:(?:two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|thirteen|fourteen|fifteen|sixteen|seventeen"
    r"|eighteen|nineteen|twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety)\b"
    r"|(?:an?|one)[\ -](?:half|third|quarter|fourth|fifth|cent|penny|hundred|thousand)\b|half\b)"
)
_HEDGE = r"(?:maybe|perhaps|possibly|probably|potentially|otherwise|else|alternatively|either|vs\b\.?|versus)"
_UNIT = r"(?:hours?|hrs?|h|minutes?|mins?|days?|weeks?|months?|years?|dollars?|feet|foot|ft|pounds?|lbs?|yards?)"
_LATEX = (
    r"text|math|mbox|operatorname|quad|qquad|circ|degree|ldots|dots|cdots|end\b|right|left|boxed|displaystyle|n\b|square|"
    r"blacksquare|therefore|implies|Rightarrow|rightarrow|to\b|hspace|vspace|newline|par\b|[$%)\],;!:&\"\\ ]"
)
_AFTER = re.compile(
    rf"""(?: [0-9] | _+[0-9A-Za-z] | [.,:'’][0-9] | \((?=[-+]?[0-9]) | \*[A-Za-z(\\]
          | -[A-Za-z](?![A-Za-z]) | [ixyzn](?![A-Za-z]) | /[a-zA-Z](?![A-Za-z])  # glued: 1.2.3, 6:30, 5(2), 5*x, 2x
          | \}}\ ?\{{ | \ ?(?:\.\.++|…)\ ?{_NEXT} )
      | {_CLOSE} (?:\ |\\[,;:!\ ])*+ (?:
            \.?[0-9] | [+×÷^±√πΠ∗²³⁰¹⁴-⁹](?!\ ?\{{?\ ?\\circ) | [{"".join(_VULGAR)}]
          | (?:[-—/~]|\*\*?|\?++)\ ?{_NEXT} | [-—/*]\ ?\\(?:[dtc]?frac|sqrt|times|cdot|pi)
          | [xX]\ ?[0-9(] | [<>≤≥≠≈]\ ?{_NEXT} | :[0-9] | (?<=\ ):\ [0-9]
          | \\(?!{_LATEX})
          | (?:[,;|]|,?\ ?\b(?:or|and|to|through|minus|plus|times|divided\ by|multiplied\ by|over)\b|&)\ ?{_NEXT}
          | (?:[A-Za-z]{{1,20}}\ ){{1,2}}and\ {_NEXT}  # 2 hours and 30 minutes
          | [A-Za-z]{{1,20}}\ or\ {_NEXT}[0-9.,]*+(?!\ ?[A-Za-z])  # 5 eggs or 6, but 90 minutes or 1.5 hours
          | (?P<same>[A-Za-z]{{1,20}})\ or\ {_NEXT}[0-9.,]*+\ ?(?P=same)\b
          | (?:[A-Za-z]{{1,20}}\ ){{1,3}}(?:[×*+÷]\ ?|(?:minus|plus|times)\ ){_NEXT}  # 4 boxes × $5
          | -?{_UNIT}\ (?!\(){_NEXT}  # 2 hours 30, but 1.5 hours (90 minutes)
          | (?i:pi|[xyzn]|squared|cubed|factorial|choose|mod|modulo)(?![A-Za-z'’]) | (?:(?<=%)|(?<=%\ ))of\ {_NEXT}
          | (?:percent\ of|(?:less|more|fewer|greater)\ than|(?:in|de)creased\ by|reduced\ by|raised\ to)\ {_NEXT}
          | (?:[A-Za-z]{{1,20}}\ ){{0,2}}(?:and|or)\ {_COUNT}                # and a half, and fifty cents
          | (?:plus|minus|times|to|over)\ {_COUNT}
          | (?:[A-Za-z]{{1,20}}\ ){{0,2}}or\ (?:more|less|fewer|greater|above|below|over|under|so)\b
          | (?:[A-Za-z]{{1,20}}(?:\ |(?=[,;]))){{0,2}}[,;(]?\ ?(?:(?:or|and|but)\ )?{_HEDGE},?\ (?:{_NEXT}|{_COUNT})
          | (?:[A-Za-z]{{1,20}}\ ){{0,2}}(?:if|unless|when)\b
              [^\n]{{0,80}}?(?:\botherwise\b|\belse\b|,\ (?:and\ |or\ )?{_NEXT})
          | (?:[A-Za-z]{{1,20}}(?:\ |(?=,))){{0,2}},?\ ?(?:but|no)\b,?
              \ (?:(?:it\ )?(?:could|may|might)\ (?:also\ )?be\ )?{_NEXT}
          | \?\ (?i:no|or)\b,?\ {_NEXT} | (?:-->?|->|→|⇒)\ ?{_NEXT}
          | (?:[A-Za-z]{{1,20}}\ )?(?:otherwise|else)\b
          | (?:is|was)(?:n['’]t|\ not|\ never|\ wrong|\ incorrect)\b
          | \(\ ?(?:(?:or|and)\ )?{_NEXT}[0-9.,]*+\ ?\)                      # 18 (20)
          | \\(?:text|mbox|mathrm|textbf)\{{\ ?(?:[A-Za-z]{{1,20}}\ ){{0,2}}(?:or|and|to|{_HEDGE})\b[\ }}$]*+{_NEXT}
          | \\(?:\\|q?quad\b|newline\b)\ *+{_NEXT}
          | ,\ ?(?:[xyzn](?![A-Za-z'’])|\\infty)
        )""",
    re.VERBOSE,
)
_EQUATION = re.compile(rf"{_CLOSE}\ *+=", re.VERBOSE)
_OPERATOR_BEFORE = re.compile(
    r"""(?: \b(?:increased\ by|decreased\ by|reduced\ by
              |times|plus|minus|divided\ by|multiplied\ by|over|mod|choose|twice|double|triple|thrice|half
              |(?:half|third|quarter|fourth|root|square|cube|factorial|log|logarithm|percent)\ of)
          | %\ of
          | [0-9]\S{0,3}(?:\ (?!or\b|and\b|to\b)[A-Za-z]{1,12}){0,1},?
              \ (?:or|to|(?:or\ )?(?:maybe|perhaps|possibly|probably|vs\.?|versus))
          | [0-9][^\s,.;:]{0,3}\ and )\ \Z""",
    re.IGNORECASE | re.VERBOSE,
)
_CHANGED = re.compile(
    r"\b(?:gr[eo]w|r[io]s|f[ae]ll|went|go|increas|decreas|drop|chang|rais|reduc|lower)[a-z]*"
    r" [^.]*\b(?:from|by) [^.]*\bto (?:about )?\$?\Z",
    re.IGNORECASE,
)
_CHANGED_BY = re.compile(
    r"[^0-9]*\b(?:is|are|was|were|been|be|gets?|got) (?:in|de)?(?:creas|reduc)ed by (?:about |exactly )?\$?\Z",
    re.IGNORECASE,
)
"""The change itself is what is asked for: `so the price was reduced by 25%`, but not `20 was reduced by 5`."""
_PERCENT = re.compile(r"[0-9][0-9.]*\ ?(?:%|percent)")
_FUNCTION = r"(?:sqrt|cbrt|log|ln|lg|exp|(?:arc)?(?:sin|cos|tan)|pi)"
MARKUP = (
    r"(?:(?:text|math|mbox|boxed|fbox|displaystyle|left|big|Big|q?quad|approx|therefore|implies|underline|color"
    r"|[Rr]ightarrow|[Ll]arge|huge|hspace)[A-Za-z]*|to|bf|rm|n)"
)
"""Commands of LaTeX that change how a number looks, not which it is; what an `approx` or an arrow leads to is read."""
_NOT = r"(?:\b(?:not|never|cannot|neither|nor|except)|n['’]t)\b"
_FALSE = rf"{_NOT}(?:\ (?:equal|to|be|been|exactly|just|simply|really|necessarily|always|a|the|only)){{0,3}}"
_THAN = r"\b(?:less|more|fewer|greater|larger|smaller|bigger|higher|lower|other|rather)\ than(?:\ or\ equal\ to)?"
_BOUND = r"\b(?:(?<!so\ )at\ most|at\ least|under|above|below|up\ to|no\ more|exceeds)"
_LIMIT = re.compile(
    r"\b(?:needs?|must|ha(?:s|ve|d)\ to|should|required?|afford|buy|makes?|can|could|round(?:s|ed)?)\b", re.IGNORECASE
)
"""With these a bound is what is asked for: `she needs at least 9 points`, `so he can buy at most 3`."""
_ABOUT = r"(?:\ (?:about|exactly|around|just))?[\ ({\[$}]*\Z"
_FALSE_BEFORE = re.compile(rf"(?:{_FALSE}|{_THAN}){_ABOUT}", re.IGNORECASE)
_BOUND_BEFORE = re.compile(rf"(?:{_BOUND}){_ABOUT}", re.IGNORECASE)
_APPLIED = re.compile(
    rf"""(?: [A-Za-z0-9)}}]\( | (?:^|[^A-Za-z0-9])[-+]\ ?[(\[{{]+ | \}}\ ?\{{ | \^\ ?[({{]? | [A-Za-z]_\{{
          | [√∛∜∑∏∫π!]\ ?[({{]?
          | \\(?!{MARKUP}(?![A-Za-z]))[A-Za-z]+\ ?(?:\[[^\]]{{0,5}}\])?[({{|\[]?\ ? | (?<![A-Za-z]){_FUNCTION}\ [({{]?
          | [0-9](?:\ ?~|\ \(|\ ?\\\\)\ ? | (?<![.0-9])[0-9]+\ ?(?:→|->)\ ? | (?:or|and)\ ?\}}\ ?
          | (?<![A-Za-z'’.])[b-z]\ ?[-—*]\ ? | (?<!:[0-9])[0-9],\ | [<>!]\ ?=\ ? | [<≤≥≠±∓]\ ? | \\(?:neq?|not)\ ?=?\ ?
        )[\ $]?\Z""",
    re.VERBOSE,
)
_TERM_BEFORE = re.compile(r"[0-9][^\n.,;:=]{0,24}\Z")


def plain(text: str) -> str:
    """Return the text, character for character, with look-alikes made one: minus signs, blanks, digits, slashes."""
    for odd in _ODD.intersection(() if text.isascii() else _RARE.findall(text)):
        text = text.replace(odd, _SAME[ord(odd)])  # faster than `translate`: few characters are odd
    return text


def value(found: re.Match[str]) -> Number | None:
    """Return the exact value of a match of `CORE`; None where it has none (too long, a denominator of 0)."""
    start, end = found.span()
    if end - start > MOST_CHARACTERS:
        return None
    if found.lastgroup == "plain" and (digits := found["plain"]).isdigit():
        return int(digits)  # the most usual case, and fast
    get = found.group
    result: Number
    try:
        if (text := get("plain")) is not None:
            power = int(get("power") or get("ten") or get("ten1") or 0)
            if abs(power) > _MOST_POWER:
                return None
            result = _decimal(text)
            if power:
                result *= Fraction(10) ** power
        elif (comma := get("comma")) is not None:
            result = _decimal(comma.replace(".", "").replace(",", "."))
        elif (whole := get("whole")) is not None:
            result = _whole(whole)
            if (over := get("over")) is not None:
                result = Fraction(result, _whole(over))
            elif (vulgar := get("mixvulgar")) is not None:
                result += _VULGAR[vulgar]
            else:
                top = get("mixtop") or get("mtop") or get("mtop1")
                part = Fraction(int(top), int(get("mixbottom") or get("mbottom") or get("mbottom1")))
                if not 0 <= part < 1:
                    return None  # `2 7/4` is no mixed number
                result += part
        elif (vulgar := get("vulgar")) is not None:
            result = _VULGAR[vulgar]
        else:
            result = Fraction(int(get("top") or get("top1")), int(get("bottom") or get("bottom1")))
    except ZeroDivisionError:
        return None
    size = get("word") or get("letter")
    return result * 10 ** _WORDS[size.lower()] if size else result


_START = fast_re.compile(
    rf"""(?P<plain>[0-9]+)(?!  # digits alone are the whole number, unless `CORE` may find that it goes on:
            [0-9eE%:'’_{{\\{"".join(_VULGAR)}] | [.,][0-9\\] | -\\ | \ (?:[0-9\ ]|and\ )
          | \ ?(?:/\ ?[0-9] | [×*xX]\ ?10 | [kKMB](?![A-Za-z0-9]) | mn | bn | (?i:{_SIZE}) | [%\\{"".join(_VULGAR)}])
        ) | [0-9{"".join(_VULGAR)}] | \.[0-9] | \\[dtc]?frac""",
    fast_re.VERBOSE,
)
"""Where a number begins; a plain one is found whole, several times as fast as by `CORE`, and with its group `plain`."""


def numbers_in(text: str, start: int, stop: int) -> Iterator[re.Match[str]]:
    """Yield what `CORE` finds between two places, from the left, none twice."""
    while (place := _START.search(text, start, stop)) is not None:
        plain_one = cast("re.Match[str]", place) if place["plain"] else None
        core = plain_one or CORE.match(text, place.start(), stop)
        if core is not None:
            yield core
        start = place.start() + 1 if core is None else core.end()


def _whole(text: str) -> int:
    return int(text if text.isdigit() else "".join(filter(str.isdigit, text)))


def _decimal(text: str) -> Number:
    whole, _, digits = text.partition(".")
    number = _whole(whole or "0")
    digits = digits.rstrip("0")
    return number + Fraction(int(digits), 10 ** len(digits)) if digits else number


def visible(text: str) -> tuple[str, list[int] | None]:
    """Return the text without what is invisible, and the place of each character left; None where nothing was."""
    if text.isascii() or INVISIBLE.isdisjoint(_RARE.findall(text)):
        return text, None
    places = [at for at, character in enumerate(text) if character not in INVISIBLE]
    return "".join(text[at] for at in places), places


@lru_cache(maxsize=4096)
def read(text: str) -> Number | None:
    """Return the value of a text that is one number and nothing else but currency, percent and blanks; else None."""
    text = plain(visible(text)[0]).strip()
    found = _WHOLE.fullmatch(text) if len(text) <= 2 * MOST_CHARACTERS else None
    if found is None:
        return None
    core = CORE.match(text, found.start("core"))
    alone = core is not None and core.end() == found.end("core") and core["comma"] is None
    number = value(core) if core is not None and alone else None
    return None if number is None else signed(number, f"{found['sign'] or ''}{found['sign2'] or ''}")


_WHOLE = re.compile(
    rf"(?P<sign>{SIGN})?(?:{CURRENCY}\ ?)?(?P<sign2>[-+])?(?P<core>[0-9.\\½-¾⅐-⅞].*?)(?:\ ?{CURRENCY}|\.)?", re.VERBOSE
)


def signed(number: Number, sign: str) -> Number | None:
    """Return the number with its sign, as written before it; None for more than one sign."""
    sign = sign.strip()
    if sign in ("", "+"):
        return number
    return -number if sign in ("-", "minus", "negative") else None


def after(text: str, end: int) -> str:
    """Say why a number that ends at `end` is only the beginning of something longer; empty if it is not.

    `=` is for the caller, who knows which side of an equation is meant.
    """
    if end == len(text) or text[end] == "\n" or (text[end] == "." and end + 1 == len(text)):
        return ""
    if _AFTER.match(text, end):
        return "only the beginning of a longer number or expression"
    return "=" if _EQUATION.match(text, end) else ""


@dataclass(frozen=True, slots=True)
class Before:
    """What stands before a number.

    Attributes:
        start: Where the number begins, with its sign and currency.
        sign: Its sign as written; empty for none.
        glued: Whether it is a part of a word, such as the 4 of `A4`: no number at all.
        problem: Why it is only the end of something longer; empty if it is not.
    """

    start: int
    sign: str = ""
    glued: bool = False
    problem: str = ""


_MONEY = re.compile(rf"(?:(?<![A-Za-z0-9])|(?=[\\$€£¥₹]))(?:{CURRENCY}) ?\Z")
_NO_CURRENCY = frozenset("abcdefghijklmnopqrtuvwxyz0123456789=+(,:;")
"""Characters with which no currency ends, but for a command of LaTeX."""
_SIGNED = re.compile(r"(?<![A-Za-z])(?:negative|minus) \Z", re.IGNORECASE)
_PART = "only the end of a longer expression"


def before(text: str, start: int) -> Before:
    """Look at what stands before a number that starts at `start`, at most a few dozen characters."""
    begin, sign = start, ""
    for _ in range(4):  # currency and one sign, in either order
        previous = text[begin - 1] if begin else "\n"
        if previous in "\n":
            return Before(begin, sign)
        if not sign and previous in "+-":
            begin, sign = begin - 1, previous
        elif (
            previous == " "
            and text[begin - 2 : begin - 1] in _NO_CURRENCY
            and "\\" not in text[max(0, begin - 14) : begin]
        ):
            break
        elif (money := _MONEY.search(text, max(0, begin - 14), begin)) is not None:
            begin = money.start()
        else:
            break
    previous = text[begin - 1] if begin else "\n"
    if (
        not sign
        and previous == " "
        and text[begin - 2 : begin - 1] in "sSeE"
        and (word := _SIGNED.search(text, max(0, begin - 10), begin)) is not None
    ):
        sign, begin = word[0].strip().lower(), word.start()
        previous = text[begin - 1] if begin else "\n"
        if sign == "minus" and _TERM_BEFORE.search(text, max(0, begin - 26), begin):
            return Before(begin, problem=_PART)
    if previous == "_":  # `_18_` is markup, `x_18` a name
        head = text[max(0, begin - 3) : begin].rstrip("_")
        previous = head[-1:] if head[-1:].isalnum() else "'"
    if previous.isalnum() or previous in ".)}%'":
        if sign or previous in ")%" or (previous == "}" and text[begin - 2 : begin - 1].isdigit()):
            return Before(begin, problem=_PART)  # 10-5, x-5, (2)5
        return Before(begin, glued=previous not in "}'")
    if sign and previous in "+-/×÷^":
        return Before(begin, problem=_PART)
    return Before(begin, sign, problem=_spaced(text, begin, bool(sign)))


TELLING = frozenset(
    re.findall(
        r"\w+",
        """about above a always and arccos arcsin arctan around at be been below by cannot cbrt choose cos double equal
        exactly except exceeds exp half just least lg ln log maybe minus mod more most necessarily neither never nor
        not of only or over perhaps pi plus possibly probably really simply sin sqrt tan than the thrice times to
        triple twice under versus vs""",
    )
)
"""Words before a number that may tell that it is a part of something, or not meant."""


def _spaced(text: str, begin: int, has_sign: bool) -> str:
    """Find an operator, or another number, before the blanks that stand before a number."""
    head = text[max(0, begin - 40) : begin]
    line = head[head.rfind("\n") + 1 :]
    bare = line.rstrip(" *`_\"'([{$")
    marks = line[len(bare) :]
    word = bare[bare.rfind(" ") + 1 :]
    if marks == " (" and _PERCENT.match(text, begin):
        return ""  # 1 in 4 (25%)
    plain_word = word.isalpha() and word.isascii() and marks in (" ", " $", "$") and "\\" not in line
    if plain_word and word.lower() not in TELLING:
        return ""  # no pattern below ends with such a word
    if "\\" not in line and (bare[-2:] == ">>" or (bare[-1:] == "=" and bare[:-1].rstrip()[-1:] not in "<>!")):
        return ""  # nor with a sign of equality, or with a calculator's note
    if _APPLIED.search(line) or _FALSE_BEFORE.search(line) or (_BOUND_BEFORE.search(line) and not _LIMIT.search(line)):
        return _PART  # sqrt(18), x - 18, \\leq 18, not 18, at most 18
    if not bare:
        return ""
    last = bare[-1]
    operand = last.isdigit() or last in ")%}"
    if "*" in marks and (operand or last.isalnum()):
        opens = marks[0] == " " and marks[-1] != " "  # `makes **18**` is markup, `9 * 2` and `x*2` are products
        return "" if opens and not operand else _PART
    if last in "+×÷/^±∗<≤≥≠" or (last == ">" and bare[-2:-1] not in ("", ">", "-", "=")):
        return _PART if len(bare) > 1 else ""
    if last in "-—" and _TERM_BEFORE.search(bare, 0, len(bare) - 1):
        return _PART
    if last in ",:" and (
        bare[-2:-1].isdigit() and not marks if bare[-2:-1] != " " else last == ":" and bare[-3:-2].isdigit()
    ):
        return _PART  # 6:30, 3 : 4, 3,5
    if (last.isdigit() and (marks.strip() in ("", "$") or marks == "(")) or (has_sign and operand):
        return _PART  # two numbers in a row; with a sign, a difference
    if line[-1:] != " " or not _OPERATOR_BEFORE.search(line) or _CHANGED.search(line) or _CHANGED_BY.match(line):
        return ""
    return "" if line.endswith(", or ") and _PERCENT.match(text, begin) else _PART  # 3 in 4, or 75%


_BOX_OR_BOX = re.compile(r"\}[$ )]*(?:\\text\{ *)?(?:,|\bor\b|\band\b)[ }$]*\Z")
_MINUS_BEFORE = re.compile(r"(?:-|[^A-Za-z\s]\s*- )[$({]*\Z")


def before_box(text: str, start: int) -> str:
    """Say why a box that starts at `start` holds only a part of the answer; empty if it does not."""
    head = text[max(0, start - 40) : start]
    line = head[head.rfind("\n") + 1 :]
    bare = line.rstrip(" $({[")
    wrong = (
        (bare and bare[-1] in "+×÷/^±∓<≤≥≠√")
        or _APPLIED.search(line)
        or _FALSE_BEFORE.search(line)
        or _OPERATOR_BEFORE.search(line)
        or _MINUS_BEFORE.search(line)
        or _BOX_OR_BOX.search(line)
    )
    return _PART if wrong else ""
