# Shared by the scripts that work with images. The script that sources it has `work`, a folder of its own, and `die`; at its
# end it calls `end_registry`.
crane="$(infra/crane --path)"
registry=""

# Starts crane's own registry on loopback, and sets `address`. crane talks to such an address without TLS.
address=""
start_registry() {
    local port=""
    mkdir "$work/blobs"
    : >"$work/registry.log"
    "$crane" registry serve --address 127.0.0.1:0 --disk "$work/blobs" >"$work/registry.log" 2>&1 &
    registry=$!
    for _ in {1..100}; do
        port="$(sed -n 's/^.*serving on port \([0-9]*\)$/\1/p' "$work/registry.log")"
        [ -z "$port" ] || break
        sleep 0.1
    done
    [ -n "$port" ] || die "crane's registry didn't start: $(cat "$work/registry.log")"
    # Read by the script that sources this one.
    # shellcheck disable=SC2034
    address="127.0.0.1:$port"
}

end_registry() {
    [ -z "$registry" ] || kill "$registry" 2>/dev/null || true
}

# quietly ARGUMENT...: runs crane, and shows what it says only if it fails.
quietly() {
    "$crane" "$@" >"$work/crane.log" 2>&1 || die "\`crane $1\` failed: $(cat "$work/crane.log")"
}
