"""What acts on the world by the registry: switches, collection, evidence."""
