"""Numbers of things, in words."""


def counted(number: int, one: str, several: str = "") -> str:
    """ "1 sample", "2 samples"; `several` where it is not `one` with an s."""
    return f"{number} {one if number == 1 else several or one + 's'}"
