#!/bin/sh
# Restarts the lock nodes one after another, each when all nodes vote again and each lock that is
# held has a vote to spare. So clients have a quorum at all times, and no lock is lost. The script ends
# at the first failure, with the code of the command that failed: redbolt doctor, redbolt ls or COMMAND.
# It ends with 1 if COMMAND did not restart the server.
#
# usage: rolling-restart.sh COMMAND
#   sh runs COMMAND for each node of REDBOLT_NODES, with the node's $HOST and $PORT. COMMAND ends when the
#   server has been stopped and started again:
#     rolling-restart.sh 'ssh "$HOST" sudo systemctl restart redbolt-node@"$PORT"'
#
# WAIT    how long a node may take to vote again (5m), of which the restart guard takes --max-ttl; and how
#         long locks may then take to have a vote to spare
# SETTLE  seconds until the next restart (6), in which all clients find the node again: a client tries at
#         least once in 5 s
#
# A lock that is held meanwhile regains its votes soon after, if its client extends it.
set -eu

# Waits until all nodes vote and each lock has a vote to spare. Otherwise shows why, and ends the
# script.
all_vote() {
  report=$(redbolt doctor --wait "${WAIT:-5m}" 2>&1 && redbolt ls --limit 100000 --wait "${WAIT:-5m}" 2>&1) || {
    code=$?
    printf '%s\n' "$report" >&2
    exit "$code"
  }
}

if [ $# -ne 1 ]; then
  echo "usage: rolling-restart.sh COMMAND" >&2
  exit 64
fi
all_vote
nodes=$(redbolt doctor --json | grep -o '"node":"[^"]*"' | cut -d'"' -f4)
count=$(printf '%s\n' "$nodes" | wc -l) restarted=0
for node in $nodes; do
  began=$(date +%s)
  HOST=${node%:*} PORT=${node##*:} sh -c "$1" || {
    code=$?
    echo "$node: the command failed with $code; $restarted of $count nodes have been restarted" >&2
    exit "$code"
  }
  all_vote
  age=$(redbolt doctor --json | tr '{' '\n' | grep -F "\"node\":\"$node\"" |
    sed -n 's/.*"uptime_s":\([0-9]*\).*/\1/p')
  # A server that shuts down only while the next one restarts would be a second node away.
  if [ "${age:-0}" -gt $(($(date +%s) - began + 1)) ]; then
    echo "$node: the server runs for $age s: the command did not restart it" >&2
    exit 1
  fi
  restarted=$((restarted + 1))
  echo "$node: restarted, $restarted of $count; all nodes vote"
  [ "$restarted" -eq "$count" ] || sleep "${SETTLE:-6}"
done
