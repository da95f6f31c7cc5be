"""Runs random allocations and frees of a seed on a CUDA device, and writes each step with what PyTorch's allocator says after it.

usage: allocator_script.py OUT SEED STEPS KIND [FRACTION]   KIND: what the steps are like (see `choose`)
"""
import json
import random
import sys

import torch

out, seed, steps, kind = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
draw = random.Random(seed)
torch.cuda.init()
free, total = torch.cuda.mem_get_info()
if len(sys.argv) > 5:
    torch.cuda.set_per_process_memory_fraction(float(sys.argv[5]))
streams = [torch.cuda.current_stream()] + [torch.cuda.Stream() for _ in range(3 if kind == "streams" else 0)]
usual = [draw.randrange(1, 3 << 20) for _ in range(6)] + [draw.randrange(1 << 20, 40 << 20) for _ in range(6)]
MIB = 1 << 20


def size():
    shape = draw.random()
    if shape < 0.4:
        return draw.choice(usual)
    if shape < 0.5:
        return draw.choice([0, 1, 511, 512, 513, MIB - 1, MIB, MIB + 1, 10 * MIB - 512, 10 * MIB - 511, 10 * MIB, 20 * MIB, 20 * MIB + 1])
    top = {"huge": 400 * MIB, "small": 4 * MIB}.get(kind, 96 * MIB)
    return int(2 ** (draw.random() * (top.bit_length() - 1)))


def figures():
    stats = torch._C._cuda_memoryStats(0)
    both = {name: [stats[key]["all"]["current"], stats[key]["all"]["peak"]] for name, key in (
        ("requested", "requested_bytes"), ("allocated", "allocated_bytes"), ("active", "active_bytes"), ("reserved", "reserved_bytes"))}
    return {**both, "retries": stats["num_alloc_retries"], "ooms": stats["num_ooms"], "device_mallocs": stats["num_device_alloc"],
            "device_frees": stats["num_device_free"]}


def segments():
    number = {stream.cuda_stream: index for index, stream in enumerate(streams)}
    return [[segment["segment_type"], number[segment["stream"]], segment["total_size"], segment["is_expandable"],
             [[block["size"], block["state"], 0 if block["state"] == "inactive" else block["requested_size"]] for block in segment["blocks"]]]
            for segment in torch._C._cuda_memorySnapshot(None)["segments"]]


live, pending, written = {}, [], []


def say(step, found=True):
    written.append([step, figures() if found else None])


with open(out, "w") as file:
    file.write(json.dumps({"free": free, "total": total}) + "\n")
    for number in range(steps):
        filling = number % 400 < 250
        if live and draw.random() > (0.62 if filling else 0.38):
            chosen = draw.choice(list(live))
            tensor, home = live.pop(chosen)
            if kind == "streams" and tensor.numel() and draw.random() < 0.3:
                tensor.record_stream(draw.choice([stream for stream in streams if stream is not home]))
                pending.append(chosen)
                del tensor
                say({"op": "free_requested", "id": chosen})
            else:
                del tensor
                say({"op": "free", "id": chosen})
        elif draw.random() < 0.006:
            torch.cuda.empty_cache()
            pending = []
            say({"op": "empty_cache"})
        else:
            home, bytes_ = draw.choice(streams), size()
            if bytes_:
                for chosen in pending:  # a malloc looks which streams are done
                    say({"op": "free_completed", "id": chosen}, found=False)
                pending = []
            step = {"op": "malloc", "id": number, "size": bytes_, "stream": streams.index(home)}
            try:
                with torch.cuda.stream(home):
                    live[number] = torch.empty(bytes_, dtype=torch.uint8, device="cuda"), home
            except torch.OutOfMemoryError:
                step["oom"] = True
            say(step)
        if number % 20 == 19:
            written.append([{"op": "segments"}, segments()])
    for entry in written:
        file.write(json.dumps(entry) + "\n")
