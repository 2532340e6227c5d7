//! Event files that TensorBoard reads.
