"""The samples on the GPU of this machine beside the same jobs in a dry run: differences by counter, step and class of memory."""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import time

SOURCE = pathlib.Path(__file__).resolve().parents[2]
TRAIN = SOURCE / "samples/torch_gpt/train.py"
COUNTERS = ("allocated", "reserved", "requested", "active")
ALLOWED = 0.01  # of allocated bytes, before this check fails
BUDGET_SECONDS = 420  # no case begins later; the longest takes half a minute
CUBLAS_WORKSPACE = {True: 33554432, False: 8519680}  # by "compute capability 9.0 or later"

# Prints what the profile needs. The context is what is missing of the free memory once a kernel has run, torch's own segments aside.
PROPERTIES = """
import json, torch
if not torch.cuda.is_available():
    raise SystemExit(77)
(torch.ones(4, device="cuda") + 1).sum()
torch.cuda.synchronize()
free, total = torch.cuda.mem_get_info()
p = torch.cuda.get_device_properties(0)
print(json.dumps({"name": p.name, "capability": f"{p.major}.{p.minor}", "multiprocessors": p.multi_processor_count,
                  "memory_bytes": p.total_memory, "context_bytes": total - free - torch.cuda.memory_reserved()}))
"""


def torch_cases():
    cases = {f"torch_gpt small {mode}": ["--preset", "small", "--checkpoint", mode] for mode in ("none", "block")}
    for dtype, attention in (("float32", "math"), ("float32", "eff"), ("bfloat16", "flash")):
        for mode in ("none", "block"):
            cases[f"torch_gpt {dtype} {attention} {mode}"] = ["--preset", "standin", "--dtype", dtype, "--sdpa", attention, "--checkpoint", mode]
    return {name: [sys.executable, TRAIN, "--device", "cuda", "--json", *arguments] for name, arguments in cases.items()}


def cases_of(build):
    cases = torch_cases()
    chain = build / "bin/cuda_chain"
    if chain.exists():
        for policy in ("save-all", "segment:2"):
            cases[f"cuda_chain {policy}"] = [chain, "--policy", policy]
    else:
        print(f"SKIPPED: cuda_chain is not built ({chain})")
    return cases


class Side:
    """The GPU, or its stand-in: `liveset` with the options that record a job there."""

    def __init__(self, build, folder, name, options):
        self.liveset, self.folder, self.name, self.options = build / "bin/liveset", folder, name, options

    def record(self, command):
        """-> (what the job printed, summary of the trace)"""
        trace = self.folder / f"{self.name}.liveset"
        done = subprocess.run([self.liveset, *self.options, "-o", trace, "--", *command], capture_output=True, text=True, timeout=120)
        if done.returncode != 0:
            raise RuntimeError(f"on the {self.name}: status {done.returncode}: {done.stderr.strip()[-1500:]}")
        summary = subprocess.run([self.liveset, "summary", "--format", "json", trace], capture_output=True, text=True, check=True)
        return json.loads(done.stdout.strip().splitlines()[-1]), json.loads(summary.stdout)


def profile_of(properties):
    facts = {name: {"value": value, "source": "read from the device"} for name, value in properties.items()}
    newer = float(properties["capability"]) >= 9
    facts["cublas_workspace_bytes"] = {"value": CUBLAS_WORKSPACE[newer], "source": "PyTorch's own default for this compute capability"}
    return {"gpu": "device-under-test", "facts": facts}


class Comparison:
    """Prints one line for each figure: on the GPU, in the dry run, the difference."""

    def __init__(self):
        self.worst = 0.0  # of allocated bytes

    def figure(self, name, real, dry, counts=False):
        if real is None or dry is None:
            print(f"  {name:<44} {'-' if real is None else real:>16} {'-' if dry is None else dry:>16}")
            return
        share = 0.0 if real == dry else abs(dry - real) / max(abs(real), 1)
        print(f"  {name:<44} {real:>16,} {dry:>16,} {dry - real:>+16,}  {(dry - real) / real if real else 0:+.4%}")
        if counts:
            self.worst = max(self.worst, share)

    def memory(self, real, dry):
        """PyTorch's own statistics of each step."""
        for step, (ours, theirs) in enumerate(zip(real.get("memory", []), dry.get("memory", []))):
            for counter in COUNTERS:
                name = f"peak_{counter}"
                self.figure(f"step {step}, peak {counter}", ours[name], theirs[name], counter == "allocated")

    def summaries(self, real, dry):
        for heap in sorted(set(real["counters"]) | set(dry["counters"])):
            if not heap.startswith("cuda:"):
                continue
            both = real["counters"].get(heap, {}), dry["counters"].get(heap, {})
            for counter in sorted(set(both[0]) | set(both[1])):
                figures = [side[counter] for side in both if isinstance(side.get(counter), dict)]
                if len(figures) == 2:
                    self.figure(f"{heap} {counter}, peak", figures[0]["peak"], figures[1]["peak"])
        if real["peak"] and dry["peak"]:
            classes = real["peak"]["classes"], dry["peak"]["classes"]
            for name in classes[0]:
                if classes[0][name] or classes[1].get(name):
                    self.figure(f"at the peak, {name}", classes[0][name], classes[1].get(name))
        for library in sorted(set(real.get("owners", {})) | set(dry.get("owners", {}))):
            self.figure(f"at the peak, owned by {library}", *(side.get("owners", {}).get(library) for side in (real, dry)))

    def chain(self, real, dry):
        """The numbers may differ in the last places (another tanh); how often a layer ran may not."""
        self.figure("forward layers", real["forward_layers"], dry["forward_layers"])
        print(f"  loss {real['loss']!r} on the GPU, {dry['loss']!r} in the dry run")
        assert real["max_difference_to_save_all"] == 0, "two policies gave different numbers on the GPU"


def compare(name, command, sides, comparison):
    print(f"\n{name}\n  {'':<44} {'GPU':>16} {'dry run':>16} {'difference':>16}")
    (real, real_summary), (dry, dry_summary) = (side.record(command) for side in sides)
    comparison.memory(real, dry)
    if "forward_layers" in real:
        comparison.chain(real, dry)
    comparison.summaries(real_summary, dry_summary)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=pathlib.Path, default=SOURCE / "build/release")
    parser.add_argument("--only", metavar="TEXT", default="", help="cases whose name has this in it")
    parser.add_argument("--stand-in", metavar="GPU", help="take a stand-in for the GPU under test: shows that this check itself works")
    options = parser.parse_args()
    start = time.monotonic()

    on_device = ["dryrun", "-q", "--backing", "all", "--gpu", options.stand_in] if options.stand_in else ["run", "-q"]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        asked = subprocess.run([options.build / "bin/liveset", *on_device, "-o", folder / "properties.liveset", "--", sys.executable, "-c",
                                PROPERTIES], capture_output=True, text=True, timeout=120)
        if asked.returncode == 77:
            print("SKIPPED: PyTorch finds no GPU on this machine")
            return 77
        if asked.returncode != 0:
            print(f"FAILED: the GPU could not be asked: {asked.stderr.strip()[-1500:]}")
            return 1
        properties = json.loads(asked.stdout)
        print("device under test:", json.dumps(properties))
        profile = folder / "device.json"
        profile.write_text(json.dumps(profile_of(properties)))
        sides = [Side(options.build, folder, "GPU", on_device),
                 Side(options.build, folder, "stand-in", ["dryrun", "-q", "--backing", "all", "--gpu", profile])]
        comparison, failed, ran = Comparison(), [], 0
        for case, command in cases_of(options.build).items():
            if options.only not in case:
                continue
            if time.monotonic() - start > BUDGET_SECONDS:
                print(f"SKIPPED: {case}: the time is up")
                continue
            try:
                compare(case, command, sides, comparison)
                ran += 1
            except Exception as error:  # one case that fails shall not hide the others
                print(f"  FAILED: {error}")
                failed.append(case)
    print(f"\n{ran} cases compared in {time.monotonic() - start:.0f} s; allocated bytes differ by at most {comparison.worst:.4%}"
          + (f"; FAILED: {', '.join(failed)}" if failed else ""))
    return 1 if failed or not ran or comparison.worst > ALLOWED else 0


if __name__ == "__main__":
    sys.exit(main())
