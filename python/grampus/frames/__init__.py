"""What is known of the data of engines, such as Spark and Ray: how their rows reach the workers."""
