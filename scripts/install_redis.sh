#!/bin/sh
# Redis for tests/cluster/: nothing to do where PATH has its server; as root on Debian it is installed.
set -eu
if command -v redis-server >/dev/null; then exit 0; fi
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "Redis 7 or later is needed for the tests of several nodes: sudo apt-get install --no-install-recommends redis-server" >&2
    exit 1
fi
echo "setup: Redis, from the system's packages"
export DEBIAN_FRONTEND=noninteractive
# The tests start servers of their own: none is to run beside them.
install() { RUNLEVEL=1 apt-get install -y --no-install-recommends redis-server; }
install || { apt-get update && install; }
