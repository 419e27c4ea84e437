"""What each step of the lifecycle does, composed of control, transforms and adapters."""
