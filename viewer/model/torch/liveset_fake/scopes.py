"""Which module runs: paths as a recording has them ("GPT.bs.0.ln1"), a root by its class, others relative to their caller."""
import torch


class Scopes:
    def __init__(self, on_root, on_root_end):
        self.stack = []  # (module, path, qualified name below the root, {id: qualified name} of the root)
        self.on_root, self.on_root_end = on_root, on_root_end
        self.handles = []
        self.called = set()  # paths
        self.entered = ""  # the outermost module that was called since the last operator
        self.paths = {}  # {id(module): path} of the latest call: for what is called again inside backward
        self.modules = []  # roots that have parameters or buffers, in the order of their calls

    def path(self):
        return self.stack[-1][1] if self.stack else ""

    def take_entered(self):
        entered, self.entered = self.entered, ""
        return entered

    def __enter__(self):
        module = torch.nn.modules.module
        self.handles = [module.register_module_forward_pre_hook(self._before),
                        module.register_module_forward_hook(self._after, always_call=True)]
        return self

    def __exit__(self, *_):
        for handle in self.handles:
            handle.remove()

    def _before(self, module, arguments):
        if self.stack:
            _, path, above, names = self.stack[-1]
            qualified = names.get(id(module))
            relative = qualified
            if qualified is None:
                relative = qualified = type(module).__name__
            elif above and qualified.startswith(above + "."):
                relative = qualified[len(above) + 1:]
            self.stack.append((module, f"{path}.{relative or type(module).__name__}", qualified, names))
        else:
            if all(module is not known for known in self.modules):
                self.modules.append(module)
            self.on_root(module)
            names = {id(child): name for name, child in module.named_modules()}
            self.stack.append((module, self.paths.get(id(module)) or type(module).__name__, "", names))
        self.paths[id(module)] = self.stack[-1][1]
        self.called.add(self.stack[-1][1])
        self.entered = self.entered or self.stack[-1][1]

    def _after(self, module, arguments, result):
        while self.stack:
            ended, path, *_ = self.stack.pop()
            if self.entered == path:
                self.entered = ""  # without an operator
            if ended is module:
                break
        if not self.stack:
            self.on_root_end(module)
