"""Work that Ctrl-C must not leave half done: ending sandboxes."""

from __future__ import annotations

import threading
from collections.abc import Callable


def uninterrupted(work: Callable[[], None]) -> None:
    """Do `work` to its end, whatever signals arrive; what they raise, and what the work raises, is raised afterwards.

    Signal handlers run on the main thread, so the work runs on another one and the caller waits for it.
    """
    raised: list[BaseException] = []
    begun, over = threading.Lock(), threading.Event()

    def do() -> None:
        if not begun.acquire(blocking=False):
            return
        try:
            work()
        except BaseException as error:  # handed to the caller
            raised.append(error)
        finally:
            over.set()

    signalled: BaseException | None = None
    thread: threading.Thread | None = None
    while not over.is_set():
        try:
            # A start that is interrupted may have happened or not: whichever thread comes first does the work.
            if not begun.locked():
                thread = threading.Thread(target=do, name="turngym-close")
                thread.start()
            over.wait()  # not join(): once interrupted, Python 3.11 takes the thread for dead
        except RuntimeError:  # no thread can be started
            do()
        except BaseException as error:  # Ctrl-C, or what somebody's handler raises
            signalled = signalled or error
    try:
        if thread is not None:
            thread.join(1)  # the work is over: nobody shall still see its thread
    except BaseException as error:  # as above, or a start that failed
        signalled = signalled or (None if isinstance(error, RuntimeError) else error)
    if raised:
        raise raised[0]
    if signalled is not None:
        raise signalled
