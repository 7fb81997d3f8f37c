"""A lambda, whose parameters were once taken for numbers."""

combine = lambda x, y: (x + y) * (x + y > 0)  # noqa: E731
