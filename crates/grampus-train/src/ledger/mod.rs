//! The ledger of a run: which rows every step used, as the workers wrote it down, and what it proves.
//!
//! `fit(audit=True)` lets every worker write a file for each *attempt*: a run that goes on after a loss, or is resumed, makes
//! another attempt, from a step on that it names. Before a step, a worker writes which rows each of its lanes is about to
//! use; after it, that the step was done. A step counts in the last attempt in which any worker did it, and what it used is
//! what all lanes wrote in that attempt.
//!
//! ```
//! use grampus_train::ledger::{Page, audit};
//!
//! let text = r#"{"head":{"format":1,"attempt":1,"rank":0,"workers":1,"lanes":1,"seed":7,"batch_size":2,"at":[0,0]}}
//! {"open":{"at":[0,0],"rows":3,"of":3}}
//! {"begun":{"at":[0,0],"parts":[{"lane":0,"first":0,"count":2,"rows":[2,0]}]}}
//! {"done":[0,0]}
//! {"begun":{"at":[0,1],"parts":[{"lane":0,"first":2,"count":1,"rows":[2]}]}}
//! {"done":[0,1]}
//! {"end":[1,0]}
//! "#;
//! let page = Page::parse("rank-0.jsonl".as_ref(), text)?.ok_or("an empty page")?;
//! let audit = audit(&[page]);
//! assert!(!audit.is_proof());
//! assert_eq!(audit.faults[0].to_string(), "epoch 1: row 2 was used in step 1 by lane 0, and in step 2 by lane 0");
//! assert_eq!(audit.faults[1].to_string(), "epoch 1: row 1 was not used");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod coverage;
mod history;
mod read;
mod record;
#[cfg(test)]
mod tests;
mod verdict;

pub use read::{LedgerError, Page, read};
pub use record::{Begun, Head, Line, Open, Part, Place};
pub use verdict::{Audit, EpochAudit, Fault, Use, audit};
