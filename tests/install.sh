# For tests/run: installs the packages of deploy/package.sh and runs them in empty roots. The
# functions change only the folders that their callers name.

. tests/debian.sh

# in_root ROOT COMMAND..: runs COMMAND with ROOT as the root folder. A user without root rights gets
# a user namespace for it.
in_root() {
  local root=$1
  shift
  if [ "$(id -u)" -eq 0 ]; then
    timeout 60 chroot "$root" "$@"
  else
    timeout 60 unshare -r chroot "$root" "$@"
  fi
}

# page SECTION: the commands of that section of docs/install.md, without `sudo` and with a small sale.
page() {
  awk -v section="## $1" '/^## / { here = $0 == section } /^```$/ { code = 0 } here && code { sub(/^sudo /, ""); print }
    /^```sh$/ { code = 1 }' docs/install.md | sed 's/^redbolt demo$/redbolt demo --stock 200/'
}

# A sale on nodes in the process, some of which fail, under locks.
demo=(demo --stock 200)

# musl_compiler DIR: the path of a C compiler for musl; if there is none, a gcc with the headers of
# Debian's musl.
musl_compiler() {
  local wrapper=$1/musl/musl-gcc
  if command -v musl-gcc; then return; fi
  if [ ! -x "$wrapper" ]; then
    fetch "$1/musl" bookworm musl-dev >&2 || return 1
    cat >"$wrapper" <<'END'
#!/bin/sh
headers=$(dirname "$(readlink -f "$0")")/root/usr/include/x86_64-linux-musl
exec gcc -nostdinc -isystem "$headers" -isystem "$(gcc -print-file-name=include)" "$@"
END
    chmod +x "$wrapper"
  fi
  readlink -f "$wrapper"
}

# empty_debian DIR: the smallest Debian 12 that debootstrap makes, as DIR/debian.tar.
empty_debian() {
  local dir=$1 source
  [ ! -e "$dir/debian.tar" ] || return 0
  [ "$(id -u)" -eq 0 ] || { echo "debootstrap must be run by root"; return 1; }
  fetch "$dir/debootstrap" bookworm debootstrap || return 1
  source=$(debian_source) || return 1
  dir=$(cd "$dir" && pwd)
  # The mounts of debootstrap end with its namespace.
  DEBOOTSTRAP_DIR=$dir/debootstrap/root/usr/share/debootstrap unshare -m \
    "$dir/debootstrap/root/usr/sbin/debootstrap" --variant=minbase bookworm "$dir/debootstrap/new" "$source" || return 1
  tar -C "$dir/debootstrap/new" --exclude='./var/cache/apt/*' --exclude='./var/lib/apt/lists/*' -cf "$dir/debian.new" . || return 1
  mv "$dir/debian.new" "$dir/debian.tar"
  rm -rf --one-file-system "$dir/debootstrap"
}

# fresh_root DIR: an empty Debian in DIR/root.
fresh_root() {
  rm -rf --one-file-system "$1/root"
  mkdir "$1/root" && tar -C "$1/root" -xf "$1/debian.tar"
}

# installs_package DIR: follows the page; the package installs, runs, and leaves nothing behind when
# it is removed.
installs_package() {
  local root=$1/root before
  fresh_root "$1" && cp "$1"/dist/redbolt_*.deb "$root/tmp" || return 1
  before=$(cd "$root" && find usr etc | sort)
  in_root "$root" bash -exc "cd /tmp; $(page "Debian package")" &&
    in_root "$root" dpkg -V redbolt &&
    [ -s "$root/usr/share/man/man1/redbolt-run.1.gz" ] &&
    in_root "$root" bash -nc '. /usr/share/bash-completion/completions/redbolt' &&
    in_root "$root" dpkg -P redbolt &&
    diff <(echo "$before") <(cd "$root" && find usr etc | sort)
}

# installs_archive DIR: follows the page; the checksums hold, and the binary runs from its folder.
installs_archive() {
  local root=$1/root
  fresh_root "$1" && cp "$1"/dist/redbolt*.tar.gz "$1"/dist/redbolt*.deb "$1/dist/SHA256SUMS" "$root/tmp" || return 1
  in_root "$root" bash -exc "cd /tmp; $(page Checksums); $(page "Static binary")"
}

# runs_as_image DIR: carries out the recipe by hand, because there may be no image builder. Only its
# files are in the root folder.
runs_as_image() {
  local root=$1/root context word rest user= entry= files
  context=$(echo "$1"/dist/redbolt-*-linux-musl)
  rm -rf --one-file-system "$root" && mkdir "$root"
  while read -r word rest; do
    case $word in
      '' | '#'*) ;;
      FROM) [ "$rest" = scratch ] || { echo "not from scratch: $rest"; return 1; } ;;
      COPY) read -ra files <<<"$rest"
        (cd "$context" && cp "${files[@]::${#files[@]}-1}" "$root/${files[-1]}") || return 1 ;;
      USER) user=$rest ;;
      ENTRYPOINT) entry=${rest#'["'} entry=${entry%'"]'} ;;
      CMD) ;;
      *) echo "unknown here: $word $rest"; return 1 ;;
    esac
  done <deploy/Containerfile
  ls -l "$root"
  if [ "$(id -u)" -eq 0 ]; then
    timeout 60 chroot --userspec "$user" "$root" "$entry" "${demo[@]}"
  else
    in_root "$root" "$entry" "${demo[@]}"
  fi
}
