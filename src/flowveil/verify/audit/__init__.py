"""What a reader of published folders can compute, and how much of it is true."""
