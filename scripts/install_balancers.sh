#!/bin/sh
# HAProxy and nginx for tests/cluster/: nothing to do where PATH has both; as root on Debian they are installed.
set -eu
PATH="$PATH:/usr/sbin:/usr/local/sbin"
if command -v haproxy >/dev/null && command -v nginx >/dev/null; then exit 0; fi
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "HAProxy and nginx are needed for the tests of rolling restarts: sudo apt-get install --no-install-recommends haproxy nginx-light" >&2
    exit 1
fi
echo "setup: HAProxy and nginx, from the system's packages"
export DEBIAN_FRONTEND=noninteractive
# The tests start servers of their own: none is to run beside them.
install() { RUNLEVEL=1 apt-get install -y --no-install-recommends haproxy nginx-light; }
install || { apt-get update && install; }
