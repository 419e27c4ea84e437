"""What the registry knows of the mirrors: their commits, their proofs, what others did to them."""
