"""FSDP2: shards of parameters, and the parameters that were gathered from them."""
import json
import unittest

from support import JOBS, TorchTest

try:
    from torch.distributed.fsdp import fully_shard
except ImportError:
    fully_shard = None


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
