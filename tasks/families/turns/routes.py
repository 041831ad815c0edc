"""Families in which each find says where to go next: letters, rooms, backups, orders, a thread of mails."""

from __future__ import annotations

from random import Random

from tasks.families.office.parts import CITIES, PEOPLE, TOPICS, count, dates, prose, say
from tasks.families.turns.parts import Chain, Draft, TurnFamily, added, equals, gone, page, starts
from tasks.families.turns.sealing import SAID

# -- Letters in a chest: a word opens one, and its text hints at the next word ----------------------------------------

_LETTERS = (
    "Dear {person}, you were right not to try {decoy}. The lock of the next letter opens at the word {word}, which "
    "nobody would guess.",
    "To {person}.\nThree words were on the list: {decoy}, {other}, and one that I chose in the end. I chose {word}.",
    "Whoever reads this: {decoy} and {other} are only there to mislead. Say {word} to the chest, and greet {person}.",
    "My {person},\nthe summer at the {decoy} is long over, and so is the {other}. What is left is the {word}: ask the "
    "chest for that.",
)


def _letters(rng: Random, level: int) -> Draft:
    steps = 2 + 2 * level + rng.randint(0, 1)
    words = rng.sample(TOPICS, steps + 1)
    others = [word for word in TOPICS if word not in words]
    chain = Chain("chest", "A chest of letters: ./chest WORD", {"list.txt": "".join(f"{w}\n" for w in sorted(TOPICS))})
    chain.nothing = "The chest stays shut."
    call, said = f"./chest {words[0]}", words[0]
    for number, word in enumerate(words[1:], start=1):
        decoy, other = rng.sample(others, 2)
        values = {"person": rng.choice(PEOPLE), "decoy": decoy, "other": other}
        told = page(rng, number, _LETTERS, {"word": word}, **values)
        path = f"letters/{number}.txt"
        chain.tell(told, SAID, call=call, words=[said], into=path)
        chain.checks.append(equals(path, told.text))
        call, said = f"./chest {told['word']}", word
    chain.act(f"echo {told['word']} > answer.txt", {"answer.txt": f"{words[-1]}\n"}, equals("answer.txt", words[-1]))
    intent = say(
        rng,
        "My grandmother left a chest of letters. ./chest WORD puts the letter that opens at a word into letters/, and "
        "each letter tells the word of the next. The first word is {first}. Follow them; the word of letter {last} "
        "opens nothing any more: write it into answer.txt.",
        "Open the letters of the chest one after the other: ./chest {first} gives letters/1.txt, in which the word for "
        "the second can be found, and so on up to letters/{last}.txt. The word found in that goes into answer.txt.",
        "There are {last} letters. Start with ./chest {first}, read letters/1.txt, find out which word it wants you to "
        "say next, and go on. In the end answer.txt should hold the word of the last letter. The list of all words is "
        "in list.txt, and trying them all would spoil the fun.",
        first=words[0],
        last=steps,
    )
    return Draft(intent, chain, ("list.txt",))


# -- A walk through rooms: a route file grows by a door each time, and the room behind it is described ----------------

_DOORS = (
    "A hall with a {decoy} on the wall. Of the doors, the one with the {other} is nailed up and the one with the "
    "{decoy} smells of smoke; the draught comes from under the door with the {door}.",
    "You hear water behind the door with the {other}. On the table lies a note by {person}: 'I left through the door "
    "with the {door}, and never again the {decoy}!'",
    "Dust everywhere, a broken {decoy}. Fresh steps of {person} lead from here to the door with the {door}; before the "
    "door with the {other} it is untouched.",
    "Two doors are painted on the wall ({decoy}, {other}): only paint. The real one carries the sign of the {door}.",
    "{person} has scratched a warning: {decoy} - trap, {other} - trap. So it must be the door with the {door}.",
)


def _rooms(rng: Random, level: int) -> Draft:
    steps = 3 + 2 * level
    doors = rng.sample(TOPICS, steps)
    others = [word for word in TOPICS if word not in doors]
    files = {"route.txt": "", "house.txt": f"The house of {rng.choice(PEOPLE)} in {rng.choice(CITIES)}.\n"}
    chain = Chain("look", "Describes the room at the end of route.txt.", files)
    text, rules = "", list[str]()
    for number, door in enumerate(doors, start=1):
        decoy, other = rng.sample(others, 2)
        told = page(rng, number, _DOORS, {"door": door}, decoy=decoy, other=other, person=rng.choice(PEOPLE))
        chain.tell(told, *rules)
        text = added(text, door)
        command = f"echo {told['door']} >> route.txt"
        chain.act(command, {"route.txt": text}, starts("route.txt", *doors[:number]))
        rules = [f"head|route.txt|{number}"]
    chain.tell("Daylight! You are outside.", *rules)
    chain.checks[-1] = equals("route.txt", text)
    intent = say(
        rng,
        "Find the way out of the house. ./look describes the room you are in; the doors carry signs. Append the sign "
        "of the door that you take to route.txt, one word a line, and look again. Go on until you are outside.",
        "route.txt is the way through a house, a door a line, written as the sign on it (one word). It is empty: you "
        "stand in the first room. ./look shows the room at its end. Extend the file, door by door, until you see "
        "daylight.",
        "Walk through the house: ./look tells what you see after the doors in route.txt. Choose the right door, add "
        "its sign as a line to route.txt, look again. A wrong door does not open: take its line out again. The walk "
        "ends outside.",
    )
    return Draft(intent, chain, ("house.txt",))


# -- A backup in pieces: the log of each piece says which set fits on top ---------------------------------------------

_SETS = (
    "checked {done} sets in restored/\nset {decoy} does not fit on top: another disk. Try {set}, which was written "
    "right after.",
    "ok so far. For the next step there are two sets of that night; {decoy} broke off at half. Copy {set}.",
    "restored/ is consistent up to here.\n{person} noted on the tape: '{decoy} is a duplicate, continue with {set}'",
    "next: {set} (and not {decoy}, whose sum is wrong)",
)


def _backups(rng: Random, level: int) -> Draft:
    steps = 2 + level + rng.randint(0, 1)
    days = dates(rng, steps + 4, 2023, 2024)
    names = [f"{rng.choice(('nas', 'tape', 'disk'))}-{day}" for day in days]
    files = {f"backups/{name}.part": prose(rng, 2) for name in names}
    files["restored/readme.txt"] = "Sets that belong to the backup of this server, under their own names.\n"
    chain = Chain("verify", "Checks the sets in restored/ and says which one comes next.", files)
    rules: list[str] = []
    for number, name in enumerate(names[:steps], start=1):
        values = {"decoy": rng.choice(names[steps:]), "done": number - 1, "person": rng.choice(PEOPLE)}
        told = page(rng, number, _SETS, {"set": name}, **values)
        chain.tell(told, *rules)
        path = f"restored/{name}.part"
        body = files[f"backups/{name}.part"]
        chain.act(f"cp backups/{told['set']}.part restored/", {path: body}, equals(path, body))
        rules = [f"text|{path}"]
    chain.tell("The backup is complete.", *rules)
    intent = say(
        rng,
        "Put our backup together again. ./verify looks at restored/ and says which set of backups/ belongs there next. "
        "Copy that file to restored/ under its own name and verify again, until the backup is complete. A wrong set "
        "spoils it, and backups/ must stay as it is.",
        "In backups/ lie sets of several servers. Copy those of ours to restored/, in the order that ./verify "
        "gives: it "
        "names one set at a time and waits until it is there. Finish when it says that the backup is complete.",
        "Please restore: run ./verify, copy the set that it wants (backups/SET.part to restored/SET.part), and repeat "
        "until it is content. Nothing else may lie in restored/, and nothing may change in backups/.",
    )
    still = (*(f"backups/{name}.part" for name in names), "restored/readme.txt")
    chain.checks.append(count("restored/*", steps + 1))
    return Draft(intent, chain, still, ("system administrator", "developer", "student"))


# -- Orders of a shop, each released when the one before is packed ----------------------------------------------------

_ORDERS = (
    "Order for {person} from {city}: a {first} and a {second}. The {decoy} was cancelled.",
    "{person} ({city}) rang: instead of the {decoy} it is to be a {first}; the {second} as agreed.",
    "Please pack for {person}, who lives in {city}, one {first}, one {second}; no more {decoy} in stock for them.",
    "to: {person} / {city}\nwants: the {first}, the {second}\nreturned earlier: {decoy}",
)


def _orders(rng: Random, level: int) -> Draft:
    steps = 1 + level + rng.randint(0, 1)
    items = rng.sample(TOPICS, 2 * steps + 4)
    people = rng.sample(PEOPLE, steps)
    files = {f"stock/{item}.txt": f"{item} no. {rng.randint(100, 999)}\n" for item in items}
    chain = Chain("orders", "Shows the order that is to be packed now.", files)
    rules: list[str] = []
    for number, person in enumerate(people, start=1):
        first, second = items[2 * number - 2 : 2 * number]
        decoy = rng.choice(items[2 * steps :])
        reveals = {"person": person, "first": first, "second": second}
        told = page(rng, number, _ORDERS, reveals, city=rng.choice(CITIES), decoy=decoy)
        chain.tell(told, *rules)
        box = f"packed/{person}"
        changes: dict[str, str | None] = {}
        for item in (first, second):
            changes |= {f"{box}/{item}.txt": files[f"stock/{item}.txt"], f"stock/{item}.txt": None}
            chain.checks += [equals(f"{box}/{item}.txt", files[f"stock/{item}.txt"]), gone(f"stock/{item}.txt")]
        target = f"packed/{told['person']}"
        what = f"stock/{told['first']}.txt stock/{told['second']}.txt"
        chain.act(f"mkdir -p {target} && mv {what} {target}/", changes)
        rules = [f"text|{box}/"]
    chain.tell("All orders are packed.", *rules)
    intent = say(
        rng,
        "Please pack today's orders. ./orders shows one at a time; move what is ordered from stock/ to packed/NAME/ "
        "(NAME as in the order), then ask for the next, until all are packed. What nobody ordered stays in stock/.",
        "Each order that ./orders prints becomes a folder packed/NAME/ with the files of the things ordered, moved out "
        "of stock/. The next order appears when this one is packed. Do them all.",
        "Work through ./orders: who ordered (that is the folder in packed/), and which things (files in stock/, to be "
        "moved there). It shows the next order only when the last one is complete.",
    )
    return Draft(intent, chain, tuple(f"stock/{item}.txt" for item in items[2 * steps :]), ("shop keeper",))


# -- A thread of mails: each answer says whom to write to next, and under which reference -----------------------------

_ANSWERS = (
    "I am not the one to decide this, and {decoy} is on leave. Write to {person} and give the reference {ref}; the old "
    "{wrong} is void.",
    "Thank you for your mail. Since {decoy} left, {person} does this. The file has got a new number, {ref} (before: "
    "{wrong}).",
    "Hello,\n{wrong} is the reference of {decoy}. Yours is {ref}, and the colleague in charge is called {person}.\n"
    "Regards",
    "My part is done. What is missing is the stamp of {person} (please not {decoy}). Quote {ref}, never {wrong}.",
)


def _mails(rng: Random, level: int) -> Draft:
    steps = 2 + level + rng.randint(0, 1)
    people = rng.sample(PEOPLE, steps + 3)
    refs = [f"{rng.choice('ABCDEFGH')}{rng.randint(100, 999)}/{rng.randint(10, 99)}" for _ in range(2 * steps + 1)]
    start = f"To: {people[0]}\nRef: {refs[0]}\n"
    chain = Chain("post", "Sends the last letter in outbox/ and puts the answer into inbox/.", {"outbox/1.txt": start})
    for number in range(1, steps + 1):
        values = {"decoy": rng.choice(people[steps + 1 :]), "wrong": refs[steps + number]}
        told = page(rng, number, _ANSWERS, {"person": people[number], "ref": refs[number]}, **values)
        path, mail = f"inbox/{number}.txt", f"outbox/{number + 1}.txt"
        chain.tell(told, f"text|outbox/{number}.txt", into=path)
        chain.checks.append(equals(path, told.text))
        text = f"To: {people[number]}\nRef: {refs[number]}\n"
        command = f"printf 'To: %s\\nRef: %s\\n' {told['person']} {told['ref']} > {mail}"
        chain.act(command, {mail: text}, equals(mail, text))
    chain.tell("It is approved.", f"text|{mail}", into=f"inbox/{steps + 1}.txt")
    chain.checks.append(equals(f"inbox/{steps + 1}.txt", "It is approved."))
    intent = say(
        rng,
        "Get my application approved. outbox/1.txt is the first letter; ./post sends the newest letter of outbox/ and "
        "puts the answer into inbox/ under the same number. Read it, write the next letter (outbox/2.txt and so on) "
        "to whom it says, with the same two lines To: and Ref:, and send that, until the answer is that it is "
        "approved.",
        "Please follow up my letter outbox/1.txt. ./post delivers the latest letter; the answer lands in inbox/. Every "
        "answer sends you to somebody else with another reference: write outbox/2.txt, outbox/3.txt, ... in the form "
        "of the first (To: name, Ref: reference, nothing else), and post each. It ends with an approval.",
        "The office answers letters only one at a time. Send outbox/1.txt with ./post, look into inbox/1.txt, write "
        "what is needed next as outbox/2.txt (two lines as in the first), post again, and continue until inbox/ "
        "brings the approval.",
    )
    return Draft(intent, chain, ("outbox/1.txt",))


ROUTES_FAMILIES = (
    TurnFamily(
        "letters",
        "open letters, each with the word that the last one tells",
        "letters/N.txt, which ./chest WORD writes, tells the next word in prose, among words that are refused",
        _letters,
    ),
    TurnFamily(
        "rooms",
        "find the way through a house",
        "./look describes the room at the end of route.txt; the description rules out all doors but one",
        _rooms,
    ),
    TurnFamily(
        "backups",
        "put a backup together, set by set",
        "./verify prints which set comes next, and which similar one does not, once the last is in place",
        _backups,
    ),
    TurnFamily(
        "orders",
        "pack orders one after the other",
        "./orders prints the next order (who, which things, what was cancelled) once the last is packed",
        _orders,
    ),
    TurnFamily(
        "mails",
        "follow a matter from one office to the next",
        "inbox/N.txt, which ./post writes, names the next person and the new reference beside the old ones",
        _mails,
    ),
)
