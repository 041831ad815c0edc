"""Small draws that the families share: names, lines, texts."""

from __future__ import annotations

from random import Random

from tasks.families.words import FILE_NAMES, WORDS


def names(rng: Random, count: int) -> list[str]:
    """Return `count` different file names."""
    return rng.sample(FILE_NAMES, count)


def pairs(rng: Random, count: int) -> list[str]:
    """Return `count` lines of two words; no word stands twice in them."""
    drawn = rng.sample(WORDS, 2 * count)
    return [f"{drawn[2 * i]} {drawn[2 * i + 1]}" for i in range(count)]


def singles(rng: Random, count: int) -> list[str]:
    """Return `count` lines of one word, all different."""
    return rng.sample(WORDS, count)


def text(lines: list[str]) -> str:
    """Return the lines as a text file holds them."""
    return "\n".join(lines) + "\n"


def some_text(rng: Random, least: int = 2, most: int = 4) -> str:
    """Return a file's text of `least` to `most` lines of two words."""
    return text(pairs(rng, rng.randint(least, most)))


def marked(rng: Random, lines: int, hits: int) -> tuple[list[str], list[bool], str]:
    """Draw lines of which some hold a key word.

    Returns:
        The lines (two words each), for each whether it holds the key word, and the key word.
    """
    key, *drawn = rng.sample(WORDS, 2 * lines + 1)
    chosen = set(rng.sample(range(lines), hits))
    out = []
    for i in range(lines):
        first, second = drawn[2 * i], drawn[2 * i + 1]
        if i in chosen:
            first, second = rng.choice(((key, second), (first, key)))
        out.append(f"{first} {second}")
    return out, [i in chosen for i in range(lines)], key
