# Shared by the scripts that build commands from the Go modules in tests/cluster/servers. The script that sources it sets
# `here`, this folder, and `me`, its own name, which is also the folder of its builds.
modules="$here/../cluster/servers"
cache="${XDG_CACHE_HOME:-$HOME/.cache}/tenon-ci/$me"

die() {
    echo "$me: $*" >&2
    exit 1
}

# version MODULE PATH: the version of PATH that our module MODULE requires.
version() {
    sed -n "s|^.*[[:space:]]$2 \(v[0-9][0-9.]*\)\( // indirect\)\{0,1\}$|\1|p" "$modules/$1/go.mod" | head -n 1
}

# built NAME MODULE PACKAGE [LDFLAGS]: builds a module's command, and sets `binary` to its path. The folder's name is the
# module's digest, so versions don't mix and an existing build is reused.
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
        echo "$me: building $1, once a machine; the first build takes minutes" >&2
        (cd "$modules/$2" && GOFLAGS="-mod=readonly -trimpath -buildvcs=false" GOWORK=off \
            go build -p 2 -ldflags "$flags" -o "$binary.new" "$3") >&2 ||
            die "can't build $1: see Go's message above"
        mv "$binary.new" "$binary"
    fi
    exec 9>&-
}
