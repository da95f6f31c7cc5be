"""What --check-replay says in the trace: findings at once, and how much was compared at the ends of steps and at exit."""
import atexit
import json

MOST_FINDINGS = 100    # of a step that are written out; more are counted
WRITTEN_IN_FULL = 3    # of the same kind at the same place; later ones are the same text each time, so that the trace does not grow
LONGEST_TEXT = 4000    # bytes; the trace cuts at 4,095
MOST_COVERAGES = 1000  # different ones that are said at the ends of their steps; then at doubling distances: a trace keeps each text once,
                       # and a long job would fill what it has for texts
MOST_BYTES = 1 << 21   # of findings' texts, for the same reason; more are counted
NOT_OBSERVED = ("files, the network, time and other processes; C++ state; generators of NumPy other than the global one; attributes deeper "
                "than one level; checkpoint functions that are not torch.utils.checkpoint's")
KEY, COVERAGE = "liveset.replay", "liveset.replay.coverage"


class Findings:
    def __init__(self, context, values, rate):
        self.context = context
        self.rate = rate
        self.paths = {0: ("", "")}  # {scope: (path, path of modules)}
        self.texts = {}             # {id: name of a scope}
        self.counts = {}
        self.written = 0            # findings of this step
        self.known = {}             # {(kind, region, module, op): times}
        self.blind = [NOT_OBSERVED]
        if values.stand_in:
            self.blind.append("values on the stand-in device, which computes nothing")
        self.bytes_left = MOST_BYTES
        self.texts_said = set()     # hashes of findings' texts
        self.coverages = set()      # texts
        self.steps = 0
        self.replaced = None

    def install(self):
        context = self.context
        self.replaced = context.string, context.scope, context.on_step_over
        string, scope, before = self.replaced

        def named_string(text):
            number = string(text)
            if len(text) <= 512 and not text.startswith("{"):
                self.texts[number] = text
            return number

        def named_scope(parent, kind, name):
            number = scope(parent, kind, name)
            if number not in self.paths:
                path, modules = self.paths.get(parent, ("", ""))
                text = self.texts.get(name, "...")
                self.paths[number] = (f"{path}/{text}" if path else text,
                                      modules if kind != 1 else f"{modules}.{text}" if modules else text)
            return number

        def step_over():
            self.step_over()
            if before is not None:
                before()

        context.string, context.scope, context.on_step_over = named_string, named_scope, step_over
        atexit.register(self.say_coverage)
        for name in ("regions", "recomputes", "values", "value_bytes", "operators"):
            self.counts[name] = 0
        self.say_coverage(True)

    def uninstall(self):
        if self.replaced is not None:
            self.context.string, self.context.scope, self.context.on_step_over = self.replaced
            self.replaced = None
        atexit.unregister(self.say_coverage)

    def names_of(self, scope):
        """(path of a scope, path of the modules around it)"""
        return self.paths.get(scope, ("", ""))

    def count(self, what, number=1):
        self.counts[what] = self.counts.get(what, 0) + number

    def cannot_see(self, what):
        if what not in self.blind:
            self.blind.append(what)

    def compare_training(self, record, before, after):
        for source, state in before.items():
            if source in after and (source == "cpu" or source.startswith("cuda")) and after[source] != state:
                self.say(record, "rng_after_step", record.module, source,
                         f"the recompute moved the {source} generator of the training on: later steps draw other numbers")

    def say(self, record, kind, module, op, detail):
        record.differs = True
        if self.written >= MOST_FINDINGS:
            self.count("left_out")
            return
        self.written += 1
        key = kind, record.region, module, op
        times = self.known[key] = self.known.get(key, 0) + 1 if len(self.known) < 10000 else WRITTEN_IN_FULL + 1
        if times > WRITTEN_IN_FULL:
            detail = "as before"
        longest = 600
        while True:
            text = json.dumps({"kind": kind, "region": _cut(record.region, longest), "module": _cut(module, longest), "op": _cut(op, longest),
                               "detail": _cut(detail, 2 * longest)})
            if len(text) <= LONGEST_TEXT:
                break
            longest //= 2
        if hash(text) not in self.texts_said:
            if len(text) > self.bytes_left:
                self.count("left_out")
                return
            self.bytes_left -= len(text)
            self.texts_said.add(hash(text))
        self.context.attribute(self.context.text(KEY), self.context.string(text))

    def step_over(self):
        self.steps += 1
        # What is not said now is part of what is said next, at the latest at exit.
        often = self.steps & self.steps - 1 == 0 or len(self.coverages) < MOST_COVERAGES
        self.say_coverage(only_known=not often)

    def say_coverage(self, always=False, only_known=False):
        try:
            self.written = 0
            if not always and not any(self.counts.values()):
                return
            text = json.dumps({**self.counts, "rate": self.rate, "not_observed": self.blind})
            if text not in self.coverages:
                if only_known:
                    return
                if len(self.coverages) < MOST_COVERAGES:
                    self.coverages.add(text)
            self.context.attribute(self.context.text(COVERAGE), self.context.string(text))
            for name in self.counts:
                self.counts[name] = 0
        except Exception as error:
            self.context.failed(error)


def _cut(text, longest):
    """Both ends of a module path tell most."""
    return text if len(text) <= longest else text[:longest // 2] + "..." + text[-(longest // 2):]
