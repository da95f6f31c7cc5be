"""late.py late|thread|never: torch is imported after other work, in a thread, or not at all."""
import hashlib
import json
import sys
import threading

print(hashlib.sha256(bytes(1 << 20)).hexdigest(), json.dumps([i * i for i in range(10)]))


def work():
    import job
    import torch
    job.start()
    model = job.Net(checkpointed=True)
    job.finish(model, results=job.train(model, torch.optim.AdamW(model.parameters())))


if sys.argv[1] == "late":
    work()
elif sys.argv[1] == "thread":
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
