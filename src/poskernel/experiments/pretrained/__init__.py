"""Pretrained models: their parts in E7, the circuit test, and the comparison with the closest work."""
