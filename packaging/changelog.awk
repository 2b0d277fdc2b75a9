# Makes Debian's changelog of CHANGELOG.md. version, maintainer and now, in seconds since 1970, are of
# this package: they stand over what is not released.

function finish_item(  words, count, line, i) {
    if (item == "") return
    count = split(item, words, " ")
    line = "  *"
    for (i = 1; i <= count; i++) {
        if (length(line) + length(words[i]) > 78) {
            print line
            line = "   "
        }
        line = line " " words[i]
    }
    print line
    item = ""
}

function finish_version() {
    finish_item()
    if (open) printf "\n -- %s  %s\n\n", maintainer, date
}

function start_version(name, day,   command) {
    finish_version()
    open = 1
    command = "LC_ALL=C date -u -R -d " day
    command | getline date
    close(command)
    printf "carina (%s) unstable; urgency=medium\n\n", name
}

/^## Unreleased/ { pending = 1; next }
/^## [0-9]/ { pending = 0; start_version($2, $4); next }
/^### / { finish_item(); if (pending) next_heading = $2; else heading($2); next }
/^- / {
    if (pending) { start_version(version, "@" now); pending = 0; heading(next_heading) }
    finish_item()
    item = substr($0, 3)
    next
}
/^  / && item != "" { item = item $0; next }
/^\|/ && open { finish_item(); if ($0 !~ /^\|[-|]*$/) item = $0; finish_item(); next }
END { finish_version() }

function heading(name) { printf "  [ %s ]\n", name }
