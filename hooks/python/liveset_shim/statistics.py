"""What the caching allocators count and do not report block by block: requested and active bytes, read when a step is over.

Reported blocks are rounded, and are gone at `del` while another stream may still use them; PyTorch's own memory_stats know the sizes that
were asked for and when the memory really came back. A peak is read at the end of a step, before the job resets it, and at exit.
What is active and no longer allocated waits for a stream (record_stream): it is stated from the first time on that there is some.
"""
import atexit

COUNTERS = ("requested", "active")
WAITING = "waiting_for_streams"


class Statistics:
    def __init__(self, context):
        self.context = context
        self.replaced = {}    # {name in torch._C: the job's function}
        self.waiting = set()  # heaps in which blocks waited for a stream

    def install(self):
        bindings = self.context.torch._C
        if not hasattr(bindings, "_cuda_memoryStats"):  # a build without CUDA
            return
        self.context.on_step_over = self.sample_all
        atexit.register(self.sample_all)
        for name in ("_cuda_resetPeakMemoryStats", "_accelerator_resetPeakStats"):
            original = getattr(bindings, name, None)
            if original is not None:
                self.replaced[name] = original
                setattr(bindings, name, self._before(original))

    def uninstall(self):
        self.context.on_step_over = None
        atexit.unregister(self.sample_all)
        for name, original in self.replaced.items():
            setattr(self.context.torch._C, name, original)
        self.replaced = {}

    def _before(self, original):
        def reset(*arguments, **keywords):
            self.sample_all()
            return original(*arguments, **keywords)

        return reset

    def sample_all(self):
        """Of the devices whose tensors we have met."""
        context = self.context
        try:
            if context.torch.cuda.is_initialized():
                for device, heap in context.heaps():
                    if device.type == "cuda":
                        self._sample(device.index or 0, heap)
        except Exception as error:
            context.failed(error)

    def _sample(self, index, heap):
        statistics = self.context.torch._C._cuda_memoryStats(index)
        for name in COUNTERS:
            figures = statistics[f"{name}_bytes"]["all"]
            # The higher of two statements is the peak, the later one is what is left.
            self.context.counter(heap, self.context.text(name), figures["peak"])
            self.context.counter(heap, self.context.text(name), figures["current"])
        allocated = statistics.get("allocated_bytes")
        waiting = statistics["active_bytes"]["all"]["current"] - allocated["all"]["current"] if allocated else 0
        if waiting > 0 or heap in self.waiting:
            self.waiting.add(heap)
            self.context.counter(heap, self.context.text(WAITING), max(waiting, 0))
