"""The closed vocabulary of the generated tasks.

A policy of a million parameters can only work with words it has seen often, so every name and every content word of
the procedural families comes from these lists. All are lower-case ASCII. Within `FILE_NAMES + FOLDERS` and within
`WORDS` no entry is a prefix of another, and no content word is part of another: the order of `ls` and `sort` is then
the same in every locale, and `grep red` finds the word and nothing else.
"""

from __future__ import annotations

_TXT = """notes letter recipe poem story speech outline summary draft quote memo essay address answer lesson script
    riddle motto verse fable theme topic label legend"""
_MD = """readme guide manual agenda plan review minutes journal roadmap tutorial chapter report proposal diary handbook
    glossary itinerary brochure charter thesis preface digest leaflet rulebook"""
_CSV = """budget ledger invoice prices stock orders survey grades scores contacts members inventory expenses payroll
    schedule results sales roster census receipts cities colours parts rates"""
_LOG = """server access audit build install traffic kernel errors events startup session network mailer router sensor
    worker crawler monitor deploy uptime battery engine turbine modem"""
_FOLDERS = """archive vault shelf drawer locker cabinet attic cellar depot library garage storage closet basket bucket
    crate pantry hangar warehouse satchel"""
_WORDS = """red blue green amber violet white black coral indigo scarlet
    fox otter heron lynx badger zebra camel eagle tiger panda
    apple mango plum grape lemon cherry peach olive fig quince
    oslo lima cairo paris delhi tokyo quito dakar turin zagreb
    anna boris clara david elena frank greta hugo ivan judith
    iron silver copper marble cotton velvet linen granite
    rain snow storm cloud breeze thunder"""

FILE_NAMES: tuple[str, ...] = tuple(
    f"{stem}.{extension}"
    for extension, stems in (("txt", _TXT), ("md", _MD), ("csv", _CSV), ("log", _LOG))
    for stem in stems.split()
)
"""Whole file names; each stem has one extension, so a name is one word for a tokenizer that wants it so."""

FOLDERS: tuple[str, ...] = tuple(_FOLDERS.split())
"""Folder names."""

WORDS: tuple[str, ...] = tuple(_WORDS.split())
"""Words that stand in files: colours, animals, fruit, cities, first names, materials, weather."""

NUMBERS: tuple[str, ...] = tuple("123456789")
"""Small numbers as they stand in commands."""

ALL_WORDS: tuple[str, ...] = FILE_NAMES + FOLDERS + WORDS + NUMBERS
"""Everything a tokenizer should hold as one token each, with and without a leading space."""
