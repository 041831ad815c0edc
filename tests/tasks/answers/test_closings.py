from __future__ import annotations

import time

import pytest

from tasks.answers.closings import answer_end
from tasks.answers.final_number import final_number
from tasks.answers.number import NumberEquals
from tasks.assertions.base import Outcome
from tests.tasks.assertions.hostile import texts

RIGHT = [
    ("So it had 366 downloads over the 3 months.", "366"),
    ("The shop makes **10,000 toys** in 8 days.", "10000"),
    ("She earns $350 for working 25 hours at $14 per hour.", "350"),
    ("He has walked a total of 25 km during the 5 days.", "25"),
    ("They averaged 28 points per game over 3 games.", "28"),
    ("So 300 of the 500 bags were sold.", "300"),
    ("He has saved $20 out of $50.", "20"),
    ("He has 20 dollars left after 4 weeks.", "20"),
    ("It will take him 5 days to read all 120 pages.", "5"),
    ("He needs 10 more to reach 30.", "10"),
    ("In all 10 people came on the 2nd day.", "10"),
    ("She can wrap 5 x 3 = 15 boxes every 3 days.", "15"),
    ("They need 310 ounces to make 8 batches of sweets and 1 batch of fudge.", "310"),
    ("Then $3000 - $2400 = $600 will be in the account after 2 years.", "600"),
    ("So the loaf costs $6 - $2 = $4 more than 2 buns.", "4"),
    ("She needs 33 because there is 1 in each of the 33 bags.", "33"),
    ("He must train for 5 months because 24 < 26.3 and 48 > 26.3.", "5"),
    ("She will be 4 + 4 = 8 years old 4 years from now.", "8"),
    ("It will take 30 minutes (half an hour) to fill it with 450 litres.", "30"),
    ("The swimmer needs 20 laps (40 lengths if counted one way).", "20"),
    ("Hence there are 6 more girls (18) than boys (12).", "6"),
    ("Out of 150 beans, 90 are not red (and 60 are red).", "90"),
    ("The garden has 63 m^2.", "63"),
    ("The garden has 63 cm^{2}.", "63"),
    ("The cost is **$18**, of which $12 is for beans.", "18"),
    ("Altogether he has 205 cents, or $2.05.", "205"),
    ("It takes 90 minutes or 1.5 hours.", "90"),
    ("So 12 - 9 = 3 slices remain. Check: 9 + 3 = 12, which matches.", "3"),
    ("It is 18 / 1.5 = 12 km/h. Hmm, let me check: 12 × 1.5 = 18. Yes, so it's correct.", "12"),
    ("It moves 120 × 3 = 360 cm. This is the same as 3.6 metres.", "360"),
    ("5 × 8 = 40 m. So the longer rope is 40 m, compared to 32 m for the other one.", "40"),
    ("The film is 75 minutes long (that's 1 hour and 15 minutes).", "75"),
    ("The book and the pen cost $19 ($14 for the book, $5 for the pen).", "19"),
    ("### Answer\n87 flowers (63 tulips and 24 roses)", "87"),
    ("So there are **160 good muffins** left out of the original 180.", "160"),
    ("So gold rose by $300, from $1,500 to $1,800.", "300"),
    ("It now has 1200 + 180 = 1380 employees; that is 180 more than before.", "1380"),
    ("9 rooms are 3 times as many: 4 × 3 = 12. A total of 12 hours is needed for the 9 rooms.", "12"),
    ("54 dollars of wool. Profit = 234 - 54 = 180. So her profit is $180, out of revenue of $234.", "180"),
    ("The answer is fifteen.", "15"),
    ("The answer is **twenty-three** dollars.", "23"),
    ("#### two and a half", "2.5"),
    (r"\boxed{\text{fifteen}}", "15"),
    ("<answer>fifteen apples</answer>", "15"),
    ("It takes twelve minutes to fill the 300-liter tank.", "12"),
    ("She would need three 20-pound bags.", "3"),
    ("Half wear glasses, so out of the 18 girls, nine wear glasses.", "9"),
    ("In total they'd walked for six hours by then.", "6"),
    ("He needs exactly one hundred dollars for the 4 tickets.", "100"),
    ("Six years ago he'd have been fifteen.", "15"),
    ("From 9:20 to 10:20 is one hour, from 10:20 to 11:05 is forty five minutes. so a hundred and five.", "105"),
    ("It takes 20 minutes to read the 45-page book.", "20"),
    ("She scored 75% on the quiz, getting 18 of 24 right.", "75"),
    ("The school needs 3 buses. (A 4th bus would be mostly empty.)", "3"),
    ("2(14 + 9) = 46 ft.\n\n(Not to be confused with the area, which is 126 sq ft.)", "46"),
    ("So it costs 50 dollars, which is half of its original price of 100 dollars.", "50"),
    ("That gives Ben 80 stamps, 40 more than Anna.", "80"),
    ("So she makes $16 per day. If she sold every egg, it would be $18.", "16"),
    ("The total is 28. Had he bought one more pack, he would have had 32.", "28"),
    ("The total is 28 pens. With one more pack he would have 32 pens.", "28"),
    ("He saves for **9 weeks**. Note that if he had started from zero, it would have taken 13 weeks.", "9"),
    ("2.5 × 12 = 30 kg\n\n---\n**Note:** It would be wise to order at least 35 kg.", "30"),
    ("240 - 155 = 85. As a percentage that is about 35.4%.", "85"),
    ("42 × 1.2 / 3 = 16.80. So each pays $16.80, or $14 for the pizza plus $2.80 for the tip.", "16.8"),
    ("So Omar has 3 * 24 = 72 coins and Lily has 24 coins.", "72"),
    ("The film lasts 135 + 20 = 155 minutes, i.e. 2 h 35 min. It ends at 6:20 PM.", "155"),
    ("The film ends 128 + 12 = 140 minutes after 18:30, that's at 20:50.", "140"),
    ("So Mia runs 20 miles in total, which is roughly 32 km.", "20"),
    ("So they sold 140 tickets, an average of 70 per show.", "140"),
    ("19 + 2 = 21. So each friend pays $21, making $63 altogether.", "21"),
    ("So there are **120 nickels**, worth 120 × $0.05 = $6.", "120"),
    ("Therefore, the printer needs 18 minutes. For a single copy it needs 6 minutes.", "18"),
    ("So Bob had 17 coins at first: 17 - 9 = 8, which is what he has now.", "17"),
    ("So x = 5, and there are five cats. (Check: 3 * 5 + 2 = 17.)", "5"),
    ("So Kim is 35 years old now. In 5 years she will be 40, which is twice her age of 20, as required.", "35"),
    ("She needs **3 buses**. There are 6 x 25 = 150 pupils, and each bus seats 50.", "3"),
    ("120 cm. In metres, this is 1.2 m.", "120"),
    ("There were 10 birds and 3 flew off. That leaves seven.", "7"),
    ("So in 7 months she'll have saved $350, enough to buy the $320 bike.", "350"),
    ("So they need 55 chairs: 5 rows of 11.", "55"),
    ("Ana read 90 pages - 60 on Saturday and 30 on Sunday.", "90"),
    ("3 packs with 6 cans is 18 cans.\n\nIf anything is unclear, feel free to ask about step 2.", "18"),
    ("100 / 3 = 33.33, so he can buy 33 pens and has $1 left over.", "33"),
    ("0.60 × 30 = 18. So there are 18 girls and 12 boys in the class.", "12"),
    ("120 cm. In metres, this is 1.2 m.", "1.2"),
    ("$6.40 ÷ 8 = $0.80, so each battery is 80 cents.", "0.8"),
    ("It'll take her 1.5 hours, or 90 minutes.", "90"),
]
FIRST = [
    ("The school needs **3 buses**. There are 6 x 25 = 150 pupils, and each bus seats 50.", "3", "50"),
    ("Four. There are 2 dozen eggs and each cake takes 6.", "4", "6"),
    ("28 days. You can verify this: 28 / 7 = 4.", "28", "4"),
    ("Answer\n150 km\n\nExplanation\nThe car drives for 2.5 hours at 60 km/h.", "150", "60"),
    ("She reads 20 pages a day.\n\nExplanation:\nThere are 60 pages and 3 days.", "20", "3"),
    ("ten", "10", "1"),
]
REFUSED = [
    ("There isn't enough information to tell how far he walked; 3 miles would only be a guess.", "3"),
    ("We need more data to solve this. It is not given, so I can't say whether it is 20.", "20"),
    ("I'm not sure. Assuming 3 weeks it might be 21, but that can't be determined.", "21"),
    ("I cannot solve this without the price of a pen. If a pen cost $2, the total would be $14.", "14"),
    ("So it's either 36 rooms or, if they get in each other's way, maybe 27. Hard to say which!", "27"),
]
WRONG = [
    ("3 boxes of 32: 3 × 32 = 96. With 96 eggs she has 3.", "96"),
    ("8 + 4 = 12. Of 12 buns he eats some, so there are 8.", "12"),
    ("5 × 8 = 40 m. So the longer rope is 40 m, compared to 32 m for the other one.", "32"),
    ("The film is 75 minutes long (that's 1 hour and 15 minutes).", "15"),
    ("So gold rose by $300, from $1,500 to $1,800.", "1800"),
    ("She had 20, from 3 boxes, and now has 25.", "20"),
    ("It has 1200 employees; that is 100 + 80 = 180 more than before.", "1200"),
    ("His sister is 12; this is 3 more than before, so he is 9.", "12"),
    ("He has 12 (3 bags of 4), so she has 16.", "12"),
    ("So it had 366 downloads over the 3 months.", "3"),
    ("She earns $350 for working 25 hours at $14 per hour.", "25"),
    ("She earns $350 for working 25 hours at $14 per hour.", "14"),
    ("So 300 of the 500 bags were sold.", "500"),
    ("He had 20 before he spent 5 and now has 15.", "20"),
    ("She needs 30 dollars to buy 6 boxes, so each box costs 5.", "30"),
    ("He shares the 20 buns with 5 friends.", "20"),
    ("12 - 10 = 2. So he will be 12 years old in 2 years.", "12"),
    ("Each of the 5 boxes for Tom holds 3.", "5"),
    ("Hence there are 6 more girls (18) than boys (12).", "18"),
    ("Hence there are 6 more girls (18) than boys (12).", "12"),
    ("18 (20)", "18"),
    ("Altogether he has 205 cents, or $2.06.", "205"),
    ("It takes 5 minutes or 6 hours.", "5"),
    ("It takes 5 or 6 hours in 2 days.", "5"),
    ("It takes 5 or 6 hours in 2 days.", "6"),
    ("That makes 3. Check: 9 + 3 = 12, so the answer should be 4.", "3"),
    ("That makes 3. Check: 9 + 3 is not 13.", "3"),
    ("It is 3. To check: it should be 4.", "3"),
    ("The area is x^2 = 9", "2"),
    ("5 increased by 3 in 2 days", "5"),
    ("9 over 2", "9"),
    ("5 to 10", "5"),
    ("She has 5 more than 12.", "5"),
    ("The answer is one of the two.", "1"),
    ("It takes twelve minutes to fill the 300-liter tank.", "300"),
    ("She scored 75% on the quiz, getting 18 of 24 right.", "18"),
    ("The school needs 3 buses. (A 4th bus would be mostly empty.)", "4"),
    ("She makes $16 per day. If she sold every egg, it would be $18.", "18"),
    ("They are 444 miles apart.\n\n(Had I subtracted, I'd get 15 × 4 = 60 miles.)", "60"),
    ("The total is 28 pens. With one more pack he would have 32 pens.", "32"),
    ("There are 28 days in 4 weeks, because each week has 7.", "7"),
    ("At 60 mph it takes 4 hours. At 55 mph it would take longer.", "55"),
    ("They each get 4 cookies; the 5th friend gets none.", "5"),
    ("So the sum is 12. That is enough for the three of them.", "3"),
    ("So he has 12. Each of the two gets six.", "12"),
    ("They pay 45 dollars. A discount of 10% would apply, so the final price is $40.50.", "45"),
    ("She uses 4,500 grams, which is 45 kilograms of sugar.", "4.5"),
    ("She walks 120 minutes, which is 3 hours.", "120"),
    ("She'll have saved $350, enough to buy the $320 bike.", "320"),
    ("Ana read 90 pages: 60 on Saturday and 30 on Sunday.", "30"),
    ("He has 10 apples: 4 red ones and 6 green ones, so 2 more.", "10"),
    ("So seven of the ten birds stayed.", "10"),
    ("The answer is one more than five.", "1"),
    ("The answer is six or seven.", "6"),
    ("The answer is twenty-third.", "20"),
    ("The answer is fifteen hundred and.", "15"),
]


def passes(message: str, gold: str) -> bool:
    return NumberEquals(gold=gold).check(Outcome({}, {}, final_message=message)).score == 1.0


@pytest.mark.parametrize(("message", "gold"), RIGHT)
def test_the_number_that_the_closing_sentence_is_about(message: str, gold: str) -> None:
    assert passes(message, gold)
    assert passes(f"First 7 * 3 = 21.\n\n{message}", gold)


@pytest.mark.parametrize(("message", "gold"), WRONG)
def test_no_other_number_of_the_closing_sentence(message: str, gold: str) -> None:
    assert not passes(message, gold)


@pytest.mark.parametrize(("message", "gold", "other"), FIRST)
def test_an_answer_before_its_reasons(message: str, gold: str, other: str) -> None:
    assert passes(message, gold)
    assert not passes(message, other)


@pytest.mark.parametrize(("message", "gold"), REFUSED)
def test_a_reply_that_says_that_it_has_no_answer(message: str, gold: str) -> None:
    assert not passes(message, gold)
    assert passes(f"{message} On second thoughts, so it is 7 * 6 = 42.", "42")


def test_the_place_of_a_number_in_words_is_that_in_the_reply() -> None:
    message = "It takes twenty-two minutes to fill the 300-liter tank."
    found = final_number(message)
    assert found is not None and message[found.start : found.end] == "twenty-two"


def test_the_place_is_that_in_the_reply() -> None:
    message = "So it had 366 downloads over the 3 months."
    found = final_number(message)
    assert found is not None and message[found.start : found.end] == "366"


def test_nothing_is_cut_where_no_rule_applies() -> None:
    for message in ("", "18", "no number", "She has 18 and he has 20", "9 * 2 = 18 dollars"):
        assert answer_end(message) == len(message)


def test_linear_in_the_reply() -> None:
    hostile = [*texts(50), "5 a" * 9000, "5 in " * 9000, "5 because " * 5000, "(1 " * 9000, "5 to b 5 and " * 3000]
    hostile += [
        "1 if " + "a" * 390,
        "1 if" + " a" * 190,
        "1 if" + " a.a" * 98 + " 2",
        "1" + " a" * 190 + " in" * 3 + " 2",
    ]
    hostile += [
        "1 because " + "x " * 190 + "so ",
        "1 to" + " a" * 180 + " 2",
        "5. " + "would have a if had " * 40 + "2",
        "5. If " + "had would " * 70 + "2",
        "I cannot say. " * 60 + "2",
        "one " * 9000,
        "**2** " * 9000,
        "2. A. " * 9000,
        "1 in" + " the" * 95 + " 2",
        "(" * 390 + "1",
    ]
    for text in hostile:
        start = time.process_time()
        final_number(text)
        assert time.process_time() - start < 1.0
