"""Not in the list of rules."""


def combine(x, y):
    total = x + y
    return total * (total > 0)
