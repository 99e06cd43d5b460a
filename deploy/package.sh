#!/usr/bin/env bash
# Builds the files that docs/install.md installs, for this machine's kind of processor: an archive
# with the static binary `redbolt`, a Debian package, and their checksums.
#
# usage: deploy/package.sh DIR [MAN]
#   DIR  gets redbolt-VERSION-MACHINE-linux-musl.tar.gz, redbolt_VERSION_ARCH.deb and SHA256SUMS, and the folder that
#        is in the archive, which deploy/Containerfile makes an image of
#   MAN  a folder with the man pages; without it the example `assets` makes them
#
# The script needs Rust with the musl target (rustup target add x86_64-unknown-linux-musl). For
# rediss:// it needs a C compiler for musl: CC_x86_64_unknown_linux_musl, or musl-gcc (Debian:
# musl-tools). Without one the binary has no TLS, and the last line says so. Without dpkg-deb there
# is no Debian package.
# SOURCE_DATE_EPOCH dates all files; without it the last commit does. The same sources and compilers
# give the same bytes in any folder.
set -euo pipefail

{ [ $# -ge 1 ] && [ $# -le 2 ]; } || { echo "usage: deploy/package.sh DIR [MAN]" >&2; exit 64; }
mkdir -p "$1"
dir=$(cd "$1" && pwd)
man=${2:+$(cd "$2" && pwd)}
cd "$(dirname "$0")/.."

machine=$(uname -m)
case $machine in
  x86_64) arch=amd64 ;;
  aarch64) arch=arm64 ;;
  *) echo "deploy/package.sh: made for x86_64 and aarch64, this machine is $machine" >&2; exit 69 ;;
esac
target=$machine-unknown-linux-musl
version=$(sed -n '/^\[workspace.package\]/,/^$/s/^version = "\(.*\)"/\1/p' Cargo.toml)
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}
cargo_home=${CARGO_HOME:-$HOME/.cargo}
umask 022

compiler=CC_${target//-/_} features=()
if [ -z "${!compiler:-}" ] && command -v musl-gcc >/dev/null; then export "$compiler=musl-gcc"; fi
if [ -n "${!compiler:-}" ]; then features=(--features tls); fi

# Without these flags, paths of this machine would be in panic messages.
CARGO_ENCODED_RUSTFLAGS="--remap-path-prefix=$PWD=redbolt"$'\x1f'"--remap-path-prefix=$cargo_home=cargo" \
  cargo build --quiet --release --locked --target "$target" -p redbolt-cli "${features[@]}"
if [ -z "$man" ]; then
  man=${CARGO_TARGET_DIR:-target}/assets/man
  rm -rf "$man"
  cargo run --quiet --locked -p redbolt-cli --example assets -- "${man%/man}" >/dev/null
fi

# The licences of all code in the binary: the name of each crate with its licences, then each text
# once.
third_party() {
  local crates crate text sum
  local -A seen
  crates=$(cargo tree --locked --target "$target" -p redbolt-cli "${features[@]}" -e normal --no-dedupe --prefix none \
    --format '{p}: {l}' | grep -v " ($PWD" | sed 's/ v\([0-9]\)/ \1/; s/ (proc-macro)//' | sort -u)
  printf 'In the binary redbolt, beside Redbolt itself:\n\n%s\n' "$crates"
  printf 'Rust standard library: MIT OR Apache-2.0\nmusl, Copyright (c) 2005 Rich Felker, et al.: MIT\n'
  while IFS=: read -r crate _; do
    for text in "$cargo_home"/registry/src/*/"${crate/ /-}"/{LICEN[CS]E,COPYING,COPYRIGHT,NOTICE,UNLICENSE}*; do
      [ -f "$text" ] || continue
      sum=$(sha256sum <"$text")
      [ -z "${seen[$sum]:-}" ] || continue
      seen[$sum]=yes
      printf '\n---- %s, %s\n\n' "$crate" "${text##*/}"
      cat "$text"
    done
  done <<<"$crates"
}

name=redbolt-$version-$machine-linux-musl
rm -rf "$dir"/redbolt-*-linux-musl* "$dir"/redbolt_*.deb "$dir/SHA256SUMS"
content=$dir/$name
mkdir -p "$content/completions" "$content/man"
install -m 755 "${CARGO_TARGET_DIR:-target}/$target/release/redbolt" "$content/redbolt"
for shell in bash zsh fish; do "$content/redbolt" completions "$shell" >"$content/completions/redbolt.$shell"; done
install -m 644 "$man"/redbolt*.1 "$content/man"
install -m 644 LICENSE-MIT LICENSE-APACHE CHANGELOG.md "$content"
third_party >"$content/THIRD-PARTY.txt"
tar -C "$dir" --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner -cf - "$name" \
  | gzip -9n >"$dir/$name.tar.gz"

# The binary is static, so the package depends on nothing.
debian_package() {
  local stage=$1 share=$1/usr/share
  install -D -m 755 "$content/redbolt" "$stage/usr/bin/redbolt"
  install -D -m 644 "$content/completions/redbolt.bash" "$share/bash-completion/completions/redbolt"
  install -D -m 644 "$content/completions/redbolt.zsh" "$share/zsh/vendor-completions/_redbolt"
  install -D -m 644 "$content/completions/redbolt.fish" "$share/fish/vendor_completions.d/redbolt.fish"
  install -D -m 644 -t "$share/man/man1" "$content"/man/*
  install -D -m 644 CHANGELOG.md "$share/doc/redbolt/changelog"
  cat LICENSE-MIT LICENSE-APACHE "$content/THIRD-PARTY.txt" >"$share/doc/redbolt/copyright"
  gzip -9n "$share"/man/man1/* "$share/doc/redbolt/changelog"
  mkdir "$stage/DEBIAN"
  (cd "$stage" && find usr -type f -print0 | LC_ALL=C sort -z | xargs -0 md5sum >DEBIAN/md5sums)
  # The publisher of the package is its maintainer.
  cat >"$stage/DEBIAN/control" <<END
Package: redbolt
Version: $version
Architecture: $arch
Maintainer: ${DEBFULLNAME:-nobody yet} <${DEBEMAIL:-nobody@example.invalid}>
Installed-Size: $(du -sk --apparent-size "$stage/usr" | cut -f1)
Section: utils
Priority: optional${features:+
Recommends: ca-certificates}
Description: Redlock locks on Redis and Valkey masters
 The command redbolt holds a lock while a command runs, shows who holds
 which lock, checks whether nodes are fit for locks, and measures.
END
  dpkg-deb --root-owner-group -Zxz --build "$stage" "$dir/redbolt_${version}_$arch.deb" >/dev/null
}
if command -v dpkg-deb >/dev/null; then
  stage=$(mktemp -d)
  trap 'rm -rf "$stage"' EXIT
  chmod 755 "$stage"
  debian_package "$stage"
else
  echo "deploy/package.sh: no Debian package: dpkg-deb is not installed" >&2
fi

(cd "$dir" && shopt -s nullglob && sha256sum redbolt*.tar.gz redbolt*.deb >SHA256SUMS && cat SHA256SUMS)
if [ ${#features[@]} -eq 0 ]; then
  echo "deploy/package.sh: without TLS: there is no C compiler for musl ($compiler, or musl-gcc)" >&2
fi
