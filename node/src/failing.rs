//! Errors as JavaScript gets them: with `code` and the other properties that Node's users look at.

use std::io;

use napi::bindgen_prelude::{JsObjectValue, JsValue, Object};
use napi::{Env, Error, Result};

use crate::options::Mistake;

/// The error of a context, with `code` and `field` of the first mistake, and all `mistakes`.
pub(crate) fn of_mistakes(env: &Env, mistakes: &[Mistake]) -> Result<Error> {
    let messages: Vec<_> = mistakes.iter().map(|mistake| mistake.message.as_str()).collect();
    let mut error = env.create_error(Error::from_reason(messages.join("\n")))?;
    if let Some(first) = mistakes.first() {
        error.set_named_property("code", first.code)?;
        error.set_named_property("field", first.field)?;
    }
    let mut all = Vec::with_capacity(mistakes.len());
    for mistake in mistakes {
        let mut one = Object::new(env)?;
        one.set_named_property("code", mistake.code)?;
        one.set_named_property("field", mistake.field)?;
        one.set_named_property("message", mistake.message.as_str())?;
        all.push(one);
    }
    error.set_named_property("mistakes", all)?;
    Ok(Error::from(error.to_unknown()))
}

/// The error of a `listen` that the system refused.
pub(crate) fn of_listen(env: &Env, error: &io::Error, place: &Place<'_>) -> Result<Error> {
    let errno = error.raw_os_error();
    let code = errno.and_then(code_of).unwrap_or("ERR_SEALANE_LISTEN");
    let Place { address, port } = place;
    let told = match (address, port) {
        (Some(address), Some(port)) => format!(" {address}:{port}"),
        (Some(address), None) => format!(" {address}"),
        _ => String::new(),
    };
    let mut thrown =
        env.create_error(Error::from_reason(format!("listen {code}: {error}{told}")))?;
    thrown.set_named_property("code", code)?;
    thrown.set_named_property("syscall", "listen")?;
    if let Some(errno) = errno {
        thrown.set_named_property("errno", -errno)?;
    }
    if let Some(address) = address {
        thrown.set_named_property("address", *address)?;
    }
    if let Some(port) = port {
        thrown.set_named_property("port", *port)?;
    }
    Ok(Error::from(thrown.to_unknown()))
}

/// The address of a `listen` that failed.
#[derive(Default)]
pub(crate) struct Place<'a> {
    /// A host or a path.
    pub(crate) address: Option<&'a str>,
    /// The port of a host.
    pub(crate) port: Option<u32>,
}

/// Names of the errors of `listen`. JavaScript knows the others by their number.
fn code_of(errno: i32) -> Option<&'static str> {
    use rustix::io::Errno;
    let names = [
        (Errno::ACCESS, "EACCES"),
        (Errno::ADDRINUSE, "EADDRINUSE"),
        (Errno::ADDRNOTAVAIL, "EADDRNOTAVAIL"),
        (Errno::AFNOSUPPORT, "EAFNOSUPPORT"),
        (Errno::BADF, "EBADF"),
        (Errno::INVAL, "EINVAL"),
        (Errno::MFILE, "EMFILE"),
        (Errno::NAMETOOLONG, "ENAMETOOLONG"),
        (Errno::NFILE, "ENFILE"),
        (Errno::NODEV, "ENODEV"),
        (Errno::NOENT, "ENOENT"),
        (Errno::NOTSOCK, "ENOTSOCK"),
        (Errno::OPNOTSUPP, "EOPNOTSUPP"),
        (Errno::PERM, "EPERM"),
    ];
    let found = names.iter().find(|(known, _)| known.raw_os_error() == errno);
    found.map(|(_, name)| *name)
}
