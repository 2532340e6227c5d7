//! How long a group waits, and how it shares memory.

use std::time::Duration;

use grampus_net::Security;

/// The settings of a group. All members must have equal ones.
///
/// ```
/// use std::time::Duration;
/// let settings = grampus_collective::Settings { deadline: Duration::from_secs(60), ..Default::default() };
/// assert!(settings.silence < settings.deadline);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How long a call waits for a member that lives but does not make the call, from the last byte of a call of the group that
    /// moved.
    pub deadline: Duration,
    /// How long a member's process may give no sign of life. A process that ends is noticed at once.
    pub silence: Duration,
    /// How long forming the group waits for members that have not come yet.
    pub forming: Duration,
    /// How long a waiting member spins before it sleeps, where every member has a core of its own.
    pub spin: Duration,
    /// Bytes of a member's slot in shared memory; there are two for each.
    pub slot: usize,
    /// Up to this many bytes of all members together, everyone sums for itself.
    pub flat: usize,
    /// What protects the bytes between hosts.
    pub security: Security,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            deadline: Duration::from_secs(1800),
            silence: Duration::from_secs(15),
            forming: Duration::from_secs(1800),
            spin: Duration::from_millis(1),
            slot: 512 << 10,
            flat: 32 << 10,
            security: Security::Tls,
        }
    }
}
