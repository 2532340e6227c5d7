//! Metrics as states that merge: the value at seven workers is the value at one.
