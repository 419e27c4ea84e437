"""What Spark reads and writes: Kafka, the Delta mirror, checkpoints."""
