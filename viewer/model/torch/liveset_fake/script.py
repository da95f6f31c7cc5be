"""The user's script: found, imported without running its __main__, and where in it something went wrong."""
import importlib.util
import os
import sys

from liveset_fake.failure import Failure

EXAMPLE = "name a script and a function in it: train.py:step"


def split(text):
    """"train.py:step" -> (path, "step")"""
    path, colon, function = text.rpartition(":")
    if not colon or not path or not function:
        raise Failure(2, f"'{text}' names no function", EXAMPLE)
    if not os.path.isfile(path):
        raise Failure(2, f"{path}: no such script", EXAMPLE)
    return os.path.abspath(path), function


def require_torch():
    try:
        found = importlib.util.find_spec("torch") is not None
    except (ImportError, ValueError):
        found = False
    if not found:
        raise Failure(2, f"{sys.executable} has no torch", "name a Python that has: --python PATH")
    # What is compiled is modelled as it is written: a compiler has other temporaries, and cannot run inside of a fake step.
    os.environ["TORCH_COMPILE_DISABLE"] = os.environ["TORCHDYNAMO_DISABLE"] = "1"


def load(path, function, arguments):
    """-> the function"""
    name = os.path.splitext(os.path.basename(path))[0]
    if name in sys.modules or not name.isidentifier():
        name = "liveset_script_" + "".join(c if c.isalnum() else "_" for c in name)
    specification = importlib.util.spec_from_file_location(name, path)
    if specification is None or specification.loader is None:
        raise Failure(2, f"{path}: is no Python script (.py)", EXAMPLE)
    module = importlib.util.module_from_spec(specification)
    sys.modules[name] = module
    sys.path.insert(0, os.path.dirname(path))
    sys.argv[:] = [path, *arguments]
    try:
        specification.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise Failure(3, f"{path}: cannot be imported: {told(error, path)}",
                      "what trains belongs under `if __name__ == \"__main__\"`") from error
    found = module
    for part in function.split("."):
        if not hasattr(found, part):
            raise Failure(2, f"{path}: has no function '{function}'", functions_of(module))
        found = getattr(found, part)
    if not callable(found):
        raise Failure(2, f"{path}: '{function}' is no function but {article(found)}", functions_of(module))
    return found


def functions_of(module):
    names = [name for name, value in vars(module).items()
             if callable(value) and getattr(value, "__module__", None) == module.__name__ and not isinstance(value, type)]
    return "it has " + ", ".join(sorted(names)[:12]) if names else EXAMPLE


def article(value):
    name = type(value).__name__
    return ("an " if name[:1].lower() in "aeiou" else "a ") + name


def told(error, path=None):
    """"ValueError: no such size (train.py:12)": the error and the last line of the user's that led to it."""
    message = str(error).strip().splitlines()
    text = type(error).__name__ + (": " + message[0] if message else "")
    place = place_of(error)
    if isinstance(error, SyntaxError) and error.filename:
        place = f"{os.path.basename(error.filename)}:{error.lineno}"
    return text + (f" ({place})" if place else "")


def place_of(error):
    """The innermost frame that is neither torch's nor ours nor Python's own."""
    own = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    foreign = [own + os.sep, os.path.dirname(os.__file__) + os.sep]
    torch = sys.modules.get("torch")
    if torch is not None:
        foreign.append(os.path.dirname(torch.__file__) + os.sep)
    place, trace = "", error.__traceback__
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if not file.startswith("<") and not any(os.path.abspath(file).startswith(each) for each in foreign):
            place = f"{os.path.basename(file)}:{trace.tb_lineno}"
        trace = trace.tb_next
    return place
