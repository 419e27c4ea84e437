"""Files and tokens that only their owner may read."""
