"""The realizability paper's empirical part from measurements: every table and figure, and its headlines beside ours."""
