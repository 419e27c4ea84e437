"""From what a person asks to a plan: the range, what differs, what would only show later."""
