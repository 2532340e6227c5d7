//! Memory of batches, which is used again.

use std::sync::{Arc, Mutex, PoisonError};

/// Where vector instructions and DMA like to begin.
const ALIGNMENT: usize = 64;

/// A line of memory as the processor fetches it.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; ALIGNMENT]);

/// Aligned memory that goes back to the stock it came from.
///
/// A batch is written once and read once, so fresh pages would cost more than what is written into them.
pub struct Buffer {
    lines: Vec<Line>,
    length: usize,
    stock: Arc<Stock>,
}

impl Buffer {
    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: lines are plain bytes without padding, and `length` is at most what they hold.
        unsafe { std::slice::from_raw_parts(self.lines.as_ptr().cast(), self.length) }
    }

    /// The bytes, to be written.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and nobody else has this memory.
        unsafe { std::slice::from_raw_parts_mut(self.lines.as_mut_ptr().cast(), self.length) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let lines = std::mem::take(&mut self.lines);
        let mut kept = self.stock.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() < self.stock.most {
            kept.push(lines);
        }
    }
}

/// Memory that no batch uses at the moment.
struct Stock {
    lines: Mutex<Vec<Vec<Line>>>,
    most: usize,
}

/// Gives out buffers, of those that came back first.
///
/// ```
/// use grampus_data::batch::Spare;
/// let spare = Spare::new(2);
/// let mut buffer = spare.take(100);
/// buffer.bytes_mut()[99] = 1;
/// assert_eq!(buffer.bytes().as_ptr() as usize % 64, 0);
/// ```
#[derive(Clone)]
pub struct Spare(Arc<Stock>);

impl Spare {
    /// Keeps at most so many.
    pub fn new(most: usize) -> Self {
        Self(Arc::new(Stock {
            lines: Mutex::new(Vec::new()),
            most,
        }))
    }

    /// A buffer of some bytes, with whatever was in it before.
    pub fn take(&self, length: usize) -> Buffer {
        let wanted = length.div_ceil(ALIGNMENT).max(1);
        let mut kept = self.0.lines.lock().unwrap_or_else(PoisonError::into_inner);
        // Batches of one output are equally large but for the last of an epoch.
        let fits = kept.iter().rposition(|lines| lines.len() >= wanted);
        let lines = fits.map(|place| kept.swap_remove(place));
        drop(kept);
        Buffer {
            lines: lines.unwrap_or_else(|| vec![Line([0; ALIGNMENT]); wanted]),
            length,
            stock: Arc::clone(&self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_back_is_given_out_again() {
        let spare = Spare::new(1);
        let first = spare.take(1000);
        let (place, other) = (first.bytes().as_ptr(), spare.take(1000));
        drop(first);
        drop(other); // One is kept, no more.
        let again = spare.take(900);
        assert_eq!((again.bytes().as_ptr(), again.bytes().len()), (place, 900));
        assert_ne!(spare.take(1000).bytes().as_ptr(), place);
    }

    #[test]
    fn a_larger_one_is_made_where_none_fits() {
        let spare = Spare::new(4);
        drop(spare.take(64));
        assert_eq!(spare.take(65).bytes().len(), 65);
        assert_eq!(spare.take(0).bytes().len(), 0);
    }
}
