"""How the code under test failed, as a worker says it."""


class CallFailed(Exception):
    """A call of the code under test raised; `index` says which."""

    def __init__(self, index: int) -> None:
        super().__init__(index)
        self.index = index


def explain(error: BaseException | None) -> str:
    """An exception and its causes, as text for people."""
    chain: list[str] = []
    while error is not None and len(chain) < 4:
        chain.append(f"{type(error).__name__}: {error}".strip())
        error = error.__cause__
    return "\ncaused by ".join(chain)
