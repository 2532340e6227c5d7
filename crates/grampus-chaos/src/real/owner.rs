//! Whose a folder or a host is: the process of this program that made it, by the name.

use std::fmt;

use super::process::{lives, started};

/// A process of this program. Its number alone would not do: the kernel gives it to another one some day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Owner {
    pid: i32,
    started: u64,
}

impl Owner {
    /// This process.
    pub(super) fn this() -> Owner {
        let pid = std::process::id() as i32;
        Owner {
            pid,
            started: started(pid).unwrap_or(0),
        }
    }

    /// Whether it runs no more.
    pub(super) fn is_dead(self) -> bool {
        !lives(self.pid) || started(self.pid) != Some(self.started)
    }

    /// The one that a name begins with.
    pub(super) fn of(name: &str) -> Option<Owner> {
        let mut words = name.strip_prefix("gc-")?.splitn(3, '-');
        let pid = words.next()?.parse().ok()?;
        let started = words.next()?.parse().ok()?;
        words.next().map(|_| Owner { pid, started })
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "gc-{}-{}", self.pid, self.started)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_is_known_by_the_names_of_what_it_made() {
        let this = Owner::this();
        assert_eq!(Owner::of(&format!("{this}-7-0")), Some(this));
        assert_eq!(Owner::of(&format!("{this}-XaYbZc")), Some(this));
        assert!(!this.is_dead());
        let reused = Owner {
            started: this.started + 1,
            ..this
        };
        assert!(reused.is_dead());
        for other in ["", "gp123-0", "gc-1", "gc-1-2", "gc-x-2-3", "other-1-2-3"] {
            assert_eq!(Owner::of(other), None, "{other}");
        }
    }
}
