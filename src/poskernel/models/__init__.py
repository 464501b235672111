"""Small transformers: one module for every encoding, and how they are trained."""
