"""How the closing sentence of a reply without a marker names its answer: what follows the answer there is left out.

The last number of a reply need not be its answer: `366 downloads over the 3 months`, `20 laps (40 lengths)`, `63 m^2`,
`so 3 are left. Check: 9 + 3 = 12`. Each rule cuts words that only explain the number before them. Where none applies
with certainty nothing is cut, and the last number stands.

Three things come before that. Whole sentences behind the answer are left out where they are side remarks: in brackets,
about what would be if something were otherwise, notes and offers, or the reasons for an answer that came first. A
reply that says that it has no answer has none, whatever numbers it names. And a sentence that says its number in words
is read with digits for them.
"""

from __future__ import annotations

import re
from fractions import Fraction

from regex import Match

from tasks.answers.number_words import WORD, number_in_words
from tasks.answers.numbers import CURRENCY, Number, after, before, numbers_in, value

WINDOW = 400
"""Characters at the end of a reply that are looked at."""
REMARKS = 700
"""Characters at the end in which side remarks, refusals and numbers in words are looked for."""
MOST_CUTS = 8

_SENTENCE = re.compile(r"(?<=[.!?:])(?<!\bMr\.)(?<!\bMrs\.)(?<!\b[MD][sr]\.)(?<!\bSt\.)[\s*_]+(?=[A-Z*_\"“(])|\n")
_AFTERTHOUGHT = re.compile(
    r"""[\s*_>-]*(?:so\ )?(?:hmm\b|(?:(?:double|quick|sanity)[- ])?check(?:ing)?\b|verif(?:y|ying|ication)\b|proof:
          |(?:let\ me|let['’]s|we\ can|i\ can|you\ can|to|as\ a)\ (?:(?:just|also|double|quickly)[\ -])?
              (?:check|verify|confirm)\b
          |(?:this|that|it|which)\ is\ (?:also\ )?(?:the\ same\ as|equivalent\ to)\b(?![^\n]*=))""",
    re.VERBOSE | re.IGNORECASE,
)
_CONFIRMED = re.compile(
    r"\bso (?:it['’]s|it is|that['’]s|that is|this is|the answer is) (?:correct|right)\b", re.IGNORECASE
)
_REVISED = re.compile(
    r"n['’]t\b|\b(?:not|no|wrong|actually|instead|should|must|mistake|incorrect|answer|so|therefore|thus|hence|but)\b",
    re.IGNORECASE,
)
_FINITE = r"""(?:is|are|was|were|be|been|has|have|had|do|does|did|will|would|can|could|gives?|gave|makes?|made|leaves?
    |leaving|equals?|gets?|got|costs?|earns?|needs?|takes?|sells?|pays?|spends?|buys?|eats?|holds?|contains?|weighs?
    |becomes?|remains?|totals?|receives?|uses?|wants?|goes|went|who|which|so|then|thus|hence|therefore|but|or|nor|not
    |minus|plus|times|divided|multiplied|increased|decreased|reduced|squared|cubed|only|maybe|perhaps|otherwise|least
    |most|about|above|below|under)"""
_WORD = rf"(?!{_FINITE}\b)[A-Za-z][A-Za-z'’./-]*"
_CONCLUDED = (
    r"(?:so|then|thus|hence|therefore|which|who|that|but|or|and|nor|not|n['’]t|minus|plus|times|divided|multiplied)"
)
_LOOSE = rf"(?!{_CONCLUDED}\b)[A-Za-z][A-Za-z'’./-]*"
"""A word after a number that stands right behind a sign of equality: what follows it is a sentence around a result."""
_ARTICLE = r"""(?:the|a|an|all|each|every|his|her|their|its|our|my|your|these|those|this|last|next|first|past|other
    |another|of|both|one|original|initial|starting|total|whole|entire|full|[A-Za-z]+ing|[A-Za-z]+(?:'s|’s))"""
_ADJUNCT = rf"""(?: (?<!\ )\ (?:(?:in|after|for|within|during|from|on|among|amongst|out\ of|with|throughout|across|of|at
              |by|until|upon|between|against|before)(?:\ {_ARTICLE}){{0,4}}
              |(?:every|each|per)|to\ (?!the\b|a\b|about\b)(?:[A-Za-z]+)(?:\ {_WORD}){{0,4}})
          | (?<=[A-Za-z*_])\ over(?:\ {_ARTICLE}){{0,4}} | ,\ of\ which
          | ,?\ (?:compared|in\ comparison|as\ opposed|relative)\ (?:to|with)(?:\ {_ARTICLE}){{0,4}}
          | ,\ (?:up\ |down\ )?from(?:\ {_ARTICLE}){{0,4}} )
        [ *_]+(?:{CURRENCY})?"""
_AFTER_ANSWER = re.compile(rf"""(?:[*_"”’)\]]*\ {_WORD})*?[*_"”’)\]]*{_ADJUNCT}""", re.VERBOSE | re.IGNORECASE)
_AFTER_RESULT = re.compile(
    rf"""(?:[*_"”’)\]]*\ {_LOOSE})*?[*_"”’)\]]*(?:{_ADJUNCT}|\ (?:more|less|fewer)\ than\ )""",
    re.VERBOSE | re.IGNORECASE,
)
_CLAUSE = re.compile(
    rf""",?\ (?:(?:because|since|becos|becuz|cuz)\ (?!then\b)
              (?:(?!\ (?:so|then|thus|hence|therefore|must|[→⇒])\ )[^=\n])+
          |(?:if|when|while|after)(?:\ {_LOOSE})+\ (?:{CURRENCY})?[0-9][0-9.,/]*(?:\ {_LOOSE})*)[\s.!*)]*""",
    re.VERBOSE | re.IGNORECASE,
)
_FROM_TO = re.compile(
    rf",?\ (?:up\ |down\ )?from\ {CURRENCY}?\ ?[0-9][0-9.,]*(?:\ {_WORD}){{0,2}}\ to\ {CURRENCY}?\ ?", re.VERBOSE
)
_SIDE_REMARK = re.compile(
    r"""[;,]\ (?:that|this|which)(?:['’]s|\ is)\ [^=\n;]*\b(?:more|less|fewer)\ than\ [^=\n0-9;]*\Z""",
    re.VERBOSE | re.IGNORECASE,
)
"""A comparison behind the answer: `; that is 180 more than before`."""
_GOES_ON = re.compile(
    r"[=?]|n['’]t\b|\b(?:so|then|thus|hence|therefore|which|but|or|and|answer|leav\w+|giv\w+|mak\w+|total\w*|equal\w*"
    r"|needs?|must|should|would|actually|instead|not|has|have|had|(?:is|are) (?!needed|required|spent))\b",
    re.IGNORECASE,
)
"""Words between two numbers with which the second may be what is concluded."""
_WORDS = re.compile(rf"(?:\ {_WORD})+\ ", re.VERBOSE)
_ASIDE = re.compile(r" \([A-Za-z -]{1,40}\)")
_LATER = re.compile(r"\ (?:years?|months?|weeks?|days?|hours?|minutes?)\ (?:ago|from\ now|later|earlier)\b")
_AND = re.compile(rf"(?:\ {_WORD}){{1,6}},?\ and\ (?:{CURRENCY})?", re.VERBOSE | re.IGNORECASE)
_GIVEN = re.compile(
    r"\b(?:the|(?<!\bin\ )all|his|her|their|its|these|those|each of|every|per)\ (?:[a-z]+\ )?\Z", re.IGNORECASE
)
_RESULT = re.compile(rf"=\s?(?:{CURRENCY}\ ?)?(?=[0-9])", re.VERBOSE)
_UNIT_POWER = re.compile(
    r"(?:(?<=[0-9]\ )|(?<=[0-9]))(?:k?m|cm|mm|ft|in|yd|mi|inches|feet|yards|met(?:er|re)s|units)\^\{?\Z"
)
_OTHER_UNIT = re.compile(
    rf"\ (?P<one>[A-Za-z]+),?\ (?:or|which\ is|i\.e\.,?|that\ is)\ (?P<money>{CURRENCY})?\ ?", re.VERBOSE
)
_CONVERSIONS = frozenset(map(Fraction, (3, 7, 10, 12, 16, 24, 60, 100, 365, 1000, 3600)))
_NUMBER_WORD = re.compile(r"(?:[0-9]|teen|ty|\b(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve)) \Z")


_LAST = re.compile(
    r"= ?\$?[0-9](?:,?[0-9])*(?:\.[0-9]+)?(?:>>\$?[0-9](?:,?[0-9])*(?:\.[0-9]+)?)?"
    r"(?:[ *.]|[a-z]{1,20}(?=[ *.])|[a-z]{1,20}\Z)*\Z"
)
_LAST_LENGTH = 80
_HINT = re.compile(r"[Hh]eck|[Cc]onfirm|[Vv]erif|[Pp]roof|[Hh]mm|[Ss]ame as|[Ee]quivalent|[Bb]ecause|[Ss]ince")
"""Without any of these, what stands behind the last sign of equality is the answer: the most usual ending."""


_BULLET = r"[\s*_>#\"“-]*"
_CONCLUDES = re.compile(
    r"\b(?:so|thus|therefore|hence|answer|final(?:ly)?|altogether|in (?:all|total)|total(?:s|ing)?|instead|actually"
    r"|correction|however|meaning|means|leav(?:es|ing)|left|remain\w*)\b|[=→⇒]",
    re.IGNORECASE,
)
"""Words and signs with which a sentence may lead to an answer of its own."""
_NOTE = re.compile(
    rf"""{_BULLET}(?:(?:please|also|do|but)\ )?(?:
        (?:note|notice|remember|keep\ in\ mind|bear\ in\ mind|nb|p\.?s)\b
      | (?:a|one|the)\ (?:common|typical|frequent|usual)\ (?:mistake|error|pitfall)
      | (?:some|one|you|others)(?:\ people)?\ (?:may|might|could)\ (?:also\ )?(?:say|think|argue|read|be\ tempted)
      | (?:for|by|in)\ (?:comparison|reference|context|contrast)
      | interestingly | incidentally | by\ the\ way | fun\ fact
      | as\ an?\ (?:aside|side\ note|percentage|fraction|decimal|percent) | in\ percent
      | (?:(?:this|that|it)(?:\ is|['’]s)\ )?because\b | the\ reason\b
      | (?:i\ )?hope\b | let\ me\ know | feel\ free
      | if\ (?:anything|something)\b | if\ you(?:['’]d)?\ (?:want|like|wish|prefer|have|need\ (?:any|more|help)) )""",
    re.VERBOSE | re.IGNORECASE,
)
"""How a sentence begins that adds something to the answer before it."""
_WOULD = r"(?:\b(?:would|might|could)|['’]d)\b"
_SUPPOSED = re.compile(
    rf"""{_BULLET}(?:
        (?:(?:even|but|of\ course|now|however|also),?\ )?if\b(?!.*\bthen\b).*{_WOULD}
      | had\ [^?]*{_WOULD}
      | (?:for|with(?:out)?|at|in|using|by|an?|one|two|buying|adding)\ .*{_WOULD}
      | .*{_WOULD}\ (?:[a-z]+\ )?have\ [a-z]+.*\bif\b.*\bhad\b
      | .*{_WOULD}.*\b(?:if|with|without)\b.*\b(?:more|another|extra|fewer|less|instead|else)\b )""",
    re.VERBOSE | re.IGNORECASE,
)
"""A sentence about what would be if something were otherwise."""
_CONTRARY = re.compile(
    rf"{_BULLET}(?:even |but )?(?:if\b.*\bhad\b.*{_WOULD}|had (?!to\b)[^?]*{_WOULD})|.*{_WOULD} have .*\bif\b.*\bhad\b",
    re.IGNORECASE,
)
"""One about what was not so."""
_CONCLUDED_BEFORE = re.compile(
    r"\b(?:so|thus|therefore|hence|total|altogether|in all|in conclusion|conclude|left|remain\w*)\b"
    r"|\*\*[^*\n]*[0-9][^*\n]*\*\*",
    re.IGNORECASE,
)
_THEREFORE = re.compile(rf"{_BULLET}(?:thus|therefore|hence|in conclusion|finally)\b", re.IGNORECASE)
_NOTE_LABEL = re.compile(
    r"(?<=[\s*_(])(?:(?:side |foot)?note|tip|remark|disclaimer|caveat|p\.?s\.?|fun fact|bonus|extra|reminder|nb"
    r"|n\.b\.)[*_ ]*:[\s*_]*\Z",
    re.IGNORECASE,
)
_ORDINAL = re.compile(r"\b[0-9]+(?:st|nd|rd|th)\b")
_CHECKED = re.compile(
    r"(?:,? as (?:required|given|stated|expected|needed|the problem (?:says|states))"
    r"|, which (?:matches|agrees|checks out)"
    r"|, (?:which|that) is (?:what|correct|right)\b|[✓✔])[^=0-9\n]*\Z",
    re.IGNORECASE,
)
"""The end of a sentence that puts the answer to the test."""
_REFUSED = re.compile(
    r"""(?:\bnot|n['’]t|\bno)\ (?:[a-z]+\ )?enough\ (?:information|info|data|details)
      | \binsufficient\ (?:information|data|details)
      | (?:\bcannot|\bcan['’]t|\bcan\ not|\bunable\ to|\b(?:im|not\ )possible\ to
          |\bno\ way\ (?:to|of)|\b(?:hard|difficult)\ to)
        (?:\ (?:be|really|possibly|definitively|exactly|actually|accurately|reliably|fully))*
        \ (?:determin|say|tell|know|solv|answer|comput|calculat|figur|work(?:ed|ing)?\ out|provide|give)[a-z]*
      | \b(?:need|requir|provid|miss)[a-z]*\ (?:me\ with\ )?(?:more|further|additional|some|key|the\ missing)
        \ (?:information|info|data|details|context)
      | \b(?:i['’]m|i\ am)\ not\ (?:sure|certain) | \bi\ do(?:n['’]t|\ not)\ know
      | \b(?:only|just|merely|purely)\ (?:be\ )?a\ (?:wild\ )?guess
    """,
    re.VERBOSE | re.IGNORECASE,
)
_HEDGED = re.compile(
    r"\b(?:if|would|might|could|may|guess\w*|perhaps|maybe|suppose|whether|or|for example|say)\b|['’]d\b", re.IGNORECASE
)
_EXPLANATION = re.compile(
    rf"\n{_BULLET}(?:explanation|reasoning|justification|why|here['’]?s (?:why|how)|how (?:i|we) got)\b", re.IGNORECASE
)
_BOLD = re.compile(r"\*\*(?=[^*\n]*[0-9])[^*\n]+\*\*")
_LABEL = re.compile(r"\*\*\W*(?:(?:step|part|day|week|phase|case)\b|[0-9]+[.):])|:\W*\Z", re.IGNORECASE)
"""Bold words that are a heading, not an answer."""
_FRAGMENT = re.compile(
    rf"""(?:{_BULLET}answer\W*\n)?\W*?(?:{CURRENCY})?
        (?:[0-9][0-9,]*(?:\.[0-9]+)?|(?!an?\b)(?:{WORD})\b(?:[\ -](?:{WORD})\b)*)
        (?:\ (?!of\b)[A-Za-z]+){{0,2}}[*_]*(?:[.!](?=\s)|\n)""",
    re.VERBOSE | re.IGNORECASE,
)
"""A reply that begins with its answer and nothing else: a number and its unit."""
_CLOCK = re.compile(r"\b[0-9]{1,2}(?::[0-9]{2})?\ ?[ap]\.?m\b|\b[0-9]{1,2}:[0-9]{2}\b", re.IGNORECASE)
_ANY_NUMBER = re.compile(rf"[0-9]|\b(?:{WORD.removeprefix('a|')})\b", re.IGNORECASE)


_REFUSAL_WORDS = (
    "nough", "nsuffic", "nable to", "ossible to", "ard to", "fficult to", "o way", "nformation", " info", "etails",
    "ontext", " data", "uess", "annot", "an't", "an’t", "an not", "m not ", "n't know", "n’t know", "not know",
)  # fmt: skip
"""Without any of these a reply refuses nothing."""
_SUSPECT = frozenset(
    # tests
    {
        "check",
        "checks",
        "checking",
        "verify",
        "verifying",
        "verification",
        "confirm",
        "proof",
        "hmm",
        "same",
        "equivalent",
    }
    # guesses
    | {"if", "would", "might", "could", "may", "guess", "guessing", "guesses", "guessed", "perhaps", "maybe", "suppose"}
    | {"whether", "or", "example", "say"}
    # refusals
    | {"enough", "insufficient", "cannot", "can't", "can’t", "not", "unable", "impossible", "possible", "way", "hard"}
    | {"difficult", "information", "info", "data", "details", "context", "know"}
)
"""Words without which no sentence puts a result to the test, refuses, or is the guess that follows a refusal."""


def unusual(text: str, start: int) -> bool:
    """Whether the result in the last sentence, which starts at a place, may not be the answer of the reply."""
    sentence = text[start:].lower()
    if "**" in sentence:
        return True
    for mark in ",.:()-!?;":
        sentence = sentence.replace(mark, " ")
    if _SUSPECT.isdisjoint(sentence.split()) and "'d" not in sentence and "’d" not in sentence:
        return False
    begin = _sentence_start(text, len(text))
    return begin is None or _AFTERTHOUGHT.match(text, begin) is not None or refused(text)


def concludes(text: str, start: int) -> bool:
    """Whether words from a place on lead to an answer of their own, such as `so` or `in total`."""
    return _CONCLUDES.search(text, start) is not None


def refused(text: str) -> bool:
    """Whether a reply ends by saying that it has no answer: what follows that only supposes or guesses."""
    edge = max(0, len(text) - REMARKS)
    tail = text[edge:]
    if not any(map(tail.__contains__, _REFUSAL_WORDS)):  # faster than a pattern of the same words
        return False
    for found in _REFUSED.finditer(text, edge):
        rest = text[found.end() :]
        if all(_HEDGED.search(part) for part in _SENTENCE.split(rest) if _ANY_NUMBER.search(part)):
            return True
    return False


def remarks_start(text: str) -> int:
    """Return where the side remarks behind the answer begin: the length of the text where there are none."""
    end = len(text)
    for _ in range(MOST_CUTS):
        start = _remark(text, end)
        if start is None:
            break
        end = start
    claimed = _claimed_before(text, end)
    return end if claimed is None else claimed


def _remark(text: str, end: int) -> int | None:
    """Where the last sentence with a number begins, if it is a side remark behind another number."""
    edge = max(0, end - REMARKS)
    starts = [found.end() for found in _SENTENCE.finditer(text, edge, end)]
    stop = end
    for start in reversed(starts):
        sentence = text[start:stop].strip()
        if not (_DIGIT.search(sentence) or _ANY_NUMBER.search(sentence)):
            stop = start
            continue
        if not (_DIGIT.search(text, edge, start) or _ANY_NUMBER.search(text, edge, start)):
            return None
        if _stands_apart(sentence):
            return start
        if _CONCLUDES.search(sentence):
            return None
        label = _NOTE_LABEL.search(text, edge, start)
        if label is not None:
            return label.start()
        begin = next((at for at in reversed(starts) if at < start and _ANY_NUMBER.search(text, at, start)), edge)
        first = begin == 0 or (edge == 0 and not _ANY_NUMBER.search(text, 0, begin))
        return start if _only_adds(sentence, text[begin:start], _last_result(text, start), first) else None
    return None


def _stands_apart(sentence: str) -> bool:
    """Whether a sentence is in brackets, or puts the answer to the test."""
    bare = sentence.strip(" *_.!\n")
    if bare.startswith("(") and bare.endswith(")") and ")" not in bare[:-1]:
        return True
    if not any(map(sentence.__contains__, (", ", " as ", "✓", "✔"))):
        return False
    return _CHECKED.search(sentence) is not None and not _THUS.search(sentence)


def _only_adds(sentence: str, previous: str, result: Number | None, first: bool) -> bool:
    """Whether a sentence that concludes nothing only adds to the one before it, which may be the first with a number.

    `result` is what was computed last before it.
    """
    if _NOTE.match(sentence) or _CONTRARY.match(sentence) or not _ANY_NUMBER.search(_CLOCK.sub("", sentence)):
        return True
    stated = result is not None and any(value(core) == result for core in numbers_in(previous, 0, len(previous)))
    concluded = stated or _CONCLUDED_BEFORE.search(previous) is not None
    if (concluded or first) and _SUPPOSED.match(sentence):
        return True
    if _THEREFORE.match(previous) and not _COMPUTED.search(sentence):
        return True
    return concluded and not _ANY_NUMBER.search(_ORDINAL.sub("", sentence))


_COMPUTED = re.compile(
    r"\b(?:equals?|plus|minus|times|divided|multiplied|gives?|makes?|more|still|another|rest|difference)\b",
    re.IGNORECASE,
)
_THUS = re.compile(r"\b(?:so|thus|therefore|hence|answer)\b", re.IGNORECASE)


def _claimed_before(text: str, end: int) -> int | None:
    """Where an answer ends that came before its reasons: in bold, as the first words, or above an explanation."""
    edge = max(0, end - REMARKS)
    bold = [found for found in _BOLD.finditer(text, edge, end) if not _LABEL.search(found[0])]
    if bold:
        last = bold[-1]
        rest = text[last.end() : end]
        if not _ANY_NUMBER.search(rest):
            return None
        line = _SENTENCE.search(rest)
        within = rest if line is None else rest[: line.start()]
        if _DIGIT.search(within):
            start = max((found.end() for found in _SENTENCE.finditer(text, edge, last.start())), default=edge)
            led = _THUS.match(text, start + len(text[start:]) - len(text[start:].lstrip(" *_")))
            said = within.replace("=", "") if led else within
            if line is not None or _REASONED.search(said) or not led:
                return None
            return last.end()
        return None if _REASONED.search(rest) else last.end() + (0 if line is None else line.start())
    if edge:
        return None
    first = _FRAGMENT.match(text, 0, end)
    if first is not None and _ANY_NUMBER.search(text, first.end(), end):
        return None if _REASONED.search(text, first.end(), end) else first.end()
    explained = _EXPLANATION.search(text, 0, end)
    if explained is not None and _ANY_NUMBER.search(text, 0, explained.start()):
        return None if _REASONED.search(text, explained.end(), end) else explained.start()
    return None


_REASONED = re.compile(
    rf"{_CONCLUDES.pattern.removesuffix('|[=→⇒]')}"
    rf"|=\s?(?:{CURRENCY})?\s?[0-9][0-9.,/]*[^=\n0-9]*\Z",
    re.IGNORECASE,
)
"""What comes behind an answer and may conclude another one."""


_SPELLED = re.compile(
    rf"(?<![\w-])(?P<words>(?:(?:negative|minus)\ )?(?:{WORD})\b(?:[\ -](?:and\ )?(?:{WORD})\b)*)(?![\w-])",
    re.VERBOSE | re.IGNORECASE,
)
_NO_COUNT = re.compile(
    rf"""(?:\b(?:the|these|those|all|both|each|every|per|any|other|last|first|next|past|no|some|this|that|which|than|his
      |her|their|its|my|our|your|(?<!\btotal\ )of|step|part|into)(?:\ (?!{_FINITE}\b)[a-z]+)?\ |[-/0-9]\ ?)\Z""",
    re.VERBOSE | re.IGNORECASE,
)
"""Before a number in words that counts what is known already."""
_ONE = re.compile(
    r"\b(?:is|are|was|has|have|had|be|leaves?|needs?|gets?|takes?|only|just|exactly|with|gives?|makes?)"
    r"\ (?:only\ |just\ )?\Z",
    re.IGNORECASE,
)
_NO_ONE = re.compile(r"\ (?:of|more|another|who|that|which|way|by|to|and|or)\b", re.IGNORECASE)
_NOT_COUNTED = re.compile(
    r"\ (?:times|more\ than|fewer\ than|less\ than|thirds?|quarters?|halves|fifths?|tenths?|or)\b", re.IGNORECASE
)
_SIDE = re.compile(
    r"\b(?:of|out\ of|in|after|for|with|from|per|each|every|the|these|those|all|both|his|her|their|its)"
    r"\ (?:the\ |all\ |these\ )?\$?\Z",
    re.IGNORECASE,
)
_ATTRIBUTE = re.compile(r"-[A-Za-z]{2}|(?:st|nd|rd|th)\b")
"""Behind a number that says which or of what kind: `the 300-liter tank`, `the 4th bus`."""


def spelled(text: str) -> tuple[str, list[int]] | None:
    """Write the number words of the last sentence in digits, where they are what it states.

    Returns:
        The text, and the place of each of its characters in the old one; None where nothing is to be written so.
    """
    end = len(text)
    edge = max(0, end - REMARKS)
    start = end
    for start in (*reversed([found.end() for found in _SENTENCE.finditer(text, edge)]), edge):
        if text.find("=", start, end) >= 0 and _DIGIT.search(text, start, end):
            return None
        if any(_counts(text, found) for found in _SPELLED.finditer(text, start, end)):
            break
        if _DIGIT.search(text, start, end):
            return None
        end = start
    else:
        return None
    if "=" in text[start:end]:
        return None
    clocks = [found.span() for found in _CLOCK.finditer(text, start, end)]
    for core in numbers_in(text, start, end):
        if any(first <= core.start() < last for first, last in clocks):
            continue
        if not (_ATTRIBUTE.match(text, core.end()) or _SIDE.search(text, max(0, core.start() - 20), core.start())):
            return None
    parts: list[str] = []
    places: list[int] = []
    at = 0
    for found in _SPELLED.finditer(text, start, end):
        if not _counts(text, found):
            continue
        digits = str(number_in_words(found["words"]))
        parts += text[at : found.start()], digits
        places += range(at, found.start())
        places += [found.start()] * (len(digits) - 1) + [found.end() - 1]
        at = found.end()
    return "".join((*parts, text[at:])), [*places, *range(at, len(text))]


_DIGIT = re.compile("[0-9]")


def _counts(text: str, words: re.Match[str]) -> bool:
    """Whether number words state a number, and are no pronoun, ordinal, share or what is counted already."""
    number = number_in_words(words["words"])
    start, end = words.span()
    if number is None or 0 < number < 1 or _NOT_COUNTED.match(text, end):
        return False
    head = max(0, start - 30)
    if words["words"].lower() == "one" and (not _ONE.search(text, head, start) or _NO_ONE.match(text, end)):
        return False
    return not _NO_COUNT.search(text, head, start)


def answer_end(text: str) -> int:
    """Return where the answer of a reply ends at the latest: the length of the text where nothing is to be left out."""
    end = len(text)
    hinted = _HINT.search(text, max(0, end - WINDOW)) is not None
    for _ in range(MOST_CUTS):
        if not hinted and _LAST.search(text, max(0, end - _LAST_LENGTH), end):
            break
        cut = _cut(text, end)
        if cut is None:
            break
        end = cut
    return end


def _cut(text: str, end: int) -> int | None:
    """One cut: a place after an earlier number and before the last one; None where the last one may be the answer."""
    start = _sentence_start(text, end)
    if start is None:
        return None
    if _AFTERTHOUGHT.match(text, start, end):
        said = _CONFIRMED.sub("", _AFTERTHOUGHT.sub("", text[start:], count=1))
        return start if start and not _REVISED.search(said) else None
    found = [core for core in numbers_in(text, start, end) if not _is_glued(text, core.start())]
    if len(found) < 2:
        return None
    if _CHECKED.search(text, found[-1].end(), end):
        at = max(text.rfind(mark, found[0].end(), found[-1].start()) for mark in (": ", "; ", " ("))
        if at > 0:
            return at
    clocks = [clock.span() for clock in _CLOCK.finditer(text, start, end)]
    timeless = [core for core in found if not any(first <= core.start() < last for first, last in clocks)]
    if timeless and timeless[-1] is not found[-1] and _AT.search(text, timeless[-1].end(), clocks[-1][0]):
        return timeless[-1].end()
    for clause in _CLAUSE.finditer(text, found[0].end(), end):
        if clause.end() == end or text[clause.end() - 1] == "\n":
            return clause.start()
    last, previous = found[-1], found[-2]
    if (
        _ATTRIBUTE.match(text, last.end())
        and (text[previous.end() : last.start()] == " " or not after(text, previous.end()))
        and not text.endswith("by the ", 0, last.start())
    ):
        return last.start()
    if (restated := _restated(text, start, found)) is not None:
        return restated
    if power := _UNIT_POWER.search(text, max(start, last.start() - 12), last.start()):
        return power.start()
    opened = text.rfind("(", found[0].end(), last.start())
    if opened > 0 and text[opened - 1] == " " and ")" not in text[opened : last.start()]:
        outside = [core for core in found if core.end() <= opened][-1]
        alone = text[opened + 1 : last.start()].strip(" $") == "" and text[last.end() : last.end() + 1] == ")"
        beside = text[outside.end() : opened].strip(" *_.") == "" or _NUMBER_WORD.search(text, start, opened)
        return None if ")" not in text[last.end() : end] or (alone and beside) else opened
    gap = text[previous.end() : last.start()]
    span = _FROM_TO.search(text, found[0].end(), last.start())
    if span and len(found) > 2 and span.end() == last.start() and previous.start() >= span.start():
        return span.start()  # it rose by 300, from 1,500 to 1,800
    if aside := _SIDE_REMARK.search(text, found[0].end(), end):
        named = [core for core in found if core.end() <= aside.start()][-1]
        if _last_result(text, named.end()) == value(named) is not None:
            return aside.start()
    if (stated := _given_after_result(text, found)) is not None:
        return stated
    if (other := _OTHER_UNIT.fullmatch(gap)) and _converted(text, previous, last, other):
        return previous.end()
    at = len(found) - 1
    while at > 1 and _AND.fullmatch(text, found[at - 1].end(), found[at].start()):
        at -= 1  # to make 8 batches of one and 1 batch of the other
    return _without_adjunct(text, start, found[at - 1], found[at])


_LINKED = re.compile(r"[,%:]| [-–—] | or | i\.?e| made | consisting | split ")
_UNIT_WORDS = re.compile(
    r"[%*_)]*(?:[ -][A-Za-z][A-Za-z-]*){0,6}?[*_]*(?=,|:| [-–—] | or | i\.?e| made| consisting| split)"
)
_AT = re.compile(r"\b(?:at|to|from|until|till|by|after|before|around)\ (?:about\ )?\Z", re.IGNORECASE)
_AGAIN = re.compile(
    rf""",?\ (?:or|which\ is|that\ is|that['’]s|i\.?e\.?,?|in\ other\ words,?|equivalent\ to)
         (?P<about>\ (?:about|roughly|around|approximately|nearly|almost|just\ (?:over|under)))?
         \ (?:{CURRENCY})?\ ?""",
    re.VERBOSE | re.IGNORECASE,
)
_SAME_THING = re.compile(r",? (?:i\.?e\.?,?|in other words,?) ", re.IGNORECASE)
_MADE_UP = re.compile(
    r",? (?:or|i\.?e\.?,?|that is,?|namely|made up of|consisting of|comprising|split into) |: | [-–—] ", re.IGNORECASE
)
_SHARE = re.compile(r"(?:\ [a-z]+)*,\ (?:[a-z]+ing)\ ", re.IGNORECASE)
_OUT_OF = re.compile(r"\ (?:[a-z]+\ )?(?:out\ )?of\ (?:the\ )?|/", re.IGNORECASE)
_BESIDES = re.compile(
    rf"[\s$]*(?:{_LOOSE}\s)*and [A-Z][a-z]+ (?:has|had|is|was|gets|got|sold|made|ate|read|ran) [\s$]*\Z"
)
"""What somebody else has, behind a result."""
_COMPARED = re.compile(
    r",\ (?:(?:which|that)\ (?:is|was)\ (?:also\ |exactly\ |about\ |only\ )?(?:half|twice|double|triple"
    r"|an?\ |one[\ -])[a-z]*\b"
    r"|enough\ (?:to|for)\b|(?:(?:for|with)\ )?(?:an\ average\ of|averaging)\b)",
    re.IGNORECASE,
)
"""A comparison with another number behind the answer: `, which is half of the original price of 100`."""
_LEFT_OVER = re.compile(r"\ (?:[a-z]+\ )?(?:left\ over|leftover|to\ spare)\b", re.IGNORECASE)
_BOUGHT = re.compile(r"\b(?:can\ (?:buy|make|fill|get|afford|bake|pack)|each\ (?:gets?|receives?))\b", re.IGNORECASE)
_SUPPLEMENT = re.compile(r",\ (?:making|giving|bringing|worth|for\ a\ total|totall?ing)\b", re.IGNORECASE)
_LESSER = re.compile(r", \Z")
_THAN = re.compile(
    r"\ (?:[a-z]+\ )?(?:more|less|fewer|older|younger|longer|taller|higher|lower)\ than\ [^=0-9;]*\Z", re.IGNORECASE
)


def _restated(text: str, start: int, found: list[Match[str]]) -> int | None:
    """Where an answer ends that the rest of its sentence says again: in another unit, roughly, or in its parts."""
    values = [value(core) for core in found]
    between = text[found[0].end() : found[-1].start()]
    for at, core in enumerate(found[:-1] if _LINKED.search(between) else ()):
        one, rest = values[at], values[at + 1 :]
        if one is None or None in rest:
            continue
        end, following = core.end(), found[at + 1]
        gap = text[end : following.start()]
        words = _UNIT_WORDS.match(gap)
        tail = gap if words is None else gap[words.end() :]
        if _says_again(text, start, found, at, tail) and not before(text, core.start()).problem:
            return end
        if len(rest) == 2 and "%" in core[0] and _SHARE.fullmatch(gap.lstrip("%")) and rest[1]:
            divided = text[following.end() : found[at + 2].start()]
            if _OUT_OF.fullmatch(divided) and Fraction(rest[0]) / Fraction(rest[1]) == Fraction(one) / 100:  # type: ignore[arg-type]
                return end
    for aside in _COMPARED.finditer(text, found[0].end(), found[-1].start()):
        if not _CONCLUDES.search(text, aside.end()):
            return aside.start()
    first = found[0]
    if "=" not in text[first.end() : found[-1].end()] and _last_result(text, first.start()) == values[0] is not None:
        supplement = _SUPPLEMENT.search(text, first.end(), found[-1].start())
        if supplement is not None and not _DIGIT.search(text, first.end(), supplement.start()):
            return supplement.start()
    last = found[-1]
    if _LEFT_OVER.match(text, last.end()) and _BOUGHT.search(text, start, found[-2].start()):
        return found[-2].end()
    if _LESSER.search(text, start, last.start()) and _THAN.match(text, last.end()):
        return found[-2].end()
    return None


def _says_again(text: str, start: int, found: list[Match[str]], at: int, tail: str) -> bool:
    """Whether the words behind a number and its unit introduce the same amount: its parts, a rough value, a unit."""
    one, *rest = [value(core) for core in found[at:]]
    assert one is not None
    computed = "=" in text[found[at].end() : found[-1].end()]
    parts = [number for number in rest if number is not None]
    adds_up = one in (sum(parts), len(parts) == 2 and parts[0] * parts[1])
    if len(parts) > 1 and adds_up and not computed and _MADE_UP.match(tail):
        return not _CONCLUDES.search(text, found[at].end(), found[-1].end())
    if len(rest) == 1 and (again := _AGAIN.fullmatch(tail)) and again["about"] and abs(one - rest[0]) >= 1:  # type: ignore[operator]
        return True
    if computed or Fraction(one).denominator != 1 or not _SAME_THING.match(tail):
        return False
    first = before(text, found[at].start()).start
    return at == 0 or _RESULT.search(text, max(start, first - 6), found[at].start() + 1) is not None


def _is_glued(text: str, start: int) -> bool:
    """Whether a number is a part of a word, such as the 4 of `A4`; asks at length only where that is possible."""
    return start > 0 and text[start - 1] not in " =(>\n" and before(text, start).glued


def _given_after_result(text: str, found: list[Match[str]]) -> int | None:
    """Where the answer ends in a sentence that states the last result, and behind it only numbers that went into it."""
    sign = _last_sign(text, found[-1].start())
    result = None if sign is None else _behind(text, sign, found[-1].start())
    if sign is None or result is None:
        return None
    for at, core in enumerate(found[:-1]):
        if core.start() < sign.start() or value(core) != result:
            continue
        rest = text[core.end() : found[-1].start()]
        if _GOES_ON.search(rest) and not _BESIDES.fullmatch(rest):
            return None
        head = text[max(0, sign.start() - WINDOW) : sign.start()]
        if not all(other[0] in head for other in found[at + 1 :]):
            return None  # spares reading all numbers before the result
        known = {value(core) for core in numbers_in(head, 0, len(head))} - {result}
        return core.end() if all(value(other) in known for other in found[at + 1 :]) else None
    return None


def _without_adjunct(text: str, start: int, answer: Match[str], last: Match[str]) -> int | None:
    gap = _ASIDE.sub("", text[answer.end() : last.start()])
    place = before(text, answer.start())
    stated = text.endswith(">>", start, answer.start()) or (
        _RESULT.search(text, max(start, place.start - 6), answer.start() + 1) is not None
    )
    after = _AFTER_RESULT if stated else _AFTER_ANSWER
    if not (after.fullmatch(gap) or (_LATER.match(text, last.end()) and _WORDS.fullmatch(gap))):
        return None
    if place.problem or _GIVEN.search(text, max(start, place.start - 20), place.start):
        return None
    result = None if stated else _last_result(text, answer.start())
    if result is not None and result == value(last) != value(answer):
        return None  # what was computed last is the answer, wherever it stands
    return answer.end()


def _last_result(text: str, end: int) -> Number | None:
    """What stands behind the last sign of equality."""
    sign = _last_sign(text, end)
    return None if sign is None else _behind(text, sign, end)


def _last_sign(text: str, end: int) -> re.Match[str] | None:
    """The last sign of equality with a number behind it."""
    at = text.rfind("=", max(0, end - WINDOW), end)
    while at >= 0:
        if (sign := _RESULT.match(text, at, end)) is not None:
            return sign
        at = text.rfind("=", max(0, end - WINDOW), at)
    return None


def _behind(text: str, sign: re.Match[str], end: int) -> Number | None:
    """The number behind a sign of equality."""
    return next((value(core) for core in numbers_in(text, sign.end(), min(end, sign.end() + 40))), None)


def _converted(text: str, one: Match[str], other: Match[str], between: re.Match[str]) -> bool:
    """Whether two numbers are the same amount in two units, by their ratio and the units' names."""
    values = value(one), value(other)
    if None in values or 0 in values:
        return False
    unit = re.match(r" ?([A-Za-z]+)", text[other.end() : other.end() + 30])
    if not between["money"] and (unit is None or unit[1].lower() == between["one"].lower()):
        return False
    ratio = Fraction(values[0]) / Fraction(values[1])  # type: ignore[arg-type]
    return ratio in _CONVERSIONS or 1 / ratio in _CONVERSIONS


def _sentence_start(text: str, end: int) -> int | None:
    """Where the last sentence with a digit begins; None where that is too far away."""
    edge = max(0, end - WINDOW)
    digit = next((at for at in range(end - 1, edge - 1, -1) if text[at].isdigit()), None)
    if digit is None:
        return None
    starts = [found.end() for found in _SENTENCE.finditer(text, edge, digit + 1) if found.end() <= digit]
    return starts[-1] if starts else (0 if edge == 0 else None)


_UNITS = {
    name: (kind, size)
    for kind, units in {
        "metric length": {"mm": 1, "millimeter": 1, "millimetre": 1, "cm": 10, "centimeter": 10, "centimetre": 10,
                          "m": 1000, "meter": 1000, "metre": 1000, "km": 10**6, "kilometer": 10**6, "kilometre": 10**6},
        "length": {"in": 1, "inch": 1, "inche": 1, "ft": 12, "foot": 12, "feet": 12, "yd": 36, "yard": 36,
                   "mile": 63360},
        "metric mass": {"mg": 1, "g": 1000, "gram": 1000, "kg": 10**6, "kilogram": 10**6, "kilo": 10**6},
        "mass": {"oz": 1, "ounce": 1, "lb": 16, "pound": 16, "ton": 32000},
        "metric volume": {"ml": 1, "milliliter": 1, "millilitre": 1, "l": 1000, "liter": 1000, "litre": 1000},
        "volume": {"cup": 1, "pint": 2, "quart": 4, "gallon": 16},
        "time": {"s": 1, "sec": 1, "second": 1, "min": 60, "minute": 60, "h": 3600, "hr": 3600, "hour": 3600,
                 "day": 86400, "week": 604800},
        "long time": {"month": 1, "year": 12},
        "money": {"cent": 1, "penny": 1, "pennie": 1, "dollar": 100, "$": 100},
    }.items()
    for name, size in units.items()
}  # fmt: skip
"""Unit without its plural `s`: what it measures, and how large it is."""
_UNIT = re.compile(r"[*_)]{0,3} ?-?([A-Za-z]{1,12})\b")


def same_amount(text: str, start: int, end: int) -> Number | None:
    """Return the number beside the one at a place that is the same amount in another unit: `1500 g, that is 1.5 kg`."""
    cores = list(numbers_in(text, max(0, start - 80), min(len(text), end + 80)))
    here = next((at for at, core in enumerate(cores) if core.end() == end), None)
    if here is None or (one := _amount(text, cores[here])) is None:
        return None
    for core in (*cores[max(0, here - 1) : here], *cores[here + 1 : here + 2]):
        other = _amount(text, core)
        if other is not None and other[:2] == one[:2] and other[2] != one[2]:
            return value(core)
    return None


def _amount(text: str, core: Match[str]) -> tuple[str, Number, str] | None:
    """What a number with a unit measures, how much of it, and the unit."""
    number = value(core)
    if text[max(0, core.start() - 1) : core.start()] == "$":
        name = "$"
    else:
        found = _UNIT.match(text, core.end())
        name = "" if found is None else found[1].lower()
        name = name if name in _UNITS else name.removesuffix("s")
    if number is None or name not in _UNITS:
        return None
    kind, size = _UNITS[name]
    return kind, number * size, name
