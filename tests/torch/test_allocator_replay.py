"""The simulated caching allocator beside PyTorch's own, which runs on the stand-in device: the same random scripts, every counter after
every step, every segment and block after every twentieth."""
import json
import subprocess
import unittest

from support import BUILD, JOBS, DryRunTest

STEPS = 1000
# name: settings, seed, kind of the steps, memory of the device, fraction of it
SCRIPTS = {
    "default": ("", 1, "mixed", None, None),
    "small blocks": ("", 2, "small", None, None),
    "streams": ("", 3, "streams", None, None),
    "out of memory": ("", 4, "mixed", "860MiB", None),
    "round up": ("roundup_power2_divisions:4", 5, "mixed", None, None),
    "round up by a list": ("roundup_power2_divisions:[1:8,2:4,4:2,16:1,>:8]", 6, "mixed", None, None),
    "round up, the last entry alone": ("roundup_power2_divisions:[>:8]", 7, "mixed", None, None),
    "round up, one entry": ("roundup_power2_divisions:[4:2]", 8, "mixed", None, None),
    "no split": ("max_split_size_mb:30", 9, "huge", None, None),
    "no split, little memory": ("max_split_size_mb:20,max_non_split_rounding_mb:64", 10, "huge", "2GiB", None),
    "large segments": ("large_segment_size_mb:48", 11, "mixed", None, None),
    "fraction": ("", 12, "mixed", "8GiB", "0.05"),
    "fraction by setting": ("per_process_memory_fraction:0.1", 13, "mixed", "8GiB", None),
    "garbage": ("garbage_collection_threshold:0.3", 14, "huge", "4GiB", "0.9"),
    "garbage by setting": ("garbage_collection_threshold:0.3,per_process_memory_fraction:0.9", 15, "huge", "4GiB", None),
    "garbage without a fraction": ("garbage_collection_threshold:0.3", 16, "huge", "4GiB", None),
    "garbage, all memory allowed": ("garbage_collection_threshold:0.2", 24, "huge", "4GiB", "1.0"),
    "garbage, no split": ("garbage_collection_threshold:0.5,max_split_size_mb:64", 17, "huge", "3GiB", "0.9"),
    "expandable": ("expandable_segments:True", 18, "mixed", None, None),
    "expandable, streams": ("expandable_segments:True", 19, "streams", None, None),
    "expandable, out of memory": ("expandable_segments:True", 20, "mixed", "1200MiB", None),
    "expandable, large pages": ("expandable_segments:True,large_segment_size_mb:48", 21, "huge", "6GiB", None),
    "expandable, no split": ("expandable_segments:True,max_split_size_mb:64", 22, "huge", "6GiB", None),
    "expandable, round up": ("expandable_segments:True,roundup_power2_divisions:8", 23, "mixed", None, None),
}
TRAIN = """
import torch
from torch import nn
model = nn.Sequential(*[nn.Sequential(nn.Linear(512, 2048), nn.GELU(), nn.Linear(2048, 512)) for _ in range(4)]).cuda()
optimizer = torch.optim.Adam(model.parameters())
for step in range(3):
    loss = model(torch.randn(1000 + 256 * step, 512, device="cuda")).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""


class AllocatorReplayTest(DryRunTest):
    def setUp(self):
        super().setUp()
        self.scripts = {}  # name: what `script` gave

    def script(self, name):
        """-> the settings as the simulation takes them, the head of what the job wrote, its steps"""
        settings, seed, kind, memory, fraction = SCRIPTS[name]
        out = self.folder / f"{seed}.jsonl"
        arguments = [JOBS / "allocator_script.py", out, seed, STEPS, kind] + ([fraction] if fraction else [])
        run = self.dry_run(*map(str, arguments), name=str(seed), options=["--memory", memory] if memory else [],
                           environment={"PYTORCH_CUDA_ALLOC_CONF": settings})
        self.assertEqual(run.status, 0, run.stderr)
        head, *steps = [json.loads(line) for line in out.read_text().splitlines()]
        if fraction:  # torch.cuda.set_per_process_memory_fraction
            settings += ("," if settings else "") + f"per_process_memory_fraction:{fraction}"
        return settings, head, steps

    def simulated(self, settings, head, steps):
        device = {"op": "device", "settings": settings, "capacity": head["free"], "total": head["total"], "order": "rising"}
        lines = "\n".join(json.dumps(step) for step in [device] + [step for step, _ in steps])
        done = subprocess.run([BUILD / "tests/allocator_steps"], input=lines, capture_output=True, text=True, timeout=100)
        self.assertEqual(done.returncode, 0, done.stderr)
        return [json.loads(line) for line in done.stdout.splitlines()]

    def compare(self, name):
        settings, head, steps = self.scripts[name] = self.script(name)
        found = self.simulated(settings, head, steps)
        self.assertEqual(len(found), len(steps))
        ooms = 0
        for number, ((step, real), ours) in enumerate(zip(steps, found)):
            if step["op"] == "malloc":
                self.assertEqual(ours.pop("oom"), step.get("oom", False), (name, number, step))
                ooms += step.get("oom", False)
            elif step["op"] != "segments":
                ours.pop("done", None)
            if step["op"] == "segments":  # the device puts them where it likes
                ours, real = sorted(ours), sorted(real)
            if real is not None and ours != real:
                raise AssertionError(f"{name}, step {number}, {step}: {self.first_difference(ours, real)}")
        return ooms, [real for step, real in steps if step["op"] != "segments" and real][-1]

    @staticmethod
    def first_difference(ours, real):
        pairs = zip(ours, real) if isinstance(ours, list) else [((key, ours[key]), (key, real[key])) for key in real]
        return next((f"{str(pair[0])[:500]} instead of {str(pair[1])[:500]}" for pair in pairs if pair[0] != pair[1]), (len(ours), len(real)))

    def test_every_step_is_that_of_the_real_allocator(self):
        results = self.side_by_side({name: lambda name=name: self.caught(name) for name in SCRIPTS})
        failures = {name: result for name, result in results.items() if isinstance(result, Exception)}
        self.assertEqual(len(failures), 0, "\n".join(str(error)[:1200] for error in failures.values()))
        # That the scripts reach what they are there for.
        for name in ("out of memory", "expandable, out of memory", "fraction", "no split, little memory"):
            self.assertGreater(results[name][0], 0, name)
        for name in ("default", "no split", "expandable"):
            self.assertGreater(results[name][1]["device_frees"], 5, name)
        settings, head, steps = self.scripts["garbage"]
        kept = self.simulated(settings.replace("0.3", "0.99"), head, steps)
        self.assertLess([step for step in kept if "reserved" in step][-1]["device_frees"], results["garbage"][1]["device_frees"])

    def test_the_layout_of_a_training_job_is_the_recorded_one(self):
        """`liveset fragmentation` with and without --simulate, at many events of a dry run: the same segments with the same free runs."""
        for settings in ("", "expandable_segments:True"):
            run = self.dry_run("-c", TRAIN, name=f"train{len(settings)}", environment={"PYTORCH_CUDA_ALLOC_CONF": settings})
            self.assertEqual(run.status, 0, run.stderr)
            # After the event of a block: a segment is recorded before the block that it was taken for.
            events = [event["event"] for event in run.read("dump")["events"] if event["kind"] in ("alloc", "free_requested")]
            simulated = run.read("fragmentation", "--simulate", "--alloc-conf", settings)
            recorded = run.read("fragmentation")
            self.assertEqual(simulated["peaks"]["reserved"]["bytes"], recorded["counters"]["reserved"])
            self.assertEqual((recorded["layout"], simulated["layout"]), ("recorded", "simulated"))
            seen = set()
            for event in events[len(events) // 8::len(events) // 8]:
                both = [self.layout(run.read("fragmentation", "--at", str(event), *more))
                        for more in ((), ("--simulate", "--alloc-conf", settings))]
                self.assertEqual(both[1], both[0], (settings, event))
                seen.add(str(both[0]))
            self.assertGreater(len(seen), 5)

    @staticmethod
    def layout(report):
        segments = sorted((segment["bytes"], segment["used"], segment["free_bytes"], segment["largest_free"], segment["blocks"],
                           [(pin["bytes"], pin["birth_event"], pin["class"]) for pin in segment["pinned_by"]]) for segment in report["segments"])
        return report["counters"]["allocated"], report["counters"]["reserved"], segments

    def caught(self, name):
        try:
            return self.compare(name)
        except AssertionError as error:
            return error


if __name__ == "__main__":
    unittest.main()
