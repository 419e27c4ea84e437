"""What people see of the state. Nothing here changes anything, and no driver needs it."""
