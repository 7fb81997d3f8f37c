"""How long the static policy may take: a number of steps, so that a verdict does not depend on how busy a machine is."""

MOST = 1_000_000
"""Looks at expressions, parameters and names that one pass may take; a second look counts. An average core takes about
five seconds for them. Passes that people and models write take under 20,000."""


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
