#!/usr/bin/env bash
# Builds `weir` as it is deployed: profile `dist`, arranged by the compiler for what a run under load has shown to be
# usual (docs/performance.md).
#
#   profiled.sh WEIR_BENCH     leaves the binary in target/profiled/weir; WEIR_BENCH is the program, built before
#
# It builds one that counts its branches, lets `weir-bench exercise` give it work, and builds again with the counts:
# twice the time of `cargo build --profile dist`. Where that cannot be done (no llvm-tools for this compiler, no native
# libraries to train a model with), it says so in one line and the binary is that of `cargo build --profile dist`.
set -euo pipefail

root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
cargo=${CARGO:-cargo}
bench=$(realpath -- "${1:?the path of weir-bench is missing}")
cd -- "$root"
target=$(realpath --canonicalize-missing -- "${CARGO_TARGET_DIR:-target}")
out=$target/profiled
flags=${RUSTFLAGS:-}
build=("$cargo" build --profile dist --locked --package weir --bins)

say() { printf 'profiled: %s\n' "$*"; }

# The program of exactly this compiler: that of another one cannot read what was counted.
find_profdata() {
    local tool
    tool=$(rustc --print target-libdir)/../bin/llvm-profdata
    if [[ ! -x $tool ]] && command -v rustup >/dev/null; then
        rustup component add llvm-tools >/dev/null 2>&1 || true
    fi
    [[ -x $tool ]] && printf '%s\n' "$tool"
}

host() { rustc --version --verbose | sed -n 's/^host: //p'; }

plain() { # why
    say "without a profile: $*"
    "${build[@]}"
    install -D --mode=0755 --target-directory="$out" "$target/dist/weir"
}

# A profile is named by the program that was counted, so that the same program is not counted twice, and what cargo has
# built with other counts is not taken for new. Both programs are of one cargo profile, debug information apart: names of
# functions have a hash of it in them, and counts are found by names.
count() { # profdata
    local raw=$out/raw
    RUSTFLAGS="$flags -Cdebuginfo=0 -Cprofile-generate=$raw" "${targeted[@]}" || return 1
    profile=$out/$(sha256sum "$made" | cut -c 1-16).profdata
    [[ -f $profile ]] && return
    install -D --mode=0755 -- "$made" "$out/counting/weir" || return 1
    say "counting: $bench exercise"
    rm -rf -- "$raw"
    LLVM_PROFILE_FILE="$raw/%p-%m.profraw" \
        "$bench" exercise --weir "$out/counting/weir" --dir "$out/exercise" || return 1
    rm -f -- "$out"/*.profdata
    "$1" merge --output="$profile.part" "$raw" && mv -- "$profile.part" "$profile" && rm -rf -- "$raw"
}

triple=$(host)
# With a target named, build scripts and macros, which run on this machine, do not count.
targeted=("${build[@]}" --target "$triple")
made=$target/$triple/dist/weir
mkdir -p -- "$out"
if ! profdata=$(find_profdata); then
    plain "no llvm-tools for this compiler (rustup component add llvm-tools)"
elif ! count "$profdata"; then
    plain "nothing could be counted, see above"
else
    RUSTFLAGS="$flags -Cprofile-use=$profile" "${targeted[@]}"
    install -D --mode=0755 --target-directory="$out" "$made"
fi
say "$out/weir"
