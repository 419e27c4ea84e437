"""What each step of the lifecycle does, composed of registry, runtime, transforms and adapters."""
