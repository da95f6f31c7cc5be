"""The short form mlp of a model file beside recorded steps of nn.Sequential, to the byte: proto/MODEL.md says of what."""
import json
import subprocess
import unittest

import torch
from support import JOBS, LIVESET, TorchTest

JOB = JOBS / "sequential.py"
EXACT = torch.__version__.startswith("2.14.1")
# batch, widths, and what differs from the defaults
STEPS = {
    "small": (7, (5, 11, 13, 3), {}),
    "wide output": (16, (3, 5, 7, 500), {"optimizer": "adam"}),
    "ones": (1, (1, 1, 1), {}),
    "one layer": (33, (9, 4), {"loss": "sum", "bias": 0}),
    "one layer, double": (33, (9, 4), {"optimizer": "adam", "element_bytes": 8}),
    "tanh": (7, (5, 11, 13, 3), {"activation": "tanh", "optimizer": "adam", "loss": "sum"}),
    "gelu, no bias, double": (64, (32, 128, 96, 10), {"activation": "gelu", "bias": 0, "optimizer": "momentum", "element_bytes": 8}),
    "gelu, sum": (16, (3, 5, 7, 500), {"activation": "gelu", "loss": "sum"}),
    "deep": (32, (64,) * 9, {"activation": "tanh", "optimizer": "momentum"}),
    "no bias": (128, (17, 300, 200, 100, 9), {"bias": 0, "optimizer": "adam"}),
}
# step, layers a region, policy; GELU only where no bias is
SEGMENTS = [("small", 1, "full"), ("small", 2, "segment:2"), ("tanh", 2, "segment:2"), ("deep", 1, "full"), ("deep", 3, "segment:3"),
            ("no bias", 2, "segment:2"), ("gelu, no bias, double", 2, "segment:2")]


def model_file(batch, widths, fields):
    text = f"mlp {{ batch: {batch} widths: [{', '.join(map(str, widths))}] "
    for name, value in {"optimizer": "sgd", **fields}.items():
        text += f"{name}: " + (f'"{value}"' if isinstance(value, str) else ("true", "false")[not value] if name == "bias" else str(value)) + " "
    return text + "}\n"


@unittest.skipUnless(EXACT, f"what is made and freed is that of torch 2.14.1, this is {torch.__version__}")
class MlpModelTest(TorchTest):
    def recorded(self, cases):
        """One job trains the network of each (name of STEPS, layers a region) in turn. -> the job, the second step of each"""
        arguments = []
        for name, segment in cases:
            batch, widths, fields = STEPS[name]
            arguments += ["/"] * bool(arguments) + ["--batch", batch, "--segment", segment, "--widths", *widths]
            for field, value in fields.items():
                arguments += [f"--{field.replace('_', '-')}", value]
        run = self.record(JOB, *map(str, arguments))
        self.assertEqual((run.status, run.stderr), (0, ""))
        steps = self.assert_sound(run)["steps"]
        self.assertEqual(len(steps), 3 * len(cases))
        return run, steps[1::3]

    def predicted(self, name, policy):
        path = self.folder / f"{name}.textproto"
        path.write_text(model_file(*STEPS[name]))
        done = self.plain([LIVESET, "predict", path, "--policy", policy, "--format", "json"])
        self.assertEqual((done.status, done.stderr), (0, ""))
        return json.loads(done.stdout)["memory"]

    def test_to_the_byte(self):
        cases = [(name, 0, "save-all") for name in STEPS] + SEGMENTS
        _, steps = self.recorded([case[:2] for case in cases])
        for case, step in zip(cases, steps):
            memory = self.predicted(case[0], case[2])
            with self.subTest(case):
                self.assertEqual(memory["peak"]["bytes"], step["peak_bytes"])
                for phase in ("forward", "loss", "recompute", "backward"):
                    measured = step["phases"].get(phase, {}).get("peak_bytes")
                    self.assertEqual(memory["phases"].get(phase, {}).get("peak_bytes"), measured, phase)

    def test_values_are_paired_by_name(self):
        run, _ = self.recorded([("deep", 0)])
        path = self.folder / "deep.textproto"
        path.write_text(model_file(*STEPS["deep"]))
        done = subprocess.run([LIVESET, "compare", run.trace, path, "--range", "step:1..1", "--counter", "requested", "--format", "json"],
                              capture_output=True, text=True)
        found = json.loads(done.stdout)
        self.assertEqual(found["difference"], 0)
        self.assertEqual((found["values"]["missing"], found["values"]["extra"]), (0, 0))
        self.assertEqual(found["values"]["matched"], 3)  # of what backward needs, at its largest moment: the batch, the target, one output


if __name__ == "__main__":
    unittest.main()
