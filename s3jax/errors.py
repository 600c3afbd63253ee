"""Errors that are for the user to solve: one line that says what was wrong and what to do."""


class UserError(ValueError):
    """Base of the errors that the command line prints without a traceback."""


class DivergedError(UserError):
    """Training met numbers that are not finite; the message says where and what to go back to."""
