function __NAME_complete
    set -l words (commandline --current-process --tokenize --cut-at-cursor)
    set -l current (commandline --current-token --cut-at-cursor)
    set -l program (string replace --regex '^~/' "$HOME/" -- $words[1])
    $program __complete fish (count $words) $words "$current" 2>/dev/null
end

complete --command NAME --no-files --keep-order --arguments '(__NAME_complete)'
