#!/usr/bin/env bash
# Installs PostgreSQL 15 under DIR for the tests of docs/fencing.md: DIR/bin/postgres-15, initdb-15, psql-15.
#
# usage: tests/postgres.sh DIR         quiet, and quick where it is installed already
#
# The packages are those of Debian 12, from the machine's own package sources (apt). The script
# needs no root, and changes nothing outside DIR. If it cannot install PostgreSQL, one line on
# stderr says why, and the exit code is 1.
set -euo pipefail

. "$(dirname "$0")/debian.sh"

version=15
programs=(postgres initdb psql)
[ $# -eq 1 ] || { echo "usage: tests/postgres.sh DIR" >&2; exit 64; }
mkdir -p "$1/bin"
dir=$(cd "$1" && pwd)
top=$dir/postgres-$version
packages=(postgresql-"$version" postgresql-client-"$version" libpq5 libicu72 libxml2 libssl3 libldap-2.5-0
  libsasl2-2 libgssapi-krb5-2 libkrb5-3 libkrb5support0 libk5crypto3 libkeyutils1 libcom-err2 libsystemd0 libpam0g
  libaudit1 libcap-ng0 libcap2 libgcrypt20 libgpg-error0 liblzma5 liblz4-1 libzstd1 zlib1g libstdc++6 libgcc-s1
  libreadline8 libtinfo6 libgnutls30 libp11-kit0 libidn2-0 libunistring2 libtasn1-6 libnettle8 libhogweed6
  libgmp10 libffi8 libcrypt1)

# Whether all programs start and have this version.
runs() {
  local program
  for program in "${programs[@]}"; do
    [[ $("$dir/bin/$program-$version" --version 2>/dev/null) == *" $version."* ]] || return 1
  done
}

# Writes DIR/bin/PROGRAM-VERSION, which finds all paths from its own place, so a user can move DIR.
with_libraries() {
  local file=$dir/bin/$1-$version
  cat >"$file.new" <<END
#!/bin/sh
root=\$(dirname "\$(dirname "\$(readlink -f "\$0")")")/postgres-$version/root
LD_LIBRARY_PATH=\$root/usr/lib/x86_64-linux-gnu:\$root/lib/x86_64-linux-gnu
export LD_LIBRARY_PATH
exec "\$root/usr/lib/postgresql/$version/bin/$1" "\$@"
END
  chmod +x "$file.new"
  mv -f "$file.new" "$file"
}

lay() {
  local program
  fetch "$top" bookworm "${packages[@]}" || return 1
  for program in "${programs[@]}"; do
    with_libraries "$program" || return 1
    # Prints the program's own error if it does not start.
    "$dir/bin/$program-$version" --version || return 1
  done
  runs || { echo "what was unpacked has another version"; return 1; }
}

runs && exit 0
log=$dir/postgres.log
if ! lay >"$log" 2>&1; then
  why=$(grep -v '^ *$' "$log" | tail -n 1) || why=
  echo "tests/postgres.sh: postgres-$version is missing: ${why:-its tools said nothing}" >&2
  rm -f "$log"
  exit 1
fi
rm -f "$log"
