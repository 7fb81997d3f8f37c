"""The one error type that users see."""


class PassNetError(Exception):
    """Something a user can act on: the message says what is wrong and what to do, in one line.

    The command line prints the message and exits 1; a flow fails with it. Programming errors are left to
    surface with their traceback.
    """


def in_one_line(error: BaseException, letters: int | None = 300) -> str:
    """An error of any kind as a reason in a record: its type, and so many letters of its message's first line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0][:letters] if lines else 'no message'}"


def installed_by(extra: str) -> str:
    """The command that installs what one of PassNet's extras needs, for messages."""
    return f"pip install -e '.[{extra}]' in PassNet's repository"
