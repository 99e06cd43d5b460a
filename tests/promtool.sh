#!/usr/bin/env bash
# Installs promtool under DIR for the tests of deploy/prometheus: DIR/bin/promtool.
#
# usage: tests/promtool.sh DIR         quiet, and quick where it is installed already
#
# It is that of Debian 12, from the machine's own package sources (apt), and needs nothing but the C library. No
# root is needed and nothing outside DIR is touched. If it cannot be installed, one line on stderr says why, and the
# exit code is 1.
set -euo pipefail

release=bookworm
[ $# -eq 1 ] || { echo "usage: tests/promtool.sh DIR" >&2; exit 64; }
mkdir -p "$1/bin"
dir=$(cd "$1" && pwd)
top=$dir/promtool

lay() {
  local source
  [ "$(uname -s)-$(uname -m)" = Linux-x86_64 ] || { echo "built for Linux on x86_64 only"; return 1; }
  source=$(apt-get indextargets --format '$(REPO_URI)' | grep -m 1 '/debian/*$') ||
    { echo "no Debian package source is set up here"; return 1; }
  rm -rf "$top"
  mkdir -p "$top"/{lists/partial,cache/archives/partial,debs,root}
  : >"$top/status"
  echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $source $release main" >"$top/sources.list"
  local options=(-qq -o "Dir::Etc::sourcelist=$top/sources.list" -o Dir::Etc::sourceparts=-
    -o "Dir::State::Lists=$top/lists" -o "Dir::State::status=$top/status"
    -o "Dir::Cache=$top/cache" -o APT::Sandbox::User=root)
  apt-get "${options[@]}" update && (cd "$top/debs" && apt-get "${options[@]}" download prometheus) || return 1
  dpkg-deb -x "$top"/debs/prometheus_*.deb "$top/root" || return 1
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
