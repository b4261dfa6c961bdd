#!/usr/bin/env bash
# Make .venv with everything the demo, the tests, lint and docs need. Safe to re-run.
# Debian packages (memcached, python3-venv) are installed when missing, if we may.
set -euo pipefail
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-python3}

say() { printf '== %s\n' "$*" >&2; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }

apt_install() {
    command -v apt-get >/dev/null || die "please install: $*"
    local sudo=()
    if [ "$(id -u)" != 0 ]; then
        sudo -n true 2>/dev/null || die "please run: sudo apt-get install $*"
        sudo=(sudo -n)
    fi
    say "installing Debian packages: $*"
    "${sudo[@]}" apt-get update -qq
    "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "$@" >/dev/null
}

command -v "$PYTHON" >/dev/null || apt_install python3 python3-venv
"$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 10))' ||
    die "$("$PYTHON" --version) is too old: 3.10 or newer is needed (set PYTHON=...)"
"$PYTHON" -c 'import ensurepip, venv' 2>/dev/null || apt_install python3-venv
command -v memcached >/dev/null || [ -x /usr/bin/memcached ] || apt_install memcached

if [ ! -x .venv/bin/python ]; then
    say "making .venv with $("$PYTHON" --version)"
    "$PYTHON" -m venv .venv
fi
say "installing swift-hapi and what it needs into .venv (PyTorch is large: a few minutes)"
# The build back-end is installed first and used as it is: an editable install then needs no
# build environment of its own.
.venv/bin/python -m pip install --quiet --disable-pip-version-check \
    -c constraints.txt 'pbr>=6.0.0' 'setuptools>=64' wheel
.venv/bin/python -m pip install --disable-pip-version-check --progress-bar off \
    --no-build-isolation -c constraints.txt -e '.[test,docs]' |
    grep --line-buffered -E '^(Collecting (torch|swift|timm)|Installing|Successfully)' |
    sed -u -E 's/^(Successfully installed).*/\1/; s/^(Installing collected packages).*/\1/' >&2
touch .venv/.ready
say "ready: .venv/bin/hapi"
