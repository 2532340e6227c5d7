"""What each rank of torchrun does: nothing."""
