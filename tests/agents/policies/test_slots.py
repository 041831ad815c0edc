from __future__ import annotations

from agents.policies.slots import Row, SlotTable, common_prefix, prefill_groups


def row(prompt: list[int], conversation: str) -> Row:
    return Row(conversation, prompt, 1)


def test_groups_split_where_padding_costs_more_than_a_forward() -> None:
    def rows(lengths: list[int]) -> list[Row]:
        return [row([0] * n, str(i)) for i, n in enumerate(lengths)]

    assert prefill_groups(rows([20, 19, 18, 12]), 96) == [(0, 4)]
    assert prefill_groups(rows([400, 20, 19, 18]), 96) == [(0, 1), (1, 4)]
    assert prefill_groups(rows([400, 390, 100, 90, 10, 10]), 96) == [(0, 2), (2, 4), (4, 6)]


def test_common_prefix() -> None:
    assert common_prefix([1, 2, 3], [1, 2, 3, 4]) == 3
    assert common_prefix([1, 2, 3], [1, 9, 3, 4]) == 1
    assert common_prefix([], [1]) == common_prefix([2], [1]) == 0


def test_rows_of_a_call_come_to_the_front_and_keep_their_slots() -> None:
    table = SlotTable()
    first = [row([i] * (3 + i), f"c{i}") for i in range(4)]
    table.place(first)
    for slot, placed in zip(table.slots, table.order, strict=False):
        slot.ids = list(placed.prompt)
    names = [slot.conversation for slot in table.slots]
    # Only two of them go on: they are at the front, and the others still have their ids.
    table.place([row([3] * 6 + [9], "c3"), row([1] * 4 + [9], "c1")])
    assert {slot.conversation for slot in table.slots[:2]} == {"c1", "c3"}
    assert [placed.conversation for placed in table.order] == [slot.conversation for slot in table.slots[:2]]
    assert {slot.conversation: len(slot.ids) for slot in table.slots} == {"c0": 3, "c1": 4, "c2": 5, "c3": 6}
    assert [placed.pending for placed in table.order] == [1, 1]
    # The next call finds its order as it is: nothing moves.
    before = [slot.conversation for slot in table.slots]
    table.place([row([3] * 6 + [9], "c3"), row([1] * 4 + [9], "c1")])
    assert [slot.conversation for slot in table.slots] == before
    assert sorted(filter(None, names)) == ["c0", "c1", "c2", "c3"]


def test_repeated_prompts_follow_their_leader() -> None:
    table = SlotTable()
    rows = [row([7] * 5, "c0"), row([8] * 2, "c1"), row([7] * 5, "c2")]
    assert table.place(rows) == [(0, 2)]
    assert rows[2].leader is rows[0] and table.order[2] is rows[2]


def test_forgotten_slots_are_used_again() -> None:
    table = SlotTable()
    table.place([row([1], "c0"), row([2], "c1")])
    table.forget(["c0"])
    table.place([row([3], "new")])
    assert len(table.slots) == 2 and table.slots[0].conversation == "new"
    table.forget()
    assert all(slot.conversation is None for slot in table.slots)
