# What scripts share that build commands of Go modules: the versions and the builds of the modules in tests/cluster/servers.
# Sourced with `here`, this folder, and `me`, the script's name, under which its builds are kept.
modules="$here/../cluster/servers"
cache="${XDG_CACHE_HOME:-$HOME/.cache}/tenon-ci/$me"

die() {
    echo "$me: $*" >&2
    exit 1
}

# The version of a module that a module of ours requires: version MODULE PATH
version() {
    sed -n "s|^.*[[:space:]]$2 \(v[0-9][0-9.]*\)\( // indirect\)\{0,1\}$|\1|p" "$modules/$1/go.mod" | head -n 1
}

# Builds a command of a module unless it is there, by the content of the module: another version lands beside it.
# built NAME MODULE PACKAGE [LDFLAGS]: its path, in `binary`
binary=""
built() {
    local flags="-s -w ${4:-}" digest bin
    digest="$(cat "$modules/$2/go.mod" "$modules/$2/go.sum" - <<<"$flags" | sha256sum | cut -c 1-12)"
    bin="$cache/$2-$digest"
    binary="$bin/$1"
    [ -x "$binary" ] && return
    mkdir -p "$bin"
    exec 9>"$bin.lock"
    flock 9
    if [ ! -x "$binary" ]; then
        echo "$me: building $1, once a machine: minutes for the first, less for the next" >&2
        (cd "$modules/$2" && GOFLAGS="-mod=readonly -trimpath -buildvcs=false" GOWORK=off \
            go build -p 2 -ldflags "$flags" -o "$binary.new" "$3") >&2 ||
            die "$1 can't be built: see Go's message above"
        mv "$binary.new" "$binary"
    fi
    exec 9>&-
}
