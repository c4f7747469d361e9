"""What everything is made of: trees, flows, people, values, guarantees, errors."""
