//! Unix sockets that have a name and no file. Whoever shares the network namespace can reach them, other users too, so
//! all of their protection is the check of the peer's user and the proof of the job key.

use std::io;
use std::path::PathBuf;

use grampus_core::Address;

use crate::NetError;

/// What tokio takes for an abstract socket: a path that begins with a zero byte.
pub(crate) fn path(name: &str) -> Result<PathBuf, NetError> {
    if !Address::is_abstract_name(name) {
        return Err(NetError::io(
            format!("`{}` cannot name an abstract socket", name.escape_default()),
            "use 1 to 100 of the letters a to z, digits and `-`",
        )(io::ErrorKind::InvalidInput.into()));
    }
    Ok(format!("\0{name}").into())
}

/// How such a socket is shown, as `ss` and `lsof` do.
pub(crate) fn shown(name: &str) -> String {
    format!("@{name}")
}
