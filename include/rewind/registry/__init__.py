"""The state of the lifecycle: what each table of the registry holds, and nothing but SQL."""
