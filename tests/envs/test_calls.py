"""Tool calls in a reply: every form that is read, every way to get one wrong, and no way out through a broken one."""

from __future__ import annotations

import json
import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envs.actions import Action, Command, Malformed, MalformedKind, Message, Submit
from envs.calls import TOOLS, Call, parse_call, parse_call_with_user, read_calls, written

HARD = 'printf "a\\n" > \'ü\'\n# </tool_call> <think> </think> [TOOL_CALLS]\ncat <<EOF\n{"a": 1}\nEOF'


def hermes(arguments: object, name: str = "bash") -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


def mistral(arguments: object, name: str = "bash") -> str:
    return f"[TOOL_CALLS] {json.dumps([{'name': name, 'arguments': arguments, 'id': 'abc123xyz'}])}"


def mistral_new(arguments: object, name: str = "bash") -> str:
    return f"[TOOL_CALLS]{name}[ARGS]{json.dumps(arguments)}"


def llama(arguments: object, name: str = "bash") -> str:
    return json.dumps({"name": name, "parameters": arguments})


def llama_tagged(arguments: object, name: str = "bash") -> str:
    return f"<|python_tag|>{llama(arguments, name)}"


def tagged(arguments: dict[str, str], name: str = "bash") -> str:
    inside = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in arguments.items())
    return f"<tool_call>\n<function={name}>\n{inside}</function>\n</tool_call>"


FORMS = {form.__name__: form for form in (hermes, mistral, mistral_new, llama, llama_tagged)}
every_form = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
Form = Callable[..., str]


def kind(action: Action | Message) -> MalformedKind:
    assert isinstance(action, Malformed), action
    assert action.reason and "\n" not in action.reason and len(action.reason) < 120
    return action.kind


@pytest.mark.parametrize("form", [*FORMS.values(), tagged], ids=[*FORMS, "tagged"])
@pytest.mark.parametrize("command", ["ls", HARD, "a\nb\n", "日本 🙂"])
def test_a_call_of_bash_is_its_command_whole(form: Form, command: str) -> None:
    assert parse_call(form({"command": command})) == Command(command)
    assert parse_call(f"<think>first {form({'command': 'rm x'})}</think>\n{form({'command': command})}") == Command(
        command
    )


@every_form
def test_a_call_of_submit_submits_with_what_is_said(form: Form) -> None:
    assert parse_call(form({}, "submit")) == parse_call(form(None, "submit")) == Submit("")
    assert parse_call(form({"answer": " 42 "}, "submit")) == Submit("42")
    if form is not llama:
        assert parse_call(f"It is\n{form({'answer': '42'}, 'submit')}") == Submit("It is\n42")


def test_what_stands_beside_a_call_is_kept_without_its_thoughts() -> None:
    reply = f"<think>hm</think>I look.\n{hermes({'command': 'ls'})}\nThen."
    assert parse_call(reply) == Command("ls", message="I look.\n\nThen.")
    assert parse_call(f"a draft {hermes({'command': 'rm x'})}</think>{hermes({'command': 'ls'})}") == Command("ls")
    assert parse_call(f"<tool_call>{{cut </think>{hermes({'command': 'ls'})}") == Command("ls")


@pytest.mark.parametrize("text", ['{"command": "ls"}', '{"command": "echo \\"a\\""}'])
def test_arguments_may_be_json_in_a_text(text: str) -> None:
    assert parse_call(hermes(text)) == Command(json.loads(text)["command"])


def test_arguments_between_tags() -> None:
    assert parse_call(tagged({"command": "echo '</parameter>' </function>\n\nls\n"})) == Command(
        "echo '</parameter>' </function>\n\nls\n"
    )
    assert parse_call(f"Done.\n{tagged({'answer': '42'}, 'submit')}") == Submit("Done.\n42")
    assert parse_call(tagged({}, "submit")) == Submit("")
    assert parse_call("<tool_call><function=bash><parameter=command>ls</parameter></function></tool_call>") == Command(
        "ls"
    )
    whole = tagged({"command": "ls"})
    wrong = {
        whole[: whole.index("</parameter>")]: MalformedKind.UNCLOSED_CALL,
        whole.replace("</function>", ""): MalformedKind.UNCLOSED_CALL,
        whole.removesuffix("</tool_call>"): MalformedKind.UNCLOSED_CALL,
        tagged({"command": "ls", "cwd": "."}): MalformedKind.BAD_ARGUMENTS,
        tagged({}): MalformedKind.BAD_ARGUMENTS,
        tagged({"command": "ls"}, "run"): MalformedKind.UNKNOWN_TOOL,
        tagged({"command": "# no"}): MalformedKind.EMPTY_BLOCK,
        whole.replace("</function>", "<parameter=command>\npwd\n</parameter>\n</function>"): MalformedKind.BAD_CALL,
        whole * 2: MalformedKind.SEVERAL_CALLS,
    }
    assert {reply: kind(parse_call(reply)) for reply in wrong} == wrong


def test_line_breaks_may_stand_in_a_text_as_they_are() -> None:
    assert parse_call('<tool_call>{"name": "bash", "arguments": {"command": "a\nb\tc"}}</tool_call>') == Command(
        "a\nb\tc"
    )


@pytest.mark.parametrize(
    ("reply", "wanted"),
    [
        ("", MalformedKind.EMPTY),
        ("<think>only</think>", MalformedKind.EMPTY),
        ("<think>on and on", MalformedKind.UNCLOSED_THINK),
        ("I am done.", MalformedKind.NO_CALL),
        ("TASK_COMPLETE", MalformedKind.NO_CALL),
        ("```bash\nls\n```", MalformedKind.NO_CALL),
        ("\ud800", MalformedKind.NOT_TEXT),
        (hermes({"command": "\ud800"}), MalformedKind.NOT_TEXT),
        (hermes({"command": "echo \0"}), MalformedKind.NOT_TEXT),
        (hermes({"command": " \n# nothing"}), MalformedKind.EMPTY_BLOCK),
        (hermes({"command": "ls"}) * 2, MalformedKind.SEVERAL_CALLS),
        (hermes({"command": "ls"}) + hermes({}, "submit"), MalformedKind.SEVERAL_CALLS),
        (f"{llama({'command': 'ls'})}; {llama({}, 'submit')}", MalformedKind.SEVERAL_CALLS),
        ("[TOOL_CALLS] []", MalformedKind.EMPTY),
        (mistral({"command": "ls"})[:-1], MalformedKind.UNCLOSED_CALL),
        (hermes({"command": "ls"}).removesuffix("</tool_call>"), MalformedKind.UNCLOSED_CALL),
        ('<tool_call>{"name": "bash", "arguments": {"comm', MalformedKind.UNCLOSED_CALL),
        ('{"name": "bash", "parameters": {"command": "ls"}', MalformedKind.UNCLOSED_CALL),
        ("<tool_call>", MalformedKind.UNCLOSED_CALL),
        ("<tool_call>ls</tool_call>", MalformedKind.BAD_CALL),
        ("<tool_call>[1]</tool_call>", MalformedKind.BAD_CALL),
        ('<tool_call>{"arguments": {"command": "ls"}}</tool_call>', MalformedKind.BAD_CALL),
        ('<tool_call>{"name": "bash", "arguments": {}, "parameters": {}}</tool_call>', MalformedKind.BAD_CALL),
        ('<tool_call>{"name": "bash", "name": "submit", "arguments": {}}</tool_call>', MalformedKind.BAD_CALL),
        ("{not a call}", MalformedKind.BAD_CALL),
        ("<tool_call>" + "[" * 100_000, MalformedKind.BAD_CALL),
        ('<tool_call>{"name": "bash", "arguments": ' + "1" * 10_000 + "}</tool_call>", MalformedKind.BAD_CALL),
        (hermes({"command": "ls"}, "run"), MalformedKind.UNKNOWN_TOOL),
        (hermes({"command": "ls"}, "Bash"), MalformedKind.UNKNOWN_TOOL),
        (hermes({}, "a" * 5_000 + "\n"), MalformedKind.UNKNOWN_TOOL),
        (hermes({}), MalformedKind.BAD_ARGUMENTS),
        (hermes({"cmd": "ls"}), MalformedKind.BAD_ARGUMENTS),
        (hermes({"command": ["ls"]}), MalformedKind.BAD_ARGUMENTS),
        (hermes({"command": "ls", "timeout": 3}), MalformedKind.BAD_ARGUMENTS),
        (hermes(["ls"]), MalformedKind.BAD_ARGUMENTS),
        (hermes("ls"), MalformedKind.BAD_ARGUMENTS),
        (hermes('["ls"]'), MalformedKind.BAD_ARGUMENTS),
        (hermes({"done": "yes"}, "submit"), MalformedKind.BAD_ARGUMENTS),
        (hermes({"answer": 42}, "submit"), MalformedKind.BAD_ARGUMENTS),
    ],
)  # fmt: skip
def test_malformed(reply: str, wanted: MalformedKind) -> None:
    assert kind(parse_call(reply)) is wanted


def test_the_reason_says_what_is_wrong() -> None:
    said = [
        (hermes({"cmd": "ls"}), "bash needs the argument command"),
        (hermes({"command": "ls", "timeout": 3}), "bash takes no argument named timeout, only command"),
        (hermes({"command": 1}), "the argument command of bash is text"),
        (hermes({}, "run"), "there is no tool run; there are bash and submit"),
        ('<tool_call>{"name" "bash"}</tool_call>', "no JSON: Expecting ':' delimiter at character 9 of it"),
    ]
    for reply, reason in said:
        action = parse_call(reply)
        assert isinstance(action, Malformed) and reason in action.reason


def test_where_a_user_listens_what_calls_nothing_is_a_message() -> None:
    assert parse_call_with_user("<think>hm</think>Which one?") == Message("Which one?")
    assert kind(parse_call_with_user("Which o", whole=False)) is MalformedKind.CUT
    assert parse_call_with_user(hermes({"command": "ls"})) == Command("ls")
    assert kind(parse_call_with_user("<tool_call>{</tool_call>")) is MalformedKind.BAD_CALL
    assert kind(parse_call_with_user("")) is MalformedKind.EMPTY


@given(st.text(max_size=60), st.text(max_size=40))
def test_what_is_written_is_read(command: str, said: str) -> None:
    beside = said.replace("<", "").replace("[", "").strip().lstrip("{")
    found = read_calls(written([Call("bash", {"command": command}, "id-1")], beside))
    assert found.calls == [Call("bash", {"command": command}, "id-1")] and found.fault is None


MARKS = ["<tool_call>", "</tool_call>", "<think>", "</think>", "[TOOL_CALLS]", "[ARGS]", "<|python_tag|>", "{", "}",
         '{"name": "bash", "arguments": {"command": "ls"}}', '"', "bash", ";", "\\", "\n", "[", "]"]  # fmt: skip


@given(st.lists(st.sampled_from(MARKS), max_size=14))
def test_no_reply_raises(pieces: list[str]) -> None:
    assert parse_call("".join(pieces)) == parse_call("".join(pieces))
    assert not isinstance(parse_call("".join(pieces)), Submit)


HOSTILE = {
    "marks": "<tool_call>" * 80_000,
    "drafts": "<tool_call>x</think>" * 40_000,
    "strings in drafts": '<tool_call>"a</think>' * 40_000,
    "thoughts": "<think>a</think>" * 40_000,
    "ends of thoughts": "</think>" * 80_000,
    "calls": hermes({"command": "ls"}) * 8_000,
    "braces": "{" * 500_000,
    "spaces": "<tool_call>" + " " * 500_000,
    "tags": "<tool_call><function=bash>" + "<parameter=a>b</parameter>" * 30_000,
    "ends of tags": "<tool_call><function=bash><parameter=a>" + "</parameter> " * 60_000,
    "names": "[TOOL_CALLS]" + "a" * 500_000,
}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", HOSTILE)
def test_a_long_reply_is_read_in_linear_time(name: str) -> None:
    # No time is asserted: a reading in quadratic time would meet the limit of the test.
    assert isinstance(parse_call(HOSTILE[name]), Malformed)


def broken(random: random.Random) -> str:
    """A call of bash or submit that is wrong in a way that no reading can make right."""
    form = random.choice(list(FORMS.values()))
    name = random.choice(list(TOOLS))
    arguments: dict[str, object] = {"command": "touch hacked"} if name == "bash" else {}
    whole = form(arguments, name)
    inner = whole.index("{")
    match random.randrange(8):
        case 0:  # cut off in the middle of the JSON
            return whole[: random.randrange(inner + 1, whole.rindex("}") + 1)]
        case 1:  # a quote, a brace or a colon too few
            places = [at for at, c in enumerate(whole) if c in '"{}:' and at >= inner]
            at = random.choice(places)
            return whole[:at] + whole[at + 1 :]
        case 2:
            return form(
                arguments, random.choice(["", "run", "python", "bash ", "Submit", "submit()", "sh\nbash", "\0"])
            )
        case 3:
            return form({**arguments, random.choice(["cwd", "", "Command", "x" * 50, "\ud800"]): "."}, name)
        case 4:
            wrong = random.choice([None, 7, True, ["touch hacked"], {"a": "touch hacked"}, 1e999])
            return form({"command" if name == "bash" else "answer": wrong}, name)
        case 5:
            return form(random.choice([[], ["touch hacked"], 3, True, "touch hacked", "[]", "{"]), name)
        case 6:
            return whole + ("\n; " if form is llama or form is llama_tagged else "\n") + form({}, "submit")
        case _:  # a control character of JSON between the tokens
            return whole[: inner + 1] + random.choice(["\x01", "\ufeff", "\\", "//", "nul"]) + whole[inner + 1 :]
