#!/bin/sh
# Puts a new, empty server in the place of a lock node, by the steps of docs/servers.md. It stops
# the old server for good, then starts the new one, and waits until every lock that the old one
# granted is over. Clients have a quorum at all times. Give them the new list afterwards.
#
# usage: replace-node.sh OLD NEW STOP START
#   OLD is an address as it stands in REDBOLT_NODES. NEW is the address of the new server; it may be OLD
#   again. sh runs STOP, which ends when the old server is stopped for good, and then START:
#     replace-node.sh redis://n3:6379 redis://n6:6379 \
#       'ssh n3 sudo systemctl disable --now redbolt-node@6379' \
#       'ssh n6 sudo systemctl enable --now redbolt-node@6379'
#
# WAIT    how long the new server may take to vote (5m); the restart guard takes --max-ttl of that
set -eu

fail() {
  echo "$*" >&2
  exit 1
}

# The doctor's name for an address.
name() {
  place=${1#*://}
  place=${place##*@}
  printf %s "${place%%/*}"
}

# The doctor's report, one line per node.
nodes() {
  redbolt doctor --json | tr '{' '\n' | grep -F '"node":"' || fail "redbolt doctor: $(redbolt doctor 2>&1)"
}

# Ends the script if a server answers at this address.
silent() {
  nodes=$(nodes)
  case $(printf '%s\n' "$nodes" | grep -F "\"node\":\"$(name "$1")\"") in
  *'"reachable":false'*) ;;
  *) fail "$(name "$1") $2" ;;
  esac
}

if [ $# -ne 4 ] || [ -z "${REDBOLT_NODES:-}" ]; then
  echo "usage: REDBOLT_NODES=.. replace-node.sh OLD NEW STOP START" >&2
  exit 64
fi
case ,$REDBOLT_NODES, in *,"$1",*) ;; *) fail "$(name "$1") is not in REDBOLT_NODES as it is written here" ;; esac
new_list=$(printf %s "$REDBOLT_NODES" | tr , '\n' | awk -v old="$1" -v new="$2" '
  { printf "%s%s", sep, $0 == old ? new : $0; sep = "," }')
# The wait for the guard makes the exchange safe, whatever the clients of these nodes do.
export REDBOLT_RESTART_GUARD=on

nodes=$(nodes)
case $(printf '%s\n' "$nodes" | grep -vF "\"node\":\"$(name "$1")\"") in
*'"votes":false'*) fail "not all other nodes vote: see redbolt doctor, and mend them first" ;;
esac
redbolt ls --limit 100000 --wait "${WAIT:-5m}" > /dev/null || fail "a lock would not survive this: see redbolt ls"
sh -c "$3"
silent "$1" "still answers: the command did not stop it"
export REDBOLT_NODES="$new_list"
silent "$2" "answers already: the new server must be started after the old one was stopped"
sh -c "$4"
redbolt doctor --wait "${WAIT:-5m}"
echo "now give the clients the new list, one after another: $(name "$2") in the place of $(name "$1")"
