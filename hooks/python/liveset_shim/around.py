"""What stands in the place of a function of torch that the job calls: something before it and something after it.

The recorder's own `around` leaves no frame of Python's, so none of ours is in the job's tracebacks, nor named by its warnings. This is
the same in Python, for an interpreter that lacks what that needs.
"""
import types


def around(before, function, after, replaces=False, method=False):
    """before(*arguments, **keywords) -> token, with `replaces` (token, other arguments); after(token, type of the exception or None,
    result or None). What these two raise is the job's own: a signal handler that ran meanwhile."""
    def liveset_around(*arguments, **keywords):
        token = arguments if before is None else before(*arguments, **keywords)
        if replaces:
            token, arguments = token
        raised = result = None
        try:
            result = function(*arguments, **keywords)
            return result
        except BaseException as error:
            raised = type(error)
            raise
        finally:
            if after is not None:
                after(token, raised, result)
    liveset_around._liveset_original = function
    return liveset_around


def original_of(function):
    """The function in whose place `function` stands, or itself."""
    if type(function).__name__ == "instancemethod":
        function = function.__func__
    if type(function) is types.BuiltinFunctionType and function.__name__ == "liveset_around":
        return function.__self__[1]
    return getattr(function, "_liveset_original", function)
