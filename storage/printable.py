"""Text of anybody's as people may read it in a terminal, and as a table of Arrow can hold it."""


def printable(text: str) -> str:
    """The text with an escape for each character that is none to be read: ends of lines, the beginning of a terminal's
    command, one half of a surrogate pair."""
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
