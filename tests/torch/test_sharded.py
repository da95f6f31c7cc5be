"""Jobs of several ranks, in one: FSDP2's shards and the parameters gathered from them, the buckets of DistributedDataParallel."""
import json
import unittest

from support import JOBS, TorchTest

try:
    from torch.distributed.fsdp import fully_shard
except ImportError:
    fully_shard = None


DISTRIBUTED = """
import torch
import torch.distributed as dist
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.Tanh(), torch.nn.Linear(32, 16))
model = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=1e-6)
for step in range(3):
    model(torch.ones(8, 64)).sum().backward()
    model.zero_grad()
dist.destroy_process_group()
"""


class BucketTest(TorchTest):
    def test_buckets_are_communication_and_their_reductions_are_counted(self):
        run = self.record(DISTRIBUTED)
        self.assertEqual(run.status, 0, run.stderr)
        self.assert_sound(run)
        buckets, reductions, reduced_bytes = {}, [], []
        for event in run.read("dump")["events"]:
            if event["kind"] == "backward_begin":
                reductions.append([])
                reduced_bytes.clear()
            elif event["kind"] == "storage" and event["class"] == "communication":
                buckets[event["address"]] = event["bytes"]
            elif event["kind"] == "collective" and event["number"] >= 0:
                reductions[-1].append((event["name"], event["number"]))
                reduced_bytes.append(event["bytes"])
                self.assertEqual(buckets[event["address"]], event["bytes"])
        # The cap is below every parameter, so each has a bucket, once DDP has put them in the order of the first backward.
        self.assertEqual([len(reduced) for reduced in reductions][1:], [4, 4])
        self.assertEqual(reductions[-1], [("all_reduce", number) for number in range(4)])
        self.assertEqual(sorted(reduced_bytes), [16 * 4, 32 * 4, 32 * 16 * 4, 64 * 32 * 4])


@unittest.skipIf(fully_shard is None, "this torch has no fully_shard")
class ShardedTest(TorchTest):
    def test_gathered_parameters_are_named_beside_their_shards(self):
        run = self.record(JOBS / "sharded.py")
        self.assertEqual(run.status, 0, run.stderr)
        self.assert_sound(run)
        sizes = json.loads(run.stdout)
        shards, gathered = {}, {}
        for event in run.read("dump")["events"]:
            if event["kind"] == "storage" and event["class"] == "parameter":
                if event["name"].startswith("gathered:"):
                    gathered.setdefault(event["name"].removeprefix("gathered:"), set()).add(event["bytes"])
                elif event["name"] in sizes:
                    shards.setdefault(event["name"], set()).add(event["bytes"])
        # One rank: a shard is as large as the whole.
        self.assertEqual(gathered, {name: {size} for name, size in sizes.items()})
        self.assertEqual(set(shards), set(sizes))


if __name__ == "__main__":
    unittest.main()
