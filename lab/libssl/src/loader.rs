//! Opening shared libraries, and asking the dynamic linker which file a function came from.

use std::{
    ffi::{CStr, OsStr, c_char, c_int, c_void},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::{Mutex, OnceLock, PoisonError},
};

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

use crate::Error;

/// Opens `path`, with all its symbols bound and none of them visible to others.
pub(crate) fn open(path: &Path) -> Result<Library, Error> {
    // SAFETY: the library's initialisers run. They are those of a TLS library that the operator
    // named, with the rights of this process: as trusted as one that is linked.
    unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) }.map_err(|error| {
        let reason = reason_of(&error);
        Error::Load { path: path.display().to_string(), reason }
    })
}

/// The file that holds `address`, with symbolic links followed.
pub(crate) fn file_of(address: *const c_void) -> Option<PathBuf> {
    let mut info = DlInfo {
        file_name: std::ptr::null(),
        file_base: std::ptr::null_mut(),
        symbol_name: std::ptr::null(),
        symbol_address: std::ptr::null_mut(),
    };
    // SAFETY: `info` is writable and of the form that dladdr fills; it only looks `address` up.
    let found = unsafe { dladdr(address, &raw mut info) };
    if found == 0 || info.file_name.is_null() {
        return None;
    }
    // SAFETY: dladdr gave a string that lives as long as the library, which is never closed.
    let name = unsafe { CStr::from_ptr(info.file_name) };
    let path = PathBuf::from(OsStr::from_bytes(name.to_bytes()));
    Some(path.canonicalize().unwrap_or(path))
}

/// Loads the library at `path` with `load` into `place`, and says that this process now holds it;
/// the second call gives the same one again.
///
/// # Errors
/// [`Error::Load`] if there is no such file, [`Error::Second`] if the process holds another one, or
/// what `load` says; then it holds none.
pub(crate) fn once<T>(
    path: &Path,
    place: &'static OnceLock<T>,
    load: impl FnOnce(&Path) -> Result<T, Error>,
) -> Result<&'static T, Error> {
    let asked = path.canonicalize().map_err(|error| Error::Load {
        path: path.display().to_string(),
        reason: error.to_string(),
    })?;
    let mut claimed = CLAIMED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(loaded) = claimed.as_ref().filter(|loaded| **loaded != asked) {
        return Err(Error::Second { loaded: loaded.clone(), asked });
    }
    if let Some(library) = place.get() {
        return Ok(library);
    }
    let library = load(&asked)?;
    *claimed = Some(asked);
    Ok(place.get_or_init(|| library))
}

/// The library that this process holds.
pub(crate) fn claimed() -> Option<PathBuf> {
    CLAIMED.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// The file that libssl at `path` should find its cryptography in, if it lies beside it.
pub(crate) fn libcrypto_beside(path: &Path) -> Option<PathBuf> {
    let name = path.file_name()?.to_str()?.strip_prefix("libssl")?;
    let beside = path.with_file_name(format!("libcrypto{name}"));
    beside.exists().then_some(beside)
}

/// The linker's words without the crate's own around them.
fn reason_of(error: &libloading::Error) -> String {
    let source = std::error::Error::source(error);
    source.map_or_else(|| error.to_string(), ToString::to_string)
}

static CLAIMED: Mutex<Option<PathBuf>> = Mutex::new(None);

/// What `<dlfcn.h>` has.
#[repr(C)]
struct DlInfo {
    file_name: *const c_char,
    file_base: *mut c_void,
    symbol_name: *const c_char,
    symbol_address: *mut c_void,
}

unsafe extern "C" {
    fn dladdr(address: *const c_void, info: *mut DlInfo) -> c_int;
}
