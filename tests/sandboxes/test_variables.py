from __future__ import annotations

from pathlib import Path

import pytest

from sandboxes import Limits, SupervisedSandbox, local
from sandboxes.inside.variables import environment, graders_part, with_image
from sandboxes.sandbox import Terms

OWN = environment("/workspace", "/tmp")
REST = "/usr/local/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"


@pytest.mark.parametrize(
    ("told", "found"),
    [
        ([], {}),
        ([f"{name}={value}" for name, value in OWN.items()], {}),
        (["APP_MODE=a=b", "LANG=de_DE.UTF-8", "EMPTY="], {"APP_MODE": "a=b", "LANG": "de_DE.UTF-8", "EMPTY": ""}),
        (["PATH=/opt/x/bin:/usr/bin::bin"], {"PATH": f"/opt/x/bin:/usr/bin:bin:{REST}"}),
        (["HOME=/root", "TMPDIR=/x", "LC_CTYPE=C", "PWD=/x", "GRADER=/x", "BASH_ENV=/x", "BASHOPTS=x", "_tg_s=x"], {}),
        (["UID=0", "SHELLOPTS=xtrace", "npm_config.x=1", "A-B=1", "=x", "n\u00e4me=1"], {}),
        (["LD_PRELOAD=/opt/a.so", "PYTHONPATH=/opt/lib"], {"LD_PRELOAD": "/opt/a.so", "PYTHONPATH": "/opt/lib"}),
    ],
    ids=["nothing", "ours", "plain", "path", "the sandbox's", "not a shell's", "loading code"],
)
def test_what_an_image_sets_is_taken_where_it_is_not_ours(told: list[str], found: dict[str, str]) -> None:
    assert with_image(OWN, told) == {**OWN, **found}


@pytest.mark.parametrize(
    ("name", "value", "kept"),
    [
        ("PATH", "/opt/bin:/usr/bin", "/opt/bin:/usr/bin"),
        ("PATH", "@W/bin:/opt/bin:bin:@W:@L:/proc/self/cwd:/dev/fd/3:@W/../w/x:/proc/self/cwd/bin", "/opt/bin"),
        ("PYTHONPATH", "/opt/lib:", "/opt/lib"),
        ("PYTHONPATH", "@W", None),
        ("PYTHONPATH", "/", None),
        ("PYTHONPATH", "@W/..", None),
        ("LD_PRELOAD", "/opt/a.so @W/b.so", "/opt/a.so"),
        ("LD_LIBRARY_PATH", "/opt/x;@W;$ORIGIN/lib", "/opt/x"),
        ("LD_BIND_NOW", "1", None),
        ("NODE_OPTIONS", "--require @W/x.js", None),
        ("PYTHONPYCACHEPREFIX", "@W/x", None),
        ("APP_HOME", "@W", "@W"),
        ("EMPTY", "", ""),
    ],
)
def test_graders_get_no_place_that_the_agent_writes_to(name: str, value: str, kept: str | None, tmp_path: Path) -> None:
    place = tmp_path / "w"
    place.mkdir()
    (tmp_path / "link").symlink_to(place / "bin")
    value, kept = (text and text.replace("@W", str(place)).replace("@L", f"{tmp_path}/link") for text in (value, kept))
    assert graders_part({name: value}, [str(place)]) == ({} if kept is None else {name: kept})


def test_a_shell_has_what_an_image_sets_and_its_judges_no_more_than_they_may(monkeypatch: pytest.MonkeyPatch) -> None:
    told = ["MODE=it's", "PYTHONPATH=lib", "ENV=x", "PYTHONSTARTUP=/opt/s"]

    def of_image(workspace: str, tmp: str) -> dict[str, str]:
        return with_image(environment(workspace, tmp), [*told, f"PATH={workspace}/bin:/opt/x/bin"])

    monkeypatch.setattr(local, "environment", of_image)
    shown = (
        'echo "$MODE|${PYTHONPATH-}|${ENV-}|$PYTHONSTARTUP|$ZONE"; tool 2>/dev/null; unset PATH; echo "${PATH-none}"'
    )
    with SupervisedSandbox(local.LocalLauncher(Limits(), allow_root=True)) as sandbox:
        sandbox.open({"lib/os.py": "raise SystemExit(9)\n"}, terms=Terms(environment={"MODE": "task", "ZONE": "z"}))
        sandbox.run("mkdir bin; echo 'echo agent' >bin/tool; chmod +x bin/tool")
        theirs = sandbox.run(shown)
        clean = sandbox.run(shown, state="clean")
        judged = sandbox.judge(f"python3 -c 'import os' && {shown}", {}, timeout=9, env={"ZONE": "own"}, private=False)
    assert theirs.stdout == b"task|lib|x|/opt/s|z\nagent\nnone\n"
    assert clean.stdout == b"task|||/opt/s|z\nnone\n"
    assert judged.stdout == b"task|||/opt/s|own\nnone\n"
