"""The model file: proto/model.proto in text format."""
import re

import torch

from liveset_fake import kernels

HEADER = """\
# One training step on fake tensors: {name}, torch {version}, device {device}.
# Made without running a kernel, so this is what tensors take, exactly, and nothing that lives inside of one operator: no copy that a kernel
# makes for itself, no workspace of a library, no buffer of a collective. Estimates: each `workspace`, cuBLAS's workspaces.
# cost: floating point operations where torch.utils.flop_counter has a formula, else bytes read and written.
# torch.compile is off: what is compiled is modelled as it is written.
"""
ESTIMATE = ("made without running a kernel, so without what lives inside of one operator: copies that a kernel makes for itself, workspaces of "
            "libraries, buffers of collectives")
CPU_RNG_STATE = 5056  # torch.get_rng_state().nbytes


def quoted(text):
    return '"' + "".join(c if c.isprintable() and c not in '"\\' and ord(c) < 128 else
                         "".join(f"\\{byte:03o}" for byte in c.encode("utf-8", "surrogatepass")) for c in text) + '"'


class Names:
    def __init__(self):
        self.used = {}

    def unique(self, name):
        number = self.used[name] = self.used.get(name, 0) + 1
        return name if number == 1 else f"{name}#{number}"


class Writer:
    def __init__(self, step, device):
        """The model is of one device's memory: what lies elsewhere (step counters of an optimizer, a batch on the host) is left out."""
        self.recorder = step.recorder
        for op in self.recorder.ops:
            for key in ("reads", "writes", "saves", "frees"):
                setattr(op, key, [storage for storage in getattr(op, key) if storage.device == device])
        self.device = device
        self.names, self.ids, self.lines = Names(), {}, []
        self.ops = self._kept()
        saved = {id(storage) for op in self.ops for storage in op.saves}
        ends = {id(storage): op for op in self.ops for storage in op.frees}
        for storage in self._storages():
            storage.saved = id(storage) in saved
            maker, end = storage.maker, ends.get(id(storage))
            if maker is None or maker.phase != "backward" or end is None or storage.memory_class:
                continue
            if maker.node is None or end.node != maker.node:  # of the loss, or from one node to another
                storage.memory_class = "activation_gradient"

    def _kept(self):
        """Without operators that only look at memory in another way, and behind the forward without those that only change it. What these
        let go of goes with the one before."""
        kept, entered = [], ""
        for op in self.recorder.ops:
            before = kept[-1] if kept and kept[-1].phase == op.phase else None
            entered = entered if lies_in(op.module, entered) else ""
            if op.writes or op.saves or not self._says_nothing(op, before) or (before is None and op.frees):
                op.enters, entered = entered or op.enters, ""
                kept.append(op)
                continue
            entered = entered or op.enters
            if before is not None:
                before.frees += op.frees
                before.cost += op.cost
        return kept

    @staticmethod
    def _says_nothing(op, before):
        if op.phase in ("forward", "loss"):
            return op.cost == 0 and not op.random and not op.side_effect
        return op.phase == "optimizer" or op.node is None or (before is not None and op.node == before.node)

    def _storages(self):
        seen = set()
        for op in self.ops:
            for storage in op.writes + op.frees:
                if id(storage) not in seen:
                    seen.add(id(storage))
                    yield storage

    def text(self, options, name):
        self.given()
        self.operators()
        body = []
        for storage in self.statics():
            fields = [f"id: {quoted(self.names.unique(storage.name or storage.memory_class or 'input'))}",
                      f"memory_class: {quoted(storage.memory_class or 'input')}", f"bytes: {storage.bytes}"]
            if storage.from_step:
                fields.append(f"from_step: {storage.from_step}")
            body.append("static_storage { " + " ".join(fields) + " }")
        uses_cublas = self.device == "cuda" and any(op.name.rpartition(".")[2] in kernels.GEMMS for op in self.ops)
        if uses_cublas:
            for thread, step in (("forward", 0), ("backward", 1)):
                body.append(f'static_storage {{ id: "cuBLAS workspace of {thread} (estimate)" memory_class: "library" '
                            f"bytes: {kernels.cublas_workspace()} from_step: {step} }}")
        containers = containers_of(self.ops, self.recorder.scopes.called)
        unit = repeated_modules(self.ops, containers)
        head = HEADER.format(name=name, version=torch.__version__, device=options.device)
        for note in self.recorder.notes:
            head += f"# note: {note}\n"
        head += f"name: {quoted(name)}\n"
        # Costs are no times, so there is no cost_unit.
        assumed = ["workspaces of operators"] * any(op.workspace for op in self.ops) + ["cuBLAS's workspaces"] * uses_cublas
        head += f"estimate: {quoted(ESTIMATE + ''.join('; ' + each + ' are estimated' for each in assumed))}\n"
        head += "conventions { release: LISTED drop: REGION_END rerun: EARLY_STOP boundary: PHYSICAL_COPY returns_unknown: true }\n"
        if options.device == "cpu":
            head += f'physical {{ allocator: "none" heap: "cpu" rng_state: {CPU_RNG_STATE} }}\n'
        else:
            head += 'physical { allocator: "cuda" heap: "cuda:0" }\n'
        statics = "".join(f"{line}\n" for line in body)
        paths = "".join(f"  container: {quoted(path)}\n" for path in containers)
        units = f"  unit: {quoted(unit)}\n" if unit else ""
        operators = "".join(f"  {line}\n" for line in self.lines)
        return head + statics + "general {\n" + paths + units + operators + "}\n"

    def statics(self):
        """What lived when the step began and lives at its end."""
        storages = [*self.recorder.storages.values(), *self.recorder.held]
        return [storage for storage in storages if storage.maker is None and not storage.freed and storage.device == self.device]

    def given(self):
        for op in self.ops:
            for storage in op.frees:
                if storage.maker is None and id(storage) not in self.ids:
                    self._tensor(storage, "before the step/" + (storage.memory_class or "input"), "given: true")

    def operators(self):
        owners, op_ids, seen, module = self.recorder.owners, {}, set(), ""
        for op in self.ops:
            for storage in op.writes:
                prefix = f"{storage.module}/" if storage.module else ""
                name = storage.slot if storage.saved else (op.node_name if op.phase != "backward" else op.name) or op.phase
                self._tensor(storage, prefix + (name if storage.saved else name + ".temporary"))
            label = self.names.unique("op " + ("/".join(filter(None, (op.module, op.name))) or "begin"))[3:]
            op_ids[id(op)] = label
            fields = [f"id: {quoted(label)}"]
            if op.name:
                fields.append(f"name: {quoted(op.name)}")
            if op.module:
                fields.append(f"module: {quoted(op.module)}")
            if op.phase in ("forward", "loss"):
                # Where the module's path alone tells that another call began, nothing need be said.
                if op.enters and lies_in(module, op.enters):
                    fields.append(f"enters: {quoted(op.enters)}")
                if op.saves_static and not op.saves:
                    fields.append("saves_static: true")
                if op.no_graph:
                    fields.append("no_graph: true")
            module = op.module if op.phase in ("forward", "loss") else ""
            if op.phase != "forward":
                fields.append(f"phase: {quoted(op.phase)}")
            for key in ("reads", "writes", "saves", "frees")[op.phase == "optimizer":]:  # no policy asks what an optimizer reads
                ids = [self.ids[id(storage)] for storage in getattr(op, key) if id(storage) in self.ids]
                if ids:
                    fields.append(f"{key}: [" + ", ".join(map(quoted, ids)) + "]")
            if op.cost or op.phase == "forward":
                fields.append(f"cost: {op.cost}")
            if op.workspace:
                fields.append(f"workspace: {op.workspace}")
            if op.random:
                fields.append('random: "generator"')
            if op.side_effect and op.phase in ("forward", "loss"):
                fields.append("side_effect: true")
            forward = op_ids.get(id(owners.get(op.node))) if op.phase == "backward" else None
            # Of an operator without reads those of its forward's saves are meant, which only a node's first one finds for certain.
            if forward is not None and ("reads: " in " ".join(fields) or forward not in seen):
                fields.append(f"backward_of: {quoted(forward)}")
                seen.add(forward)
            self.lines.append("op { " + " ".join(fields) + " }")
        tensors = [line for line in self.lines if line.startswith("tensor")]
        self.lines = tensors + [line for line in self.lines if not line.startswith("tensor")]

    def _tensor(self, storage, name, *more):
        label = self.names.unique(name)
        self.ids[id(storage)] = label
        fields = [f"id: {quoted(label)}", f"bytes: {storage.bytes}", *more]
        if storage.memory_class:
            fields.append(f"memory_class: {quoted(storage.memory_class)}")
            if storage.memory_class == "gradient":
                fields.append("accumulates: true")
        if storage.number:
            fields.append("wrapped_number: true")
        self.lines.append("tensor { " + " ".join(fields) + " }")


def family_of(path):
    return re.sub(r"\d+", "*", path)


def lies_in(path, module):
    return bool(module) and (path + ".").startswith(module + ".")


def containers_of(ops, called):
    """Paths that modules lie below, and that are no modules which are called, as a ModuleList."""
    parts = [module.split(".") for module in {op.module for op in ops}]
    return sorted({".".join(each[:end]) for each in parts for end in range(1, len(each))} - called)


def repeated_modules(ops, containers):
    """The family of called modules ("GPT.bs.*") whose members save most, of equal ones the outermost; without a family of two the root that is
    called more than once in a forward and saves most; else the first root's children; empty where none of these is called. As
    viewer/model/repeated_modules.h has it of recorded steps."""
    families, roots, last, children = {}, {}, "", ""
    for op in ops:
        if op.phase != "forward" or not op.module or op.no_graph:
            last = ""
            continue
        saved = sum(storage.bytes for storage in op.writes if storage.saved)
        parts = op.module.split(".")
        root = roots.setdefault(parts[0], [0, 0])
        root[0] += parts[0] != last or op.enters == parts[0]
        root[1] += saved
        last = parts[0]
        if len(parts) > 1 and parts[0] == next(iter(roots)) and ".".join(parts[:2]) not in containers:
            children = parts[0] + ".*"
        for end in range(2, len(parts) + 1):
            member = ".".join(parts[:end])
            if parts[end - 1][-1:].isdigit() and member not in containers:
                family = families.setdefault(family_of(member), [set(), 0, end])
                family[0].add(member)
                family[1] += saved
    best = max((family for family in families.items() if len(family[1][0]) > 1 and family[1][1] > 0),
               key=lambda family: (family[1][1], -family[1][2]), default=None)
    if best:
        return best[0]
    best = max((root for root in roots.items() if root[1][0] > 1 and root[1][1] > 0), key=lambda root: root[1][1], default=None)
    return best[0] if best else children


def model_text(step, options):
    writer = Writer(step, options.device)
    return writer.text(options, options.name or options.function)
