"""Allocates blocks of sizes that nothing else has, and prints for each size the stack as Python sees it there: [function, line] from
the innermost frame, of this file's frames and those of code without a file."""
import functools
import json
import sys
import threading
import traceback

import torch

torch.ones(1) + 1  # the hooks come in after torch's first block
while "_liveset_shim" not in sys.modules:
    pass

SEEN = {}
NEXT = [1000]
KEPT = []
DEVICE = sys.argv[1] if len(sys.argv) > 1 else "cpu"


def size():
    NEXT[0] += 1
    return NEXT[0]


def keep(number, tensor, stack):
    """`stack`: of the line that made `tensor`, with `number` * 512 bytes (a multiple of what allocators round to)."""
    SEEN[number * 512] = [[frame.name, frame.lineno] for frame in reversed(stack)]
    KEPT.append(tensor)


def make(number):
    return torch.empty(number * 512, dtype=torch.uint8, device=DEVICE)


def simple():
    number = size()
    keep(number, torch.empty(number * 512, dtype=torch.uint8, device=DEVICE), traceback.extract_stack())  # one line


def through_a_call():
    number = size()
    tensor, stack = make(number), traceback.extract_stack()
    keep(number, tensor, [*stack, traceback.FrameSummary(__file__, make.__code__.co_firstlineno + 1, "make")])


def generator():
    for _ in range(2):
        number = size()
        keep(number, torch.empty(number * 512, dtype=torch.uint8, device=DEVICE), traceback.extract_stack())
        yield number


def decorated(function):
    @functools.wraps(function)
    def wrapper(*arguments):
        return function(*arguments)
    return wrapper


@decorated
def inside_a_decorator():
    number = size()
    keep(number, torch.empty(number * 512, dtype=torch.uint8, device=DEVICE), traceback.extract_stack())


def comprehension():
    numbers = [size(), size()]
    [keep(n, torch.empty(n * 512, dtype=torch.uint8, device=DEVICE), traceback.extract_stack()) for n in numbers]


class Made:
    def __init__(self):
        number = size()
        keep(number, torch.empty(number * 512, dtype=torch.uint8, device=DEVICE), traceback.extract_stack())

    def __lt__(self, other):  # called by C
        number = size()
        keep(number, torch.empty(number * 512, dtype=torch.uint8, device=DEVICE), traceback.extract_stack())
        return False


def executed():
    text = "\n\nnumber = size()\nkeep(number, torch.empty(number * 512, dtype=torch.uint8, device=DEVICE), traceback.extract_stack())\n"
    exec(compile(text, 'a "file"\nof €\\', "exec"), globals())


def recursive(depth):
    if depth == 0:
        return simple()
    return recursive(depth - 1)


def several_lines():
    number = size()
    keep(number,
         torch.empty(
             number * 512,
             dtype=torch.uint8,
             device=DEVICE),
         [*traceback.extract_stack()[:-1], traceback.FrameSummary(__file__, several_lines.__code__.co_firstlineno + 3, "several_lines")])


quick = lambda: keep(NEXT[0] + 1, torch.empty(size() * 512, dtype=torch.uint8, device=DEVICE), traceback.extract_stack())


def main():
    for function in (simple, through_a_call, inside_a_decorator, comprehension, Made, executed, several_lines, quick):
        function()
    for _ in generator():
        pass
    for _ in range(30):  # the interpreter has other frames for what it has seen often
        Made()
    sorted([Made(), Made()])
    list(map(lambda _: simple(), range(2)))
    recursive(20)
    recursive(500)
    thread = threading.Thread(target=recursive, args=(3,))
    thread.start()
    thread.join()


main()
print(json.dumps(SEEN))
