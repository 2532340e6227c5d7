//! Checkpoints: safetensors and a manifest that is written last.
