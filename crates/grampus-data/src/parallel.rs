//! Work that is cut into parts, on several threads at once.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use crate::DataError;

/// As many threads as this process may use cores.
pub(crate) fn cores() -> usize {
    thread::available_parallelism().map_or(1, |cores| cores.get())
}

/// Does `work` for every item; the results are in the order of the items. The error is that of the first item that fails, whichever
/// thread was faster.
pub(crate) fn map<T: Sync, R: Send>(
    threads: usize,
    items: &[T],
    work: impl Fn(&T) -> Result<R, DataError> + Sync,
) -> Result<Vec<R>, DataError> {
    let threads = threads.min(items.len());
    if threads < 2 {
        return items.iter().map(work).collect();
    }
    let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    // Items are taken in order, so all before one that failed are taken too, and done to their end.
    let run = || {
        let mut done = Vec::new();
        while !failed.load(Ordering::Relaxed) {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(number) else { break };
            let result = work(item);
            failed.fetch_or(result.is_err(), Ordering::Relaxed);
            done.push((number, result));
        }
        done
    };
    let mut done: Vec<(usize, Result<R, DataError>)> = thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(run)).collect();
        let mut done = run();
        for other in others {
            done.extend(other.join().unwrap_or_else(|panic| resume_unwind(panic)));
        }
        done
    });
    done.sort_unstable_by_key(|(number, _)| *number);
    done.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_order() {
        let items: Vec<usize> = (0..1000).collect();
        assert_eq!(map(4, &items, |item| Ok(item * 2)).unwrap()[999], 1998);
        assert_eq!(map(4, &items, |item| Ok(*item)).unwrap(), items);
    }

    #[test]
    fn the_first_error_counts() {
        let items: Vec<usize> = (0..1000).collect();
        for _ in 0..20 {
            let result = map(4, &items, |item| match item % 300 {
                299 => Err(DataError::option("item", item.to_string())),
                _ => Ok(()),
            });
            assert_eq!(result.unwrap_err().to_string(), "item: 299");
        }
    }
}
