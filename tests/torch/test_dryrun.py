"""Real PyTorch, its CUDA build, under `liveset dryrun`: the job is the user's own, the device is a stand-in."""
import importlib.util
import json
import os
import pathlib
import signal
import subprocess
import sys
import sysconfig
import unittest

from support import BUILD, LIVESET, DryRunTest, Run

GIB = 1 << 30

TRAIN = """
import torch
model = torch.nn.Sequential(torch.nn.Linear(1024, 1024), torch.nn.GELU(), torch.nn.Linear(1024, 1024)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(2):
    loss = model(torch.randn(64, 1024, device="cuda")).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
BACKWARD_ONLY = """
import torch
from torch import nn
torch.set_default_dtype(torch.bfloat16)
with torch.device("cuda"):
    layers = nn.ModuleList(nn.TransformerEncoderLayer(4096, 32, 11008, batch_first=True) for _ in range(32))
for step in range(2):
    x = torch.zeros(4, 2048, 4096, device="cuda", requires_grad=True)
    for layer in layers:
        x = layer(x)
    x.mean().backward()
"""
FACTS = """
import json, os, sys
stats = torch.cuda.memory_stats()
properties = torch.cuda.get_device_properties(0)
print(json.dumps({"torch": torch.__file__, "name": properties.name, "capability": [properties.major, properties.minor],
                  "memory": properties.total_memory, "devices": torch.cuda.device_count(),
                  "allocated": stats["allocated_bytes.all.peak"], "reserved": stats["reserved_bytes.all.peak"],
                  "paths": {name: os.environ.get(name, "") for name in ("PYTHONPATH", "LD_LIBRARY_PATH", "TRITON_CACHE_DIR")},
                  "maps": sorted({line.split()[-1] for line in open("/proc/self/maps") if ".so" in line})}))
"""
DDP = """
import os, torch, torch.distributed as dist
dist.init_process_group({backend})
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(256, 256).cuda())
for step in range(2):
    model(torch.randn(8, 256, device="cuda")).sum().backward()
print("rank", dist.get_rank(), "of", dist.get_world_size(), "with", torch.cuda.device_count(), "devices", flush=True)
dist.destroy_process_group()
"""


class CommandTest(DryRunTest):
    """With a folder for temporary files of its own, in which nothing may be left."""

    def setUp(self):
        super().setUp()
        self.temporary = self.folder / "temporary"
        self.temporary.mkdir()

    def environment(self, more=None):
        return {**os.environ, "TMPDIR": str(self.temporary), **(more or {})}

    def command(self, job, *options, trace=None):
        return [LIVESET, "dryrun", *options, "-o", trace or self.folder / "run.liveset", "--", *job]

    def script(self, text, name="job.py"):
        path = self.folder / name
        path.write_text(text)
        return path

    def start(self, job, *options, environment=None):
        """`job` is a command, or the text of a script."""
        if isinstance(job, str):
            job = [sys.executable, self.script(job)]
        done = subprocess.run(self.command(job, *options), capture_output=True, text=True, timeout=100, cwd=self.folder,
                              env=self.environment(environment))
        self.assertEqual(list(self.temporary.glob("liveset-*")), [], "something was left behind")
        return Run(done, self.folder / "run.liveset")

    def facts(self, run):
        self.assertEqual(run.status, 0, run.stderr)
        return json.loads(run.stdout.splitlines()[0])


class JobTest(CommandTest):
    def test_the_users_script_on_another_device(self):
        run = self.start(TRAIN + FACTS, "-q", "--gpu", "a100-40")
        facts = self.facts(run)
        self.assertEqual((facts["name"], facts["capability"], facts["memory"]), ("NVIDIA A100-SXM4-40GB", [8, 0], 42298834944))
        summary = self.assert_sound(run)
        cuda = summary["counters"]["cuda:0"]
        self.assertEqual((cuda["allocated"]["peak"], cuda["reserved"]["peak"]), (facts["allocated"], facts["reserved"]))
        self.assertEqual(len(summary["steps"]), 2)
        self.assertEqual(run.stderr, "")
        # Only stand-ins are mapped, and torch is the user's own through the shadow.
        standin = str(BUILD.resolve() / "lib/liveset/standin")
        for path in facts["maps"]:
            name = os.path.basename(path)
            if name.startswith(("libcu", "libnv", "libnccl")):
                self.assertTrue(path.startswith(standin), path)
        self.assertTrue(facts["torch"].startswith(str(self.temporary)), facts["torch"])

    def test_what_the_summary_says_of_it(self):
        run = self.start(TRAIN + "print(loss.item())\n")
        self.assertEqual(run.status, 0, run.stderr)
        self.assertIn("DRY RUN  NVIDIA H100 80GB HBM3 (h100, compute capability 9.0, 79.18 GiB)", run.stdout)
        self.assertIn("device_value_read", run.stdout)
        summary = run.summary()
        self.assertEqual(summary["dry_run"]["gpu"], "h100")
        self.assertIn("context_bytes", summary["dry_run"]["assumed"])
        self.assertEqual(summary["dry_run"]["band"]["kind"], "eager, without convolutions")
        allocated = summary["counters"]["cuda:0"]["allocated"]
        self.assertIs(allocated["estimate"], False)
        self.assertLessEqual(allocated["low"], allocated["peak"])
        reads = [each for each in summary["estimates"] if each["what"] == "device_value_read"]
        self.assertEqual([each["exact"] for each in reads], [False] * len(reads))
        self.assertEqual(sum(each["count"] for each in reads), 1)
        self.assertIn("job.py", "".join(reads[0]["first"]))

    def test_a_new_block_holds_nothing_of_its_former_owner(self):
        # The allocator gives the same memory again and the kernels that would write to it do not run. GradScaler, for one, skips a
        # step when it reads anything but 0 there.
        run = self.start("""
import torch
former = [torch.full((1 << exponent,), 3.5).cuda() for exponent in range(2, 16)]
print([tensor[0].item() for tensor in former] == [3.5] * 14)
del former
print(sum(torch.empty(1 << exponent, device="cuda")[0].item() for exponent in range(2, 16)))
""", "-q")
        self.assertEqual(run.stdout, "True\n0.0\n", run.stderr)

    def test_memory_of_a_given_size(self):
        facts = self.facts(self.start(TRAIN + FACTS, "-q", "--memory", "24GiB"))
        self.assertEqual(facts["memory"], 24 * GIB)

    def test_a_gpu_of_the_user(self):
        profile = json.loads((BUILD / "lib/liveset/gpus/l40s.json").read_text())
        profile["gpu"] = "mine"
        profile["facts"]["name"]["value"] = "My GPU"
        self.script(json.dumps(profile), "mine.json")
        self.assertEqual(self.facts(self.start(TRAIN + FACTS, "-q", "--gpu", "mine.json"))["name"], "My GPU")

    def test_the_users_own_paths_come_behind(self):
        (self.folder / "mine").mkdir()
        (self.folder / "mine/wanted.py").write_text("value = 7\n")
        mine = str(self.folder / "mine")
        run = self.start("import wanted\nassert wanted.value == 7\n" + TRAIN + FACTS, "-q",
                           environment={"PYTHONPATH": mine, "LD_LIBRARY_PATH": mine})
        paths = self.facts(run)["paths"]
        self.assertTrue(paths["PYTHONPATH"].endswith(":" + mine) and paths["PYTHONPATH"].startswith(str(self.temporary)), paths)
        self.assertTrue(paths["LD_LIBRARY_PATH"].endswith(":" + mine), paths)
        self.assertTrue(paths["TRITON_CACHE_DIR"].startswith(str(self.temporary)), paths)

    def test_nothing_of_it_without_dryrun(self):
        run = self.record("import torch; print(torch.cuda.is_available(), torch.__file__)")
        available, file = run.stdout.split()
        self.assertEqual(file, importlib.util.find_spec("torch").origin)
        if not pathlib.Path("/dev/nvidia0").exists():
            self.assertEqual(available, "False")

    def test_a_terminated_job_leaves_nothing(self):
        job = self.script("import torch, time\ntorch.zeros(8, device='cuda')\nprint('ready', flush=True)\ntime.sleep(100)\n")
        with subprocess.Popen(self.command([sys.executable, job], "-q"), stdout=subprocess.PIPE, text=True, env=self.environment()) as run:
            self.assertEqual(run.stdout.readline(), "ready\n")
            run.send_signal(signal.SIGTERM)
            self.assertEqual(run.wait(60), 128 + signal.SIGTERM)
        self.assertEqual(list(self.temporary.glob("liveset-*")), [])


class OutOfMemoryTest(CommandTest):
    SCRIPT = """
import torch
weights = torch.nn.Linear(16384, 16384, device="cuda")  # 1 GiB and 64 KiB
kept = [torch.empty(1 << 30, dtype=torch.uint8, device="cuda") for _ in range(20)]
"""

    def check(self, environment):
        run = self.start(self.SCRIPT, "--memory", "8GiB", environment=environment)
        self.assertEqual(run.status, 1)
        self.assertIn("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1024.00 MiB", run.stderr)
        self.assertIn("8.00 GiB", run.stderr)
        self.assertIn("OUT OF MEMORY  1.00 GiB asked of cuda:0", run.stdout)
        self.assertIn("what lived then", run.stdout)
        self.assertIn("does not fit", run.stdout)
        event = run.summary()["out_of_memory"][-1]
        self.assertEqual(event["asked_bytes"], GIB)
        self.assertEqual(sum(event["classes"].values()), event["allocated_bytes"])
        # The context takes some of the 8 GiB, so six more fit beside the weights.
        self.assertEqual(event["allocated_bytes"], 7 * GIB + 64 * 1024)

    def test_segments_of_the_runtime(self):
        self.check({})

    def test_expandable_segments(self):
        self.check({"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True", "PYTORCH_ALLOC_CONF": "expandable_segments:True"})


class OtherBackendTest(CommandTest):
    def test_out_of_memory_is_known_by_the_driver(self):
        run = self.start("import torch\nkept = [torch.empty(1 << 30, dtype=torch.uint8, device='cuda') for _ in range(30)]\n",
                         "--gpu", "rtx4090", environment={"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"})
        self.assertEqual(run.status, 1)
        self.assertIn("does not fit", run.stdout)
        self.assertIn("statistics are not there", run.stdout)
        self.assertEqual(run.summary()["out_of_memory"][-1]["asked_bytes"], GIB)


class PythonTest(CommandTest):
    def refused(self, job):
        run = self.start(job)
        self.assertEqual((run.status, run.stdout, run.traces()), (2, "", []))
        self.assertEqual(run.stderr.count("\n"), 1, run.stderr)
        return run.stderr

    def test_interpreters_that_ignore_the_path(self):
        for option in ("-I", "-E"):
            self.assertIn("options -I and -E keep PYTHONPATH out", self.refused([sys.executable, option, self.script(TRAIN)]))

    def test_no_torch(self):
        self.assertIn("this Python has no torch", self.refused([sys.executable, "-S", self.script(TRAIN)]))

    def test_a_real_library_beside_the_stand_ins(self):
        packages = pathlib.Path(sysconfig.get_paths()["purelib"])
        real = next(iter(packages.glob("nvidia/*/lib/libcurand.so.*")), None)
        if real is None:
            self.skipTest(f"no wheel of NVIDIA's in {packages}")
        run = self.start(f"import ctypes; ctypes.CDLL({str(real)!r})\n" + TRAIN)
        self.assertEqual((run.status, run.stdout), (2, ""))
        self.assertEqual(run.stderr.count("\n"), 1, run.stderr)
        self.assertIn(f"a real NVIDIA library is loaded beside the stand-ins: {real.resolve()}", run.stderr)

    def test_an_interpreter_behind_a_shell_that_ignores_the_path(self):
        run = self.start(["sh", "-c", f"{sys.executable} -I {self.script(TRAIN)}"], "--python", sys.executable)
        self.assertEqual((run.status, run.stdout), (2, ""), run.stderr)
        self.assertRegex(run.stderr, "a real NVIDIA library is loaded beside the stand-ins: .*/libcudart[^ ]* .*-I and -E keep out")

    def test_a_job_without_a_device_is_said_to_be_one(self):
        run = self.start("import torch; torch.ones(1000); print(torch.cuda.device_count())", environment={"CUDA_VISIBLE_DEVICES": ""})
        self.assertEqual((run.status, run.stdout.splitlines()[0]), (0, "0"), run.stderr)
        self.assertIn('liveset: no CUDA device was used (CUDA_VISIBLE_DEVICES is "")\n', run.stderr)

    def test_a_job_that_ends_right_after_a_backward(self):
        """Autograd's thread is still taking the graph apart then, and must not be ended by the interpreter."""
        for _ in range(3):
            run = self.start(BACKWARD_ONLY, "--gpu", "b200")
            self.assertEqual(run.status, 0, run.stderr)

    def test_an_install_without_the_wheels_of_nvidia(self):
        """As `pip install --no-deps torch` and what its Python needs."""
        packages = pathlib.Path(sysconfig.get_paths()["purelib"])
        site = self.folder / "site"
        site.mkdir()
        for entry in packages.iterdir():
            if not entry.name.startswith("nvidia"):
                (site / entry.name).symlink_to(entry)
        base = os.path.realpath(sys.executable)
        run = self.start([base, self.script(TRAIN + FACTS)], "-q", environment={"PYTHONPATH": str(site)})
        self.assertEqual(self.facts(run)["name"], "NVIDIA H100 80GB HBM3")

    def test_behind_a_shell_and_env(self):
        job = self.script(TRAIN + FACTS)
        here = os.path.dirname(sys.executable)
        path = f"{here}:{os.environ['PATH']}"
        for command in (["sh", "-c", f"exec python {job}"], ["env", "WANTED=1", sys.executable, "-u", job]):
            with self.subTest(command=command[0]):
                self.assertEqual(self.facts(self.start(command, "-q", environment={"PATH": path}))["devices"], 1)


class RanksTest(CommandTest):
    def test_two_ranks_by_torchrun(self):
        job = self.script(DDP.format(backend='"nccl"'))
        run = self.start([sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", job], "-q")
        self.assertEqual(run.status, 0, run.stderr)
        self.assertEqual(sorted(run.stdout.splitlines()), [f"rank {rank} of 2 with 2 devices" for rank in range(2)])
        devices = set()
        for trace in run.traces():
            devices |= {heap for heap in run.summary(trace)["counters"] if heap in ("cuda:0", "cuda:1")}
        self.assertEqual(devices, {"cuda:0", "cuda:1"})

    def test_rank_0_of_8_alone(self):
        for backend in ('"nccl"', ""):  # the second makes a group of gloo beside that of NCCL
            with self.subTest(backend=backend):
                run = self.start(DDP.format(backend=backend), "-q", "--world", "8")
                self.assertEqual((run.status, run.stdout), (0, "rank 0 of 8 with 8 devices\n"), run.stderr)
        self.assertEqual(run.summary()["dry_run"]["world"], 8)

    def test_the_users_own_sitecustomize_runs_beside_it(self):
        (self.folder / "sitecustomize.py").write_text("import builtins\nbuiltins.mine = 'kept'\n")
        run = self.start("print(mine)\n" + DDP.format(backend='"nccl"'), "-q", "--world", "16", environment={"PYTHONPATH": str(self.folder)})
        self.assertEqual((run.status, run.stdout), (0, "kept\nrank 0 of 16 with 8 devices\n"), run.stderr)


if __name__ == "__main__":
    unittest.main()
