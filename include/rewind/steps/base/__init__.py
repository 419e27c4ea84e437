"""What every step shares: recorded attempts, errors that say what to do, a pace."""
