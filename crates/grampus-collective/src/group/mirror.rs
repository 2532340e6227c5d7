//! A meeting of all hosts: every slot is copied to the hosts that need it.

use crate::across::{Expect, Head, MessageKind, Stream};
use crate::exchange::{Deck, Place, Posted};

/// Sends what this member posted to its stand-ins, and expects what its wards posted.
pub(super) fn begin(deck: &mut Deck<'_>) {
    let hosts: Vec<usize> = deck.topology.others().collect();
    for host in hosts {
        let pieces = outgoing(deck, host);
        let stand_in = deck.topology.stand_in(deck.me, host);
        let head = Head {
            kind: MessageKind::Slot,
            call: *deck.call,
            len: pieces.iter().map(|(_, len)| *len as u64).sum(),
        };
        deck.post.announce(stand_in, Stream::Bulk, &head);
        for (from, len) in pieces {
            deck.post.send(stand_in, Stream::Bulk, from, len);
        }
    }
    let wards: Vec<usize> = deck.topology.wards().collect();
    for ward in wards {
        let expect = Expect {
            kind: MessageKind::Slot,
            call: *deck.call,
            into: incoming(deck, ward),
        };
        deck.post.expect(ward, Stream::Bulk, expect);
    }
}

/// What a host needs of this member's slot.
fn outgoing(deck: &Deck<'_>, host: usize) -> Vec<(Place, usize)> {
    let slot = deck.slot(deck.me);
    match *deck.posted {
        Posted::Front(len) => vec![(Place(slot), len)],
        Posted::Parts { mine: false, .. } => Vec::new(),
        Posted::Parts { stride, used, .. } => parts(slot, deck.topology.ranks(host), stride, used),
    }
}

/// Where what this host needs of a ward's slot goes.
fn incoming(deck: &Deck<'_>, ward: usize) -> Vec<(Place, usize)> {
    let slot = deck.slot(ward);
    match *deck.posted {
        Posted::Front(_) => vec![(Place(slot), deck.room())],
        Posted::Parts { stride, used, .. } => parts(slot, deck.topology.locals(), stride, used),
    }
}

fn parts(slot: *mut u8, ranks: &[usize], stride: usize, used: usize) -> Vec<(Place, usize)> {
    ranks
        .iter()
        .map(|rank| (Place(slot.wrapping_add(rank * stride)), used))
        .collect()
}
