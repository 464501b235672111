"""Context extension: RoPE settings applied to measured closed forms, and which heads survive them."""
