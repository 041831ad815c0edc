"""Whether a text is in English, short ones too.

`langdetect` goes by groups of letters, and takes short English for Norwegian or Catalan. For a short text its numbers
are weighed together with the words themselves: common English ones speak for it, common ones of other languages
against.
"""

from __future__ import annotations

import re

from tasks.assertions.instructions.language import LanguageUnknown, detect, lead

_SHORT = 20
"""Words up to which a text counts as short."""
_LEAD, _OURS, _THEIRS = 9.0, 5.0, 8.0
"""Nats: by how much another language may lead, what a common English word adds, what one of another language takes."""

_ENGLISH_WORDS = """
a about after again all also always am an and any are as at be because been before best but buy by can come could
day did do does done down each ends enter even every fine first for found free from get give go good great had happy
has have he help her here him his home how i if in into is it its just know last let like look made make many may me
more most much must my need never new next no not now of off ok okay on one only open or other our out over people
please really right said same see service she should so some sorry still such take than thank thanks that the their
them then there these they thing this those through time to today tomorrow too two under up us use usual very want
was we well were what when where which who why will with work world would year yes yesterday you your
"""
_OTHER_WORDS = """
aber ach alla alles auch avec beaucoup bem bien bitte bom bonjour buenas buenos buongiorno c'est ciao com como con
danke dans das dei del della den der des det dio dobre dos ein eine el ella en er es est et faire gracias grazie gut
guten habari har het hola hund ich ik il ist ja je jeg kein kom las le les lo los mais mein merci mes mi muchas
mucho muy nicht nie non nos nous nuestro och oder og oui para pas per perche pero por pour quand que qui sehr si sie
sind sont su sur tack tout tres tu tutti una und une uno van var vie voor vous wie wir zu zum
"""
_ENGLISH, _OTHER = frozenset(_ENGLISH_WORDS.split()), frozenset(_OTHER_WORDS.split())


def is_english(text: str) -> bool:
    """Return whether the text is in English. Case does not matter; a text without letters is in no language."""
    text = text.lower()
    try:
        if detect(text) == "en":
            return True
        words = re.findall(r"[^\W\d_]+(?:['\u2019][^\W\d_]+)*", text)
        if len(words) > _SHORT:
            return False
        score = lead(text, "en")
    except LanguageUnknown:
        return False
    score += sum(_OURS if word in _ENGLISH else -_THEIRS if word in _OTHER else 0.0 for word in words)
    return score >= -_LEAD
