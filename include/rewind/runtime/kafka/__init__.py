"""The Kafka broker: how it is reached, whether it is, and what it is asked."""
