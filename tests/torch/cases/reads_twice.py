"""A custom Function reads ctx.saved_tensors twice in one backward; a recomputed value is given away once, so torch refuses.
--clean: it reads them once."""
import sys

import torch
from torch.utils.checkpoint import checkpoint

torch.manual_seed(0)


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, gradient):
        x, = ctx.saved_tensors
        if "--clean" not in sys.argv:
            x, = ctx.saved_tensors
        return 2 * x * gradient


x = torch.randn(4, 8, requires_grad=True)
checkpoint(lambda y: Square.apply(torch.tanh(y)), x, use_reentrant=False).sum().backward()
