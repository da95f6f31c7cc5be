"""How much of a block autograd saves, and what backward makes again."""
import functools

import torch
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

MODES = ("none", "block", "reentrant", "selective", "offload")
# Outputs of the projections are kept; attention's scores, softmax and weighted sum are bmm and cheaper to make again, as is the rest.
KEPT = (torch.ops.aten.mm.default, torch.ops.aten.addmm.default)


def policy(context, operator, *arguments, **keywords):
    return CheckpointPolicy.MUST_SAVE if operator in KEPT else CheckpointPolicy.PREFER_RECOMPUTE


def run(mode, block, x):
    if mode == "none":
        return block(x)
    if mode == "offload":
        with torch.autograd.graph.save_on_cpu(pin_memory=x.is_cuda):
            return block(x)
    if mode == "selective":
        contexts = functools.partial(create_selective_checkpoint_contexts, policy)
        return checkpoint(block, x, use_reentrant=False, context_fn=contexts)
    return checkpoint(block, x, use_reentrant=mode == "reentrant")


def make_optimizer(name, parameters):
    if name == "sgd":
        return torch.optim.SGD(parameters, lr=1e-2, momentum=0.9)
    return torch.optim.AdamW(parameters, lr=1e-3)
