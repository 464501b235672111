"""Studies: which cells, what is measured, where it is kept, and how missing measurements are made."""
