"""What `python -m sandboxes build`, `sweep` and `conformance` do."""

from __future__ import annotations

import json
import re
from argparse import Namespace
from itertools import groupby

from sandboxes.opening import choose


class Mistake(Exception):
    """Something in the command line cannot be; one line that says what."""


def build(options: Namespace) -> int:
    """Make the image, with lines of progress. Raises Mistake, SandboxError, ImageError."""
    from sandboxes.build import build_image

    try:
        image = build_image(
            options.host,
            options.tag,
            offline=options.offline,
            base=options.base,
            suite=options.suite,
            cache=options.cache,
            mirror=options.mirror,
            network=options.network,
            say=lambda line: print(line, flush=True),
        )
    except ValueError as error:
        raise Mistake(error) from error
    print(f"done: {image}; `python -m sandboxes doctor` shows whether it runs")
    return 0


def sweep(options: Namespace) -> int:
    """Remove orphans, or all of one run, and count. Raises Mistake, SandboxError."""
    from sandboxes import sweep as module

    if options.run_id is not None and not re.fullmatch(r"[A-Za-z0-9_.-]+", options.run_id):
        raise Mistake(f"--run {options.run_id}: no run has such an id; it has only letters, digits, '_', '.' and '-'")
    done = module.sweep(options.run_id)
    kinds = (("folder", done.folders), ("control group", done.cgroups), ("container", done.containers))
    print("removed " + ", ".join(f"{count} {word}{'' if count == 1 else 's'}" for word, count in kinds))
    return 0


def conformance(options: Namespace) -> int:
    """Run checks, one line each; 0 when none is wrong and none failed. Raises Mistake, SandboxError."""
    from sandboxes.conformance import conform, passed, select, summary

    try:
        wanted = select(options.only)
    except ValueError as error:
        raise Mistake(error) from error
    if options.list:
        if options.json:
            print(json.dumps([{"name": c.name, "group": c.group, "about": c.about} for c in wanted], indent=1))
            return 0
        for group, checks in groupby(wanted, key=lambda check: check.group):
            print(group)
            for check in checks:
                print(f"  {check.name}: {_plain(check.about)}")
        return 0
    backend = choose(options.backend)
    verdicts = []
    for verdict in conform(backend, only=options.only):
        verdicts.append(verdict)
        if not options.json:
            print(_plain(str(verdict)), flush=True)
    if options.json:
        rows = [
            {
                "name": verdict.check.name,
                "group": verdict.check.group,
                "status": str(verdict.status),
                "detail": verdict.detail,
                "seconds": round(verdict.seconds, 3),
            }
            for verdict in verdicts
        ]
        print(json.dumps({"backend": str(backend), "passed": passed(verdicts), "checks": rows}, indent=1))
    else:
        print(f"{backend}: {summary(verdicts)}")
    return 0 if passed(verdicts) else 1


def _plain(text: str) -> str:
    """Text that may hold what a hostile command printed, safe to show."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
