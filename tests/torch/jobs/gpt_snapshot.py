"""Trains samples/torch_gpt's preset standin, prints the caching allocator's segments, and ends at once: all is still allocated."""
import argparse
import json
import os
import pathlib
import sys

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "samples/torch_gpt"))
import attention

options = argparse.Namespace(device="cuda", dtype="float32", sdpa="eff", checkpoint="none", steps=3, optimizer="adamw", accumulate=1,
                             dropout=0.0)
steps = attention.steps(options)
next(steps), next(steps)  # the third is not asked for, so the model lives
print(json.dumps(torch.cuda.memory._snapshot()["segments"]), flush=True)
os._exit(0)
