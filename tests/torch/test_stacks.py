"""`run --stacks`: the stack of a block is the one that Python itself shows at that place."""
import json
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import unittest

from support import JOBS, LIVESET, SOURCE, DryRunTest, Run, TorchTest


def blocks(run, trace=None):
    """Allocations and frees of the trace, as `dump` has them."""
    events = run.read("dump", trace=trace)["events"]
    return [event for event in events if event["kind"] in ("alloc", "free_requested")]


def places(frames):
    return [[frame["function"], frame["line"]] for frame in frames]


class StackTest(TorchTest):
    def record_stacks(self, script, *arguments, environment=None, name="run", options=("--stacks",)):
        if not isinstance(script, pathlib.Path):
            path = self.folder / f"{name}.py"
            path.write_text(script, encoding="utf-8", errors="surrogateescape")
            script = path
        trace = self.folder / f"{name}.liveset"
        done = subprocess.run([LIVESET, "run", "-q", *options, "-o", trace, "--", sys.executable, script, *arguments], capture_output=True,
                              text=True, timeout=280, env={**os.environ, **(environment or {})}, cwd=self.folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        return Run(done, trace)

    def lost_names(self, run):
        text = subprocess.run([LIVESET, "summary", run.trace], capture_output=True, text=True, check=True).stdout
        found = re.search(r"([\d,]+) names were lost", " ".join(text.split()))
        return int(found[1].replace(",", "")) if found else 0

    def assert_stacks_are_pythons(self, run, script=JOBS / "stacks.py", executed='a "file"\nof €\\'):
        seen = {int(size): stack for size, stack in json.loads(run.stdout).items()}
        self.assertGreater(len(seen), 40)
        by_size = {event["bytes"]: event for event in blocks(run) if event.get("bytes") in seen}
        self.assertEqual(set(by_size), set(seen))
        for size, stack in seen.items():
            frames = by_size[size]["frames"]
            found = places(frames)
            if len(stack) > 128:
                self.assertEqual(by_size[size]["frames_end"], "deeper than 128 frames")
                self.assertEqual(len(found), 128)
                stack = stack[:128]
            else:
                self.assertNotIn("frames_end", by_size[size])
            self.assertEqual(found, stack)
        files = {frame["file"] for event in by_size.values() for frame in event["frames"]}
        self.assertIn(str(script), files)
        self.assertIn(executed, files)


class Stacks(StackTest):
    def test_are_those_that_python_shows(self):
        run = self.record_stacks(JOBS / "stacks.py")
        self.assert_sound(run)
        self.assert_stacks_are_pythons(run)
        info = run.read("info")
        source = next(source for source in info["sources"] if source["name"] == "stacks")
        self.assertRegex(source["version"], r"^CPython 3\.\d+\.\d+$")
        self.assertNotEqual(source["covers"], "nothing")

    def test_are_not_recorded_unless_asked_for(self):
        run = self.record_stacks(JOBS / "stacks.py", options=())
        self.assertFalse([event for event in blocks(run) if "frames" in event])
        self.assertNotIn("stacks", [source["name"] for source in run.read("info")["sources"]])

    def test_leave_our_own_frames_out_and_reach_through_modules_and_backward(self):
        run = self.record_stacks("""
import sys, torch
torch.ones(1) + 1
while "_liveset_shim" not in sys.modules: pass
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(64, 64)
    def forward(self, x):
        return torch.tanh(self.inner(x))
net = Net()
optimizer = torch.optim.AdamW(net.parameters())
def step():
    loss = net(torch.ones(32, 64)).sum()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
for _ in range(3):
    step()
""")
        self.assert_sound(run)
        events = blocks(run)
        for event in events:
            for frame in event.get("frames", ()):
                self.assertNotIn("liveset_shim", frame["file"])
        own = str(self.folder / "run.py")
        late = events[len(events) // 2:]
        forward = [event for event in late if event["phase"] == "forward" and event["kind"] == "alloc"]
        self.assertTrue(forward)
        for event in forward:
            self.assertIn(["step", 14], places([frame for frame in event["frames"] if frame["file"] == own]))
        backward = [event for event in late if event["phase"] == "backward" and event["kind"] == "alloc"]
        self.assertTrue(backward)
        for event in backward:
            self.assertEqual(places([frame for frame in event["frames"] if frame["file"] == own])[0], ["step", 15])
        updates = [event for event in events if event["phase"] == "optimizer" and event["kind"] == "alloc"]
        self.assertTrue(updates)
        for event in updates:
            self.assertIn(["step", 16], places([frame for frame in event["frames"] if frame["file"] == own]))

    def test_a_free_has_the_stack_of_its_own_place(self):
        run = self.record_stacks("""
import sys, torch
torch.ones(1) + 1
while "_liveset_shim" not in sys.modules: pass
def make():
    return torch.empty(777_216, dtype=torch.uint8)
def drop():
    global block
    del block
block = make()
drop()
""")
        events = blocks(run)
        made = next(event for event in events if event.get("bytes") == 777_216)
        freed = next(event for event in events if event["kind"] == "free_requested" and event["allocation"] == made["allocation"])
        self.assertEqual(places(made["frames"]), [["make", 6], ["<module>", 10]])
        self.assertEqual(places(freed["frames"]), [["drop", 9], ["<module>", 11]])

    def test_the_peak_by_stack(self):
        script = """
import sys, torch
torch.ones(1) + 1
while "_liveset_shim" not in sys.modules: pass
def small(): return torch.empty(1 << 16, dtype=torch.uint8)
def large(): return torch.empty(1 << 20, dtype=torch.uint8)
def step(): return [small(), large(), small()]
kept = step()
"""
        run = self.record_stacks(script)
        peak = run.read("peak", "--by", "stack")
        rows = {row["key"]: (row["bytes"], row["count"]) for row in peak["rows"]}
        self.assertEqual(rows["run.py:6 large < run.py:7 step < run.py:8 <module>"], (1 << 20, 1))
        self.assertEqual(rows["run.py:5 small < run.py:7 step < run.py:8 <module>"], (2 << 16, 2))
        self.assertEqual(sum(row["bytes"] for row in peak["rows"]), peak["bytes"])
        self.assertEqual(places(peak["largest"][0]["frames"]), [["large", 6], ["step", 7], ["<module>", 8]])
        without = self.record_stacks(script, options=(), name="without").read("peak", "--by", "stack")
        self.assertEqual({row["key"] for row in without["rows"]}, {"(recorded without --stacks)"})
        self.assertEqual(without["largest"][0]["frames"], [])
        self.assertEqual(without["largest"][0]["frames_end"], "recorded without --stacks")

    def test_code_objects_that_come_and_go_never_lend_their_names(self):
        # Each allocation comes from a function that is made for it, with a name of its own, and gone right after: its code object's
        # address is soon another's.
        run = self.record_stacks("""
import sys, torch
torch.ones(1) + 1
while "_liveset_shim" not in sys.modules: pass
addresses = set()
for i in range(20_000):
    names = {}
    exec(f"def made_{i}():\\n" + "\\n" * (i % 50) + f"    return torch.empty({4096 + i}, dtype=torch.uint8)\\n", {"torch": torch}, names)
    made = names[f"made_{i}"]
    addresses.add(id(made.__code__))
    tensor = made()
    del made, names
assert len(addresses) < 10_000, len(addresses)
""")
        self.assert_sound(run)
        sizes = {event["bytes"]: event["frames"] for event in blocks(run) if event["kind"] == "alloc" and event["bytes"] >= 4096}
        self.assertEqual(len(sizes), 20_000)
        for size, frames in sizes.items():
            number = size - 4096
            self.assertEqual(places(frames[:1]), [[f"made_{number}", 2 + number % 50]])

    def test_what_runs_while_a_code_object_dies_has_the_stack_that_python_shows(self):
        run = self.record_stacks("""
import json, sys, traceback, weakref, torch
torch.ones(1) + 1
while "_liveset_shim" not in sys.modules: pass
seen, kept = {}, []
def gone(_):
    kept.append(torch.empty(1 << 20 | len(seen), dtype=torch.uint8))
    seen[kept[-1].numel()] = [[frame.f_code.co_name, line] for frame, line in traceback.walk_stack(sys._getframe())]
    seen[kept[-1].numel()][0][1] -= 1
def go(number):
    names = {"torch": torch, "kept": kept}
    exec(f"def dies_{number}():\\n    kept.append(torch.empty(8192, dtype=torch.uint8))\\n", names)
    functions = [names.pop(f"dies_{number}")]
    watch = weakref.ref(functions[0].__code__, gone)
    functions.pop()()
for number in range(10):
    go(number)
print(json.dumps(seen))
""")
        self.assert_sound(run)
        seen = {int(size): stack for size, stack in json.loads(run.stdout).items()}
        self.assertEqual(len(seen), 10)
        self.assertEqual([name for name, _ in seen[1 << 20]], ["gone", "go", "<module>"])
        found = {event["bytes"]: places(event["frames"]) for event in blocks(run) if event["kind"] == "alloc" and event["bytes"] in seen}
        self.assertEqual(found, seen)

    @unittest.skipUnless(platform.machine() in ("x86_64", "aarch64"), "the number of the system call is known for two machines")
    def test_where_reading_own_memory_is_forbidden_the_trace_says_so(self):
        # As in a container: a seccomp filter answers process_vm_readv with EPERM.
        run = self.record_stacks(f"""
import ctypes, struct, sys
number = {{"x86_64": 310, "aarch64": 270}}["{platform.machine()}"]
program = b"".join(struct.pack("HBBI", *line) for line in ((0x20, 0, 0, 0), (0x15, 0, 1, number), (0x06, 0, 0, 0x00050001),
                                                           (0x06, 0, 0, 0x7fff0000)))
buffer = ctypes.create_string_buffer(program)
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0  # PR_SET_NO_NEW_PRIVS
assert libc.prctl(22, 2, struct.pack("HxxxxxxQ", 4, ctypes.addressof(buffer)), 0, 0) == 0  # PR_SET_SECCOMP
import torch
model = torch.nn.Sequential(*[torch.nn.Linear(4, 4) for _ in range(30)])
for _ in range(4):
    model(torch.ones(2, 4)).sum().backward()
assert "_liveset_shim" in sys.modules
""")
        self.assert_sound(run)
        sources = {source["name"]: source for source in run.read("info")["sources"]}
        self.assertEqual(sources["stacks"]["covers"], "nothing")
        self.assertIn("process_vm_readv is forbidden here", sources["stacks"]["cannot_see"])
        self.assertIn("process_vm_readv is forbidden here", sources["autograd"]["cannot_see"])

    def test_more_code_than_is_remembered_is_named_all_the_same(self):
        run = self.record_stacks("""
import sys, torch
torch.ones(1) + 1
while "_liveset_shim" not in sys.modules: pass
text = "def made():\\n    return torch.empty(4096, dtype=torch.uint8)\\n"
for i in range(100_000):
    names = {}
    exec(text, {"torch": torch}, names)
    if i % 4 == 0: kept = names["made"].__code__
    names["made"]()
""")
        self.assert_sound(run)
        self.assertEqual(self.lost_names(run), 0)
        made = [event["frames"] for event in blocks(run) if event.get("bytes") == 4096]
        self.assertEqual(len(made), 100_000)
        self.assertEqual({tuple(map(tuple, places(frames))) for frames in made}, {(("made", 2), ("<module>", 10))})

    def test_more_stacks_than_there_is_room_for(self):
        # A tree of calls: two ways on at each of 18 levels, walked depth first, so a path adds three stacks on average (its own last one
        # among them); there is room for 2^19, and so for some 174,000 paths.
        run = self.record_stacks("""
import sys, torch
torch.ones(1) + 1
while "_liveset_shim" not in sys.modules: pass
def go(path, depth):
    if depth == 0:
        return torch.empty(8192, dtype=torch.uint8)
    if path >> depth - 1 & 1:
        return go(path, depth - 1)
    return go(path, depth - 1)
for path in range(200_000):
    go(path, 18)
""")
        self.assert_sound(run)
        self.assertLess(run.trace.stat().st_size, 24 << 20)
        dump = subprocess.Popen([LIVESET, "dump", "--format", "json", run.trace], stdout=subprocess.PIPE, text=True)
        stacks, all_of_them = {}, 0
        with dump, dump.stdout as lines:
            for line in lines:
                if '"bytes":8192' in line and '"kind":"alloc"' in line:
                    event = json.loads(line.rstrip(",\n"))
                    path = tuple(frame["line"] for frame in event.get("frames", ()))
                    stacks[path] = stacks.get(path, 0) + 1
                    all_of_them += 1
        self.assertEqual(all_of_them, 200_000)
        missing = stacks.pop((), 0)
        self.assertGreater(len(stacks), 170_000)
        self.assertEqual(set(stacks.values()), {1})
        self.assertGreater(missing, 0)
        self.assertGreaterEqual(self.lost_names(run), missing)  # frees have none either

    def test_threads_without_python_say_so(self):
        run = self.record_stacks("""
import ctypes, sys, torch
torch.ones(1) + 1
while "_liveset_shim" not in sys.modules: pass
torch.set_num_threads(2)
def parts(i):
    return torch.empty(3 << 20, dtype=torch.uint8)
a = torch.ones(8, requires_grad=True)
class Inside(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x): return x * 2
    @staticmethod
    def backward(ctx, g): return g * torch.ones(8 * 4096)[:8]
Inside.apply(a).sum().backward()
futures = [torch.jit.fork(parts, 1)]
for future in futures: torch.jit.wait(future)
""")
        self.assert_sound(run)
        inside = [event for event in blocks(run) if event.get("bytes") == 8 * 4096 * 4]
        self.assertEqual([places(event["frames"])[0] for event in inside], [["backward", 13]])
        for event in blocks(run):
            self.assertTrue(event.get("frames") or event.get("frames_end"), event)

    def test_a_forked_child_runs_on(self):
        run = self.record_stacks("""
import os, sys, torch
torch.ones(1) + 1
while "_liveset_shim" not in sys.modules: pass
child = os.fork()
for i in range(1000):
    names = {}
    exec("def made(): return torch.ones(1000)", {"torch": torch}, names)
    names["made"]()
if child == 0:
    os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
""")
        self.assert_sound(run)

    def test_strange_names(self):
        run = self.record_stacks("""
import os, sys, torch
torch.ones(1) + 1
while "_liveset_shim" not in sys.modules: pass
names = ['with "quotes"', "new\\nline", "x" * 5000, "\\U0001f600 \\u20ac \\xe9", "", "\\udc80"]
def made(): return torch.empty(size, dtype=torch.uint8)
for number, name in enumerate(names):
    size = 4096 + number
    code = made.__code__.replace(co_name=name, co_filename=os.fsdecode(b"file-\\xff-" + bytes([65 + number])))
    type(made)(code, globals())()
""")
        self.assert_sound(run)
        frames = {event["bytes"] - 4096: event["frames"] for event in blocks(run) if event["kind"] == "alloc" and event["bytes"] >= 4096}
        names = [frames[number][0]["function"] for number in range(6)]
        self.assertEqual(names[:2], ['with "quotes"', "new\nline"])
        self.assertTrue(names[2].startswith("x" * 1000))
        self.assertEqual(names[3:], ["\U0001f600 € é", "", "\ufffd"])
        self.assertEqual([frames[number][0]["file"] for number in range(6)], [f"file-\ufffd-{letter}" for letter in "ABCDEF"])
        self.assertEqual({frames[number][0]["line"] for number in range(6)}, {6})

    def test_an_unknown_kind_is_refused(self):
        done = subprocess.run([LIVESET, "run", "--stacks=all", "--", "true"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn("all", done.stderr)


def pythons():
    """Other versions of CPython that this machine has."""
    found = {}
    roots = pathlib.Path(os.environ.get("PYENV_ROOT", pathlib.Path.home() / ".pyenv")) / "versions"
    for minor in range(10, 15):
        places = [shutil.which(f"python3.{minor}"), *sorted(roots.glob(f"3.{minor}.*/bin/python3.{minor}"))]
        for place in filter(None, places):
            if subprocess.run([place, "-c", "import ctypes"], capture_output=True).returncode == 0:
                found.setdefault(f"3.{minor}", str(place))
    return found


class Versions(StackTest):
    def test_each_python_of_this_machine(self):
        for version, python in pythons().items():
            with self.subTest(version=version):
                trace = self.folder / f"{version}.liveset"
                done = subprocess.run([LIVESET, "run", "-q", "--stacks", "-o", trace, "--", python, JOBS / "stacks_without_torch.py"],
                                      capture_output=True, text=True, timeout=100)
                self.assertEqual(done.returncode, 0, done.stderr)
                run = Run(done, trace)
                source = next(source for source in run.read("info")["sources"] if source["name"] == "stacks")
                self.assertRegex(source["version"], f"^CPython {version}")
                self.assertNotEqual(source["covers"], "nothing")
                self.assert_sound(run)
                self.assert_stacks_are_pythons(run, JOBS / "stacks_without_torch.py", "made")


@unittest.skipUnless(platform.libc_ver()[0] == "glibc" and tuple(map(int, platform.libc_ver()[1].split("."))) < (2, 37),
                     "qsort must be one that any comparison leaves whole (glibc before 2.37)")
class Endings(StackTest):
    def test_a_thread_that_outlives_the_interpreter_reads_no_frames(self):
        # C calls the recorder again and again (as the comparison of a sort) without the lock, while the interpreter takes itself down.
        # Whether it is scheduled in that moment is the machine's choice, so that is tried until it was.
        seen = False
        for _ in range(20):
            run = self.record_stacks("""
import ctypes, threading
c = ctypes.CDLL(None)
report = c._ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE
report.argtypes = (ctypes.c_void_p, ctypes.c_int64, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int16)
report.restype = None
report(0x10000, 64, 64, 64, 0)
for _ in range(10_000): pass
report(0x20000, 64, 128, 128, 0)
numbers = ctypes.create_string_buffer(8 * 3_000_000)
sorts = threading.Event()
def sort():
    sorts.set()
    c.qsort(numbers, ctypes.c_size_t(3_000_000), ctypes.c_size_t(8), report)
thread = threading.Thread(target=sort, daemon=True)
thread.start()
sorts.wait()
""", options=("--stacks", "--on-full", "drop"))
            trace = run.trace.read_bytes()
            self.assertNotIn(b"liveset.python_error", trace)
            seen = b"the interpreter was ending" in trace
            if seen:
                break
        self.assertTrue(seen)


PROGRAM = """
#include <liveset.hpp>
extern "C" {
__attribute__((noinline, noclone)) void innermost(liveset::Heap& heap, char* at) { heap.allocated(at, 4096); asm volatile(""); }
__attribute__((noinline, noclone)) void inner(liveset::Heap& heap, char* at) { innermost(heap, at); asm volatile(""); }
__attribute__((noinline, noclone)) void outer(liveset::Heap& heap, char* at) { inner(heap, at); asm volatile(""); }
__attribute__((noinline, noclone)) void give_back(liveset::Heap& heap, char* at) { heap.freeing(at); asm volatile(""); }
}
int main() {
  static char memory[8192];
  liveset::Heap heap{"cpu/test"};
  outer(heap, memory);
  inner(heap, memory + 4096);
  give_back(heap, memory);
}
"""


@unittest.skipUnless(shutil.which("g++") and shutil.which("strip"), "there is no g++ or strip")
class Native(StackTest):
    def build(self, *options):
        (self.folder / "job.cpp").write_text(PROGRAM)
        subprocess.run(["g++", "-std=c++20", "-O1", "-Wl,--build-id", *options, "-I", SOURCE / "hooks/api", "-o", "job", "job.cpp",
                        "-Wl,--no-as-needed", "-lgcc_s"],
                       cwd=self.folder, check=True)

    def record_program(self):
        trace = self.folder / "run.liveset"
        subprocess.run([LIVESET, "run", "-q", "--stacks=native", "-o", trace, "--", "./job"], cwd=self.folder, check=True)
        return Run(subprocess.CompletedProcess([], 0, "", ""), trace)

    def own_functions(self, run):
        """For each block event, the functions of the program's frames."""
        return [[frame["function"] for frame in event["frames"] if frame["file"].endswith("/job")] for event in blocks(run)]

    def test_functions_are_named_after_the_run_by_the_file_that_ran(self):
        self.build()
        run = self.record_program()
        named = [["innermost", "inner", "outer", "main", "_start"], ["innermost", "inner", "main", "_start"], ["give_back", "main", "_start"]]
        self.assertEqual(self.own_functions(run), named)
        for event in blocks(run):
            self.assertTrue(all(frame["offset"] > 0 and frame["line"] is None for frame in event["frames"]))
        # The same file without its table: places, no names.
        subprocess.run(["strip", "job"], cwd=self.folder, check=True)
        self.assertEqual(self.own_functions(run), [[None] * len(functions) for functions in named])
        # Another file in its place is not asked.
        self.build("-DOTHER=1", "-O2", "-fno-omit-frame-pointer")
        self.assertEqual(self.own_functions(run), [[None] * len(functions) for functions in named])
        (self.folder / "job").unlink()
        self.assertEqual(self.own_functions(run), [[None] * len(functions) for functions in named])

    def test_pytorch_has_native_frames_below_those_of_python(self):
        script = """
import sys, torch
torch.ones(1) + 1
while "_liveset_shim" not in sys.modules: pass
def make():
    return torch.empty(777_216, dtype=torch.uint8)
make()
"""
        both = self.record_stacks(script, options=("--stacks=both",))
        self.assert_sound(both)
        made = next(event for event in blocks(both) if event.get("bytes") == 777_216)
        native = [frame for frame in made["frames"] if "offset" in frame]
        self.assertEqual(made["frames"][:len(native)], native)
        self.assertEqual(places(made["frames"][len(native):]), [["make", 6], ["<module>", 7]])
        self.assertTrue(native[0]["file"].endswith("libc10.so"), native)
        functions = [frame["function"] or "" for frame in native]
        self.assertTrue(any(function.startswith("at::detail::empty_cpu") for function in functions), functions)
        self.assertFalse(any("_PyEval_EvalFrameDefault" in function for function in functions), functions)

    def test_a_backward_without_python_has_native_frames(self):
        run = self.record_stacks("""
import torch
w = torch.ones(64, 64, requires_grad=True)
(w @ w).sum().backward()
""", options=("--stacks=native",))
        self.assert_sound(run)
        backward = [event for event in blocks(run) if event["phase"] == "backward" and event["kind"] == "alloc"]
        self.assertTrue(backward)
        self.assertTrue(any("torch::autograd" in (frame["function"] or "") for event in backward for frame in event["frames"]))


class DryRun(DryRunTest):
    def test_blocks_of_a_device_have_their_stacks(self):
        run = self.dry_run(JOBS / "stacks.py", "cuda", options=("--stacks",))
        self.assertEqual(run.status, 0, run.stderr)
        self.assert_sound(run)
        StackTest.assert_stacks_are_pythons(self, run)


if __name__ == "__main__":
    unittest.main()
