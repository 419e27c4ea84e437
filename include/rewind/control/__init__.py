"""The state of the lifecycle and what changes it: registry, Kafka client, bundles, submits."""
