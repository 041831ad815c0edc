"""Images of tasks: which Dockerfiles are taken, and that a foreign image works as a sandbox, or says why not."""

from __future__ import annotations

import pytest

from sandboxes import Backend, SandboxUnavailable, open_sandbox
from sandboxes.docker.dockerfile import BuildFailed, bases, build, dockerfile_problem, image_ids, tag_of
from sandboxes.docker.engines import client, find_engines
from sandboxes.docker.launcher import default_image
from sandboxes.inside.variables import environment
from sandboxes.sandbox import Terms
from tests.sandboxes.conftest import engine_for, require

STAGES = """\
# a remark
FROM one:1 AS build
RUN a \\
    # a remark inside
    b \\
    FROM
FROM build as second
FROM --foo=1 registry:5000/two
COPY --from=build /a /b
COPY --from=0 /a /b
FROM scratch
"""


def test_stages_are_told_from_images() -> None:
    assert dockerfile_problem(STAGES) is None
    assert bases(STAGES) == ["one:1", "registry:5000/two"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("FROM a\nCOPY --from=other:1 /a /b", "has `COPY --from=other:1 /a /b`"),
        ("FROM a\nRUN x \\\n\n  y\nCO\\\nPY x y", "has `COPY"),
        ("FROM a\nCOPY --chown=1 x y", "has `COPY --chown=1 x y`"),
        ("ARG B=x\nFROM ${B}", "begins a stage with `FROM ${B}`"),
        ("FROM --platform=linux/arm64 a", "begins a stage with"),
        ("FROM", "begins a stage with"),
        ("#escape=`\nFROM a", "has the directive `# escape=`"),
        ("# only a remark", "has no FROM"),
        ("FROM a\n" + "#" * 70_000, "more than 65536 bytes"),
    ],
)
def test_what_could_bring_in_more_than_the_engine_has_is_refused(text: str, words: str) -> None:
    assert words in (dockerfile_problem(text) or "")


@pytest.mark.docker
@pytest.mark.parametrize(
    ("step", "words"),
    [
        (
            "RUN rm -f /bin/bash /usr/bin/bash",
            "there is no bash in /bin or /usr/bin, which every command needs",
        ),
        ("RUN rm -f /usr/bin/python3", "has no python3, which the supervisor needs; remedy: install bash and python3"),
        ("RUN false", "RUN false"),
    ],
    ids=["bash", "python3", "step"],
)
def test_an_image_that_cannot_serve_says_why_in_one_line(step: str, words: str) -> None:
    text = f"FROM turngym-shell:bookworm\nUSER root\n{step}\n"
    with engine_for(Backend.DOCKER):
        require(Backend.DOCKER)
        with open_sandbox(Backend.DOCKER) as sandbox:
            try:
                with pytest.raises((SandboxUnavailable, BuildFailed)) as error:
                    sandbox.open({}, terms=Terms(image=build(text, say=lambda line: None)))
            finally:
                for engine in find_engines():
                    if client(engine).api.images(tag_of(text)):
                        client(engine).api.remove_image(tag_of(text), force=True)
            assert words in str(error.value) and len(str(error.value).splitlines()) == 1
            sandbox.open({"a": "lives\n"})
            assert sandbox.run("cat a").stdout == b"lives\n"


@pytest.mark.docker
def test_an_image_is_known_by_the_id_that_its_containers_have() -> None:
    with engine_for(Backend.DOCKER):
        require(Backend.DOCKER)
        name, missing = default_image(), "turngym-shell:no-such-tag"
        found = image_ids([name, missing])
        assert found[missing] == [] and found == image_ids([name, missing])
        engine = find_engines()[0]
        assert found[name] == [client(engine).images.get(name).id] and found[name][0].startswith("sha256:")
    with pytest.raises(SandboxUnavailable, match="no container engine answers"):
        image_ids([name], hosts=["unix:///nowhere/engine.sock"])


SETS = """\
FROM turngym-shell:bookworm
ENV PATH=/workspace/bin:/opt/tool/bin:$PATH MODE=image ZONE=image LANG=C.UTF-8 HOME=/root PYTHONPATH=/workspace:/opt/lib
ENV LD_LIBRARY_PATH=/workspace BASH_ENV=/workspace/e
USER root
RUN mkdir -p /opt/tool/bin && printf '#!/bin/sh\\necho image\\n' >/opt/tool/bin/tool && chmod +x /opt/tool/bin/tool
"""
ASKED = 'echo "$MODE $ZONE $LANG $HOME ${PYTHONPATH-} ${LD_LIBRARY_PATH-} ${BASH_ENV-}"; tool'


@pytest.mark.docker
def test_commands_have_what_the_image_sets_and_judges_nothing_of_the_agents() -> None:
    with engine_for(Backend.DOCKER):
        require(Backend.DOCKER)
        try:
            terms = Terms({"ZONE": "task"}, image=build(SETS, say=lambda line: None))
            with open_sandbox(Backend.DOCKER) as sandbox:
                sandbox.open({"os.py": "raise SystemExit(9)\n"}, terms=terms)
                theirs = sandbox.run(ASKED).stdout_text
                assert theirs == "image task C.UTF-8 /workspace /workspace:/opt/lib /workspace \nimage\n"
                sandbox.run("mkdir bin; cp /bin/true bin/tool; cp /bin/true bin/python3")
                judged = sandbox.judge(f"python3 -c 'print(1)'; {ASKED}", {}, timeout=20, env={}, private=False)
                assert judged.stdout.startswith(b"1\nimage task C.UTF-8 /turngym-grader")
                assert judged.stdout.endswith(b" /opt/lib  \nimage\n")
                sandbox.reset()
                sandbox.run("unset PATH")
                assert sandbox.run("tool").stdout == b"image\n"
                sandbox.open({})
                told = {
                    line for line in sandbox.run("env").stdout_text.splitlines() if line[:4] not in ("SHLV", "PWD=")
                }
                ours = {f"{name}={value}" for name, value in environment("/workspace", "/tmp").items()}
                assert {line for line in told if line[:2] != "_="} == ours
        finally:
            for engine in find_engines():
                client(engine).api.remove_image(tag_of(SETS), force=True)
