"""Where hierarchies come from: H3 cells, parent tables, dendrograms."""
