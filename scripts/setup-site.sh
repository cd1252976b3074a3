#!/bin/sh
# Installs the Debian packages that the manual's site is built and tested with, if one is missing.
set -eu

missing=
command -v node >/dev/null 2>&1 || missing="$missing nodejs"
command -v npm >/dev/null 2>&1 || missing="$missing npm"
command -v chromium >/dev/null 2>&1 || missing="$missing chromium"
[ -n "$missing" ] || exit 0
if [ "$(id -u)" != 0 ]; then
    echo "setup: these packages are missing, and only root can install them:$missing" >&2
    exit 1
fi
echo "setup: installing$missing"
# shellcheck disable=SC2086 # a list of packages
"$(dirname "$0")/install-packages.sh" $missing
