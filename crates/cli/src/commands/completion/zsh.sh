#compdef NAME

_NAME() {
    local line entry program="${words[1]/#\~\//$HOME/}"
    local -a whole partial
    for line in "${(@f)$("$program" __complete zsh $((CURRENT - 1)) "${(@Q)words}" 2>/dev/null)}"; do
        [[ -n $line ]] || continue
        entry=${${line%%$'\t'*}//:/\\:}
        if [[ $entry == *[/:=] ]]; then
            partial+=("$entry")
        elif [[ $line == *$'\t'* ]]; then
            whole+=("$entry:${line#*$'\t'}")
        else
            whole+=("$entry")
        fi
    done
    (( $#partial )) && _describe -V 'values' partial -S ''
    (( $#whole )) && _describe -V 'values' whole
}

if [ "$funcstack[1]" = "_NAME" ]; then
    _NAME "$@"
else
    compdef _NAME NAME
fi
