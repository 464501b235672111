"""Position and content together: product and additive fits of logits, what they leave, absolute position."""
