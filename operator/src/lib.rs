//! What passes between a program and its operator: settings out of a TOML file with all of their
//! mistakes ([`reader`], [`Mistake`]), sealing keys out of their source ([`KeySource`]), and what
//! is said on standard error ([`say`]).
#![forbid(unsafe_code)]

pub mod key;
mod key_source;
pub mod memory;
pub mod mistake;
pub mod reader;
mod said;
mod text;
pub mod value;

pub use key_source::{
    KeySource, KeySourceError, SECRET_KEYS, create_key_file, sealing_keys, secret_source,
    secret_text, store_key,
};
pub use mistake::{Mistake, Mistakes, Place, Problem};
pub use said::{Priority, call_this_program, say, say_at, write_as};
pub use text::{SETTINGS_BYTES_MAX, read_text};
