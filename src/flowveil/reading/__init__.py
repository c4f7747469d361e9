"""How trips are read: columns, tables, screening, tiling, slicing."""
