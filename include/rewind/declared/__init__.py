"""What people write: `pipeline.yaml`, its expectations and the forms, read and checked."""
