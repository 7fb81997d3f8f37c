"""How long the static policy may take: so many steps, which no busy machine changes."""

MOST = 200_000
"""Looks at expressions, parameters and names that one pass may take; a second look counts. A core takes one to
four seconds for them. The largest pass of ours takes 50,000, one that people write some hundreds."""


class TooLong(Exception):
    """The pass takes more steps to follow than it may."""


class Steps:
    """Counts what host code and kernels of one pass take together."""

    def __init__(self) -> None:
        self.taken = 0

    def take(self, number: int = 1) -> None:
        """Count steps. Raises TooLong at the limit."""
        self.taken += number
        if self.taken > MOST:
            raise TooLong
