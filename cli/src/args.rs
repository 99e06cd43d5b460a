//! The command line as a value: the options that clap parses, and the text of `--help`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgGroup, Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

use super::bench_args::BenchArgs;
use super::duration::{duration, ttl, wait};
use super::names::{KEY_MAX, Name, key_parser, name_parser, slots_parser};

/// Locks on N independent Redis or Valkey masters
#[derive(Debug, Parser)]
#[command(name = "redbolt", version, max_term_width = 100, after_help = AFTER_HELP)]
#[command(subcommand_required = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

const AFTER_HELP: &str = "\
Start with:  redbolt demo

Durations are written as 30s, 250ms or 1m30s.

You can also set the options under 'Nodes and safety' in the environment (REDBOLT_MAX_TTL) or in \
a file (max-ttl = \"30s\"). An option comes first, then the variable, then the file.

Exit codes:
  0      done
  1      doctor: locks are safe, and some node does not vote;
         demo: something was oversold, or not all was sold;
         unlock --force: not confirmed, and nothing was done
  64     the command line, a variable or a file is wrong
  69     no quorum: too few nodes could be reached or answered in time;
         status, leader: unknown; ls: locks may be missing;
         lock, run: other data is under the name
  70     run: a lock was lost, or --max-hold was over;
         elect: CMD ended after its term;
         unlock, extend: the lock is no longer held
  71     the operating system refused something
  75     the lock is taken; ls --wait: a lock still has no vote to spare
  77     no quorum: nodes refuse the user, the password or a command
  78     doctor: no lock can be taken, or two clients could hold the same lock
  79     run, elect: CMD had to end and could not be killed: it may still run
  128+n  ended by signal n (status --watch, leader --watch, top, node: 0)
  run and elect end with CMD's own code: 127 not found, 126 not runnable,
         128+n killed by signal n";

/// The options of every command, before or after its name.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Nodes and safety")]
pub(crate) struct Global {
    /// The masters, comma-separated: redis://host:port, rediss://.. for TLS, unix:///path, host:port
    #[arg(long, global = true, value_name = "URL,..")]
    pub(crate) nodes: Option<String>,
    /// The masters that will replace --nodes: a lock then needs a quorum of each list [default: none]
    #[arg(long, global = true, value_name = "URL,..")]
    pub(crate) next_nodes: Option<String>,
    /// Longest TTL that any client of these locks uses [default: 30s]
    #[arg(long, global = true, value_name = "D", value_parser = duration)]
    pub(crate) max_ttl: Option<Duration>,
    /// Whether a restarted node waits for --max-ttl before it votes [default: on]
    #[arg(long, global = true, value_name = "on|off", hide_possible_values = true)]
    pub(crate) restart_guard: Option<Switch>,
    /// Whether a master that may fail over must stop taking writes when it is cut off [default: on]
    #[arg(long, global = true, value_name = "on|off", hide_possible_values = true)]
    pub(crate) failover_guard: Option<Switch>,
    /// Votes needed for a lock [default: more than half of the nodes]
    #[arg(long, global = true, value_name = "K")]
    pub(crate) quorum: Option<usize>,
    /// How long a node may take to answer [default: 50ms]
    #[arg(long, global = true, value_name = "D", value_parser = duration)]
    pub(crate) node_timeout: Option<Duration>,
    /// How far a node's clock may be from this machine's for a lock with --fence [default: 1s]
    #[arg(long, global = true, value_name = "D", value_parser = duration)]
    pub(crate) max_clock_skew: Option<Duration>,
    /// How long the nodes remember the last fence of a lock [default: 24h, or what --max-ttl needs]
    #[arg(long, global = true, value_name = "D", value_parser = duration)]
    pub(crate) fence_ttl: Option<Duration>,
    /// Prefix of every key on the nodes
    #[arg(long, global = true, value_name = "TEXT")]
    pub(crate) prefix: Option<OsString>,
    /// ACL user for the nodes whose URL names none; needs --password-file
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) user: Option<String>,
    /// File whose first line is the password for the nodes whose URL has none
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) password_file: Option<PathBuf>,
    /// Trust this CA certificate (PEM) and no others [default: those of the system]
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) tls_ca: Option<PathBuf>,
    /// Client certificate (PEM), for nodes that require one
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// Key of the client certificate (PEM)
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) tls_key: Option<PathBuf>,
    /// File with settings [default: ~/.config/redbolt/config.toml, if it is there]
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Print one JSON object on stdout instead of text, also for an error
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// The file that names the nodes, if no option and no variable does.
    #[arg(skip)]
    pub(crate) named_in: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Sell a stock under locks while nodes fail, and check that nothing is sold twice
    Demo(DemoArgs),
    /// Run embedded nodes in the foreground, for development
    Node(NodeArgs),
    /// Take one or more locks and leave them held: prints keys, token and validity
    Lock(LockArgs),
    /// Release locks by their keys and their token
    Unlock(UnlockArgs),
    /// Give held locks a new TTL
    Extend(ExtendArgs),
    /// Hold one or more locks while a command runs
    Run(RunArgs),
    /// Run a command while this candidate leads an election
    Elect(ElectArgs),
    /// Show who leads an election, and since when
    Leader(LeaderArgs),
    /// Show what each node holds for keys: free, held, split or unknown
    Status(StatusArgs),
    /// List the locks on the nodes, with their holders
    Ls(LsArgs),
    /// Watch the locks on a terminal, longest held first
    Top(TopArgs),
    /// Check that the nodes are fit for locks, and say how to repair them
    Doctor(DoctorArgs),
    /// Measure acquire and release on fresh keys
    Bench(BenchArgs),
    /// Show the settings in force, and where each came from
    Config(ConfigArgs),
    /// Print completions for a shell
    Completions(CompletionsArgs),
}

#[derive(Debug, Args)]
#[command(after_help = "\
Without --nodes the demo starts five embedded nodes. While the sale goes on, one is killed, one hangs, \
and two restart without their memory. With --nodes the demo makes no node fail.

Exit code 0 only if every piece was sold exactly once, else 1.

Example:  redbolt demo --no-lock     what happens without locks")]
pub(crate) struct DemoArgs {
    /// Threads that sell, each with its own client
    #[arg(long, value_name = "N", default_value = "8", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) workers: u32,
    /// Pieces to sell
    #[arg(long, value_name = "N", default_value = "2000", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) stock: u32,
    /// Sell without locks
    #[arg(long)]
    pub(crate) no_lock: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
The nodes listen on 127.0.0.1 until this command ends, and store nothing.

Example:  redbolt node --port 7001
          REDBOLT_NODES=127.0.0.1:7001,127.0.0.1:7002,127.0.0.1:7003 redbolt doctor")]
pub(crate) struct NodeArgs {
    /// Number of nodes
    #[arg(long, value_name = "N", default_value = "5", value_parser = clap::value_parser!(u16).range(1..=32))]
    pub(crate) count: u16,
    /// Port of the first node; the others follow it
    #[arg(long, value_name = "PORT", default_value = "7001", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) port: u16,
}

#[derive(Debug, Args)]
#[command(after_help = "\
A fence is a number that grows with every holder of the lock. Give it to the resource with each \
write, and let the resource refuse a number below the highest it has seen. Then a holder that \
was stopped until its lock was over can no longer write.

Example:  redbolt lock sku:42 --ttl 30s --wait 5s
          redbolt lock sku:42 --ttl 30s --fence      prints the fence too
          redbolt lock a b --ttl 30s                 both or none; prints one token
          redbolt lock licence --ttl 30s --slots 5   prints the key of one of five slots")]
pub(crate) struct LockArgs {
    /// Names of the locks, at most 64, 1 to 4096 bytes each: all are taken or none
    #[arg(value_name = "KEY", required = true, value_parser = key_parser())]
    pub(crate) keys: Vec<Name>,
    /// Time after which the nodes drop the lock
    #[arg(long, value_name = "D", value_parser = ttl)]
    pub(crate) ttl: Duration,
    /// How long to keep trying if the lock is taken; or forever [default: one attempt]
    #[arg(long, value_name = "D", value_parser = wait)]
    pub(crate) wait: Option<Duration>,
    /// Take the lock with a fence, and print it
    #[arg(long)]
    pub(crate) fence: bool,
    /// Take one of N slots of the lock, 1 to 63: at most N hold it at the same time
    #[arg(long, value_name = "N", value_parser = slots_parser())]
    pub(crate) slots: Option<u8>,
}

/// How much of a lock a command takes.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("reads_or_writes").args(["read", "write"]))]
pub(crate) struct ShareArgs {
    /// Take one of N slots of the lock, 1 to 63: at most N hold it at the same time. CMD finds its
    /// number, from 0 on, in its environment as REDBOLT_SLOT
    #[arg(long, value_name = "N", value_parser = slots_parser())]
    #[arg(conflicts_with_all = ["read", "write"])]
    pub(crate) slots: Option<u8>,
    /// Read: beside other readers, while nobody writes
    #[arg(long, conflicts_with = "write")]
    pub(crate) read: bool,
    /// Write: while nobody reads or writes
    #[arg(long)]
    pub(crate) write: bool,
    /// With --read or --write: the most readers at the same time, 1 to 63. Every reader and writer of the
    /// lock must give the same number
    #[arg(long, value_name = "N", value_parser = slots_parser(), default_value = "16")]
    #[arg(requires = "reads_or_writes")]
    pub(crate) readers: u8,
}

#[derive(Debug, Args)]
#[command(after_help = "\
With --force redbolt names the holder, asks, and takes the lock from that holder only. A client \
that got the lock meanwhile keeps it. This does not stop the holder, which works on until it \
learns of its loss. Stop it first, or let the resource refuse it by its fence. redbolt tells the \
holder: redbolt run and elect look at once, and end CMD within their --grace. If no message \
reaches them, they learn of the loss with their next extension, after a third of their TTL. A \
holder that never extends its lock keeps working until its TTL is over. A line on stderr says what \
redbolt has done.

Other users of this machine can see TOKEN with ps, but not a file or the environment.

Several locks are released in one round trip. redbolt reports each of them, and the exit code is \
the highest of theirs.

Example:  redbolt unlock sku:42 --token 5f2b0c6e9d...
          redbolt unlock sku:42 --token-file -      the token is the first line of stdin
          REDBOLT_TOKEN=$token redbolt unlock sku:42
          redbolt unlock a b --token-file token     both, by what redbolt lock a b printed
          redbolt unlock --force sku:42             asks
          redbolt unlock --force --yes sku:42       does not")]
pub(crate) struct UnlockArgs {
    /// Names of the locks, at most 64, in any order; with --force one
    #[arg(value_name = "KEY", required = true, value_parser = key_parser())]
    pub(crate) keys: Vec<Name>,
    #[command(flatten)]
    pub(crate) token: TokenArgs,
    /// Take the lock from whichever client holds it
    #[arg(long, conflicts_with_all = ["token", "token_file"])]
    pub(crate) force: bool,
    /// Do not ask
    #[arg(long, requires = "force")]
    pub(crate) yes: bool,
}

/// The token of the locks, in one of three ways.
#[derive(Debug, Args)]
pub(crate) struct TokenArgs {
    /// The token that `redbolt lock` printed for these locks [env: REDBOLT_TOKEN]
    #[arg(long, value_name = "TOKEN", allow_hyphen_values = true)]
    pub(crate) token: Option<OsString>,
    /// File whose first line is the token; - is stdin
    #[arg(long, value_name = "FILE", conflicts_with = "token")]
    pub(crate) token_file: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
redbolt searches the nodes with SCAN, 500 keys of a node at a time, so that locks get their turn \
in between. It leaves out a node that does not answer, after one --node-timeout. If locks may be \
missing for that reason, the exit code is 69. It also lists locks of other libraries, and other \
keys with a string of at most 255 bytes: nothing tells them apart.

--long shows how long a lock has been held if its holder announces that, as redbolt run and elect \
do. Otherwise it shows unknown. With --json each lock is one object on its own line.

Example:  redbolt ls
          redbolt ls --long                       what is stuck
          redbolt ls --wait 5m                    before the next node restarts
          redbolt ls 'sku:*' --json")]
pub(crate) struct LsArgs {
    /// Names to list: * for anything, ? for one letter, [a-c] for one of these
    #[arg(value_parser = name_parser(KEY_MAX), default_value = "*")]
    pub(crate) pattern: Name,
    /// The most locks to list
    #[arg(long, value_name = "N", default_value = "1000", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) limit: u32,
    /// Show how long each lock has been held, longest held first
    #[arg(short, long)]
    pub(crate) long: bool,
    /// How long to wait until each lock has a vote to spare; exit code 75 if a lock still has none
    #[arg(short, long, value_name = "D", value_parser = duration)]
    pub(crate) wait: Option<Duration>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
The view shows how long a lock has been held if its holder announces that, as redbolt run and \
elect do. Otherwise it shows unknown. q or Ctrl-C ends it.

Example:  redbolt top 'sku:*' --interval 2s")]
pub(crate) struct TopArgs {
    /// Names to show: * for anything, ? for one letter, [a-c] for one of these
    #[arg(value_parser = name_parser(KEY_MAX), default_value = "*")]
    pub(crate) pattern: Name,
    /// Time between two looks
    #[arg(long, value_name = "D", value_parser = duration, default_value = "1s")]
    pub(crate) interval: Duration,
}

#[derive(Debug, Args)]
#[command(after_help = "\
A lock that was taken with --fence keeps its fence. If one of several locks is no longer held, the \
exit code is 70; the others stay held.

Example:  redbolt extend sku:42 --ttl 30s --token 5f2b0c6e9d...
          redbolt extend sku:42 --ttl 30s --token-file -     the token is the first line of stdin
          redbolt extend a b --ttl 30s --token-file token    both, by what redbolt lock a b printed")]
pub(crate) struct ExtendArgs {
    /// Names of the locks, at most 64, in any order
    #[arg(value_name = "KEY", required = true, value_parser = key_parser())]
    pub(crate) keys: Vec<Name>,
    #[command(flatten)]
    pub(crate) token: TokenArgs,
    /// The new TTL, from now
    #[arg(long, value_name = "D", value_parser = ttl)]
    pub(crate) ttl: Duration,
}

#[derive(Debug, Args)]
#[command(after_help = RUN_HELP)]
pub(crate) struct RunArgs {
    /// Names of the locks, at most 64; all of them are held while CMD runs
    #[arg(value_name = "KEY", required = true, value_parser = key_parser())]
    pub(crate) keys: Vec<Name>,
    /// TTL of the locks: how long they outlive a crash of this machine [default: 10s, or --max-ttl if
    /// that is less]
    #[arg(long, value_name = "D", value_parser = ttl)]
    pub(crate) ttl: Option<Duration>,
    /// How long to keep trying if a lock is taken; or forever [default: one attempt]
    #[arg(short, long, value_name = "D", value_parser = wait)]
    pub(crate) wait: Option<Duration>,
    /// One attempt, as without --wait
    #[arg(short, long, conflicts_with = "wait")]
    pub(crate) no_wait: bool,
    /// Exit code when a lock is taken; with 0 redbolt prints no error either, except with --json
    /// [default: 75]
    #[arg(short = 'E', long, value_name = "CODE")]
    pub(crate) conflict_exit_code: Option<u8>,
    /// How long before the end of a lock redbolt ends CMD, less than half of the TTL [default: a
    /// tenth of the TTL, at most 1s]
    #[arg(long, value_name = "D", value_parser = duration)]
    pub(crate) grace: Option<Duration>,
    /// Name of the holder, 1 to 64 letters, digits and .-_+@/ [default: run/ and CMD's file]
    #[arg(long, value_name = "WHO")]
    pub(crate) name: Option<String>,
    /// Longest time to hold the locks; then redbolt ends CMD as if a lock were lost [default: no limit]
    #[arg(long, value_name = "D", value_parser = duration)]
    pub(crate) max_hold: Option<Duration>,
    /// Take the lock with a fence, for a single KEY; CMD finds the fence in its environment as
    /// REDBOLT_FENCE
    #[arg(long)]
    pub(crate) fence: bool,
    #[command(flatten)]
    pub(crate) share: ShareArgs,
    #[command(flatten)]
    pub(crate) command: CommandArgs,
}

/// The command under a lock.
#[derive(Debug, Args)]
pub(crate) struct CommandArgs {
    /// A line for the shell ($SHELL, else /bin/sh) instead of CMD
    #[arg(short = 'c', long = "command", value_name = "LINE", conflicts_with = "command")]
    pub(crate) line: Option<OsString>,
    /// Let CMD become another user, for example by sudo; redbolt may then be unable to kill it
    #[arg(long)]
    pub(crate) allow_new_privileges: bool,
    /// The command and its arguments
    #[arg(last = true, required_unless_present = "line", value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

#[derive(Debug, Args)]
#[command(after_help = ELECT_HELP)]
pub(crate) struct ElectArgs {
    /// Name of the election: the name of its lock
    #[arg(value_name = "NAME", value_parser = key_parser())]
    pub(crate) election: Name,
    /// TTL of the lock: if a leader dies, another leads within this time [default: 3s, or --max-ttl if
    /// that is less]
    #[arg(long, value_name = "D", value_parser = ttl)]
    pub(crate) ttl: Option<Duration>,
    /// What this candidate is called, 1 to 64 letters, digits and .-_+@/ [default: elect/ and CMD's
    /// file]
    #[arg(long = "name", value_name = "WHO")]
    pub(crate) name: Option<String>,
    /// How long before the end of the term redbolt ends CMD, less than half of the TTL [default: a
    /// tenth of the TTL, at most 1s]
    #[arg(long, value_name = "D", value_parser = duration)]
    pub(crate) grace: Option<Duration>,
    /// Lead with a fence; CMD finds it in its environment as REDBOLT_FENCE
    #[arg(long)]
    pub(crate) fence: bool,
    #[command(flatten)]
    pub(crate) command: CommandArgs,
}

const ELECT_HELP: &str = "\
redbolt waits, for as long as it takes, until this candidate leads, and runs CMD. A term is a lock \
that redbolt extends every third of its TTL. When redbolt cannot extend the term, or loses it, CMD \
and its process group get TERM. KILL follows before the term would have ended, as with redbolt \
run. Then redbolt waits to lead again. So CMD runs on one machine at a time.

When CMD ends by itself, redbolt resigns, so that another candidate follows at once, and ends \
with CMD's own code. redbolt passes INT, TERM, HUP, QUIT, USR1 and USR2 on to CMD. While redbolt \
waits, INT, TERM, HUP and QUIT end redbolt. CMD is killed when redbolt is.

CMD finds the name of the election in $REDBOLT_KEY, and with --fence a number in $REDBOLT_FENCE \
that grows from leader to leader. A resource that refuses a number below the highest it has seen \
is safe from a leader that was paused.

Example:  redbolt elect scheduler -- ./scheduler
          redbolt elect scheduler --ttl 3s --name \"$HOSTNAME\" -- ./scheduler
          redbolt leader scheduler                   who leads";

#[derive(Debug, Args)]
#[command(after_help = "\
The name is the leader's own claim. It is shown only where the nodes hold it with the token of \
the lock itself.

Example:  redbolt leader scheduler
          redbolt leader scheduler --watch           a line for each change
          redbolt leader scheduler --json")]
pub(crate) struct LeaderArgs {
    /// Name of the election
    #[arg(value_name = "NAME", value_parser = key_parser())]
    pub(crate) election: Name,
    /// Go on until interrupted: one line per change
    #[arg(long)]
    pub(crate) watch: bool,
    /// Time between two looks, with --watch [default: 200ms]
    #[arg(long, value_name = "D", value_parser = duration, requires = "watch")]
    pub(crate) interval: Option<Duration>,
}

const RUN_HELP: &str = "\
redbolt extends a lock every third of its TTL. It ends CMD if the lock is taken away, or less \
than --grace of it is left. CMD and its process group get TERM. They get KILL after the grace, or \
sooner if the lock ends within a quarter of the grace. The exit code is then 70. If redbolt is \
stopped or hangs, its watchdog, a second process, sends that KILL. redbolt passes INT, TERM, HUP, \
QUIT, USR1 and USR2 on to CMD. CMD is killed when redbolt is. If redbolt cannot kill a process, a \
line on stderr names the process and the exit code is 79.

A CMD that hangs holds its locks for as long as it hangs. With --max-hold such a CMD gets TERM at \
that time, and KILL after the grace. A line on stderr says so, and the exit code is 70.

While run waits for a lock, it names the holder or the missing nodes on stderr, after some \
seconds and after a change.

redbolt takes several locks at once, all or none, and holds them as one: if one is lost, CMD is \
ended. Commands that want the same locks in another order cannot deadlock.

A fence is a number that grows with every holder of the lock. CMD gives $REDBOLT_FENCE to the \
resource with each write, and the resource refuses a number below the highest it has seen. Then \
no CMD of an earlier holder can write any more. Without --fence CMD has no REDBOLT_FENCE. Fences compare \
within one lock only, so --fence takes one KEY.

CMD finds the token of its locks in $REDBOLT_TOKEN, as redbolt lock prints it, and a single KEY in \
$REDBOLT_KEY. With --slots or --read, $REDBOLT_KEY is the key of the slot. With --write, \
$REDBOLT_KEY is the key of the gate, KEY:slot, and CMD has no token.

With --json an error is an object; a run that succeeds adds nothing to what CMD prints.

Example:  redbolt run nightly-report --ttl 10s --wait 1m -- ./report.sh --all
          redbolt run nightly-report --max-hold 2h -- ./report.sh
                                                     ended after two hours at the latest
          redbolt run stock orders -- ./reconcile    both are held
          redbolt run licence --slots 5 -- ./render  at most five at the same time
          redbolt run table --read -- ./report       beside other readers
          redbolt run stock --fence -c './write --fence $REDBOLT_FENCE'
          redbolt run -n -E 0 cleanup -c 'find /var/spool/x -mtime +7 -delete'
                                                     in a crontab: silent if another machine
                                                     does it";

#[derive(Debug, Args)]
#[command(after_help = "\
A node without a vote, as after a restart, counts as a node that does not answer. While such nodes \
may have lost a lock, the verdict is unknown (exit code 69).

With --watch redbolt goes on until a signal ends it. It shows a live view on a terminal, and one \
line per change elsewhere. With --json each look is one object on its own line.

Example:  redbolt status sku:42
          redbolt status a b                      one after another; the highest exit code
          redbolt status sku:42 --watch --interval 200ms")]
pub(crate) struct StatusArgs {
    /// Names of the locks
    #[arg(value_name = "KEY", required = true, value_parser = key_parser())]
    pub(crate) keys: Vec<Name>,
    /// Repeat until interrupted
    #[arg(long)]
    pub(crate) watch: bool,
    /// Time between two looks, with --watch [default: 1s]
    #[arg(long, value_name = "D", value_parser = duration, requires = "watch")]
    pub(crate) interval: Option<Duration>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Exit code 0 when all nodes vote and locks are safe. 1 when locks are safe and some node does not \
vote (degraded). 78 when no lock can be taken, or two clients could hold the same lock (unsafe). A \
note does not change the exit code. --max-ttl, --quorum and the guards must be those of the clients.

For scripts that restart nodes one by one: --wait looks again until all nodes vote and locks are \
safe.

Example:  redbolt doctor --nodes 10.0.0.1:6379,10.0.0.2:6379,10.0.0.3:6379
          redbolt doctor --key sku:42        may the user take locks of this name
          redbolt doctor --key licence --slots 3 --wait forever
                                             until three slots are enough for the holders
          redbolt doctor --wait 5m           until all nodes vote")]
pub(crate) struct DoctorArgs {
    /// Name of a lock that the user must be allowed to take; nothing is written to it
    #[arg(long, value_name = "KEY", value_parser = key_parser())]
    pub(crate) key: Option<Name>,
    /// With --key: the number of slots that clients will use from now on, 1 to 63. The
    /// verdict is unsafe while a client holds a slot above them
    #[arg(long, value_name = "N", value_parser = slots_parser(), requires = "key")]
    pub(crate) slots: Option<u8>,
    /// How long to keep looking until all is well; or forever [default: one look]
    #[arg(long, value_name = "D", value_parser = wait)]
    pub(crate) wait: Option<Duration>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Passwords are not shown.

The file has one line for each setting, named as its option:

  nodes = [\"redis://10.0.0.1\", \"redis://10.0.0.2\", \"redis://10.0.0.3\"]
  max-ttl = \"30s\"
  password-file = \"password\"     relative to the directory of this file

Example:  redbolt config
          redbolt config --config ./trial.toml --json")]
pub(crate) struct ConfigArgs {}

#[derive(Debug, Args)]
#[command(after_help = "\
Example:  redbolt completions bash > /etc/bash_completion.d/redbolt
          redbolt completions zsh > ~/.zfunc/_redbolt
          redbolt completions fish > ~/.config/fish/completions/redbolt.fish")]
pub(crate) struct CompletionsArgs {
    /// The shell
    #[arg(value_name = "bash|elvish|fish|powershell|zsh", hide_possible_values = true)]
    pub(crate) shell: Shell,
}

/// A setting that is on or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Switch {
    On,
    Off,
}

/// The word of a value on the command line.
pub(crate) fn word(value: &impl ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}
