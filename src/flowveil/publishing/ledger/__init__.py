"""What was published before, and what may follow."""
