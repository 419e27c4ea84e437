"""Drivers: the code they run, how they are submitted, found, fenced and ended."""
