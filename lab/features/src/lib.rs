//! An empty crate that only names features.
//!
//! Cargo builds a package again for each set of features. The product's tests and the lab share a
//! target folder and most packages, so both workspaces must ask for the same features. Cargo unites
//! the features of all members of a workspace: this member asks for those that only the product
//! needs. `fuzz/Cargo.toml` does the same in the product's workspace. After the product's tests are
//! built, `cargo test --workspace --no-run -v` in `lab/` prints `Fresh` for each package that both
//! workspaces need.
#![forbid(unsafe_code)]
