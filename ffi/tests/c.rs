//! The C library as a C program has it: installed, found by pkg-config, on real servers.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use redbolt_rig::{Cluster, skip};
use tempfile::TempDir;

/// The library, installed into a folder of its own.
struct Installed {
    folder: TempDir,
}

fn crate_dir() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The output of a command that must end well.
#[track_caller]
fn done(command: &mut Command) -> String {
    let Output { status, stdout, stderr } =
        command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let told = [stdout, stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert!(status.success(), "{command:?}: {status}\n{}{}", told[0], told[1]);
    told.concat()
}

fn is_there(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success())
}

/// Whether the program is there; if not, the running test is reported as skipped.
fn program_or_skip(program: &str) -> Option<()> {
    if is_there(program) {
        return Some(());
    }
    skip(&format!("{program} is not installed"), "install it");
    None
}

/// Builds and installs the library once, as a user does, but quicker to build.
fn installed() -> Option<&'static Installed> {
    static INSTALLED: OnceLock<Installed> = OnceLock::new();
    program_or_skip("make")?;
    program_or_skip("pkg-config")?;
    Some(INSTALLED.get_or_init(|| {
        let folder = tempfile::tempdir().expect("a folder");
        for target in ["all", "install"] {
            let prefix = format!("PREFIX={}", folder.path().display());
            done(Command::new("make").args(["-C"]).arg(crate_dir()).args([
                "PROFILE=dev",
                &prefix,
                target,
            ]));
        }
        Installed { folder }
    }))
}

impl Installed {
    fn lib(&self) -> PathBuf {
        self.folder.path().join("lib")
    }

    /// A compiler's words for the library, by pkg-config.
    fn flags(&self) -> Vec<String> {
        let mut command = Command::new("pkg-config");
        command
            .args(["--cflags", "--libs", "redbolt"])
            .env("PKG_CONFIG_PATH", self.lib().join("pkgconfig"));
        done(&mut command).split_whitespace().map(str::to_owned).collect()
    }

    /// Builds a program, with no warning.
    fn build(&self, compiler: &str, source: &str, flags: &[&str]) -> PathBuf {
        let name = source.replace(['/', '.'], "-");
        let program =
            self.folder.path().join(format!("{compiler}-{name}-{}", flags.concat().len()));
        let mut command = Command::new(compiler);
        command.args(["-g1", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]);
        command
            .arg(crate_dir().join(source))
            .args(flags)
            .arg("-o")
            .arg(&program)
            .args(self.flags());
        done(&mut command);
        program
    }

    /// A command that finds the library.
    fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env("LD_LIBRARY_PATH", self.lib());
        command
    }
}

const C11: &str = "-std=c11";
const SANITIZERS: [&str; 2] = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"];

/// Runs an example by each compiler, one of them with sanitizers, and reads what it says.
fn on_servers(source: &str, flags: &[&str]) -> Option<Vec<String>> {
    let (installed, nodes) = (installed()?, Cluster::mixed(3)?);
    let compilers: &[&str] =
        if source.ends_with(".c") { &["gcc", "clang"] } else { &["g++", "clang++"] };
    let mut told = Vec::new();
    for (compiler, extra) in compilers.iter().zip([&SANITIZERS[..], &[]]) {
        let Some(()) = program_or_skip(compiler) else { continue };
        let program = installed.build(compiler, source, &[flags, extra].concat());
        told.push(done(installed.command(program).args(nodes.urls())));
    }
    Some(told)
}

#[test]
fn the_header_is_made_from_the_sources() {
    let config = cbindgen::Config::from_file(crate_dir().join("cbindgen.toml")).expect("settings");
    let made = cbindgen::generate_with_config(crate_dir(), config).expect("a header");
    let (mut text, header) = (Vec::new(), crate_dir().join("include/redbolt.h"));
    made.write(&mut text);
    if std::env::var_os("REDBOLT_UPDATE").is_some() {
        fs::write(&header, &text).expect("the header can be written");
    }
    let is_same = fs::read(&header).is_ok_and(|before| before == text);
    assert!(is_same, "where that is meant: REDBOLT_UPDATE=1 tests/run c");
}

#[test]
fn a_thread_takes_extends_and_unlocks_a_lock() {
    for told in on_servers("examples/blocking.c", &[C11]).into_iter().flatten() {
        assert!(told.contains("the invoice is written here"), "{told}");
        assert!(told.contains("a second caller: the lock is taken: 0 of 3 granted"), "{told}");
        assert!(told.contains("127.0.0.1:"), "each node is named: {told}");
    }
}

#[test]
fn a_loop_on_epoll_ships_orders_under_locks() {
    for told in on_servers("examples/epoll.c", &[C11, "-D_GNU_SOURCE"]).into_iter().flatten() {
        assert!(told.contains("shipped 8 orders"), "{told}");
    }
}

#[test]
fn a_loop_that_spins_trades_under_locks() {
    for told in on_servers("examples/spin.c", &[C11]).into_iter().flatten() {
        assert!(told.contains("traded 100 signals"), "{told}");
    }
}

const CPP17: &str = "-std=c++17";

/// The folder with libuv, libevent and Asio; if it is missing, the running test is reported as skipped.
fn loops_or_skip() -> Option<PathBuf> {
    let servers = std::env::var_os("REDBOLT_SERVERS");
    let servers = servers.map_or_else(|| crate_dir().join("../target/servers"), PathBuf::from);
    let root = servers.join("loops/root/usr");
    if root.exists() {
        return Some(root);
    }
    skip("libuv, libevent and Asio are not installed", "tests/loops.sh target/servers");
    None
}

#[test]
fn loops_of_libuv_libevent_and_asio_ship_orders_under_locks() {
    let Some(root) = loops_or_skip() else { return };
    let include = format!("-isystem{}", root.join("include").display());
    let library = |name: &str| root.join("lib/x86_64-linux-gnu").join(name).display().to_string();
    let (uv, event) = (library("libuv_a.a"), library("libevent_core.a"));
    for (source, flags) in [
        ("examples/libuv.c", vec![C11, "-D_GNU_SOURCE", "-pthread", &include, &uv]),
        ("examples/libevent.c", vec![C11, "-D_GNU_SOURCE", &include, &event]),
        ("examples/asio.cpp", vec![CPP17, "-pthread", &include]),
    ] {
        for told in on_servers(source, &flags).into_iter().flatten() {
            assert!(told.contains("shipped 8 orders"), "{source}: {told}");
        }
    }
}

#[test]
fn a_guard_of_cpp_releases_its_lock_at_the_end_of_its_scope() {
    for told in on_servers("examples/guard.cpp", &[CPP17, "-pthread"]).into_iter().flatten() {
        assert!(told.contains("8 threads wrote, one after the other"), "{told}");
        assert!(told.contains("the TTL is 0ns"), "{told}");
    }
}

#[test]
fn a_driver_of_cpp_takes_several_keys_and_reports_what_it_refuses() {
    for told in on_servers("tests/programs/driver.cpp", &[CPP17]).into_iter().flatten() {
        assert!(told.contains("locked both"), "{told}");
    }
}

#[test]
fn a_gateway_refuses_the_fence_of_an_earlier_holder() {
    for told in on_servers("examples/trading.cpp", &[CPP17]).into_iter().flatten() {
        assert!(told.contains("placed 50 orders"), "{told}");
        assert!(told.contains("the gateway refused the order"), "{told}");
    }
}

#[test]
fn leases_have_several_keys_slots_fences_and_an_end_that_threads_hear_of() {
    let (Some(installed), Some(())) = (installed(), program_or_skip("gcc")) else { return };
    let Some(nodes) = Cluster::mixed(3) else { return };
    let flags = [&[C11, "-D_GNU_SOURCE", "-pthread"], &SANITIZERS[..]].concat();
    let program = installed.build("gcc", "tests/programs/leases.c", &flags);
    let mut command = installed.command(program);
    let mut child = command.args(nodes.urls()).stdout(Stdio::piped()).spawn().expect("a program");
    let mut last = String::new();
    for line in BufReader::new(child.stdout.take().expect("its output")).lines() {
        last = line.expect("text");
        let Some(key) = last.strip_prefix("delete ") else { continue };
        for node in nodes.nodes() {
            node.command(&["DEL", key]);
        }
    }
    let status = child.wait().expect("its end");
    assert!(status.success(), "{status}: {last:?}");
    assert_eq!(last, "all as it should be");
}

#[test]
fn structs_have_the_listed_layouts() {
    let told = on_servers("tests/programs/layout.c", &[C11]);
    let version = concat!("redbolt ", env!("CARGO_PKG_VERSION"));
    assert!(told.iter().flatten().all(|told| told.trim() == version), "{told:?}");
}

#[test]
fn bad_input_of_each_kind_gets_a_code_and_a_message() {
    for told in on_servers("tests/programs/bad_input.c", &[C11]).into_iter().flatten() {
        let kinds = told.split_whitespace().next().and_then(|kinds| kinds.parse::<u32>().ok());
        assert!(kinds.is_some_and(|kinds| kinds >= 50), "{told}");
    }
}

/// A client that is freed has an I/O thread, which runs on for a moment.
#[cfg(target_os = "linux")]
#[test]
fn a_library_that_a_program_closes_stays_loaded() {
    let (Some(installed), Some(())) = (installed(), program_or_skip("gcc")) else { return };
    let program = installed.folder.path().join("unload");
    let mut gcc = Command::new("gcc");
    gcc.arg(crate_dir().join("tests/programs/unload.c")).args(["-ldl", "-o"]).arg(&program);
    done(&mut gcc);
    done(&mut installed.command(program));
}

/// The program counts by its own `malloc`, as only glibc lets it.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[test]
fn a_warm_lock_allocates_nothing() {
    let (Some(installed), Some(())) = (installed(), program_or_skip("gcc")) else { return };
    let Some(nodes) = Cluster::mixed(3) else { return };
    let program = installed.build("gcc", "tests/programs/allocations.c", &[C11]);
    let told = done(installed.command(program).args(nodes.urls()));
    assert_eq!(told.trim(), "client 0, driver 0");
}

/// What a reader copies compiles.
#[test]
fn the_code_of_the_pages_compiles() {
    let Some(installed) = installed() else { return };
    for (page, mark, compiler, standard) in [
        ("../docs/guide-c.md", "```c\n", "gcc", C11),
        ("../docs/guide-c.md", "```cpp\n", "g++", CPP17),
        ("../README.md", "```c\n", "gcc", C11),
        ("../README.md", "```cpp\n", "g++", CPP17),
    ] {
        let Some(()) = program_or_skip(compiler) else { continue };
        let text = fs::read_to_string(crate_dir().join(page)).expect("a page");
        let blocks: Vec<_> = text.split(mark).skip(1).collect();
        assert!(!blocks.is_empty(), "{page} has no code that begins with {mark}");
        for block in blocks {
            let code = block.split("```").next().unwrap_or_default();
            let file =
                installed.folder.path().join(format!("page.{}", mark.trim().trim_matches('`')));
            fs::write(&file, code).expect("a file");
            let mut command = Command::new(compiler);
            command.args([standard, "-Wall", "-Wextra", "-Werror", "-fsyntax-only"]);
            done(command.arg(file).args(installed.flags()));
        }
    }
}

/// A program that needs no shared library of ours.
#[test]
fn a_program_can_be_linked_statically() {
    let (Some(installed), Some(())) = (installed(), program_or_skip("gcc")) else { return };
    let Some(nodes) = Cluster::mixed(3) else { return };
    let program = installed.folder.path().join("static");
    let mut private = Command::new("pkg-config");
    private.args(["--cflags", "--libs", "--static", "redbolt"]);
    let flags = done(private.env("PKG_CONFIG_PATH", installed.lib().join("pkgconfig")));
    let flags = flags.replace("-lredbolt", "-l:libredbolt.a");
    let source = crate_dir().join("examples/blocking.c");
    let mut command = Command::new("gcc");
    done(command.args([C11, "-o"]).arg(&program).arg(source).args(flags.split_whitespace()));
    done(Command::new(program).args(nodes.urls()));
}

#[test]
fn valgrind_has_no_complaint() {
    let (Some(installed), Some(())) = (installed(), program_or_skip("valgrind")) else { return };
    let (Some(nodes), Some(())) = (Cluster::mixed(3), program_or_skip("gcc")) else { return };
    let program = installed.build("gcc", "examples/blocking.c", &[C11]);
    let mut command = installed.command("valgrind");
    // The I/O thread may still be ending, so its memory is possibly lost.
    command
        .args([
            "--quiet",
            "--error-exitcode=9",
            "--leak-check=full",
            "--errors-for-leak-kinds=definite",
        ])
        .arg(program);
    done(command.args(nodes.urls()));
}

/// The names that the library shows, against the list that is committed.
#[test]
fn the_shared_library_shows_the_listed_names_and_no_other() {
    let (Some(installed), Some(())) = (installed(), program_or_skip("nm")) else { return };
    let listed = done(
        Command::new("nm")
            .args(["-D", "--defined-only", "--format=posix"])
            .arg(installed.lib().join("libredbolt.so")),
    );
    let mut found: Vec<_> = listed.lines().filter_map(|line| line.split(' ').next()).collect();
    found.sort_unstable();
    let list = crate_dir().join("symbols.txt");
    if std::env::var_os("REDBOLT_UPDATE").is_some() {
        fs::write(&list, found.join("\n") + "\n").expect("a list that can be written");
    }
    let expected = fs::read_to_string(list).expect("the list");
    assert_eq!(found, expected.lines().collect::<Vec<_>>());
    assert!(found.len() <= 40, "{} functions", found.len());
}
