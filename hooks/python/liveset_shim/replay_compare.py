"""A region's recompute against its forward (replay_frames.py and replay_functions.py make both records). What differs goes to `findings`."""
from .replay_state import NUMPY, PYTHON, differences
from .tensor_values import element

MOST_NAMED = 5  # changes of one kind that are said one by one
CASTS = ("aten._to_copy.default",)
EXTERNAL = {PYTHON: "Python's random", NUMPY: "NumPy's global generator"}


def compare(record, replay, findings):
    if replay.begin is None:
        return  # the recompute did not reach the region's function
    _inputs(record, replay, findings)
    _parameters(record, replay, findings)
    _random(record, replay, findings)
    if not record.custom_contexts:
        _ambience(record, replay, findings)
    if record.reentrant:
        _outputs(record, replay, findings)
    else:
        found = _operators(record, replay, findings)
        _slots(record, replay, findings, found)
    _side_effects(record, replay, findings)
    if replay.after is not None:
        findings.compare_training(record, replay.before, replay.after)


def _inputs(record, replay, findings):
    for (name, digest, version, address), (_, digest_now, version_now, address_now) in zip(record.inputs, replay.inputs):
        if digest is not None and digest_now is not None:
            changed = digest != digest_now
        else:
            changed = address == address_now and version != version_now
        if changed:
            versions = f" (version {version}, now {version_now})" if version != version_now else ", without a new version"
            findings.say(record, "input_changed", record.module, "",
                         f"{name} was written to after the forward had begun{versions}: the recompute starts from other numbers")


def _parameters(record, replay, findings):
    before, after = record.begin.parameters, replay.begin.parameters
    changed = [name for name, known in before.items() if name in after and known[0] == after[name][0] and known[1] != after[name][1]
               and (record.used is None or known[0] in record.used)]  # of a model's others an optimizer may change rightly
    _say_some(record, findings, "parameter_changed", changed, lambda name:
              f"{name} was written to between forward and recompute (version {before[name][1]}, now {after[name][1]})")


def _random(record, replay, findings):
    forward, forward_end, begin, end = record.begin.random, record.end or {}, replay.begin.random, replay.end.random
    for source, state in forward.items():
        if source not in begin or begin[source] == state:
            continue
        if forward_end.get(source) == state and end.get(source) == begin[source]:
            continue  # nobody draws from it here
        if source in EXTERNAL:
            findings.say(record, "rng_external", record.module, source,
                         f"the region draws from {EXTERNAL[source]}, which checkpoint does not restore")
        elif not record.preserves:
            findings.say(record, "rng_before", record.module, source,
                         f"the region draws from the {source} generator, and with preserve_rng_state=False its state is not restored")
        elif source != "cpu" and source not in record.devices:
            findings.say(record, "rng_external", record.module, source,
                         f"the region draws on {source}, which is not among its arguments' devices, so checkpoint does not restore it")
        else:
            findings.say(record, "rng_before", record.module, source, f"the {source} generator is not in the state that it had in forward")
    for number, ((device, state), (_, state_now)) in enumerate(zip(record.generators, replay.generators)):
        if state != state_now:
            findings.say(record, "rng_external", record.module, "torch.Generator",
                         f"the region draws from a torch.Generator of the job ({device}, use {number}), which checkpoint does not restore")
            break


def _ambience(record, replay, findings):
    if record.begin.autocast != replay.begin.autocast:
        findings.say(record, "autocast", record.module, "",
                     f"in forward {_autocast_text(record.begin.autocast)}, in the recompute {_autocast_text(replay.begin.autocast)}")
    if record.begin.inference != replay.begin.inference:
        findings.say(record, "grad_mode", record.module, "", "inference mode is on in one of forward and recompute only")
    for name in differences(record.begin.training, replay.begin.training):
        findings.say(record, "python_state_changed", record.module, "",
                     f"{name}.training was {record.begin.training.get(name)} in forward and is {replay.begin.training.get(name)}")


def _autocast_text(state):
    cache, on = state
    return ("autocast is off" if not on else
            " and ".join(f"autocast of {device} to {dtype.removeprefix('torch.')}" for device, dtype in on)
            + (" with" if cache else " without") + " cache")


def operator_name(operator):
    return str(operator).removesuffix(".default")


def _operators(record, replay, findings):
    """-> number of the operator from which on they differ, which was said; None. A recompute that torch stopped early has only to agree as
    far as it went."""
    watched = record.watched and replay.watched  # else one of them is empty, or both
    forward, again = (record.operators, replay.operators) if watched else ((), ())
    for number, (one, other) in enumerate(zip(forward, again)):
        if one[0] is not other[0]:
            return _say_operators(record, replay, findings, number)
        if one[1] != other[1]:
            findings.say(record, "grad_mode", findings.names_of(one[3])[1], operator_name(one[0]),
                         f"operator {number} ran with grad {'on' if one[1] else 'off'} in forward and {'on' if other[1] else 'off'} in the recompute")
            return number
    if len(again) > len(forward) or replay.whole and len(again) < len(forward):
        return _say_operators(record, replay, findings, min(len(forward), len(again)))
    if replay.count > len(record.slots) or replay.whole and replay.count < len(record.slots):
        findings.say(record, "operators", record.module, "",
                     f"the forward saved {len(record.slots)} values and the recompute {replay.count}")
        return len(again)
    return None


def _say_operators(record, replay, findings, number):
    forward, again = record.operators, replay.operators
    names = [operator_name(side[number][0]) if number < len(side) else "none" for side in (forward, again)]
    module = findings.names_of((forward if number < len(forward) else again)[number][3])[1]
    without = [[one[0] for one in side if str(one[0]) not in CASTS] for side in (forward, again)]
    shorter = min(map(len, without))
    same = without[0] == without[1] if replay.whole else without[0][:shorter] == without[1][:shorter]
    if same and record.begin.autocast[1]:
        more = sum(str(one[0]) in CASTS for one in again) - sum(str(one[0]) in CASTS for one in forward[:len(again)])
        findings.say(record, "autocast", module, "aten._to_copy",
                     "the casts differ" + (f" (the recompute makes {more} more)" if more > 0 else "") +
                     ": autocast's cache held a cast in one of forward and recompute and not in the other")
        return number
    findings.say(record, "operators", module, names[0] if names[0] != "none" else names[1],
                 f"operator {number} was {names[0]} in forward and is {names[1]} in the recompute")
    return number


def _slots(record, replay, findings, differ_from):
    misplaced = differ_from is not None and replay.count != len(record.slots)  # positions behind the difference mean other values
    differing = {"shape": [], "dtype": [], "device": [], "value": [], "parameter_changed": []}
    compared = 0
    for index, now in replay.slots.items():
        was = record.slots[index]
        if misplaced and was.position >= differ_from:
            continue
        for what in ("shape", "dtype", "device"):
            if getattr(was, what) != getattr(now, what):
                differing[what].append(index)
        if was.digest is None or now.digest is None or (was.shape, was.dtype) != (now.shape, now.dtype):
            continue
        compared += 1
        if was.digest != now.digest and not was.is_buffer:
            differing["parameter_changed" if was.is_parameter else "value"].append(index)
    for what, indexes in differing.items():
        if not indexes:
            continue
        first = indexes[0]
        was, now = record.slots[first], replay.slots[first]
        operator = operator_name(record.operators[was.operator][0]) if was.operator is not None else ""
        if what in ("value", "parameter_changed"):
            text = f"saved value {first} of {len(record.slots)}, {was.dtype} {list(was.shape)}: {_value_text(was, now)}"
        else:
            text = f"saved value {first} of {len(record.slots)} had {what} {_listed(getattr(was, what))} and has {_listed(getattr(now, what))}"
        if len(indexes) > 1:
            text += f"; {len(indexes) - 1} more of {compared if what == 'value' else len(replay.slots)} differ"
        findings.say(record, what, was.module or record.module, operator, text)


def _listed(item):
    return list(item) if isinstance(item, tuple) else item


def _value_text(was, now):
    for (position, bits), (_, bits_now) in zip(was.samples, now.samples):
        if bits != bits_now:
            one, other = element(bits, was.dtype), element(bits_now, now.dtype)
            if one is not None:
                return f"element {position} was {one:.9g} and is {other:.9g}"
            return f"element {position} was {bits:#x} and is {bits_now:#x}"
    return f"its 64-bit hash was {was.digest:016x} and is {now.digest:016x} (no sampled element differs)"


def _outputs(record, replay, findings):
    """A reentrant region saves nothing in forward: what it returned is compared, and the first operator that made something else named."""
    for number, (was, now) in enumerate(zip(record.outputs, replay.outputs)):
        for what in ("shape", "dtype", "device"):
            if getattr(was, what) != getattr(now, what):
                findings.say(record, what, record.module, "",
                             f"output {number} had {what} {_listed(getattr(was, what))} and has {_listed(getattr(now, what))}")
                return
        if was.digest is None or now.digest is None or was.digest == now.digest:
            continue
        for place, (one, other) in enumerate(zip(record.operators, replay.operators)):
            if one[0] is not other[0]:
                _say_operators(record, replay, findings, place)
                break
            if one[2] != other[2]:
                findings.say(record, "value", findings.names_of(one[3])[1], operator_name(one[0]),
                             f"operator {place} is the first that made something else; output {number}, {was.dtype} {list(was.shape)}: "
                             + _value_text(was, now))
                return
        findings.say(record, "value", record.module, "", f"output {number}, {was.dtype} {list(was.shape)}: {_value_text(was, now)}")
        return


def _side_effects(record, replay, findings):
    before, after = replay.begin.buffers, replay.end.buffers
    _say_some(record, findings, "buffer_changed", differences(before, after), lambda name:
              f"{name} was changed by the recompute, so once more than without checkpointing")
    before_all, after_all = replay.begin.attributes, replay.end.attributes
    _say_some(record, findings, "python_state_changed", differences(before_all, after_all), lambda name:
              f"{name} was changed by the recompute: {_shown(before_all, name)}, then {_shown(after_all, name)}")


def _shown(known, name):
    return repr(known[name])[:80] if name in known else "not there"


def _say_some(record, findings, kind, names, text):
    for name in names[:MOST_NAMED]:
        findings.say(record, kind, record.module, name, text(name))
    if len(names) > MOST_NAMED:
        findings.say(record, kind, record.module, "", f"and {len(names) - MOST_NAMED} more")
