"""`python -m sandboxes doctor`: which backends work on this machine, and what to do about the others."""

from __future__ import annotations

import argparse
import sys

from sandboxes.opening import AUTO, probe
from sandboxes.sandbox import Backend


def doctor() -> int:
    """Print one line per backend. Returns 0 if a safe one works, else 1."""
    probes = [probe(backend) for backend in Backend]
    width = max(len(found.backend) for found in probes)
    for found in probes:
        safe = "" if found.backend is not Backend.LOCAL else " (unsafe: no confinement, never chosen by auto)"
        print(f"{found.backend:<{width}}  {'ok     ' if found.ok else 'not ok '} {found.reason}{safe}")
        if found.remedy:
            print(f"{'':<{width}}  remedy:  {found.remedy}")
    working = [found.backend for found in probes if found.ok and found.backend in AUTO]
    chosen = next((backend for backend in AUTO if backend in working), None)
    print(f"\nauto would use: {chosen or 'nothing: no safe backend works here'}")
    return 0 if chosen else 1


def main(argv: list[str] | None = None) -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -m sandboxes", description="Sandboxes: where commands run.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("doctor", help="which backends work on this machine; exit code 1 if no safe one does")
    parser.parse_args(argv)
    return doctor()


if __name__ == "__main__":
    sys.exit(main())
