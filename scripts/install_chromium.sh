#!/bin/sh
# Chromium for tests/browser/: nothing to do where PATH has one; as root on Debian it is installed.
set -eu
for name in chromium chromium-browser google-chrome; do
    if command -v "$name" >/dev/null; then exit 0; fi
done
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "Chromium is needed for the tests in a browser: sudo apt-get install --no-install-recommends chromium" >&2
    exit 1
fi
echo "setup: Chromium, from the system's packages"
export DEBIAN_FRONTEND=noninteractive
install() { apt-get install -y --no-install-recommends chromium; }
# A list of packages may be missing or too old.
install || { apt-get update && install; }
