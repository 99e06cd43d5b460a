#!/usr/bin/env bash
# Installs promtool under DIR for the tests of deploy/prometheus: DIR/bin/promtool.
#
# usage: tests/promtool.sh DIR         quiet, and quick where it is installed already
#
# The program is that of Debian 12, from the machine's own package sources (apt), and needs only the
# C library. The script needs no root, and changes nothing outside DIR. If it cannot install
# promtool, one line on stderr says why, and the exit code is 1.
set -euo pipefail

. "$(dirname "$0")/debian.sh"

[ $# -eq 1 ] || { echo "usage: tests/promtool.sh DIR" >&2; exit 64; }
mkdir -p "$1/bin"
dir=$(cd "$1" && pwd)
top=$dir/promtool

lay() {
  fetch "$top" bookworm prometheus || return 1
  "$top/root/usr/bin/promtool" --version || return 1
  mv -f "$top/root/usr/bin/promtool" "$dir/bin/promtool"
}

"$dir/bin/promtool" --version >/dev/null 2>&1 && exit 0
log=$dir/promtool.log status=0
lay >"$log" 2>&1 || status=1
if [ "$status" -ne 0 ]; then
  why=$(grep -v '^ *$' "$log" | tail -n 1) || why=
  echo "tests/promtool.sh: promtool is missing: ${why:-its tools said nothing}" >&2
fi
rm -rf "$log" "$top"
exit "$status"
