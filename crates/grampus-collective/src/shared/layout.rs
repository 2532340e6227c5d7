//! Where things lie in the shared memory of a group.

const PAGE: usize = 4096;
/// Two cache lines: neighbours are fetched in pairs.
const BLOCK: usize = 256;
/// A slot holds at least this much for every rank: sizes, or one element of any type.
const LEAST: usize = 16;

/// Offsets into a segment: a page for all, a block per local member, the slots of all ranks twice over, the arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    members: usize,
    ranks: usize,
    slot: usize,
}

impl Layout {
    /// For `members` on this host of a group of `ranks`, with slots of `slot` bytes.
    pub fn new(members: usize, ranks: usize, slot: usize) -> Self {
        Self {
            members,
            ranks,
            slot: slot.max(LEAST * ranks).next_multiple_of(PAGE),
        }
    }

    /// Members on this host.
    pub fn members(self) -> usize {
        self.members
    }

    /// Bytes of one slot.
    pub fn slot_bytes(self) -> usize {
        self.slot
    }

    /// The block of a member.
    pub fn member(self, member: usize) -> usize {
        PAGE + member * BLOCK
    }

    /// A slot of a rank; turns alternate between two. Slots begin at different places of their pages: sums read all at
    /// once, and what lies at equal places would fight for the same places of the caches.
    pub fn slot(self, rank: usize, turn: usize) -> usize {
        self.slots() + ((turn & 1) * self.ranks + rank) * (self.slot + PAGE) + skew(rank)
    }

    /// Where the arena begins, from which members take buffers.
    pub fn arena(self) -> usize {
        self.slots() + 2 * self.ranks * (self.slot + PAGE)
    }

    fn slots(self) -> usize {
        (PAGE + self.members * BLOCK).next_multiple_of(PAGE)
    }
}

/// Where in its page a member's memory begins.
pub(crate) fn skew(member: usize) -> usize {
    member * BLOCK % PAGE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_overlaps() {
        let layout = Layout::new(3, 5, 10_000);
        assert_eq!(layout.slot_bytes(), 12_288);
        let mut places = vec![(0, PAGE)];
        places.extend((0..3).map(|member| (layout.member(member), BLOCK)));
        places.extend((0..10).map(|index| (layout.slot(index % 5, index / 5), 12_288)));
        places.push((layout.arena(), 1));
        places.sort_unstable();
        for pair in places.windows(2) {
            assert!(pair[0].0 + pair[0].1 <= pair[1].0, "{pair:?}");
        }
        assert_eq!(layout.slot(2, 0), layout.slot(2, 2));
    }
}
