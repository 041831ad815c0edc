from __future__ import annotations

import pytest

from tests.tasks.answers.ifbench.readings import BOTH, NEITHER, ONLY_FIXED, ONLY_PUBLISHED, readings

CITY = "\n".join(["ID,Country,City,Year,Count", *(f"{row},Italy,Bari,2001,3" for row in range(7))])
PRODUCTS = [
    "ProductID,Category,Brand,Price,Stock",
    '1,Tea,"A & B",4,9',
    *(f"{n},Tea,Oak,4,9" for n in range(2, 15)),
]
STUDENTS = "\n".join(
    "\t".join(f'"{cell}"' for cell in row)
    for row in (
        ["StudentID", "Subject", "Grade", "Semester", "Score"],
        *(["1", "Art", "2", "1", "9"] for _ in range(3)),
    )
)


@pytest.mark.parametrize(
    ("id", "text", "expected"),
    [
        ("custom:csv_city", CITY, BOTH),
        ("custom:csv_city", CITY + "\n", BOTH),
        ("custom:csv_city", CITY.replace("\n", "\n\n", 1), ONLY_FIXED),
        ("custom:csv_city", CITY.replace(",", ", "), ONLY_FIXED),
        ("custom:csv_city", CITY + "\n8,Italy,Bari,2001,3", NEITHER),
        ("custom:csv_city", CITY.replace("City", "Town"), NEITHER),
        ("custom:csv_city", CITY.replace("Bari", "Bari,x", 1), NEITHER),
        ("custom:csv_city", CITY.replace("Bari", "x" * 200_000, 1), NEITHER),
        ("custom:csv_city", CITY.replace("Bari", "Ba\0ri", 1), BOTH),
        ("custom:csv_special_character", "\n".join(PRODUCTS), BOTH),
        ("custom:csv_special_character", "\n".join(PRODUCTS).replace(" & ", ""), NEITHER),
        ("custom:csv_special_character", "\n".join(PRODUCTS).replace('"', ""), NEITHER),
        ("custom:csv_special_character", "\n".join([*PRODUCTS[:-1], "14,Tea,Oak"]), ONLY_PUBLISHED),
        ("custom:csv_special_character", "\n\n".join(PRODUCTS), ONLY_FIXED),
        ("custom:csv_special_character", "\n".join(PRODUCTS[:-1]), NEITHER),
        ("custom:csv_special_character", "\n".join(PRODUCTS).replace("Stock", "Store"), NEITHER),
        ("custom:csv_quotes", STUDENTS, BOTH),
        ("custom:csv_quotes", STUDENTS.replace("\n", "\n\n"), ONLY_FIXED),
        ("custom:csv_quotes", STUDENTS.replace('"Art"', "Art", 1), NEITHER),
        ("custom:csv_quotes", STUDENTS.replace("\t", ","), NEITHER),
        ("custom:csv_quotes", STUDENTS.replace('"Art"', "", 1), NEITHER),
        ("custom:csv_quotes", STUDENTS.replace('"Subject"', "Subject"), NEITHER),
    ],
    ids=lambda value: str(value)[:40],
)
def test_readings(id: str, text: str, expected: tuple[bool, bool]) -> None:
    assert readings(id, text) == expected
