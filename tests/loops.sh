#!/usr/bin/env bash
# Unpacks libuv, libevent and Asio from Debian under DIR/loops, for the C examples on their loops.
#
# usage: tests/loops.sh DIR
set -euo pipefail
[ $# -eq 1 ] || { echo "usage: tests/loops.sh DIR" >&2; exit 64; }
. "$(dirname "$0")/debian.sh"
mkdir -p "$1"
top=$(cd "$1" && pwd)/loops
if [ -e "$top/unpacked" ]; then exit 0; fi
if ! why=$(fetch "$top" bookworm libuv1-dev libevent-dev libasio-dev 2>&1); then
  echo "libuv, libevent and Asio: ${why##*$'\n'}" >&2
  exit 1
fi
touch "$top/unpacked"
