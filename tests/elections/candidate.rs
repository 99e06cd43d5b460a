//! A candidate: a process that campaigns, writes down what it believes of its term, and resigns now
//! and then. The tests start it as this binary's test `one_of_the_candidates`.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use redbolt::{Client, Config, Guard, now};

use redbolt_rig::{ms, own_test};

pub(crate) const NAME: &str = "scheduler";

/// The prefix of the variables that configure a candidate.
const PREFIX: &str = "REDBOLT_ELECTIONS_";

/// How a candidate behaves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Manner {
    pub(crate) ttl_ms: u64,
    /// The candidate resigns after this time, if it leads for so long; zero for never.
    pub(crate) resigns_after_ms: u64,
    /// The candidate believes in each term for so much longer than it may: the judge must see this
    /// breakage.
    pub(crate) boast_ms: u64,
}

/// A candidate that runs. Dropping this value kills the process.
pub(crate) struct Candidate {
    child: Child,
    pub(crate) diary: PathBuf,
}

impl Candidate {
    pub(crate) fn start(index: usize, urls: &[String], dir: &Path, manner: Manner) -> Self {
        let diary = dir.join(format!("diary-{index}"));
        let child = own_test("one_of_the_candidates")
            .env(format!("{PREFIX}DIARY"), &diary)
            .env(format!("{PREFIX}NODES"), urls.join(","))
            .env(format!("{PREFIX}NAME"), format!("candidate-{index}"))
            .env(format!("{PREFIX}TTL"), manner.ttl_ms.to_string())
            .env(format!("{PREFIX}RESIGNS"), manner.resigns_after_ms.to_string())
            .env(format!("{PREFIX}BOAST"), manner.boast_ms.to_string())
            .stdout(Stdio::null())
            .spawn()
            .expect("a candidate starts");
        Self { child, diary }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends SIGSTOP or SIGCONT, by its name.
    pub(crate) fn signal(&self, signal: &str) {
        let pid = self.pid().to_string();
        let status = Command::new("kill").args(["-s", signal, &pid]).status();
        assert!(status.is_ok_and(|status| status.success()), "kill {signal}");
    }

    pub(crate) fn kill(&mut self) {
        // An error means that the process is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    pub(crate) fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }
}

impl Drop for Candidate {
    fn drop(&mut self) {
        self.kill();
    }
}

struct Diary {
    file: File,
    boast: std::time::Duration,
}

impl Diary {
    fn write(&mut self, text: &str) {
        // One write per line, so that a kill leaves the whole line or none of it.
        self.file.write_all(format!("{text}\n").as_bytes()).expect("a writable diary");
    }

    fn deadline(&self, term: &Guard) -> u64 {
        (term.deadline() + self.boast).as_nanos()
    }
}

/// Campaigns and leads for ever.
pub(crate) fn run() {
    let variable = |name: &str| std::env::var(format!("{PREFIX}{name}")).expect(name);
    let number = |name| ms(variable(name).parse().expect("a number"));
    let (ttl, resigns_after, boast) = (number("TTL"), number("RESIGNS"), number("BOAST"));
    let file =
        OpenOptions::new().create(true).append(true).open(variable("DIARY")).expect("a diary");
    let mut diary = Diary { file, boast };
    let urls = variable("NODES");
    let config =
        Config::new(urls.split(',')).expect("addresses").max_ttl(ttl).client_name(variable("NAME"));
    let client = Client::open(config).expect("a client");
    loop {
        // A candidate does not give up because nodes cannot be reached.
        let Ok(term) = client.campaign(NAME, ttl).wait() else { continue };
        let began = now();
        let mut believed = diary.deadline(&term);
        diary.write(&format!("lead {} {believed}", began.as_nanos()));
        let is_leader = |term: &Guard| term.is_valid() || now() < term.deadline() + boast;
        loop {
            // After a stop, the candidate looks at its lease before it does anything else.
            if !is_leader(&term) {
                diary.write(&format!("lost {}", now().as_nanos()));
                drop(term);
                break;
            }
            let deadline = diary.deadline(&term);
            if deadline != believed {
                believed = deadline;
                diary.write(&format!("until {believed}"));
            }
            if !resigns_after.is_zero() && now() >= began + resigns_after {
                diary.write(&format!("resign {}", now().as_nanos()));
                let _ = term.unlock().wait();
                break;
            }
            std::thread::sleep(ms(2));
        }
    }
}
