# For the scripts beside it: unpacks packages of Debian 12 from the machine's own package sources
# (apt), without root.

# fetch TOP PACKAGE..: unpacks the packages under TOP/root. If that fails, its last line says why.
fetch() {
  local top=$1 source deb
  shift
  [ "$(uname -s)-$(uname -m)" = Linux-x86_64 ] || { echo "built for Linux on x86_64 only"; return 1; }
  source=$(apt-get indextargets --format '$(REPO_URI)' | grep -m 1 '/debian/*$') ||
    { echo "no Debian package source is set up here"; return 1; }
  rm -rf "$top"
  mkdir -p "$top"/{lists/partial,cache/archives/partial,debs,root}
  # The machine's installed packages do not count: the tests need the release's own versions.
  : >"$top/status"
  echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $source bookworm main" >"$top/sources.list"
  local options=(-qq -o "Dir::Etc::sourcelist=$top/sources.list" -o Dir::Etc::sourceparts=-
    -o "Dir::State::Lists=$top/lists" -o "Dir::State::status=$top/status"
    -o "Dir::Cache=$top/cache" -o APT::Sandbox::User=root)
  apt-get "${options[@]}" update && (cd "$top/debs" && apt-get "${options[@]}" download "$@") || return 1
  for deb in "$top"/debs/*.deb; do dpkg-deb -x "$deb" "$top/root" || return 1; done
  rm -rf "$top/cache" "$top/lists" "$top/debs"
}
