_NAME() {
    local IFS=$'\n' program="${COMP_WORDS[0]/#\~\//$HOME/}"
    COMPREPLY=($("$program" __complete bash "$COMP_CWORD" "${COMP_WORDS[@]}" 2>/dev/null))
    if [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *[/:=] ]]; then
        compopt -o nospace 2>/dev/null
    fi
}

if [[ ${BASH_VERSINFO[0]} -eq 4 && ${BASH_VERSINFO[1]} -ge 4 || ${BASH_VERSINFO[0]} -gt 4 ]]; then
    complete -F _NAME -o nosort NAME
else
    complete -F _NAME NAME
fi
