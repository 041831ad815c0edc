"""Children start on a thread that outlives the caller's, with room for their files."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable

import pytest

from sandboxes import Backend, SupervisedSandbox, open_sandbox
from tests.sandboxes.conftest import require


def test_a_sandbox_survives_the_thread_that_opened_it(safe_backend: Backend) -> None:
    made: list[SupervisedSandbox] = []

    def work() -> None:
        made.append(open_sandbox(safe_backend))
        made[0].open({"a": "1"})

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    time.sleep(0.3)
    with made[0] as sandbox:
        assert sandbox.run("cat a").stdout == b"1"


DESCRIPTORS = """
import resource, sys
from sandboxes import SandboxPool, SandboxUnavailable
soft, hard, size = map(int, sys.argv[1:])
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
with SandboxPool("landlock", size=size) as pool:
    try:
        held = [pool.acquire() for _ in range(size)]
        held[0].open({})
        print(len(held), held[0].run("ulimit -Sn; ulimit -Hn").stdout.split())
    except SandboxUnavailable as error:
        print(error)
"""


@pytest.mark.parametrize(
    ("soft", "hard", "size", "said"), [(256, 4096, 80, "80 [b'1024', b'1024']\n"), (256, 300, 120, "")]
)
def test_the_soft_limit_of_open_files_is_raised_and_a_hard_one_named(
    start_here: Callable[..., subprocess.Popen[str]], soft: int, hard: int, size: int, said: str
) -> None:
    require(Backend.LANDLOCK)
    out, err = start_here("-c", DESCRIPTORS, str(soft), str(hard), str(size)).communicate(timeout=250)
    if said:
        assert out == said, err
    else:  # a plain user's sandbox costs three, root's one more: 300 are too few for 120 of either
        assert "this process may open 300 files; remedy: raise the hard limit" in out and out.count("\n") == 1, err
