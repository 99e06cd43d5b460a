# For the scripts beside it: unpacks Debian packages from the machine's own package sources (apt), without root.

# Prints the machine's package source. If there is none, prints why.
debian_source() {
  apt-get indextargets --format '$(REPO_URI)' | grep -m 1 '/debian/*$' ||
    { echo "no Debian package source is set up here"; return 1; }
}

# fetch TOP RELEASE PACKAGE..: unpacks the packages of that release under TOP/root. If that fails, its last line
# says why. Calls for folders beside each other share the lists of the release for an hour.
fetch() {
  local top=$1 release=$2 lists=${1%/*}/lists/$2 source deb
  shift 2
  [ "$(uname -s)-$(uname -m)" = Linux-x86_64 ] || { echo "built for Linux on x86_64 only"; return 1; }
  source=$(debian_source) || { echo "$source"; return 1; }
  rm -rf "$top"
  mkdir -p "$top"/{debs,root} "$lists"/{lists/partial,cache/archives/partial}
  # The machine's installed packages do not count: the tests need the release's own versions.
  local options=(-qq -o "Dir::Etc::sourcelist=$lists/sources.list" -o Dir::Etc::sourceparts=-
    -o "Dir::State::Lists=$lists/lists" -o "Dir::State::status=$lists/status"
    -o "Dir::Cache=$lists/cache" -o APT::Sandbox::User=root)
  (
    flock 9
    if [ -z "$(find "$lists/updated" -mmin -60 2>/dev/null)" ]; then
      : >"$lists/status"
      echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $source $release main" >"$lists/sources.list"
      apt-get "${options[@]}" update && touch "$lists/updated" || exit 1
    fi
    cd "$top/debs" && apt-get "${options[@]}" download "$@"
  ) 9>"$lists/lock" || return 1
  for deb in "$top"/debs/*.deb; do dpkg-deb -x "$deb" "$top/root" || return 1; done
  rm -rf "$top/debs"
}
