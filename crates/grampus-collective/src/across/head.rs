//! What stands before the bytes of every message of a call between hosts.

use crate::call::{Call, Kind as CallKind};
use crate::numerics::{DType, Op};

/// What a message carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A rank's slot, or what of it a host needs.
    Slot,
    /// A host's sums of a slice, for its owner.
    Partial,
    /// The owner's sum of a slice.
    Sum,
}

const KINDS: [Kind; 3] = [Kind::Slot, Kind::Partial, Kind::Sum];

/// The call that a message belongs to, and its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub kind: Kind,
    pub call: Call,
    pub len: u64,
}

impl Head {
    pub const BYTES: usize = 40;

    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        let kind = KINDS.iter().position(|kind| *kind == self.kind).unwrap_or(0);
        let Call {
            kind: what,
            dtype,
            op,
            count,
            root,
            parts,
            number,
        } = self.call;
        bytes[..4].copy_from_slice(&[kind as u8, what as u8, dtype as u8, op as u8]);
        bytes[4..8].copy_from_slice(&root.to_le_bytes());
        bytes[8..12].copy_from_slice(&parts.to_le_bytes());
        bytes[16..24].copy_from_slice(&count.to_le_bytes());
        bytes[24..32].copy_from_slice(&number.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.len.to_le_bytes());
        bytes
    }

    /// `None` where the bytes are no head that this build knows.
    pub fn decode(bytes: &[u8; Self::BYTES]) -> Option<Self> {
        let word = |at: usize| bytes[at..].first_chunk().map(|bytes| u32::from_le_bytes(*bytes));
        let long = |at: usize| bytes[at..].first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
        Some(Self {
            kind: *KINDS.get(usize::from(bytes[0]))?,
            call: Call {
                kind: CallKind::from_code(bytes[1])?,
                dtype: DType::from_code(bytes[2])?,
                op: Op::from_code(bytes[3])?,
                root: word(4)?,
                parts: word(8)?,
                count: long(16)?,
                number: long(24)?,
            },
            len: long(32)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_survive_the_way() {
        let call = Call {
            kind: CallKind::Gather,
            dtype: DType::Bf16,
            op: Op::Max,
            count: 1 << 40,
            root: 7,
            parts: 0xdead_beef,
            number: 99,
        };
        for kind in KINDS {
            let head = Head {
                kind,
                call,
                len: 1 << 33,
            };
            assert_eq!(Head::decode(&head.encode()), Some(head));
        }
        assert_eq!(Head::decode(&[255; Head::BYTES]), None);
    }
}
