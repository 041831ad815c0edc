"""Families in which records are corrected, booked, counted or edited, as answers to each step say."""

from __future__ import annotations

from random import Random

from tasks.families.office.parts import PEOPLE, TOPICS, cents, dates, prose, rows, say
from tasks.families.turns.parts import Chain, Draft, TurnFamily, added, csv_table, equals, has_line, page, swapped
from tasks.families.turns.sealing import SAID

# -- An audit of a ledger: one voucher at a time, with the figure of the paper ----------------------------------------

_REMARKS = (
    "Voucher {voucher}: the paper in the folder says {amount}. The {wrong} you see on {decoy} is a different "
    "matter and "
    "correct.",
    "I compared up to here.\n{decoy} agrees ({wrong}). Not so {voucher}: its receipt is over {amount} in all.",
    "stopped: {voucher}. Someone crossed out {wrong} on the receipt; valid is {amount}, signed by {person}.",
    "{person} found the original of {voucher} and read me {amount} over the phone; {decoy} stays as booked.",
)


def _ledger_audit(rng: Random, level: int) -> Draft:
    steps = 3 + level
    numbers = sorted(rng.sample(range(1000, 9999), steps + 4))
    lines = {
        f"V{number}": (day, rng.choice(TOPICS), rng.randint(500, 90_000))
        for number, day in zip(numbers, sorted(dates(rng, len(numbers))), strict=True)
    }

    def table() -> str:
        return rows(("voucher", "date", "what", "amount"), *((v, d, w, cents(a)) for v, (d, w, a) in lines.items()))

    chain = Chain("audit", "The audit: compares the ledger with the papers and stops.", {"ledger.csv": table()})
    rules: list[str] = []
    chosen = rng.sample(list(lines), steps)
    for number, voucher in enumerate(chosen, start=1):
        decoy = rng.choice([other for other in lines if other not in chosen])
        amount = rng.randint(500, 90_000)
        told = page(
            rng,
            number,
            _REMARKS,
            {"voucher": voucher, "amount": cents(amount)},
            decoy=decoy,
            wrong=cents(rng.randint(500, 90_000)),
            person=rng.choice(PEOPLE),
        )
        chain.tell(told, *rules)
        day, what, _ = lines[voucher]
        lines[voucher] = (day, what, amount)
        line = f"{voucher},{day},{what},{cents(amount)}"
        command = f"sed -i 's/^\\({told['voucher']},.*\\),[0-9.]*$/\\1,{told['amount']}/' ledger.csv"
        chain.act(command, {"ledger.csv": table()}, has_line("ledger.csv", line))
        rules = [f"row|ledger.csv|{voucher}"]
    chain.tell("The ledger agrees with the papers.", *rules)
    chain.checks.append(csv_table("ledger.csv", table()))
    intent = say(
        rng,
        "The auditor goes through ledger.csv with ./audit and stops at every difference between the book and the "
        "papers. Correct the amount as it says, run it again, and so on, until book and papers agree.",
        "Please bring ledger.csv in line with the receipts. ./audit reports the next difference once the one before is "
        "corrected. Only amounts change, written with two decimals; everything else in the file stays.",
        "./audit compares ledger.csv with the papers and tells the first amount that is wrong. Correct it, then ask "
        "again, until it has no complaint. Do not touch lines that it calls correct.",
    )
    return Draft(intent, chain, (), ("bookkeeper", "office assistant", "shop keeper"))


# -- Bookings: the clerk answers each with what is free for the next person -------------------------------------------

_OFFERS = (
    "Written down. {person} is next: {decoy} is being painted, but {room} is free for that, on {day}, from {hour}:00.",
    "Noted! Now, {person}. The wish was {decoy} at {wrong}:00 and cannot be had. Book {room} on {day} at {hour}:00 "
    "instead.",
    "ok\nfor {person} I keep {room} on {day}; start {hour}:00, and not {wrong}:00 as in {decoy}.",
    "There is an answer for {person} too. In {room}, please; the day is {day}; it begins at {hour}:00. ({decoy}: no "
    "chance.)",
)


def _bookings(rng: Random, level: int) -> Draft:
    steps = 3 + level
    people = rng.sample(PEOPLE, steps)
    words = rng.sample(TOPICS, 8)
    days = dates(rng, steps + 1)
    header = "date,time,room,person\n"
    first = f"{days[0]},08:00,{words[0]},Zoe\n"
    chain = Chain("clerk", "The clerk who gives away the rooms.", {"bookings.csv": header + first})
    text, rules = header + first, list[str]()
    for number, (person, day) in enumerate(zip(people, days[1:], strict=True), start=1):
        room, decoy = rng.sample(words, 2)
        hour, wrong = rng.sample(range(10, 20), 2)
        reveals = {"person": person, "room": room, "day": day, "hour": hour}
        told = page(rng, number, _OFFERS, reveals, decoy=decoy, wrong=wrong)
        chain.tell(told, *rules)
        line = f"{day},{hour}:00,{room},{person}"
        text = added(text, line)
        command = f"echo '{told['day']},{told['hour']}:00,{told['room']},{told['person']}' >> bookings.csv"
        chain.act(command, {"bookings.csv": text}, has_line("bookings.csv", line))
        rules = [f"head|bookings.csv|{number + 2}"]
    chain.tell("Written down. Nobody else is waiting.", *rules)
    chain.checks.append(equals("bookings.csv", text))
    intent = say(
        rng,
        "Several people wait for a room. ./clerk says for whom there is one now, which and when; add that booking as a "
        "line to the end of bookings.csv (date,time,room,person) and ask ./clerk again, until nobody is waiting.",
        "Please book the rooms that ./clerk offers. It makes one offer at a time and the next when the last stands at "
        "the end of bookings.csv, in the form date,time,room,person. Take every offer, none that was refused.",
        "bookings.csv holds our bookings: date,time,room,person. Ask ./clerk, append what it offers as a new "
        "last line, "
        "ask again; finish when nobody is left. The lines that are there stay.",
    )
    return Draft(intent, chain, (), ("office assistant", "writer", "student"))


# -- A stock count: each shelf's label says what lies there and where to count next -----------------------------------

_LABELS = (
    "Shelf {here}\n{boxes} boxes with {each} pieces in each, and beside them {loose} loose ones. (Last year: "
    "{wrong}.)\n"
    "Then walk on to {shelf}. {decoy} has been cleared.",
    "{here}: on the floor {loose} single pieces, above them boxes: {boxes} of them, every one holds {each}.\n"
    "The old sheet says {wrong}, do not copy that. Skip {decoy}; the next shelf is {shelf}.",
    "This is {here}. Count of full boxes: {boxes} (pieces in a box: {each}). Without a box: {loose}.\n"
    "{decoy} was done by others, who found {wrong}. Yours to count now is {shelf}.",
)


def _stock_count(rng: Random, level: int) -> Draft:
    steps = 2 + level + rng.randint(0, 1)
    names = rng.sample(TOPICS, steps + 3)
    route = names[: steps + 1]
    files = {"counts/readme.txt": "A file for each shelf: SHELF.txt with the number of pieces.\n"}
    chain = Chain(
        "label", "Reads the label of a shelf: ./label SHELF COUNTED_BEFORE", files, "Wrong shelf, or miscounted."
    )
    call, words = f"./label {route[0]} 0", [route[0], "0"]
    where = route[0]  # how the oracle's commands call the shelf
    for number, (here, after) in enumerate(zip(route, route[1:], strict=False), start=1):
        boxes, each, loose = rng.randint(3, 30), rng.randint(4, 48), rng.randint(1, 20)
        reveals = {"boxes": boxes, "each": each, "loose": loose, "shelf": after}
        decoy = rng.choice([name for name in names if name not in route])
        told = page(rng, number, _LABELS, reveals, here=here, decoy=decoy, wrong=boxes * each)
        chain.tell(told, SAID, call=call, words=words)
        total, path = str(boxes * each + loose), f"counts/{here}.txt"
        command = f"echo $(({told['boxes']} * {told['each']} + {told['loose']})) > counts/{where}.txt"
        chain.act(command, {path: f"{total}\n"}, equals(path, total))
        call, words = f"./label {told['shelf']} $(cat counts/{where}.txt)", [after, total]
        where = told["shelf"]
    chain.tell("This is the last shelf, and it is empty. Thank you.", SAID, call=call, words=words)
    intent = say(
        rng,
        "Please count the stock. Begin at the shelf {first}: ./label {first} 0 reads its label to you. Write how many "
        "pieces lie there in total into counts/{first}.txt, just the number; the label also says which shelf comes "
        "next. For that, call ./label with its name and the number that you have just counted. It goes on until you "
        "come to an empty shelf, for which no file is needed.",
        "./label SHELF NUMBER shows what lies on a shelf and where to go from there, if NUMBER is the count of the "
        "shelf before (0 for the first, which is {first}). For each shelf, counts/SHELF.txt gets the number of all "
        "pieces, boxes and loose ones. The route ends at an empty shelf: no file for that.",
        "We take stock today, from the shelf {first} on. Read the label (./label {first} 0), put the total number of "
        "pieces into counts/{first}.txt, go to the shelf that the label names (./label SHELF and that number), do the "
        "same there, and stop at the empty one.",
        first=route[0],
    )
    return Draft(intent, chain, ("counts/readme.txt",), ("shop keeper", "office assistant", "bookkeeper"))


# -- An editor who sends one remark at a time about a text: a word, a line to strike, a line to add -------------------

_EDITS = {
    "replace": (
        "In the line about {line}, the word {old} is wrong: it must be {new} there. ({keep} is as I want it.)",
        "Please, {keep} stays! But where you wrote of {line} you meant {new} and wrote {old}.",
        "On {line}: say {new} for {old}, {person} insists. Nothing about {keep}.",
    ),
    "strike": (
        "The line that begins with {line} adds nothing. Strike it. I had {keep} in mind before, but that one is good.",
        "{person} and I agree that the line starting with {line} should go. Keep {keep}.",
        "One line too many: it starts with the word {line}; take it out, whatever I said about {keep}.",
    ),
    "add": (
        "Something is missing at the end. Add a last line that says only: {new} and {old}\n({person} had {keep}.)",
        "Close with a line of three words, these: {new} and {old}\nForget what {person} said about {keep}.",
        "The last line is to read: {new} and {old}\nLeave {keep} alone.",
    ),
}


def _editor(rng: Random, level: int) -> Draft:
    steps = 3 + level
    words = rng.sample(TOPICS, 36)
    lines = [" ".join(words[4 * i : 4 * i + 4]) for i in range(6)]
    spare = words[24:]
    text = "".join(f"{line}\n" for line in lines)
    files = {"chapter.txt": text, "notes.txt": prose(rng, 2)}
    chain = Chain("editor", "The editor: has one remark at a time about chapter.txt.", files)
    rules: list[str] = []
    left = list(range(6))
    rng.shuffle(left)
    for number in range(1, steps + 1):
        kind = "replace" if number == 1 or not left else rng.choice(list(_EDITS))
        index = left.pop() if kind != "add" else left[0] if left else 0
        line = lines[index].split()
        keep, person = lines[left[0] if left else index].split()[0], rng.choice(PEOPLE)
        if kind == "replace":
            old, new = line[rng.randint(1, 3)], spare.pop()
            told = page(rng, number, _EDITS[kind], {"line": line[0], "old": old, "new": new}, keep=keep, person=person)
            command = f"sed -i '/^{told['line']} /s/{told['old']}/{told['new']}/' chapter.txt"
            text = swapped(text, lines[index], lines[index].replace(old, new))
            lines[index] = lines[index].replace(old, new)
        elif kind == "strike":
            told = page(rng, number, _EDITS[kind], {"line": line[0]}, keep=keep, person=person)
            command = f"sed -i '/^{told['line']} /d' chapter.txt"
            text = swapped(text, lines[index] + "\n", "")
        else:
            old, new = spare.pop(), spare.pop()
            told = page(rng, number, _EDITS[kind], {"old": old, "new": new}, keep=keep, person=person)
            command = f"echo '{told['new']} and {told['old']}' >> chapter.txt"
            text = added(text, f"{new} and {old}")
        chain.tell(told, *rules)
        # What the text says after this step, in a place that the program keeps: progress can be seen after each one.
        chain.act(
            f"{command} && cp chapter.txt drafts-{number}.txt", {"chapter.txt": text, f"drafts-{number}.txt": text}
        )
        chain.checks.append(equals(f"drafts-{number}.txt", text))
        rules = [f"text|drafts-{number}.txt"]
    chain.tell("No more remarks. It can be printed.", *rules)
    chain.checks.append(equals("chapter.txt", text))
    intent = say(
        rng,
        "My editor has remarks about chapter.txt and makes them one at a time: run ./editor. Work each in, keep a copy "
        "of the text as it is then (drafts-1.txt after the first remark, drafts-2.txt after the second, ...), and ask "
        "for the next one, until it can be printed. Every line not spoken of stays.",
        "Please revise chapter.txt with ./editor, which shows one remark, and the next when that one is worked in and "
        "the text is saved as drafts-N.txt too (N counts the remarks from 1). Finish when there are no more remarks.",
        "Run ./editor, change chapter.txt as it asks, copy the result to drafts-1.txt, and repeat: drafts-2.txt, and "
        "so on. Stop when it has nothing more to say. Do no more to the text than you are asked.",
    )
    return Draft(intent, chain, ("notes.txt",), ("writer", "student"))


RECORDS_FAMILIES = (
    TurnFamily(
        "ledger_audit",
        "correct a ledger as an auditor finds differences",
        "./audit prints the next voucher and the amount of its paper once the last amount is right",
        _ledger_audit,
    ),
    TurnFamily(
        "bookings",
        "book rooms as they are offered",
        "./clerk prints the next offer (person, room, day, hour) once the last booking is written",
        _bookings,
    ),
    TurnFamily(
        "stock_count",
        "count shelf after shelf",
        "./label SHELF prints what lies on a shelf and which shelf is next, if the count of the one before is right",
        _stock_count,
    ),
    TurnFamily(
        "editor",
        "work in remarks about a text",
        "./editor prints the next remark (a word, a line to strike or to add) once the last is worked in and saved",
        _editor,
    ),
)
