//! Sums whose bits depend on neither who adds nor how wide the machine's registers are.
