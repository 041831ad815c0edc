"""What stands behind the answer of a reply without a marker in sentences of its own: the first half of `closings`.

1. `own_turn`: a model may write on; its reply ends where somebody else begins to speak, or a next question is asked.
2. `refused`: a reply that ends by saying that it has no answer has none, whatever numbers it names.
3. `SENTENCES`: whole sentences behind the answer are left out, from the last one on, while a rule applies.
4. `_claimed`: an answer that came before its reasons, in bold or as the first words, ends there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import NamedTuple

from tasks.answers.number_words import ANY_NUMBER, DIGIT, FINITE, WORD, sentence_starts
from tasks.answers.numbers import CLOCK, CURRENCY, SENTENCE, Number, numbers_in, value

WINDOW = 400
"""Characters at the end of a reply in which its last sentence is looked at."""
REMARKS = 700
"""Characters at the end in which remarks and refusals are looked for."""
MOST_CUTS = 8
_NUMERAL = rf"(?:[0-9]|\b(?:{WORD.removeprefix('a|')})\b)"


# 1. The reply's own turn

_TURN = re.compile(
    r"""\n[ \t]*(?:\#+\ |\*\*|__|\[|>\ )?(?:
            (?:human|user|student)(?:\*\*|__)?\ ?:(?!\ *\(?\$?[0-9])(?![^\n]*[=×])  # `Student: 3 × $5 = $15` is a line
          | instructions?(?:\*\*|__)?\ ?(?::|\n)
          | (?P<asked>(?:(?:new|next|another)\ )?(?:question|problem|exercise|example|q)(?:\ ?\#?(?!1\b)[0-9]{1,3})?
                (?:\*\*|__|\])?\ ?[:.]
              | now\ solve\ (?:this|the\ following)\b) )""",
    re.VERBOSE | re.IGNORECASE,
)
"""Where somebody else begins to speak, or a new question is asked."""
_TOKEN = re.compile(r"<\|(?:im_end|im_start|endoftext|eot_id|end|user)\|>|</s>|\[/?INST\]")
_ANSWERED = re.compile(
    r"####|oxed|\b(?:answer|so|thus|therefore|hence|total|altogether|in\ all|left)\b|[=→⇒]|\*\*[^*\n]*[0-9][^*\n]*\*\*",
    re.IGNORECASE,
)
"""What a reply has that answered its question before it goes on with another."""


def own_turn(text: str) -> str:
    """Return the part of a reply before another speaker's turn, or a next question, begins."""
    if "|" in text and (token := _TOKEN.search(text)) and text[: token.start()].strip():
        text = text[: token.start()]
    if ":" not in text:  # nearly all turns have one, and it is found fast
        return text
    for turn in _TURN.finditer(text):
        own = text[: turn.start()]
        if _ANSWERED.search(own) and ANY_NUMBER.search(own) if turn["asked"] else own.strip():
            return own
    return text


# 2. Replies without an answer

_REFUSED = re.compile(
    r"""(?:\bnot|n['’]t|\bno)\ (?:[a-z]+\ )?enough\ (?:information|info|data|details)
      | \binsufficient\ (?:information|data|details)
      | (?:\bcannot|\bcan['’]t|\bcan\ not|\bunable\ to|\b(?:im|not\ )possible\ to
          |\bno\ way\ (?:to|of)|\b(?:hard|difficult)\ to)
        (?:\ (?:be|really|possibly|definitively|exactly|actually|accurately|reliably|fully))*
        \ (?:determin|say|tell|know|solv|answer|comput|calculat|figur|work(?:ed|ing)?\ out|provide|give)[a-z]*
      | \b(?:need|requir|provid|miss)[a-z]*\ (?:me\ with\ )?(?:more|further|additional|some|key|the\ missing)
        \ (?:information|info|data|details|context)
      | (?<!but\ )(?<!though\ )\b(?:i['’]m|i\ am)\ not\ (?:sure|certain) | \bi\ do(?:n['’]t|\ not)\ know
      | \b(?:only|just|merely|purely)\ (?:be\ )?a\ (?:wild\ )?guess
      | \bno\ idea\b | \bit\ (?:all\ )?depends\b
    """,
    re.VERBOSE | re.IGNORECASE,
)
_TWO = re.compile(
    rf"{_NUMERAL}[^.\n]*\bif\b[^.\n]*[,;]\ (?:and\ )?(?:otherwise|else)\b[^.\n]*{_NUMERAL}", re.IGNORECASE
)
"""Two answers: `20 if the first day counts, otherwise 22`."""
_HEDGED = re.compile(
    r"\b(?:if|would|might|could|may|guess\w*|perhaps|maybe|suppose|whether|or|for example|say)\b|['’]d\b|[0-9]\?",
    re.IGNORECASE,
)
_REFUSAL_WORDS = (
    "nough", "nsuffic", "nable to", "ossible to", "ard to", "fficult to", "o way", "nfo", "etails",
    "ontext", " data", "uess", "annot", "an't", "an’t", "an not", "m not ", "t know",
    "o idea", "epends",
)  # fmt: skip
"""Without any of these a reply refuses nothing."""


def refused(text: str) -> bool:
    """Whether a reply ends by saying that it has no answer: what follows that only supposes or guesses."""
    edge = max(0, len(text) - REMARKS)
    tail = text[edge:]
    if "therwise" in tail or " else" in tail:
        last = [part for part in SENTENCE.split(tail) if ANY_NUMBER.search(part)][-1:]
        if last and _TWO.search(last[0]):
            return True
    if not any(map(tail.__contains__, _REFUSAL_WORDS)):  # faster than a pattern of the same words
        return False
    for found in _REFUSED.finditer(text, edge):
        rest = text[found.end() :]
        if all(_HEDGED.search(part) for part in SENTENCE.split(rest) if ANY_NUMBER.search(part)):
            return True
    return False


_TAKEN_BACK = re.compile(
    rf"""(?:\b(?:oops|(?:scratch|strike)\ that|my\ mistake|i\ made\ a\ mistake|i\ meant|wait|hold\ on|never\ mind
            |on\ second\ thoughts?|i\ forgot\ (?:the|that|about|to\ (?:add|subtract|count|include)))\b
          |\bso\ (?:it|that)(?:\ is|['’]s)(?=\ \$?[0-9]) |\?\ no\b
          |\bbut\ (?:we|i|you|he|she|they)\ (?:also\ |still\ )?(?:must|needs?|ha(?:s|ve)|should)\b
          |\b(?:that|this|it)(?:\ is|['’]s|\ was)\ (?:wrong|incorrect|not\ right)\b
          |[.!?\n]\s*(?:hmm,?\ |no,?\ )?(?:actually|correction)\b)
        (?=[^\n]*{_NUMERAL})""",
    re.VERBOSE | re.IGNORECASE,
)


def taken_back(text: str, place: int) -> bool:
    """Whether what follows an answer takes it back and names a number: `The answer is 18. Oops, it should be 20`."""
    return _TAKEN_BACK.search(text, place, place + REMARKS) is not None


# 3. Sentences behind the answer

_BULLET = r"[\s*_>#\"“-]*"
WOULD = r"(?:\b(?:would|might|could)|['’]d)\b"
_WOULD = re.compile(WOULD, re.IGNORECASE)
TESTS = re.compile(
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
CHECKED = re.compile(
    r"(?:,? as (?:required|given|stated|expected|needed|the problem (?:says|states))"
    r"|, which (?:matches|agrees|checks out)"
    r"|, (?:which|that) is (?:what|correct|right)\b|, exactly (?:double|twice|half|triple)\b|[✓✔])[^=0-9\n]*\Z",
    re.IGNORECASE,
)
"""The end of a sentence that puts the answer to the test."""
CONCLUDES = re.compile(
    r"\b(?:(?<!or )so|thus|therefore|hence|answer|final(?:ly)?|altogether|in (?:all|total)|total(?:s|ing)?|instead"
    r"|actually|correction|however|meaning|means|leav(?:es|ing)|left|remain\w*)\b|[=→⇒]",
    re.IGNORECASE,
)
"""Words and signs with which a sentence may lead to an answer of its own."""
LEADS_ON = re.compile(
    r"(?:\b(?:so|thus|therefore|hence|answer|actually|correction|however|then it['’]s|meaning|means)\b|[=→⇒]).*"
    rf"{_NUMERAL}",
    re.IGNORECASE,
)
"""Words and signs behind which another number is concluded."""
_TIME = "(?:minute|hour|day|week|month|year)"
_NOTE = re.compile(
    rf"""{_BULLET}(?:(?:please|also|do|but)\ )?(?:
        (?:note|notice|remember|keep\ in\ mind|bear\ in\ mind|nb|p\.?s)\b
      | (?:a|one|the)\ (?:common|typical|frequent|usual)\ (?:mistake|error|pitfall)
      | (?:some(?:one|body)?|one|you|others|many)(?:\ (?:people|else))?\ (?:may|might|could|would)\ (?:also\ )?
          (?:say|think|argue|read|answer|be\ tempted)
      | (?:for|by|in)\ (?:comparison|reference|context|contrast)
      | (?:this|that|it)\ (?:assumes|excludes|includes|ignores|(?:does(?:n['’]t|\ not)\ )(?:include|count))\b
      | (?:(?:an?|one|1)\ (?:{_TIME}|dozen|dollar|foot|yard|mile|gallon)\ (?:has|is|contains)
          | there\ are\ [0-9]+\ \w+\ in\ (?:an?|one|1)\ (?:{_TIME}|dozen|dollar|foot|yard|mile|gallon))\b
      | don['’]t\ forget\b | interestingly | incidentally | by\ the\ way | fun\ fact
      | as\ an?\ (?:aside|side\ note|percentage|fraction|decimal|percent) | in\ percent
      | (?:reason(?:ing)?|explanation|why|because)\b
      | if\ (?:anything|something)\b )""",
    re.VERBOSE | re.IGNORECASE,
)
"""How a sentence begins that adds something to the answer before it."""
_OFFER = re.compile(
    rf"""{_BULLET}(?: (?:i\ )?hope\b | let\ me\ know | feel\ free
      | (?:would\ you\ like|do\ you\ want|want\ me|shall\ i)\b
      | (?:great|good|nice)\ question | if\ you(?:['’]d)?
          \ (?:want|like|wish|prefer|(?:have|need)\ (?:any|more|further|other|help|questions))\b )""",
    re.VERBOSE | re.IGNORECASE,
)
_RESTATES = re.compile(rf"{_BULLET}(?:in other words|that is to say|put (?:differently|another way))\b", re.IGNORECASE)
_ROUGHLY = re.compile(
    rf"""{_BULLET}(?:that|this|it|on\ average)\b[^=\n]*
        \b(?:about|roughly|around|approximately|almost|nearly)\ (?:{CURRENCY})?
        [0-9][0-9,]* (?: \.[0-9] | (?:\ [a-z]+)?\ (?:per|each|every|an?)\b )""",
    re.VERBOSE | re.IGNORECASE,
)
_NOTE_LABEL = re.compile(
    r"(?<=[\s*_(])(?:(?:side |foot)?note|tip|remark|disclaimer|caveat|p\.?s\.?|fun fact|bonus|extra|reminder|nb"
    r"|n\.b\.)[*_ ]*:[\s*_]*\Z",
    re.IGNORECASE,
)
_ASIDE = re.compile(
    rf"""{_BULLET}(?: .*\b(?:i|we)(?:['’](?:ve|m|re)|\ am|\ are)?\ (?:have\ )?
          (?:ignor|assum|left\ (?:it|that|this|them)\ out|leaving\ out|round|treat|did(?:n['’]t|\ not))
      | .*\b(?:problem|question)\ (?:does(?:n['’]t|\ not)|did(?:n['’]t|\ not)|only|never)\b
      | .*(?:\bnot|n['’]t)\ (?:being\ )?(?:asked|counted|wanted|part\ of|relevant)\b
      | .*\b(?:at\ first|first|initially)\ (?:got|thought|said|showed|wrote)\b(?!.*\b(?:correct|right|but)\b.*[0-9])
      | (?:before\ that|originally|initially|at\ first|earlier|previously)\b
      | [a-z]+\ (?:had\ )?(?:started|began|starts|begins)\ (?:out\ )?with\b )""",
    re.VERBOSE | re.IGNORECASE,
)
_IF_SO = re.compile(
    rf"{_BULLET}(?:(?:even|but|of course|now|however|also),? )?(?:if\b(?!.*\bthen\b)|had\b).*{WOULD}", re.IGNORECASE
)
_SUPPOSED = re.compile(
    rf"""{_BULLET}(?:
        (?:(?:even|but|of\ course|now|however|also),?\ )?if\b(?!.*\bthen\b)
          (?!.*\beach(?:\ [a-z]+){{0,3}}\ (?:would|could)\ (?:get|receive|pay|have)\b).*{WOULD}
      | had\ [^?]*{WOULD}
      | (?:for|over|with(?:out)?|at|in|using|by|an?|one|two|buying|adding)\ .*{WOULD}
      | (?!.*\bago\b).*{WOULD}\ (?:[a-z]+\ )?have\ [a-z]+
      | .*{WOULD}.*\b(?:if|with|without)\b.*\b(?:more|another|extra|fewer|less|instead|else)\b )""",
    re.VERBOSE | re.IGNORECASE,
)
_NOT_ENOUGH = re.compile(
    rf"""{_BULLET}(?:(?:only|just|with)\ )?\$?[0-9][0-9,.]*(?:\ [a-z]+){{0,2}}
        \ (?:only\b|[a-z]+n['’]t\b|[a-z]+\ not\b
          |(?:(?:would|could|will|might)\ )?[a-z]+\ (?:too|only|just|short)\b)""",
    re.VERBOSE | re.IGNORECASE,
)
"""One about the next smaller or larger number: `4 would only carry 18`, `2 days are not enough`."""
_ENOUGH = re.compile(r"\b(?:is|are|be)\ (?:just\ |more\ than\ )?enough\ (?:to|for)\b", re.IGNORECASE)
_WHY = re.compile(rf"{_BULLET}(?:(?:this|that|it)(?: is|['’]s) because|the reason)\b", re.IGNORECASE)
_THE_OTHER = re.compile(
    rf"{_BULLET}(?:the (?:other|remaining) [0-9]|(?:the |on )?average\b"
    r"|(?:the|his|her|their) (?:[a-z]+ )?(?:average|margin|ratio|percentage) is\b"
    r"|[^;]*[0-9] of (?:these|those|them)\b|[^;]*\balone\b)",
    re.IGNORECASE,
)
"""One about a part of a result, or another measure of it."""
_CONTRARY = re.compile(
    rf"{_BULLET}(?:even |but )?(?:if\b.*\bhad\b.*{WOULD}|had (?!to\b)[^?]*{WOULD})|.*{WOULD} have .*\bif\b.*\bhad\b",
    re.IGNORECASE,
)
"""One about what was not so."""
_THAT_IS = re.compile(
    rf"{_BULLET}(?:that|this|it)(?: is|['’]s) [^=\n]*\b(?:less|more|fewer|older|younger|longer|shorter) than\b",
    re.IGNORECASE,
)
_THAT_WOULD = re.compile(rf"{_BULLET}(?:that|this|it)(?: would|['’]d) be\b[^=]*\Z", re.IGNORECASE)
SO = re.compile(r"\b(?:so|thus|therefore|hence)\b", re.IGNORECASE)
_CONCLUDED_BEFORE = re.compile(
    r"\b(?:so|thus|therefore|hence|total|altogether|together|in all|in conclusion|conclude|left|remain\w*)\b"
    r"|\*\*[^*\n]*[0-9][^*\n]*\*\*",
    re.IGNORECASE,
)
_THEREFORE = re.compile(rf"{_BULLET}(?:thus|therefore|hence|in conclusion|finally)\b", re.IGNORECASE)
_COMPUTED = re.compile(
    r"\b(?:equals?|plus|minus|times|divided|multiplied|gives?|makes?|more|still|another|rest|difference)\b",
    re.IGNORECASE,
)
_ANSWERS = re.compile(r"\b(?:may|might|could|would) answer\b", re.IGNORECASE)
_ORDINAL = re.compile(r"\b[0-9]+(?:st|nd|rd|th)\b")


@dataclass(frozen=True)
class _Sentence:
    """A sentence with a number behind another one: where the one before it, it and its end stand in the text."""

    text: str
    begin: int
    start: int
    stop: int
    end: int
    labelled: bool
    """Whether a word such as `Note:` stands before it."""

    @cached_property
    def said(self) -> str:
        """The sentence."""
        return self.text[self.start : self.stop].strip()

    @cached_property
    def previous(self) -> str:
        """The sentence with a number before it."""
        return self.text[self.begin : self.start]

    @cached_property
    def leads(self) -> bool:
        """Whether it seems to conclude a number of its own."""
        said = _ANSWERS.sub("", self.said)
        if LEADS_ON.search(said):
            return True
        return CONCLUDES.search(said) is not None and not (_ASIDE.match(said) or _IF_SO.match(said))

    @cached_property
    def first(self) -> bool:
        """Whether the one before it is the first with a number, and has at most two."""
        return not ANY_NUMBER.search(self.text, 0, self.begin) and len(ANY_NUMBER.findall(self.previous)) < 3

    @cached_property
    def stated(self) -> bool:
        """Whether the one before it names what was computed last."""
        result = last_result(self.text, self.start)
        cores = numbers_in(self.text, self.begin, self.start) if result is not None else ()
        return any(value(core) == result for core in cores)

    @cached_property
    def concluded(self) -> bool:
        """Whether the one before it may close the reply."""
        return self.stated or _CONCLUDED_BEFORE.search(self.previous) is not None


class _Remark(NamedTuple):
    """A kind of sentence that is left out behind an answer."""

    name: str
    example: str
    holds: Callable[[_Sentence], object]
    whatever: bool = False
    """Whether it is left out even if it seems to conclude a number of its own."""


def _bracketed(sentence: _Sentence) -> bool:
    bare = sentence.said.strip(" *_.!\n")
    return bare.startswith("(") and bare.endswith(")") and ")" not in bare[:-1]


def _tests(sentence: _Sentence) -> bool:
    if not TESTS.match(sentence.said):
        return False
    said = _CONFIRMED.sub("", TESTS.sub("", sentence.text[sentence.start : sentence.end], count=1))
    return not _REVISED.search(said)


def _roughly(sentence: _Sentence) -> bool:
    """Whether it gives a rough rate or part of the last result, and does not round it."""
    result = last_result(sentence.text, sentence.start) if _ROUGHLY.match(sentence.said) else None
    if result is None or not sentence.stated:
        return False
    numbers = [value(core) or 0 for core in numbers_in(sentence.text, sentence.start, sentence.stop)]
    return all(not -1 < number - result < 1 for number in numbers)


def _parts(sentence: _Sentence) -> bool:
    if not sentence.previous.rstrip(" *_").endswith(":"):
        return False
    totals = [value(core) for core in numbers_in(sentence.text, sentence.begin, sentence.start)]
    parts = [value(core) or 0 for core in numbers_in(sentence.text, sentence.start, sentence.stop)]
    return len(parts) > 1 and totals[-1:] == [sum(parts)]


SENTENCES = (
    _Remark("in brackets", "It needs 3 buses.| (A 4th bus would be empty.)", _bracketed, True),
    _Remark("a test of the answer", "So 12 - 9 = 3.| Check: 9 + 3 = 12.", _tests, True),
    _Remark(
        "as the problem says", "He is 35.| In 5 years he will be 40, as required.",
        lambda one: CHECKED.search(one.said) and not SO.search(one.said), True,
    ),
    _Remark("an offer", "It is 7.| Shall I add the answer for 5?", lambda one: _OFFER.match(one.said), True),
    _Remark("a note", "It is 16.| Others may say 18.", lambda one: one.labelled or _NOTE.match(one.said)),
    _Remark("what was left out, or was before", "It is 21.| I ignored the 3 kids.", lambda one: _ASIDE.match(one.said)),
    _Remark("what was not so", "It is 28.| Had he had one, it would be 32.", lambda one: _CONTRARY.match(one.said)),
    _Remark(
        "what would be otherwise", "So he pays $30.| If he paid for 10, it would be $60.",
        lambda one: _WOULD.search(one.said) and _SUPPOSED.match(one.said) and (one.concluded or one.first),
    ),
    _Remark("what is not enough", "So it takes 3 days.| 2 days aren't enough.",
            lambda one: _NOT_ENOUGH.match(one.said)),
    _Remark("what it is enough for", "So $5 is left.| That is enough for 2 pens.",
            lambda one: _ENOUGH.search(one.said) and one.concluded),
    _Remark("why", "So $22 is left.| That's because 60 + 18 = 78.",
            lambda one: _WHY.match(one.said) and not LEADS_ON.search(one.said.replace("=", "")), True),
    _Remark("a part or measure", "6 * 7 = 42 go to the kids.| The other 2 go to Ann.",
            lambda one: _THE_OTHER.match(one.said) and one.concluded and len(ANY_NUMBER.findall(one.said)) == 1),
    _Remark(
        "what the result would be", "So he can carry 1600 - 1350 = 250 kg.| That would be 3 crates.",
        lambda one: _THAT_WOULD.match(one.said) and one.stated and SO.search(one.previous) and "=" in one.previous,
    ),
    _Remark("a comparison", "So she has 15 left.| That is 5 less than her 20 friends need.",
            lambda one: _THAT_IS.match(one.said) and one.concluded),
    _Remark("in other words", "So it is 75%.| In other words, 3 of 4.",
            lambda one: _RESTATES.match(one.said) and one.concluded),
    _Remark("a rough rate", "So 7 * 7 = 49 km.| That's about 4 a day.", _roughly),
    _Remark("its parts", "Together they are 27:| Ann is 9, Bob is 18.", _parts),
    _Remark("only times of day", "It takes 155 minutes.| It ends at 6:20 PM.",
            lambda one: CLOCK.search(one.said) and not ANY_NUMBER.search(CLOCK.sub("", one.said))),
    _Remark("only ordinals", "So they get 4 each.| The 5th friend gets none.",
            lambda one: _ORDINAL.search(one.said) and one.concluded
            and not ANY_NUMBER.search(_ORDINAL.sub("", one.said))),
    _Remark("behind a conclusion", "Therefore, it needs 18 minutes.| One copy takes 6 minutes.",
            lambda one: _THEREFORE.match(one.previous) and not _COMPUTED.search(one.said)),
)  # fmt: skip
"""What is left out behind an answer, in the order in which it is tried; a bar in an example shows where that begins."""


def remarks_start(text: str) -> int:
    """Return where what follows the answer in sentences of its own begins; the length of the text if nothing does."""
    end = len(text)
    for _ in range(MOST_CUTS):
        start = _remark(text, end)
        if start is None:
            break
        end = start
    claimed = _claimed(text, end)
    return end if claimed is None else claimed


def _remark(text: str, end: int) -> int | None:
    """Where the last sentence with a number begins, if it is a remark behind another number."""
    edge = max(0, end - REMARKS)
    places = list(islice(_numbered(text, edge, end), 2))
    if len(places) < 2:
        return None
    (start, stop), (begin, _) = places[:2]
    label = _NOTE_LABEL.search(text, max(edge, start - 40), start)
    sentence = _Sentence(text, begin, start, stop, end, label is not None)
    if TESTS.match(sentence.said) and not _tests(sentence):
        return None
    if not any(rule.holds(sentence) for rule in SENTENCES if rule.whatever or not sentence.leads):
        return None
    return start if label is None else label.start()


_SAID_NEXT = re.compile(
    r"\b(?:(?:that|this|it)(?:['’]s| is| makes| gives| comes)|each|per|then|now|costs?|needs?|round\w*|gives?"
    r"|(?:is|are) \$?[0-9.,]+)\b",
    re.IGNORECASE,
)
"""In a clause that may conclude more than the clause before it did."""


_IF_OR_WOULD = re.compile(rf"if\b|.*{WOULD}", re.IGNORECASE)


def is_aside(text: str, begin: int, start: int, end: int) -> bool:
    """Whether a clause from `start` to `end`, in a sentence that begins at `begin`, would be left out as a sentence."""
    clause = _Sentence(text, begin, start, end, end, False)
    if _IF_OR_WOULD.match(clause.said) and not clause.leads and len(ANY_NUMBER.findall(clause.previous)) < 3:
        return True
    more = clause.concluded and not (clause.leads or _SAID_NEXT.search(clause.said))
    return more or any(rule.holds(clause) for rule in SENTENCES if rule.whatever or not clause.leads)


def _numbered(text: str, edge: int, end: int) -> Iterator[tuple[int, int]]:
    """Go through the sentences with numbers, from the last one on: where each begins and ends."""
    for start in sentence_starts(text, edge, end):
        if DIGIT.search(text, start, end) or ANY_NUMBER.search(text, start, end):
            yield start, end
        end = start


# 4. An answer before its reasons

_EXPLANATION = re.compile(
    rf"""(?:\n|\ (?<=[.!*)]\ )){_BULLET}(?:(?:explanation|reasoning|justification|why)\b
        |here(?:['’]?s|\ is)\ (?:why|how)\b|how\ (?:i|we)\ got\b
        |(?:the\ |key\ )?(?:reasons?|working|steps|breakdown|calculations?)[*_ ]*:)""",
    re.VERBOSE | re.IGNORECASE,
)
_EXPRESSION = re.compile(r"(?<![^\s(])[-+*/x×÷()$0-9., ]{3,80}(?==)")
"""The left side of an equation."""
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
_CONCLUDING = re.compile(CONCLUDES.pattern.removesuffix("|[=→⇒]"), re.IGNORECASE)
_REASONED = re.compile(
    rf"{_CONCLUDING.pattern}|[=→⇒]\s?-?(?:{CURRENCY})?\s?-?[0-9][0-9.,/]*(?:>>[-$]*[0-9][0-9.,]*)?[^=\n0-9]*\Z",
    re.IGNORECASE,
)
"""What comes behind an answer and may conclude another one."""
_LISTED = re.compile(
    r"^(?![ \t]*[-*•])[^\n]*\b(?:total|altogether|in all|answer|so)\b[^\n]*[0-9][^\n]*"
    r"(?=(?:\n[ \t]*[-*•] [^\n=]*)+\Z)",
    re.MULTILINE | re.IGNORECASE,
)
"""A line with a total, above the list of its parts with which the reply ends."""
_VERB = re.compile(rf"\b{FINITE}\b|=", re.VERBOSE | re.IGNORECASE)


def _claimed(text: str, end: int) -> int | None:
    """Where an answer ends that came before its reasons: in bold, as the first words, or above its reasons."""
    edge = max(0, end - REMARKS)
    bold = [found for found in _BOLD.finditer(text, edge, end) if not _LABEL.search(found[0])]
    if bold:
        return _claimed_in_bold(text, edge, bold[-1], end)
    bullet = text[text.rfind("\n", edge, end) + 1 : end].lstrip()[:1]
    listed = _LISTED.search(text, edge, end) if bullet and bullet in "-*•" else None
    if listed is not None and not _REASONED.search(text, listed.end(), end):
        return listed.end()
    claim = None if edge else _FRAGMENT.match(text, 0, end) or _EXPLANATION.search(text, 0, end)
    if claim is None:
        return None
    stop = claim.end() if claim.start() == 0 else claim.start()
    if not (ANY_NUMBER.search(text, 0, stop) and ANY_NUMBER.search(text, claim.end(), end)):
        return None
    if _REASONED.search(text, claim.end(), end) and not _makes(text, claim, stop, end):
        return None
    return stop


def _makes(text: str, label: re.Match[str], stop: int, end: int) -> bool:
    """Whether what ends with a result shows the one number before it, but for its sign, or has only its parts."""
    claims = [value(core) for core in numbers_in(text, 0, stop)]
    if len(claims) != 1 or _CONCLUDING.search(text, label.end(), end):
        return False
    sign = last_sign(text, end)
    if sign is not None and "-" in sign[0] and claims[0] == behind(text, sign, end):
        return True  # 9. It is 11 - 20 = -9.
    said = _EXPRESSION.sub("", text[label.end() : end])
    parts = [value(core) or 0 for core in numbers_in(said, 0, len(said))]
    if label.re is not _EXPLANATION or len(parts) < 2:
        return False
    return claims[0] in (sum(parts), 2 * parts[0] - sum(parts))


def _claimed_in_bold(text: str, edge: int, bold: re.Match[str], end: int) -> int | None:
    rest = text[bold.end() : end]
    if not ANY_NUMBER.search(rest):
        return None
    line = SENTENCE.search(rest)
    within = rest if line is None else rest[: line.start()]
    if not DIGIT.search(within):
        return None if _REASONED.search(rest) else bold.end() + (0 if line is None else line.start())
    start = max((found.end() for found in SENTENCE.finditer(text, edge, bold.start())), default=edge)
    led = SO.match(text[start:].lstrip(" *_")) is not None
    if line is not None or not led:
        return None
    return bold.end() if not (_REASONED.search(within.replace("=", "")) and _VERB.search(within)) else None


def opens_with_number(text: str) -> bool:
    """Whether a reply begins with a number and nothing else, so that this may be its answer."""
    return _FRAGMENT.match(text) is not None


def explains(text: str) -> bool:
    """Whether a heading such as `Explanation:` stands before all equations, so that the answer may be before it."""
    colon = text.find(":")
    return 0 < colon < text.find("=") and _EXPLANATION.search(text, max(0, colon - 60), colon + 1) is not None


# What was computed last

RESULT = re.compile(rf"=\s?-?(?:{CURRENCY}\ ?)?-?(?=[0-9])", re.VERBOSE)


def last_result(text: str, end: int) -> Number | None:
    """What stands behind the last sign of equality."""
    sign = last_sign(text, end)
    return None if sign is None else behind(text, sign, end)


def last_sign(text: str, end: int) -> re.Match[str] | None:
    """The last sign of equality with a number behind it."""
    at = text.rfind("=", max(0, end - WINDOW), end)
    while at >= 0:
        if (sign := RESULT.match(text, at, end)) is not None:
            return sign
        at = text.rfind("=", max(0, end - WINDOW), at)
    return None


def behind(text: str, sign: re.Match[str], end: int) -> Number | None:
    """The number behind a sign of equality."""
    return next((value(core) for core in numbers_in(text, sign.end(), min(end, sign.end() + 40))), None)
