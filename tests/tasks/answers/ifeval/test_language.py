from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import langdetect
import pytest
from langdetect import DetectorFactory
from langdetect.detector_factory import PROFILES_DIRECTORY

from tasks.answers.ifeval.language import LANGUAGES, LanguageUnknown, detect, is_english, lead

TEXTS = [
    "SALE ENDS TODAY",
    "i am fine",
    "excellent service as usual",
    "The quick brown fox jumps over the lazy dog, and the dog does not mind at all.",
    "Liebe Gro\u00dfmutter, ich w\u00fcnsche dir alles Gute.",
    "\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440! this is mixed",
    "\u4eca\u65e5\u306f\u3068\u3066\u3082\u3044\u3044\u5929\u6c17\u3067\u3059\u306d",
    "T\u00f4i y\u00eau ti\u1ebfng Vi\u1ec7t la\u0301m",
    "write to a.b@c.example or see https://example.org/a?b=c for the rest",
    "  two   blanks\n\nand\tlines  " * 40,
    "\u0645\u0631\u062d\u0628\u0627 \u0628\u0643\u0645 \u0641\u064a \u0627\u0644\u0645\u062f\u064a\u0646\u0629",
    "na\u00efve caf\u00e9 r\u00f4le",
]


@pytest.mark.parametrize("text", TEXTS)
def test_answers_what_langdetect_answers_with_seed_0(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DetectorFactory, "seed", 0)
    assert detect(text) == langdetect.detect(text)


def test_the_codes_are_those_of_langdetect() -> None:
    factory = DetectorFactory()
    factory.load_profile(PROFILES_DIRECTORY)
    assert sorted(factory.langlist) == list(LANGUAGES)


@pytest.mark.parametrize("text", ["", "12 345", "!?", "\n \t"])
def test_nothing_to_tell_by(text: str) -> None:
    with pytest.raises(LanguageUnknown):
        detect(text)
    with pytest.raises(LanguageUnknown):
        lead(text, "en")


def test_the_best_language_is_ahead_by_nothing() -> None:
    assert lead("this is surely written in the english language", "en") == 0
    assert lead("dies ist ganz sicher auf deutsch geschrieben", "en") < -20


COLD = """
import threading
from tasks.answers.ifeval.language import detect
texts = ["The dog sleeps in the sun and the cat on the wall.", "Der Hund schläft in der Sonne und die Katze auch."]
ready, found = threading.Barrier(8), []
def ask():
    ready.wait()
    found.append([detect(text) for text in texts])
threads = [threading.Thread(target=ask) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert found == [["en", "de"]] * 8, found
"""


def test_eight_threads_that_ask_first_get_the_right_answer() -> None:
    done = subprocess.run([sys.executable, "-c", COLD], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_threads_agree_whatever_others_ask() -> None:
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(detect, TEXTS * 8)) == [detect(text) for text in TEXTS] * 8


@pytest.mark.parametrize(
    "text",
    [
        "SALE ENDS TODAY",
        "i am fine",
        "excellent service as usual",
        "OK",
        "do not enter",
        "crispy potato pancakes",
        "This is a longer text in English, which any detector knows, for it has many of the words that tell.",
    ],
)
def test_short_english_is_english(text: str) -> None:
    assert is_english(text)


@pytest.mark.parametrize(
    "text",
    [
        "bonjour mes amis",
        "MUCHAS GRACIAS",
        "das ist gut",
        "buongiorno",
        "12",
        "",
        "\u043f\u0440\u0438\u0432\u0435\u0442",
        "Dies ist ein langer Text in deutscher Sprache, und kein Mensch hielte ihn f\u00fcr etwas anderes als das.",
    ],
)
def test_other_languages_are_not(text: str) -> None:
    assert not is_english(text)
