from __future__ import annotations

import random
import time
from typing import Any

import pytest

from tasks.answers.closings import CLAUSES, answer_end
from tasks.answers.final_number import final_number
from tasks.answers.number_equals import NumberEquals
from tasks.answers.remarks import SENTENCES, own_turn, remarks_start
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
RIGHT += [
    ("So the price was reduced by 25%.", "25"),
    ("The shelf life is increased by about 3 days.", "3"),
    ("The fare got reduced by $12.", "12"),
    ("So 3 * 5 = 15. If he had gone for 3 more, it would have been $47 instead.", "15"),
    ("6 * 1200 = 7,200. Thus, it makes **7,200** good toys in 6 days, out of 7,500 toys in total.", "7200"),
    ("28 × 1.5 = 42. It costs **forty-two dollars** ($42) for the trip.", "42"),
    ("The truck holds 1,600 kg, so it can carry 1,600 − 1,350 = 250 kg more. That would be 3 crates (225 kg).", "250"),
    ("280 + 204 = 484. Rita earns $484... although after taxes of 15% she would take home about $411.40.", "484"),
    ("96 - 66 = 30. So she needs 30 / 6 = 5 more pages, for a total of 16 pages.", "5"),
    ("52/6.5=8\n8 weeks. unless he skips the snacks lol then its 6", "8"),
    ("I get 67 — 48 to start, minus 5 broken, plus 24 new. Someone else might say 72 if they forget the 5.", "67"),
    ("ok so 2 pizzas = 36 bucks, split 3 ways, twelve dollars each", "12"),
    ("21 divided by 3, so seven apples each", "7"),
    ("12 months × $22 = $264 a year. Adding the fee makes it $304, but that is only paid once, not part of it.", "264"),
    ("20 - 4 = 16. So it's $16, not $18.", "16"),
    ("She bought 12 eggs, not counting the 3 that broke.", "12"),
    ("It takes 8 weeks – possibly 7 if he skips snacks.", "8"),
    ("So she pays $30, before the 8% tax.", "30"),
    ("So the total distance is 240 km. The direct route would have been 180 km.", "240"),
    ("20 + 15 = 35\n\nSara has 35 stickers now. Before that she had 20.", "35"),
    ("Sara has 35 stickers. She started with 20 and got 15 more.", "35"),
    ("She has 50 - 30 = 20 dollars left. I ignored the $5 gift card because it wasn't used.", "20"),
    ("7 * 3 = 21 goats. The 3 babies bring it to 24, but they are not asked for.", "21"),
    ("7 / 2 = 3.5 hours, or 3 hours and 30 minutes.", "3.5"),
    ("280 / 50 = 5.6, round up to 6", "6"),
    ("90 - 18 = 72. So she keeps 72 of them and gives away 18.", "72"),
    ("4+5+6+7+8 = 30. She runs 30 km, and on Saturday she'd run 9.", "30"),
    ("7*3 = 21. Adding the 3 babies gives 24.", "24"),
    ("12 * 5 = 60, so with the fee it is 70.", "70"),
]
RIGHT += [
    ("Rounding up gives 4 vans, with 2 empty seats.", "4"),
    ("So they need 4 vans; 3 would only carry 18.", "4"),
    ("22 / 6 ≈ 3.67 → 4 vans", "4"),
    ("66 remain after 33 are eaten.", "66"),
    ("So the sum is 15. This assumes all 3 of them came.", "15"),
    ("It's 15; strictly speaking 15.2, but you can't buy part of a pen.", "15"),
    ("100 / 3 = 33.33, so at most 33 pens.", "33"),
    ("She needs at least 90 points.", "90"),
    ("She'd have 15 left. That is 5 less than her 20 friends need.", "15"),
    ("Together they're 27, as Ann is 9 and Bob 18.", "27"),
    ("Together they're 27 years old: Ann is 9, Bob is 18.", "27"),
    ("3^2 = 9. So it takes 9 tiles, each 1 foot on a side.", "9"),
    ("The total, 30, is less than the 40 she hoped for.", "30"),
    ("It is 16 and not 14.", "16"),
]
RIGHT += [
    ("He has 17 now; he had 12 before.", "17"),
    ("Total: 24\n- Day 1: 8\n- Day 2: 8\n- Day 3: 8", "24"),
    ("The answer is 18. Oops, that's wrong; it should be 20.", "20"),
    ("The answer is 18. Wait, let me check: 9 * 2 = 18.", "18"),
    ("The answer is 18. This is not 20.", "18"),
]
RIGHT += [
    ("She has 45 eggs, though 5 of them broke, leaving 40.", "40"),
    ("So they have 45 - 15 = 30 left, and each of the 3 kids would get 10.", "10"),
    ("45 - 15 = 30. If they split it 3 ways, each would get 10.", "10"),
    ("33 pens, including the 3 free ones.", "33"),
    ("Since 1/4 of 64 is 16, sixteen students chose soccer.", "16"),
    ("300 + 600 = 900 calories total for both meals; lunch alone is 300.", "900"),
    ("48, packed in 4 boxes", "48"),
    ("She read 24 pages in 3 days, 8 a day.", "24"),
    ("There are 48 eggs, 12 in each box.", "48"),
    ("1.25 × 60 = 75. An hour has 60 minutes.", "75"),
    ("So 75 / 15 = 5 hours. There are 60 minutes in an hour.", "5"),
    ("So it's 25%, or 1 in 4.", "25"),
]
RIGHT += [
    ("3/4 of 32 is 24. The other 32 - 24 = 8 walk. So out of 32 students, 8 walk and 24 ride the bus.", "8"),
    ("32 - 24 = 8. So there are 8 girls and 24 boys.", "8"),
]
RIGHT += [
    ("She needs thirteen weeks, since 14 x 13 = 182.", "13"),
    ("She needs 13 weeks because $14 x 13 = $182.", "13"),
    ("He can skip 4 classes because 10 - 4 = 6", "4"),
    ("She has twelve pens, since 3 * 4 = 12.", "12"),
]
TURNS = [
    ("280 - 120 = 160. The answer is 160.\n\nQuestion: Tom has 12 and 8.\nAnswer: The answer is 20.", "160", "20"),
    ("So the answer is: 24.\n\nHuman: Thanks! And 8?\n\nAssistant: So the answer is: 12.", "24", "12"),
    ("60 - 35 = 25 left.\n\nQuestion: Mom adds 20.\nAnswer: 25 + 20 = 45 candies.", "25", "45"),
    ("12 + 3 = 15.\n\nUser: What about 20?\nAssistant: 20 + 3 = 23", "15", "23"),
    ("12 + 3 = 15<|im_end|>\n<|im_start|>user\nNow 4?", "15", "4"),
    ("So 12 + 3 = 15.\n\n### Instruction:\nAdd 4 and 5.\n### Response:\n9", "15", "9"),
    ("So 12 + 3 = 15.\n\nProblem 2: 4 cats and 5 dogs.\nSolution: 4 + 5 = 9", "15", "9"),
    ("7*3 = 21\n\n\nExercise 4: Find 5*5. \n25", "21", "25"),
    ("#### 21\n---\nQ: What is 5*5?\nA: 25\n#### 25", "21", "25"),
    ("**Given:** 5 apples.\n**Question:** How many are there without 2?\n**Solution:** 5 - 2 = 3.", "3", "5"),
    ("Question: 5 apples, 2 eaten, how many left?\nAnswer: 5 - 2 = 3", "3", "2"),
    ("\nUser: and then?\n\nThe answer is 4.", "4", "5"),
]
FIRST = [
    ("The school needs **3 buses**. There are 6 x 25 = 150 pupils, and each bus seats 50.", "3", "50"),
    ("Four. There are 2 dozen eggs and each cake takes 6.", "4", "6"),
    ("28 days. You can verify this: 28 / 7 = 4.", "28", "4"),
    ("Answer\n150 km\n\nExplanation\nThe car drives for 2.5 hours at 60 km/h.", "150", "60"),
    ("She reads 20 pages a day.\n\nExplanation:\nThere are 60 pages and 3 days.", "20", "3"),
    ("ten", "10", "1"),
    ("9.\nIt is 11 - 20 = -9.", "9", "-9"),
    ("5 below zero.\n\nExplanation: 12 - 17 = -5.", "5", "-5"),
    ("9.\nIt is 11 - 20 = -9. So the balance is -9.", "-9", "9"),
    ("-45\nThe difference is 52 - 7 = <<52-7=45>>45.", "45", "-45"),
]
FIRST += [
    (
        "$264\n\n12 months × $22 = $264 a year. Adding the fee makes it $304, but that is only paid once so I left it "
        "out of the cost.",
        "264",
        "304",
    ),
    ("**Victor pays $30.** If it was for the whole order, he'd pay $60 instead.", "30", "60"),
    ("The school needs **3 buses**, because 6 x 25 = 150.", "3", "150"),
]
FIRST += [
    ("It is $54.00.\n\nExplanation: the base is $30 and the texts cost 240 × $0.10 = $24.00.", "54", "24"),
    ("It is $54.\n\n**Reason:** the base is $30 and the texts cost 2 × 12 = $24.", "54", "24"),
    ("He has 6 left. Here is how: he had 30 and gave away 2 x 12 = 24.", "6", "24"),
    ("She reads 20 pages a day. Here is why: There are 60 pages and 3 days.", "20", "3"),
]
REFUSED = [
    ("It depends: 5 if it rains, 7 if not.", "7"),
    ("No idea, 5?", "5"),
    ("20 if the first day does not count, otherwise 22.", "20"),
    ("20 if the first day does not count, otherwise 22.", "22"),
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
    ("The price of 20 was reduced by 5", "5"),
    ("A price of 20 was reduced by 5", "20"),
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
WRONG += [
    ("66 remain after 33 are eaten.", "33"),
    ("She'd have 15 left. That is 5 less than her 20 friends need.", "20"),
    ("Together they're 27, as Ann is 9 and Bob 18.", "18"),
    ("Together they're 27 years old: Ann is 9, Bob is 18.", "18"),
    ("He sold 21, and 3 more would make 24, so he needs 3.", "21"),
    ("So 12 + 3 = 15. However, with the fee it would be 18, so the answer must be 18.", "15"),
    ("She pays 20, although with the tip she pays 24, so 24 is what she spends.", "20"),
    ("9 dollars a day for 5 days is 45. For 4 weeks that would be 180 dollars.", "45"),
    ("After the 25% discount the price falls from $80 to $60.", "25"),
]
WRONG += [
    ("He has 17 now; he had 12 before.", "12"),
    ("Total: 24\n- Day 1: 8\n- Day 2: 8\n- Day 3: 8", "8"),
    ("The answer is 18. Oops, that's wrong; it should be 20.", "18"),
    ("\\boxed{18}\n\nActually, it is 20.", "18"),
]
WRONG += [
    ("3/4 of 32 is 24. The other 32 - 24 = 8 walk. So out of 32 students, 8 walk and 24 ride the bus.", "24"),
    ("30 - 18 = 12. So there are 12 girls and 19 boys.", "12"),
    ("32 - 24 = 8. So it is 8 and 24.", "8"),
]
WRONG += [
    ("She needs thirteen weeks, since 14 x 13 = 182.", "182"),
    ("He can skip 4 classes because 10 - 4 = 6", "6"),
    ("He runs 30 mph because 120 / 60 = 2", "30"),
    ("She needs thirteen weeks, since 14 x 12 = 168.", "13"),
    ("He gets 5 each because 3 x 5 = 15 so he pays 15.", "5"),
]
WRONG += [
    ("It is $55.\n\nExplanation: the base is $30 and the texts cost 240 × $0.10 = $24.", "55"),
    ("It is $50.\n\nExplanation: $30 plus 240 × $0.10 = $24, and 30 + 24 = 54.", "50"),
    ("It is $54.\n\nExplanation: the base is $30 and she sent 2 × 12 = 24, so she pays $24.", "54"),
    ("There are 16 eggs.\n\nReason: 16 - 7 = 9", "16"),
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


@pytest.mark.parametrize("rule", [*SENTENCES, *CLAUSES], ids=lambda rule: rule.name)
def test_each_rule_cuts_its_example_at_the_bar(rule: Any) -> None:
    said, _, _ = rule.example.partition("|")
    text = rule.example.replace("|", "")
    cut = remarks_start(text) if rule in SENTENCES else answer_end(text)
    assert text[:cut].rstrip(" (") == said.rstrip(" (")


@pytest.mark.parametrize(("message", "gold", "other"), TURNS)
def test_a_reply_ends_where_another_turn_begins(message: str, gold: str, other: str) -> None:
    assert passes(message, gold)
    assert not passes(message, other)


def test_no_turn_begins_at_a_line_of_the_reply_itself() -> None:
    for message in (
        "So it has 2 parts.\nQuestion 1: 9?",
        "Adult: 2 × 10 = 20\nStudent: 3 × 5 = 15\nTotal: 35",
        "- Human: 2 legs\n- Human: 2 legs\nSo 4.",
        "Question: how many?",
        "So 5 users: 3 + 2 = 5",
        "The problem: 3 + 2",
        "a | b : c\n\nStep 2: 5",
    ):
        assert own_turn(message) == message


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


PIECES = (
    "30%", "$30.00", ", or ", "=", "100*.30", "\n", " ", "each", "**", ".", "\t", " is ", "So ", "\u2028", "1/2", "-",
    "(", " and ", "which is", "(check: ", "14.50", "27 * ", "12 boxes", "per day", " for all", "$391.50",
)  # fmt: skip


def test_whatever_a_reply_is_made_of_it_is_read() -> None:
    found = final_number("The discount is 30% of the full price, or 100*.30 = $30.00\n")
    assert found is not None and found.number == 30
    draw = random.Random(0)
    for _ in range(2000):
        final_number("".join(draw.choice(PIECES) for _ in range(draw.randint(1, 14))))


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
    hostile += [
        "5\n\nQuestion" * 5000,
        "5\n" + "\n \n " * 9000 + ":",
        "if 5 " * 9000 + ", otherwise 5",
        "5, and " + "would " * 9000 + "5",
        "5 - " + "3, plus 4, minus 5, " * 3000,
        "5 apples, " * 9000,
        "5 since 1 x " * 9000 + "= 5",
        "five because " + "1 " * 9000 + "= 5",
        "I ignored " * 9000 + "5. It was 5",
        "seven and " * 9000,
        "5 = seven, " * 9000 + "seven",
        "5... although " * 5000,
    ]
    for text in hostile:
        start = time.process_time()
        final_number(text)
        assert time.process_time() - start < 1.0
