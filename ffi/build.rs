//! The name by which programs find the shared library. A minor version before 1.0 may break them.
//! And a flag that keeps it loaded.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let (major, minor) = (env!("CARGO_PKG_VERSION_MAJOR"), env!("CARGO_PKG_VERSION_MINOR"));
    if std::env::var_os("CARGO_CFG_TARGET_OS").is_some_and(|os| os == "linux") {
        println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libredbolt.so.{major}.{minor}");
        // The I/O thread of a client that was freed runs on for a moment, also after a `dlclose`.
        println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    }
}
