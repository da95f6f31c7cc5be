"""What the caching allocator counts of a step."""
import torch


class Meter:
    """The caching allocator's own counters, where there is one."""

    def __init__(self, device):
        self.on = device == "cuda"
        self.figures = {}

    def begin(self):
        self.figures = {}
        if self.on:
            torch.cuda.reset_peak_memory_stats()

    def note(self, name):
        if self.on:
            self.figures[name] = torch.cuda.memory_allocated()

    def end(self):
        """-> the step's figures, None on the CPU"""
        if not self.on:
            return None
        stats = torch.cuda.memory_stats()
        counters = ("allocated", "reserved", "active", "requested")
        self.figures.update({f"peak_{name}": stats[f"{name}_bytes.all.peak"] for name in counters})
        self.figures.update({f"end_{name}": stats[f"{name}_bytes.all.current"] for name in counters})
        self.figures["segments"] = stats["segment.all.current"]
        self.figures["inactive_split"] = stats["inactive_split_bytes.all.current"]
        return self.figures
