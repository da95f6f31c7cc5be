"""Writes the model file of one training step that runs on fake tensors: shapes, no data, no device.

usage: fake_step.py SCRIPT.py:FUNCTION [-o OUT] [--device cpu|cuda] [--name NAME] [-- ARGUMENTS OF THE SCRIPT]

`liveset model --torch` runs it with the user's Python, which has torch; nothing else is needed. Exit status: 2 where the call is at fault,
3 where the step cannot be followed. Standard output has the model or nothing: what the script prints goes to standard error.
"""
import argparse
import os
import sys

here = os.path.dirname(os.path.abspath(__file__))
sys.path[:] = [path for path in sys.path if os.path.abspath(path or os.curdir) != here]  # the script finds its own modules, not ours
sys.path.insert(0, here)
writes_bytecode, sys.dont_write_bytecode = sys.dont_write_bytecode, True  # nothing of ours stays where liveset is installed
from liveset_fake.failure import Failure  # noqa: E402

sys.path.pop(0)


def parse(arguments):
    own, script_arguments = arguments, []
    if "--" in arguments:
        at = arguments.index("--")
        own, script_arguments = arguments[:at], arguments[at + 1:]
    parser = argparse.ArgumentParser(prog="fake_step.py", description=__doc__.splitlines()[0])
    parser.add_argument("function", metavar="SCRIPT.py:FUNCTION")
    parser.add_argument("-o", "--output", default="-")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--name", default="")
    options = parser.parse_args(own)
    options.script_arguments = script_arguments
    return options


def write(text, output, out):
    if output == "-":
        with os.fdopen(out, "w") as file:
            file.write(text)
        return
    try:
        with open(output, "w") as file:
            file.write(text)
    except OSError as error:
        raise Failure(2, f"{output}: {error.strerror}") from None


def main(arguments):
    options = parse(arguments)
    # Whatever the script or a library prints: standard output is the model's.
    sys.stdout.flush()
    out = os.dup(1)
    os.dup2(2, 1)
    try:
        # Checked before torch is imported, which takes seconds.
        sys.path.insert(0, here)
        from liveset_fake import script
        sys.path.pop(0)
        path, function = script.split(options.function)
        script.require_torch()
        sys.path.insert(0, here)
        from liveset_fake import step
        sys.path.pop(0)
        sys.dont_write_bytecode = writes_bytecode
        text = step.model_of(script.load(path, function, options.script_arguments), options)
        write(text, options.output, out)
    except Failure as failure:
        print("liveset: " + failure.text(), file=sys.stderr)
        return failure.status
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
