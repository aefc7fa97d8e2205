//! The name by which programs ask for the shared library.
#![allow(clippy::print_stdout, reason = "cargo is told so")]

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libsealane_client.so.0");
}
