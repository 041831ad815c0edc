"""`python -m trainers`: the commands of this package, one a line."""

from __future__ import annotations

import sys

COMMANDS = {
    "grpo": "train a policy; without arguments, the quickstart",
    "sft": "make a warm-start policy from demonstrations",
    "evaluate": "measure a policy on tasks, or compare two measurements",
    "report": "write the page of a run, or of several",
    "campaign": "train conditions x seeds, and say what they show",
}


def main() -> int:
    """Print the commands; 2, since none was named."""
    asked = next((arg for arg in sys.argv[1:] if arg in COMMANDS), "grpo")
    out = sys.stdout if {"-h", "--help"} & set(sys.argv[1:]) else sys.stderr
    print(
        f"trainers: needs a command, as in `python -m trainers.{asked}`; --help after each lists its options", file=out
    )
    for name, about in COMMANDS.items():
        print(f"  python -m trainers.{name:<10} {about}", file=out)
    return 0 if out is sys.stdout else 2


if __name__ == "__main__":
    sys.exit(main())
