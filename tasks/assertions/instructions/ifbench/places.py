"""Names of countries and capitals, and comparing them without accents. Facts, as of 2025."""

from __future__ import annotations

import unicodedata

_NORTHERN = """
Reykjavik Helsinki Oslo Tallinn Stockholm Riga Moscow Copenhagen Vilnius Minsk Dublin Berlin Amsterdam Warsaw London
Brussels Kyiv Prague Luxembourg Paris Vienna Bratislava Budapest Vaduz Chisinau Bern Ljubljana Zagreb
"""
CAPITALS = _NORTHERN.split()
"""European capitals north of 45 degrees, from north to south."""

CAPITAL_NAMES = {"Kiev": "Kyiv", "Luxembourg City": "Luxembourg", "Berne": "Bern", "Kishinev": "Chisinau"}
"""Other spellings."""

_AFRICA = """
Algeria|Angola|Benin|Botswana|Burkina Faso|Burundi|Cabo Verde=Cape Verde|Cameroon|
Central African Republic=Central African Republic (CAR)|Chad|Comoros|Djibouti|Egypt|Equatorial Guinea|Eritrea|
Democratic Republic of the Congo=Democratic Republic of Congo=DR Congo=DRC=Congo, Democratic Republic of the=
Congo, Democratic Republic of=Congo (Kinshasa)=Congo (Democratic Republic)=Congo (DRC)=Congo, DR=Congo (DR)=
Democratic Republic of the Congo (DRC)=Congo (Democratic Republic of the)|
Republic of the Congo=Republic of Congo=Congo=Congo, Republic of the=Congo, Republic of=Congo (Brazzaville)=
Congo (Republic)=Republic of the Congo (Congo-Brazzaville)=Congo (Republic of the)|
Côte d'Ivoire=Ivory Coast=Côte d'Ivoire (Ivory Coast)=Ivory Coast (Côte d'Ivoire)|
Eswatini=Swaziland=Eswatini (formerly Swaziland)=Eswatini (Swaziland)|Ethiopia|Gabon|Gambia|Ghana|Guinea|Guinea-Bissau|
Kenya|Lesotho|Liberia|Libya|Madagascar|Malawi|Mali|Mauritania|Mauritius|Morocco|Mozambique|Namibia|Niger|Nigeria|
Rwanda|São Tomé and Príncipe=São Tomé & Príncipe|Senegal|Seychelles|Sierra Leone|Somalia|South Africa|South Sudan|
Sudan|Tanzania|Togo|Tunisia|Uganda|Zambia|Zimbabwe
"""

_OPTIONAL = "Western Sahara=Sahrawi Arab Democratic Republic=Sahrawi Republic"


def plain(text: str) -> str:
    """Return the text in ASCII: accents taken off, other characters dropped."""
    return unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode("ascii")


def letters(text: str) -> str:
    """Return the ASCII letters of a name, small, without a leading article: what names are compared and sorted by."""
    found = "".join(character for character in plain(text).lower() if character.isalpha() or character == " ")
    return found.strip().removeprefix("the ").replace(" ", "")


AFRICA: dict[str, str] = {
    letters(name): entry.partition("=")[0].strip()
    for entry in f"{_AFRICA}|{_OPTIONAL}".replace("\n", " ").split("|")
    for name in entry.split("=")
}
"""`letters` of each way to name a country of Africa: one name for it."""

OPTIONAL_AFRICA = frozenset({"Western Sahara"})
"""Not a member of the United Nations: may be listed or not."""
