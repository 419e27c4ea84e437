"""What `setup.py` is made of: a step a module, and how their progress and failures are shown (ADR 0029)."""
