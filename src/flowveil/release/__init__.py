"""Plans, kinds of zones, and releases: plain, sliced and noisy."""
