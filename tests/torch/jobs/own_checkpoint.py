"""A small network whose blocks are checkpointed by a torch.autograd.Function of the job's own, as libraries have them:

  megatron   run without a graph; in backward again with one, then torch.autograd.backward inside of backward
  deepspeed  the same over a flat list of inputs kept on ctx, some of them partitioned copies
  grad       the recompute's gradients by torch.autograd.grad
  off        a Function that computes its gradient by hand, with grad off: nothing is recomputed in autograd's sense
"""
import sys

import torch
import torch.nn as nn

WIDTH, ROWS, BLOCKS = 32, 16, 3


class Megatron(torch.autograd.Function):
    @staticmethod
    def forward(ctx, run, *inputs):
        ctx.run, ctx.state = run, torch.get_rng_state()
        with torch.no_grad():
            output = run(*inputs)
        ctx.save_for_backward(*inputs)
        return output

    @staticmethod
    def backward(ctx, *gradients):
        inputs = tuple(tensor.detach().requires_grad_(tensor.requires_grad) for tensor in ctx.saved_tensors)
        now = torch.get_rng_state()
        torch.set_rng_state(ctx.state)
        with torch.enable_grad():
            outputs = ctx.run(*inputs)
        torch.set_rng_state(now)
        torch.autograd.backward((outputs,), gradients)
        return (None, *(tensor.grad for tensor in inputs))


class DeepSpeed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, run, *inputs):
        ctx.run = run
        ctx.partitions = [tensor.detach().clone() for tensor in inputs]
        with torch.no_grad():
            return run(*inputs)

    @staticmethod
    def backward(ctx, *gradients):
        inputs = [tensor.detach().requires_grad_() for tensor in ctx.partitions]
        with torch.enable_grad():
            outputs = ctx.run(*inputs)
        torch.autograd.backward([outputs], list(gradients))
        ctx.partitions = None
        return (None, *(tensor.grad for tensor in inputs))


class Grad(Megatron):
    @staticmethod
    def backward(ctx, *gradients):
        inputs = tuple(tensor.detach().requires_grad_() for tensor in ctx.saved_tensors)
        parameters = tuple(ctx.run.parameters())
        with torch.enable_grad():
            outputs = ctx.run(*inputs)
        found = torch.autograd.grad(outputs, (*inputs, *parameters), gradients)
        for parameter, gradient in zip(parameters, found[len(inputs):]):
            parameter.grad = gradient
        return (None, *found[:len(inputs)])


class Off(torch.autograd.Function):
    @staticmethod
    def forward(ctx, run, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx, gradient):
        x, = ctx.saved_tensors
        return None, gradient * x.cos()


class Net(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH)) for _ in range(BLOCKS))

    def forward(self, x):
        for block in self.blocks:
            x = self.function.apply(block, x)
        return x


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    style = sys.argv[1]
    net = Net({"megatron": Megatron, "deepspeed": DeepSpeed, "grad": Grad, "off": Off}[style])
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    x = torch.randn(ROWS, WIDTH, requires_grad=True)
    for _ in range(2):
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(loss.item(), x.grad.sum().item())


if __name__ == "__main__":
    main()
