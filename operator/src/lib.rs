//! What passes between a program and its operator: settings out of a TOML file with all of their
//! mistakes ([`reader`], [`Mistake`]), sealing keys out of their source ([`KeySource`]), and what
//! is logged on standard error ([`log`]).
#![forbid(unsafe_code)]

pub mod key;
mod key_source;
pub mod log;
pub mod memory;
pub mod mistake;
pub mod reader;
mod text;
pub mod timestamp;
pub mod value;

pub use key_source::{
    KeySource, KeySourceError, SECRET_KEYS, create_key_file, sealing_keys, secret_source,
    secret_text, store_key,
};
pub use mistake::{Mistake, Mistakes, Place, Problem};
pub use text::{SETTINGS_BYTES_MAX, read_text};
