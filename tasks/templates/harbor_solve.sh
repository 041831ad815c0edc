#!/bin/bash
# One way to solve the task. Each command runs in a bash of its own, which starts with the directory, variables,
# functions, aliases and options of the one before, and with no process of it.
cd -- @WORKDIR@ || exit 1
state=$(mktemp) || exit 1
trap 'rm -f -- "$state"' EXIT
echo 'shopt -s expand_aliases' >"$state"
status=0

run() {
    setsid bash -c '
        _tg_keep() {
            {
                printf "cd -- %q\n" "$PWD"
                declare -p
                set +o | grep -vE " (errexit|xtrace|verbose|noexec|monitor|onecmd|posix|privileged|history)$"
                shopt -p | grep -vE " (expand_aliases|login_shell|restricted_shell)$"
                umask -p
                alias -p
                declare -f
                declare -Fx
                shopt -p expand_aliases
            } >"$_tg_file.new"
            mv -- "$_tg_file.new" "$_tg_file"
        }
        trap "set +eux; _tg_keep 2>/dev/null" EXIT
        . "$1" 2>/dev/null
        _tg_file=$1 _tg_status=$2
        set --
        IFS= read -rd "" _tg_text
        exec </dev/null
        eval "(exit $_tg_status); $_tg_text"
    ' bash "$state" "$status" <<<"$1" &
    wait "$!"
    status=$?
    kill -9 -- "-$!" 2>/dev/null
}
@COMMANDS@
exit 0
