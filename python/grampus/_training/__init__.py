"""What runs on the workers for an Estimator, whatever the framework of its model."""
