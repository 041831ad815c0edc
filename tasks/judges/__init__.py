"""Whether a grader starts the agent's programs, or runs the agent's code in its own process, read from its text.

A program that a judge starts is a process of its own: it can print what it likes, and the judge compares. Code that a
judge imports or evaluates is the judge from then on: it can write the verdict and end the process before anything is
compared, and no sandbox can tell the two apart. So tasks with such a judge are named, and their results do not count.

It is a static analysis of what an author wrote, who means no harm; code that is made to hide from it can.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tasks.judges.constructs import Finding, JudgeUse
from tasks.judges.python import PythonText, read_python
from tasks.judges.shell import ShellText, read_shell

REMEDY = "Run the agent's program in a process of its own (subprocess.run) and compare what it prints"
"""What to do about a judge that runs the agent's code in its own process."""


def read_judge(command: str, files: Mapping[str, str], *, safe_path: bool = False) -> tuple[Finding, ...]:
    """Find what a grader starts and loads.

    Args:
        command: Its bash text.
        files: Its files.
        safe_path: It runs with `PYTHONSAFEPATH` set.

    Returns:
        What was found, in the order of the text; a place is named once.
    """
    text = ShellText(command, "command", files, safe_path)
    found = read_shell(text)
    if not text.seen:  # nothing of the files was recognised in the command: any of them may be what judges
        for path, source in files.items():
            if path.endswith(".py"):
                found += read_python(PythonText(source, path, files), text.seen)
            elif path.endswith((".sh", ".bash")) or source.startswith("#!"):
                found += read_shell(ShellText(source, path, files, safe_path, seen=text.seen))
    return tuple(dict.fromkeys(found))


def worst(findings: Sequence[Finding]) -> JudgeUse:
    """What findings come to: one in the judge's own process outweighs any number of programs."""
    uses = {finding.use for finding in findings}
    return next((use for use in (JudgeUse.IN_PROCESS, JudgeUse.STARTS) if use in uses), JudgeUse.NEITHER)


def in_process_line(findings: Sequence[Finding]) -> str:
    """What to say of a judge that runs the agent's code in its own process: where, and what to do."""
    first, *rest = [str(finding) for finding in findings if finding.use is JudgeUse.IN_PROCESS]
    more = f" (and {len(rest)} more)" if rest else ""
    said = "the judge runs the agent's code in its own process, where that code can write the verdict"
    return f"{said}: {first}{more}. {REMEDY}."


__all__ = ["Finding", "JudgeUse", "REMEDY", "in_process_line", "read_judge", "worst"]
