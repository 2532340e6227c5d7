//! Links inside one process: for tests, and for a coordinator that is its own first member.

use std::sync::Arc;

use tokio::sync::mpsc;

use crate::frame::Way;
use crate::link::{Inlet, Outlet};
use crate::{Frame, Limits, Link, NetError, Peer, Receiver, Sender, TransportKind};

/// Frames that wait for a reader before a sender has to. A socket holds about as many small ones.
const DEPTH: usize = 256;

/// Two ends of a link in memory: the first is held by `a` and leads to `b`.
pub fn memory_pair(a: &str, b: &str) -> (Link, Link) {
    memory_pair_with(a, b, &Limits::default())
}

/// Like [`memory_pair`], with limits.
pub fn memory_pair_with(a: &str, b: &str, limits: &Limits) -> (Link, Link) {
    let (to_b, from_a) = mpsc::channel(DEPTH);
    let (to_a, from_b) = mpsc::channel(DEPTH);
    (end(b, to_b, from_b, limits), end(a, to_a, from_a, limits))
}

fn end(peer: &str, outlet: mpsc::Sender<Frame>, inlet: mpsc::Receiver<Frame>, limits: &Limits) -> Link {
    let label: Arc<str> = peer.into();
    Link {
        peer: Peer {
            name: peer.to_owned(),
            transport: TransportKind::Memory,
            pid: Some(std::process::id()),
            uid: Some(rustix::process::geteuid().as_raw()),
            address: "memory".to_owned(),
            same_host: true,
        },
        sender: Sender::new(
            Outlet::Memory(LocalOutlet {
                channel: Some(outlet),
            }),
            Arc::clone(&label),
            limits,
        ),
        receiver: Receiver::new(Inlet::Memory(inlet), label, limits),
    }
}

pub(crate) struct LocalOutlet {
    channel: Option<mpsc::Sender<Frame>>,
}

impl LocalOutlet {
    pub async fn send(&mut self, frame: Frame, label: &Arc<str>, limits: &Limits) -> Result<(), NetError> {
        // Checked as on a wire, so that what works here works there.
        frame.head(Way::Descriptor, limits)?;
        let closed = || NetError::Closed {
            peer: label.to_string(),
            when: "before a frame was sent",
        };
        let channel = self.channel.as_ref().ok_or_else(closed)?;
        channel.send(frame).await.map_err(|_| closed())
    }

    pub fn close(&mut self) {
        self.channel = None;
    }
}
