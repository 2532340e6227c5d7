//! Supervisors that engines such as Spark or Ray start, and that call the driver.

use std::sync::mpsc::Receiver;

use grampus_net::Frame;
use tokio::sync::mpsc::UnboundedSender;

/// A link to somebody who starts a supervisor as soon as it gets an order for it. Dropping it ends that.
pub struct Caller {
    /// The place for which it was started.
    pub slot: u32,
    /// Name of its host.
    pub host: String,
    orders: UnboundedSender<Frame>,
    reports: Receiver<Frame>,
}

impl Caller {
    pub(crate) fn new(
        slot: u32,
        host: String,
        orders: UnboundedSender<Frame>,
        reports: Receiver<Frame>,
    ) -> Self {
        Self {
            slot,
            host,
            orders,
            reports,
        }
    }

    /// Its two directions.
    pub(super) fn split(self) -> (UnboundedSender<Frame>, Receiver<Frame>) {
        (self.orders, self.reports)
    }
}
