"""Families in which a machine or a test reacts to what was done: alarms with a manual, and failing tests."""

from __future__ import annotations

from random import Random

from tasks.families.office.parts import PEOPLE, TECHNICAL, say
from tasks.families.turns.parts import Chain, Draft, TurnFamily, equals, page, setting, swapped

# -- A plant that is started up: each alarm has a code, and the manual says what a code wants -------------------------

_DEVICES = ("valve", "pump", "fan", "heater", "brake", "lamp", "gate", "mixer")
_POSITIONS = ("open", "shut", "half", "slow", "fast", "idle", "manual", "auto")

_ALARMS = (
    "+--------+--------+\n| normal | {decoy} |\n| ALARM  {code} |\n+--------+--------+",
    "pressure ok, temperature ok, {decoy} cleared at {hour}:10\nactive: {code}!",
    "{hour}:{minute} {decoy} went away by itself\n{hour}:{minute} {code} is new and stays",
    "The horn sounds. On the display {decoy} goes out, and in red appears {code}.",
)

_ENTRIES = (
    "{code}: {device} goes to {position}",
    "{code}: for this, {device} must be {position}",
    "{code}: put {device} on {position}",
)


def _panel(rng: Random, level: int) -> Draft:
    steps = 3 + level
    devices = [f"{name}-{number}" for name in _DEVICES for number in range(1, 4)]
    rng.shuffle(devices)
    devices = devices[: steps + 4]
    codes = [f"{rng.choice('AEFK')}{number}" for number in rng.sample(range(10, 99), steps + 8)]
    start = {device: rng.choice(_POSITIONS) for device in devices}
    wanted = {
        device: rng.choice([position for position in _POSITIONS if position != start[device]]) for device in devices
    }
    entries = [
        rng.choice(_ENTRIES).format(code=code, device=device, position=wanted[device])
        for code, device in zip(codes, devices, strict=False)
    ]
    entries += [
        rng.choice(_ENTRIES).format(code=code, device=rng.choice(devices), position=rng.choice(_POSITIONS))
        for code in codes[len(devices) :]
    ]
    rng.shuffle(entries)
    files = {f"panel/{device}": f"{position}\n" for device, position in start.items()}
    files["manual.txt"] = "What to do about an alarm\n\n" + "\n".join(entries) + "\n"
    chain = Chain("status", "Shows the state of the plant.", files)
    rules: list[str] = []
    for number, (code, device) in enumerate(zip(codes, devices[:steps], strict=False), start=1):
        values = {"decoy": rng.choice(codes[steps:]), "hour": rng.randint(10, 23), "minute": rng.randint(10, 59)}
        told = page(rng, number, _ALARMS, {"code": code}, **values)
        chain.tell(told, *rules)
        path = f"panel/{device}"
        command = (
            f"line=$(grep '^{told['code']}:' manual.txt) && device=$(grep -o '[a-z]*-[0-9]' <<< \"$line\") && "
            'echo "${line##* }" > "panel/$device"'
        )
        chain.act(command, {path: f"{wanted[device]}\n"}, equals(path, wanted[device]))
        rules = [f"text|{path}"]
    chain.tell("All lamps are green.", *rules)
    intent = say(
        rng,
        "Start up the plant. ./status shows the alarm of the moment; manual.txt says which device must then be put "
        "where. A device is a file in panel/ that holds its position (one word). Deal with the alarms until all lamps "
        "are green, and move no device without need.",
        "The plant does not come up. Read ./status, look up the code of the alarm that is on in manual.txt, write the "
        "position into the device's file in panel/, and look at the status again, until every lamp is green.",
        "./status tells what is wrong with the plant just now, manual.txt what to do about each code: a device, which "
        "is a file in panel/, gets a new position. Do that for one alarm after the other until none is left.",
    )
    rest = tuple(f"panel/{device}" for device in devices[steps:])
    return Draft(intent, chain, ("manual.txt", *rest), TECHNICAL)


# -- Tests that fail one after the other: each failure tells what a case expects --------------------------------------

_ZONES = ("north", "south", "east", "west", "island", "coast", "hills", "town")
_KINDS = ("letter", "parcel", "express", "pallet")

_FAILURES = (
    "FAIL: test_{kind} (line {line})\n  a {kind} to the {zone}: expected {price}, got {old}\n  ({passed} "
    "passed, {decoy} "
    "among them)",
    "test_rates.py:{line}: in test_{kind}\n-    {old}\n+    {price}\nwhere the address was in the zone {zone} (for "
    "{decoy} it was right)",
    "{passed} passed, 1 failed: the zone {zone}, sent as {kind}. The contract of March has {price} there; the "
    "code says "
    "{old}. {decoy}: fine.",
    "AssertionError at line {line}: {old} is not what it should be. {kind} into {zone} costs {price}. Skipped: {decoy}",
)


def _failing_tests(rng: Random, level: int) -> Draft:
    steps = 3 + level
    zones, kinds = rng.sample(_ZONES, 5), rng.sample(_KINDS, 3)
    places = [(kind, zone) for kind in kinds for zone in zones]
    prices = dict(zip(places, rng.sample(range(100, 999), len(places)), strict=True))

    def code(now: dict[tuple[str, str], int]) -> str:
        lines = [f'    "{kind}_{zone}": {now[kind, zone]},' for kind, zone in places]
        return "\n".join(
            ['"""Prices in cents."""', "", "RATES = {", *lines, "}", "", "", "def price(kind, zone):"]
            + ['    return RATES[f"{kind}_{zone}"]', ""]
        )

    text = code(prices)
    chain = Chain("run_tests", "Runs the tests of rates.py and stops at the first failure.", {"rates.py": text})
    rules: list[str] = []
    fresh = iter(rng.sample([number for number in range(100, 999) if number not in prices.values()], steps))
    for number, (kind, zone) in enumerate(rng.sample(places, steps), start=1):
        old, new = prices[kind, zone], next(fresh)
        values = {"line": 10 + 7 * number, "old": old, "passed": 4 + number, "decoy": rng.choice(PEOPLE).lower()}
        decoy = rng.choice([z for z in zones if z != zone])
        told = page(rng, number, _FAILURES, {"kind": kind, "zone": zone, "price": new}, **{**values, "decoy": decoy})
        chain.tell(told, *rules)
        before, after = f'"{kind}_{zone}": {old},', f'"{kind}_{zone}": {new},'
        text = swapped(text, before, after)
        name = f"{told['kind']}_{told['zone']}"
        command = f'sed -i \'s/"{name}": [0-9]*/"{name}": {told["price"]}/\' rates.py'
        chain.act(command, {"rates.py": text}, setting("rates.py", f"{kind}_{zone}", new))
        rules = [f"value|rates.py|{kind}_{zone}"]
    chain.tell("All tests passed.", *rules)
    chain.checks.append(equals("rates.py", text))
    intent = say(
        rng,
        "Make ./run_tests pass: the table in rates.py has wrong prices. The tests stop at the first failure and say "
        "what they expected there. Correct that price, run them again, and so on. Only numbers of the table may "
        "change.",
        "./run_tests checks rates.py and fails. The tests are right. Fix in the table of rates.py what the failure is "
        "about, then look for the next failure, until all tests pass; leave the form of the file alone.",
        "Some prices in rates.py are out of date, and ./run_tests knows which, but shows only the first failure at a "
        "time. Put the expected numbers into the table until everything passes. Do not rewrite the rest of the file.",
    )
    return Draft(intent, chain, (), TECHNICAL)


MACHINES_FAMILIES = (
    TurnFamily(
        "panel",
        "start up a plant alarm by alarm",
        "./status shows the next alarm code, beside codes that went away, once the last is dealt with; manual.txt has "
        "what a code wants",
        _panel,
    ),
    TurnFamily(
        "failing_tests",
        "make tests pass that fail one after the other",
        "./run_tests prints the next failure (case and expected price) once the last price is right",
        _failing_tests,
    ),
)
