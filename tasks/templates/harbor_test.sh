#!/bin/bash
# Judges the workspace that the agent left, by TurnGym from the wheels beside this file. Nothing is downloaded.
# reward.json holds `reward` (the rate, 1 for a pass) and the score of each assertion; reward.txt holds the reward.
# Where there is no verdict (the machinery failed), neither is written, and the exit code is not 0.
# A harness that runs the hook under [verifier.collect] leaves the workspace as an archive; else it stands in its place.
set -u
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
logs=/logs/verifier
workspace=@WORKDIR@
archive=/logs/artifacts/workspace.tar
export PATH=/usr/local/bin:/usr/bin:/bin
rm -f -- "$logs/reward.json" "$logs/reward.txt"
[ -d "$workspace" ] || { rm -f -- "$workspace" && mkdir -p -- "$workspace"; } || exit 3
site=$(mktemp -d) || exit 3
trap 'cd /; rm -rf -- "${site%/grader}"' EXIT
mkdir "$site/grader" "$site/workspace" || exit 3
if [ -f "$archive" ] && tar --no-same-owner -C "$site/workspace" -xpf "$archive"; then
    workspace=$site/workspace
fi
site=$site/grader
cd -- "$site" || exit 3 # Python must not import what lies in the workspace
for wheel in "$here"/wheels/*.whl; do
    python3 -I -m zipfile -e "$wheel" "$site" || exit 3
done
env -i PATH="$PATH" HOME="$site" LC_ALL=C.UTF-8 PYTHONPATH="$site" PYTHONDONTWRITEBYTECODE=1 \
    python3 -P -s -m tasks grade "$here/task.yaml" "$workspace" --sandbox landlock --json >"$logs/grade.json"
python3 -I - "$logs" <<'PYTHON'
import json
import os
import sys

logs = sys.argv[1]
try:
    with open(f"{logs}/grade.json", encoding="utf-8") as file:
        grade = json.load(file)
except ValueError:
    sys.exit(3)  # the grader said why on stderr
if grade["passed"] is None:
    sys.exit(3)
rewards = {"reward": grade["rate"]}
for item in grade["assertions"]:
    if item["score"] is not None:
        name = item["name"]
        while name in rewards:
            name += "'"
        rewards[name] = item["score"]
for name, text in (("reward.json", json.dumps(rewards, indent=1)), ("reward.txt", str(grade["rate"]))):
    with open(f"{logs}/{name}.tmp", "w", encoding="utf-8") as file:
        file.write(text + "\n")
    os.replace(f"{logs}/{name}.tmp", f"{logs}/{name}")
PYTHON
