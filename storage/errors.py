"""The one error type that users see."""


class PassNetError(Exception):
    """Something a user can act on: the message says what is wrong and what to do, in one line.

    The command line prints the message and exits 1; a flow fails with it. Programming errors are left to
    surface with their traceback.
    """
