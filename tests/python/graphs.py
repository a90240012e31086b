"""Inspects the graphs that TensorFlow runs."""

from collections import Counter

from tensorflow_wgpu import _fallbacks, _regions
from tensorflow_wgpu._library import device_type


def optimized(function, *args, **kwargs):
    """Calls a tf.function and returns its result and the nodes that ran, after all graph
    optimizers. Nodes in regions stand in the regions' places, so that tests see the same with
    every `TF_WGPU_CAPTURE`.
    """
    result, bodies = ran(function, *args, **kwargs)
    return result, [node for body in bodies for node in _regions.unfolded(body)]


def ran(function, *args, **kwargs):
    """Calls a tf.function and returns its result and the lists of nodes that ran, one for each
    placed graph and each body of a function, after all graph optimizers.
    """
    with _fallbacks.collected() as graphs:
        result = function(*args, **kwargs)
    bodies = []
    for graph in graphs:
        for partition in graph.partition_graphs:
            bodies.append(partition.node)
            bodies += [body.node_def for body in partition.library.function]
    return result, bodies


def ops(nodes, device=None):
    """The number of nodes of each op on the devices of a type, by default ours."""
    device = device or device_type()
    return Counter(node.op for node in nodes if f"device:{device}:" in node.device)
