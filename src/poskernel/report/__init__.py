"""Tables and arrays in; figures, tables and self-contained pages out. Imports nothing of ours except the errors."""
