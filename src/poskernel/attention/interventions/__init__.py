"""Changes of a model's positional kernels while it runs: planes, translations, filters, logit kernels, controls."""
