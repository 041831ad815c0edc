"""One spelling for what is written in many: a linear pass over the text of an answer, before anything is parsed."""

from __future__ import annotations

import re

from tasks.assertions.math.notations import in_words, notations

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
