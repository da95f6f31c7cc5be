"""What this torch lacks of what the hooks read: each point is named once, on the standard error of the job and in the trace."""
import os
import sys


def points(context):
    """-> [what is not recorded (why)]"""
    torch = context.torch
    found = []
    if not context.saved_tensors_readable:
        found.append("what was saved while saved-tensor hooks were on, and which nodes wait for what a checkpoint region makes again (torch "
                     "before 2.14 shows a slot only by running its hooks)")
    checkpoint = sys.modules.get("torch.utils.checkpoint")
    frame = getattr(checkpoint, "_CheckpointFrame", None)
    if frame is None or not hasattr(checkpoint, "_checkpoint_hook"):
        found.append("non-reentrant checkpoint regions (torch.utils.checkpoint has no _CheckpointFrame or _checkpoint_hook)")
    elif not _has_names(frame.__init__, "weak_holders", "recomputed"):
        found.append("what non-reentrant checkpoint regions give up and make again (_CheckpointFrame has no weak_holders or recomputed)")
    if not hasattr(checkpoint, "CheckpointFunction"):
        found.append("reentrant checkpoint regions (torch.utils.checkpoint has no CheckpointFunction)")
    if checkpoint is not None and not hasattr(checkpoint, "_CachedTorchDispatchMode"):
        found.append("what selective checkpoint regions keep (torch.utils.checkpoint has no _CachedTorchDispatchMode)")
    if not hasattr(torch._C, "_current_graph_task_id"):
        found.append("backward calls inside of a backward, told apart (torch._C has no _current_graph_task_id)")
    if not hasattr(torch._C._autograd, "_get_sequence_nr"):
        found.append("graphs that are built in a backward (torch._C._autograd has no _get_sequence_nr)")
    if not hasattr(torch.autograd, "_make_grads"):
        found.append("the first gradient of a backward as part of it (torch.autograd has no _make_grads)")
    if not hasattr(sys.modules.get("torch.optim.optimizer"), "register_optimizer_step_pre_hook"):
        found.append("ends of steps, optimizer states (torch.optim.optimizer has no register_optimizer_step_pre_hook)")
    return found


def say(context, found):
    for point in found:
        line = f"liveset: torch {context.torch.__version__}: not in the trace: {point}\n"
        try:
            os.write(2, line.encode())
        except OSError:
            pass


def _has_names(function, *names):
    code = getattr(function, "__code__", None)
    known = getattr(code, "co_names", ())
    return all(name in known for name in names)
