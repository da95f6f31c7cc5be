"""Reports blocks as libc10 would, from any Python: with its lock and, as torch does, without. Prints what jobs/stacks.py prints."""
import ctypes
import functools
import json
import threading
import traceback

NAME = "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE"
SEEN = {}
NEXT = [1000]
TOTAL = [0]


def reporter(library):
    function = getattr(library(None), NAME)
    function.argtypes = (ctypes.c_void_p, ctypes.c_int64, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int16)
    function.restype = None
    return function


WITH_LOCK, WITHOUT_LOCK = reporter(ctypes.PyDLL), reporter(ctypes.CDLL)
WITH_LOCK(0x10000, 64, 64, 64, 0)
TOTAL[0] = 64
for _ in range(10000):  # the hooks come in
    pass


def block(report, number):
    TOTAL[0] += number * 512
    stack = report(number * 65536, number * 512, TOTAL[0], TOTAL[0], 0) or traceback.extract_stack()  # of one line
    SEEN[number * 512] = [[frame.name, frame.lineno] for frame in reversed(stack)]


def simple(report=WITHOUT_LOCK):
    NEXT[0] += 1
    block(report, NEXT[0])


def generator(report):
    yield simple(report)
    yield [simple(report) for _ in range(2)]
    yield from (simple(report) for _ in range(2))


class Made:
    def __init__(self):
        simple()

    def __del__(self):
        simple(WITH_LOCK)

    def __lt__(self, other):
        simple()
        return True


async def awaited():
    simple()


async def awaiting():
    await awaited()


def recursive(depth, report):
    return recursive(depth - 1, report) if depth else simple(report)


def main():
    for report in (WITH_LOCK, WITHOUT_LOCK):
        simple(report)
        list(generator(report))
        list(map(lambda _: simple(report), range(3)))
        functools.partial(simple, report)()
        recursive(30, report)
        recursive(127, report)
        recursive(400, report)
        exec(compile("\n\nsimple()", "made", "exec"), {"simple": simple})
        try:
            raise ValueError
        except ValueError:
            simple(report)
    sorted([Made(), Made(), Made()])
    for _ in range(50):
        Made()
    try:
        awaiting().send(None)
    except StopIteration:
        pass
    thread = threading.Thread(target=recursive, args=(3, WITHOUT_LOCK))
    thread.start()
    thread.join()


main()
print(json.dumps(SEEN))
